"""What the reserved keys hold: one decoder for each, from whatever was committed to a value, or to a refusal that says why.

Owns the meaning of every key under `/raftlake/`. Invariants: no key and no bytes make a decoder raise, and the result depends
on the arguments alone, so that all nodes take, or ignore, an entry alike (`strict_json` of the package `kv`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from raftlake.errors import WireError
from raftlake.kv.keys import (
    CLUSTER_KEY,
    INCARNATION_KEY,
    NODES_PREFIX,
    PRODUCERS_NEXT_KEY,
    STARTS_PREFIX,
    TIER_PREFIX,
    TOPICS_PREFIX,
    TRANSACTIONS_PREFIX,
)
from raftlake.kv.machine import Entry, StateMachine
from raftlake.kv.strict_json import Refused, integer, items, json_object, plain_text, read_or_refuse, whole_number
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_TOPIC, Endpoint
from raftlake.replica.quorum import voters_to_json
from raftlake.replica.transaction_entry import Transaction
from raftlake.replica.transaction_entry import decode as decode_transaction
from raftlake.tier.entries import Tiered, decode_segment, decode_tiered
from raftlake.wire.ids import id_from_text, id_to_text, is_cluster_id

#: Ids that a node takes for its producers at a time. Each block is one command, so that no id above this many for each offset
#: of the log has ever been given out.
PRODUCER_IDS_BLOCK = 1000
NAME_LENGTH_MAX = 249
VOTERS_MAX = 64
GROWN_MAX = 100
CONFIGS_MAX = 100
HOST_CHARACTERS_MAX = 255
ID_MAX = 2**31 - 1
PORT_MAX = 65_535
OFFSET_MAX = 2**63 - 1
#: Why a client cannot do to it what it does to topics.
OWN_LOG = f"{METADATA_TOPIC} is the quorum's own log, which nodes alone write and clean up: name another topic"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_START_KEY = re.compile(re.escape(STARTS_PREFIX) + r"([A-Za-z0-9_-]{22})/(0|[1-9][0-9]{0,9})")
_HOST_BANNED = frozenset(' "#/<>?@\\')


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where clients reach a node; `http` is None while it has no HTTP front. `transaction_version`: the newest one that the
    node knows; 0 of a release that does not tell."""

    node_id: NodeId
    listener: Endpoint
    http: Endpoint | None
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class Incarnation:
    directory_id: DirectoryId
    node_id: NodeId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RecordStart:
    """The records of a partition below `offset` are deleted."""

    offset: Offset
    #: The last recovery of the quorum when that was decided (`recovery_of`).
    recovery: str = ""

    def encode(self) -> bytes:
        return json.dumps({"offset": self.offset, "recovery": self.recovery}, separators=(",", ":"), sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Who votes in its groups until their own logs say so; None where they begin with the static voters.
    voters: VoterSet | None = None
    #: The same for partitions that were added when others voted: each entry holds from its partition on.
    grown: tuple[tuple[int, VoterSet], ...] = ()

    def voters_of(self, partition: int) -> VoterSet | None:
        """Who votes in a partition's group until its own log says so."""
        return next((voters for first, voters in reversed(self.grown) if first <= partition), self.voters)

    def with_partitions(self, count: int, voters: VoterSet | None) -> Topic:
        """The topic with more partitions, which begin with those voters (None: the static ones, as the others do)."""
        if voters is None or voters == self.voters_of(self.partitions):
            return replace(self, partitions=count)
        return replace(self, partitions=count, grown=(*self.grown, (self.partitions, voters)))

    def with_configs(self, configs: Mapping[str, str]) -> Topic:
        """The topic with other configs."""
        return replace(self, configs=configs)

    def groups(self) -> list[GroupId]:
        return list(self.each_group())

    def each_group(self) -> Iterator[GroupId]:
        """The groups one after the other, for who does not need all at once."""
        return (GroupId(self.name, index, self.topic_id) for index in range(self.partitions))

    def encode(self) -> bytes:
        value = {"id": id_to_text(self.topic_id), "partitions": self.partitions, "configs": dict(self.configs)}
        if self.voters is not None:
            value["voters"] = voters_to_json(self.voters)
        if self.grown:
            value["grown"] = [{"from": first, "voters": voters_to_json(voters)} for first, voters in self.grown]
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


Reserved = NodeAddresses | Incarnation | RecordStart | Topic | Tiered | RemoteSegment | Transaction | str | int


def decode(key: str, value: bytes, version: int, partitions_max: int) -> Reserved | Refused:
    """What the entry of a reserved key says."""
    if key.startswith(NODES_PREFIX):
        return decode_node(key, value)
    if key.startswith(TOPICS_PREFIX):
        return decode_topic(key.removeprefix(TOPICS_PREFIX), value, partitions_max)
    if key == CLUSTER_KEY:
        return decode_cluster(value)
    if key == PRODUCERS_NEXT_KEY:
        return decode_producers_next(value, version)
    if key == INCARNATION_KEY:
        return decode_incarnation(value)
    if key.startswith(STARTS_PREFIX):
        return decode_start(value) if start_group(key) is not None else Refused("no partition is named so")
    if key.startswith(TRANSACTIONS_PREFIX):
        return decode_transaction(key, value)
    if key.startswith(TIER_PREFIX):
        return decode_tiered(value) if key.count("/") == TIER_PREFIX.count("/") + 1 else decode_segment(value)
    return Refused("no node writes this key")


def decode_node(key: str, value: bytes) -> NodeAddresses | Refused:
    """The addresses under a key of NODES_PREFIX."""

    def read() -> NodeAddresses:
        node_id = _node_id(key.removeprefix(NODES_PREFIX))
        fields = json_object(value)
        http = None
        if fields.get("http_port"):
            http = _endpoint(fields["http_host"], fields["http_port"])
        known = integer(fields.get("transaction_version", 0), 0, ID_MAX)
        return NodeAddresses(node_id, _endpoint(fields["host"], fields["port"]), http, known)

    return read_or_refuse(read)


def decode_cluster(value: bytes) -> str | Refused:
    """The cluster id under CLUSTER_KEY."""

    def read() -> str:
        cluster_id = plain_text(json_object(value)["cluster_id"])
        if not is_cluster_id(cluster_id):
            raise ValueError(f"no cluster is named {cluster_id!r}")
        return cluster_id

    return read_or_refuse(read)


def decode_producers_next(value: bytes, version: int) -> int | Refused:
    """The next free producer id under PRODUCERS_NEXT_KEY, whose entry stands at `version`."""

    def read() -> int:
        known = whole_number(value.decode("ascii"))
        if known > PRODUCER_IDS_BLOCK * version:
            raise ValueError(f"{known} ids cannot have been given out by {version} commands")
        return known

    return read_or_refuse(read)


def first_free_producer_id(entry: Entry | None) -> int:
    """Above every producer id that was ever given out. Of a spoilt entry it is not known how far the ids were, but how far they
    can have been."""
    known = 0 if entry is None else decode_producers_next(entry.value, entry.version)
    if entry is not None and isinstance(known, Refused):
        return PRODUCER_IDS_BLOCK * entry.version
    assert isinstance(known, int)
    return known


def decode_incarnation(value: bytes) -> Incarnation | Refused:
    """The value of INCARNATION_KEY."""

    def read() -> Incarnation:
        fields = json_object(value)
        directory_id = DirectoryId(id_from_text(plain_text(fields["directoryId"])))
        return Incarnation(
            directory_id, NodeId(integer(fields["nodeId"], 0, ID_MAX)), Epoch(integer(fields["epoch"], 0, ID_MAX))
        )

    return read_or_refuse(read)


def recovery_of(machine: StateMachine) -> str:
    """The name of the last recovery of the quorum, "" where there was none."""
    entry = machine.get(INCARNATION_KEY)
    found = None if entry is None else decode_incarnation(entry.value)
    return "" if found is None or isinstance(found, Refused) else id_to_text(found.directory_id)


def decode_start(value: bytes) -> RecordStart | Refused:
    """The value of a key of STARTS_PREFIX."""

    def read() -> RecordStart:
        fields = json_object(value)
        recovery = plain_text(fields["recovery"])
        if recovery:
            id_from_text(recovery)
        return RecordStart(Offset(integer(fields["offset"], 0, OFFSET_MAX)), recovery)

    return read_or_refuse(read)


def start_group(key: str) -> tuple[bytes, int] | None:
    """The topic id and the partition that a key of STARTS_PREFIX names; None where it names none."""
    found = _START_KEY.fullmatch(key)
    try:
        return None if found is None else (id_from_text(found[1]), int(found[2]))
    except WireError:
        return None


def decode_topic(name: str, value: bytes, partitions_max: int) -> Topic | Refused:
    """The topic that is described under the key of `name`."""

    def read() -> Topic:
        fault = fault_of_name(name)
        if fault is not None:
            raise ValueError(fault)
        fields = json_object(value)
        topic_id = id_from_text(plain_text(fields["id"]))
        if not any(topic_id[:8]):
            raise ValueError("the id is one of those that Kafka keeps for itself")
        partitions = integer(fields["partitions"], 1, partitions_max)
        voters = _voters(fields["voters"]) if "voters" in fields else None
        grown = _grown(fields.get("grown", []), partitions)
        return Topic(name, topic_id, partitions, _configs(fields.get("configs", {})), voters, grown)

    return read_or_refuse(read)


def fault_of_spelling(name: str) -> str | None:
    """What is wrong with a topic's name by the rule of Kafka's Topic.validate: no topic can have it. None for a good one."""
    if name not in (".", "..") and len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name):
        return None
    return (
        f"topic name {name[:NAME_LENGTH_MAX]!r} must be 1 to {NAME_LENGTH_MAX} of the characters a-z A-Z 0-9 . _ - "
        "and not '.' or '..'"
    )


