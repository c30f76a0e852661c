"""The values that callers give to a client and get from it, and the settings of a client.

Frozen, picklable, without behaviour beyond checking themselves: a Spark driver sends them to its executors.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address

from raftlake.errors import ConfigError

#: Timestamps that stand for a place in the log (as in Kafka's ListOffsets).
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
#: The first offset on local disks; the last offset in the remote tier, -1 where that has none.
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

#: The environment's word for the nodes to ask. The commands and the Spark connector read it, too.
SERVERS_VARIABLES = ("RAFTLAKE_BOOTSTRAP_SERVER", "RAFTLAKE_BOOTSTRAP_SERVERS")
#: The nodes of `raftlake local` without options.
LOCAL_SERVERS = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
#: How long a client that no node has ever answered looks for one.
FIRST_CONTACT_MS = 10_000
#: Of a wrong setting, in its error.
SHOWN_MAX = 100
_PORT = re.compile(r"[0-9]{1,5}")

Header = tuple[str, bytes | None]


class IsolationLevel(IntEnum):
    """What a reader gets of transactions: records of all of them, up to the high watermark; or of those that are committed, up
    to the last stable offset, below which each transaction is decided."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def default_servers() -> str:
    """The nodes to ask where the caller names none: those of the environment, else those of `raftlake local`."""
    return next((servers for name in SERVERS_VARIABLES if (servers := os.environ.get(name))), LOCAL_SERVERS)


def parse_servers(servers: str | Sequence[str]) -> tuple[Address, ...]:
    """`"h:p,h:p"` or a sequence of `"h:p"`; ConfigError names the part that is wrong."""
    if not isinstance(servers, str | list | tuple):
        raise ConfigError(f'bootstrap.servers: expected "host:port,host:port", got {servers!r}')
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses: list[Address] = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        shown = part if len(part) <= SHOWN_MAX else part[:SHOWN_MAX] + "…"
        host, colon, port = part.rpartition(":")
        if not colon or not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap.servers: {shown!r} is not host:port")
        host = host.removeprefix("[").removesuffix("]")
        if not is_host(host):
            raise ConfigError(f"bootstrap.servers: {shown!r} is not host:port, {host[:SHOWN_MAX]!r} is no host name or address")
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise ConfigError("bootstrap.servers: no host:port given")
    return tuple(dict.fromkeys(addresses))


def is_host(host: str) -> bool:
    """Whether it may be resolved; the system has the last word."""
    try:
        if ":" in host:
            ip_address(host)
        else:
            host.encode("idna")
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves. Every operation ends within `request_timeout_ms`, with an answer or an error."""

    bootstrap: tuple[Address, ...]
    client_id: str = "raftlake"
    #: The whole time of one operation, retries included. With the default a quorum that is down for two minutes is waited for.
    request_timeout_ms: int = 150_000
    #: One request on one connection; when it passes, the connection is given up and the operation goes on elsewhere.
    attempt_timeout_ms: int = 6_000
    #: When a leader has not answered an append for so long, other nodes are asked whether it still leads.
    stall_check_ms: int = 1_000
    connect_timeout_ms: int = 3_000
    #: After this long without any node to talk to, NoReachableNode is raised instead of trying on. None: FIRST_CONTACT_MS
    #: before a node has answered for the first time, since an address may be wrong; later as long as the operation may take.
    unreachable_timeout_ms: int | None = None
    #: How long a topic or partition that no node knows may still be about to appear (metadata reaches the nodes one after
    #: another).
    unknown_topic_grace_ms: int = 1_000
    retry_backoff_ms: int = 20
    retry_backoff_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000
    #: A response frame above this closes the connection.
    frame_bytes_max: int = 128 << 20
    #: Producer ids that the default producer may use side by side: 5 requests each may be in flight per partition.
    append_lanes_max: int = 16
    compression: str = "none"

    def __post_init__(self) -> None:
        for name in ("request_timeout_ms", "attempt_timeout_ms", "connect_timeout_ms", "unreachable_timeout_ms"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} must be above 0")
        if not 0 < self.retry_backoff_ms <= self.retry_backoff_ms_max:
            raise ConfigError("retry_backoff_ms must be above 0 and at most retry_backoff_ms_max")
        if self.append_lanes_max < 1:
            raise ConfigError("append_lanes_max must be at least 1")

    def unreachable_ms(self, was_reached: bool) -> float:
        """How long no node may answer before NoReachableNode is raised."""
        if self.unreachable_timeout_ms is not None:
            return self.unreachable_timeout_ms
        return math.inf if was_reached else FIRST_CONTACT_MS

    def attempt_ms(self, remaining_ms: float) -> float:
        """How long one request may take while its operation has `remaining_ms` left. A request that overstays takes its
        connection down with all others on it, so even the last try gets some time."""
        least_ms = min(1000.0, self.request_timeout_ms / 4)
        return min(self.attempt_timeout_ms, max(least_ms, remaining_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as read. `timestamp_ms` is milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """One record to append. Without `timestamp_ms` it gets the time of the append; without `partition`, one by its key."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


#: What `append` takes as one record: a value, a (key, value) pair or a NewRecord. Text is stored as UTF-8.
AppendRecord = NewRecord | bytes | str | tuple[bytes | str | None, bytes | str | None]