def fault_of_name(name: str) -> str | None:
    """Why no topic of this name can be created; None for a good name."""
    return OWN_LOG if name == METADATA_TOPIC else fault_of_spelling(name)


def _node_id(text: str) -> NodeId:
    return NodeId(integer(whole_number(text), 0, ID_MAX))


def _endpoint(host: object, port: object) -> Endpoint:
    name = plain_text(host)
    if not 1 <= len(name) <= HOST_CHARACTERS_MAX or _HOST_BANNED.intersection(name):
        raise ValueError(f"{name[:HOST_CHARACTERS_MAX]!r} is no host")
    return Endpoint(name, integer(port, 0, PORT_MAX))


def _configs(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > CONFIGS_MAX:
        raise ValueError(f"configs are an object of at most {CONFIGS_MAX} texts")
    return {plain_text(key): plain_text(value) for key, value in found.items()}


def _voters(found: object) -> VoterSet:
    if not isinstance(found, list) or not 1 <= len(found) <= VOTERS_MAX:
        raise ValueError(f"a topic has 1 to {VOTERS_MAX} voters")
    voters: dict[NodeId, ReplicaKey] = {}
    endpoints: dict[NodeId, tuple[VoterEndpoint, ...]] = {}
    for entry in found:
        if not isinstance(entry, dict):
            raise ValueError("a voter is an object")
        node_id = NodeId(integer(entry["id"], 0, ID_MAX))
        voters[node_id] = ReplicaKey(node_id, DirectoryId(id_from_text(plain_text(entry["directory"]))))
        endpoints[node_id] = tuple(_voter_endpoint(place) for place in items(entry["endpoints"]))
    ids = sorted(voters)
    return VoterSet({node_id: voters[node_id] for node_id in ids}, {node_id: endpoints[node_id] for node_id in ids})


def _grown(found: object, partitions: int) -> tuple[tuple[int, VoterSet], ...]:
    if not isinstance(found, list) or len(found) > GROWN_MAX:
        raise ValueError(f"partitions were added at most {GROWN_MAX} times with other voters")
    entries: list[tuple[int, VoterSet]] = []
    for entry in found:
        if not isinstance(entry, dict):
            raise ValueError("what was added is an object")
        least = entries[-1][0] + 1 if entries else 1
        entries.append((integer(entry["from"], least, partitions - 1), _voters(entry["voters"])))
    return tuple(entries)


def _voter_endpoint(place: object) -> VoterEndpoint:
    """As the quorum's log has it, where any text may stand for a host: peers connect to it, and no client is sent there."""
    name, host, port = items(place)
    for text in (name, host):
        if not isinstance(text, str) or len(text.encode()) > HOST_CHARACTERS_MAX:
            raise ValueError(f"an endpoint's name and host are texts of at most {HOST_CHARACTERS_MAX} bytes")
    return VoterEndpoint(name, host, integer(port, 0, PORT_MAX))