def to_record(record: AppendRecord | None) -> NewRecord:
    """A NewRecord from what callers write."""
    if isinstance(record, NewRecord):
        return record
    if isinstance(record, tuple):
        key, value = record
        return NewRecord(key=None if key is None else to_bytes(key), value=None if value is None else to_bytes(value))
    return NewRecord(value=None if record is None else to_bytes(record))


def to_bytes(data: bytes | str) -> bytes:
    """Text as UTF-8."""
    return data.encode() if isinstance(data, str) else bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult:
    """Where acknowledged records stand: `count` of them from `offset` on (-1: a retry found them already appended, at an
    offset that the node no longer remembers)."""

    topic: str
    partition: int
    offset: int
    count: int
    #: Log append time in milliseconds, or -1 when the topic keeps the producer's timestamps.
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBytes:
    """Whole record batches as they lie in the log. The first may begin below the asked offset; `next_offset` is where to
    go on (exclusive end of the last batch, or the asked offset when there is none). Of aborted transactions there are no
    batches where the reader asked for what is committed; `next_offset` is behind those that are left out."""

    buffers: tuple[memoryview, ...]
    high_watermark: int
    log_start_offset: int
    next_offset: int
    #: The node that answered.
    node_id: int
    #: Below it each transaction is decided. Exclusive, and never above the high watermark.
    last_stable_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """`leader_id` is -1 while none is known."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """`controller_id`: the leader of the metadata log, -1 while none is known."""

    cluster_id: str
    controller_id: int
    nodes: dict[int, Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEntry:
    """A key with its version (the log offset of its last change). `value` is None where only keys were asked for."""

    key: str
    version: int
    size: int
    value: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPage:
    entries: tuple[KvEntry, ...]
    more: bool
    #: The page shows every change up to this version: a watch from here on misses nothing.
    version: int
    #: With a delimiter: the beginnings that deeper keys have, up to and with it, once each.
    prefixes: tuple[str, ...] = ()

    @property
    def last(self) -> str | None:
        """The last name of the page, key or prefix: the next page comes `after` it. None for an empty page."""
        names = [entry.key for entry in self.entries[-1:]] + list(self.prefixes[-1:])
        return max(names, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDeleted:
    """All keys with a prefix were deleted at `version`; they were `count` keys."""

    version: int
    count: int


@dataclass(frozen=True, slots=True)
class EndTxn:
    """The ongoing transaction of a Kafka producer commits or aborts together with what stands beside in a `txn` of keys. The
    producer needs a new epoch then (InitProducerId). Raises ValueError for what no producer can have."""

    producer_id: int
    epoch: int
    commit: bool

    def __post_init__(self) -> None:
        for name, number, most in (("producer_id", self.producer_id, 2**63 - 1), ("epoch", self.epoch, 2**15 - 1)):
            # Python takes True for a number.
            if type(number) is not int or not 0 <= number <= most:
                raise ValueError(f"EndTxn: {name} {number!r} is no number from 0 to {most}")
        if type(self.commit) is not bool:
            raise ValueError(f"EndTxn: commit {self.commit!r} is no bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that nobody has ended yet."""

    transactional_id: str
    producer_id: int
    epoch: int

    def end(self, *, commit: bool) -> EndTxn:
        """Its end, for a `client.kv.txn`."""
        return EndTxn(self.producer_id, self.epoch, commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """The transaction of a transactional id, as its coordinator knows it. `state` is Kafka's word: Empty, Ongoing,
    PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    #: How long it may be open.
    timeout_ms: int
    #: When it began, by the wall clock of a node, in milliseconds since 1970; -1 where nothing is under way.
    started_ms: int
    #: (topic, partition), sorted; of a decided one those that have no marker yet.
    partitions: tuple[tuple[str, int], ...]

    @property
    def is_open(self) -> bool:
        """Nobody has ended it yet."""
        return self.state == "Ongoing"

    def end(self, *, commit: bool) -> EndTxn:
        """Its end, for a `client.kv.txn`."""
        return EndTxn(self.producer_id, self.epoch, commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator will end there."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    #: Where it begins: readers of what is committed wait here.
    start_offset: int
    #: When its producer wrote last, by the wall clock of a node, in milliseconds since 1970.
    last_written_ms: int
    #: Of the last marker of its producer here; -1 for none.
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """How far a streaming query of Spark is in one partition, as its driver has written it down. Times are in milliseconds
    since 1970, by the clock of the driver, 0 where it has not said."""

    query: str
    #: The name that the query was given; empty without one.
    name: str
    topic: str
    partition: int
    #: The next offset that the query reads.
    position: int
    #: The high watermark; None where the topic that the query reads does not exist.
    end: int | None
    #: When the query finished its last batch.
    batch_ms: int
    #: When Spark asked last for something to read.
    seen_ms: int
    host: str
    pid: int
    #: The time of the first record that is not read yet, as its producer gave it; None where there is none, or nobody asked.
    waiting_since_ms: int | None = None

    @property
    def records(self) -> int | None:
        """Offsets between the position and the end; control records count too. None without an end."""
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEvent:
    """A change of a key; `value` None means deleted."""

    key: str
    version: int
    value: bytes | None
