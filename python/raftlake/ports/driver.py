"""What the replica driver needs from the world, as protocols: one log per group, election files, a network, clocks.

Two sets of implementations exist: `storage/` + `runtime/` (files, sockets, threads) and `sim/` (memory, one seed). The
driver is synchronous and calls them from one thread only. Nothing here waits, except `ElectionStore.save`, which returns
when the state is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from raftlake.errors import DamagedData, StorageError
from raftlake.ports.peer_rpcs import (
    GroupId,
    PeerReply,
    PeerRpc,
)
from raftlake.raft.events import FailureReason
from raftlake.raft.types import ElectionState, Epoch, Impairment, NodeId, Offset, OffsetAndEpoch

T = TypeVar("T")
#: What stays free on a large disk unless a setting says otherwise.
MIN_FREE_BYTES_MAX = 1 << 30


class BatchSpan(NamedTuple):
    """Where one record batch stands in the offset space; what a log needs to know to index it."""

    base_offset: int
    end_offset: int
    epoch: int
    #: Milliseconds since 1970, or -1.
    timestamp_ms_max: int
    size: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    timestamp_ms: int
    offset: Offset
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a disk has: free for this process, and altogether."""

    free_bytes: int
    total_bytes: int

    def limit(self, min_free_bytes: int) -> int:
        """What has to stay free: `min_free_bytes`, or where that is -1 1 GiB, or 5 % of the disk if that is less."""
        return min_free_bytes if min_free_bytes >= 0 else min(MIN_FREE_BYTES_MAX, self.total_bytes // 20)

    @staticmethod
    def above(limit: int) -> int:
        """So much has to be free before a limit that was met counts as left: 10 % more."""
        return limit + limit // 10


class StartPointWriter(Protocol):
    """A large point that is being made, a piece in each call. It is not there before it is finished, and neither durable nor
    certainly whole after: a crash may leave it, nothing of it, or a damaged one. Every method raises StorageError, after which
    nothing is left of it."""

    def append(self, rows: bytes) -> None:
        """More of what it says of producers, behind their head."""

    def finish(self, head: bytes, voters: bytes) -> None:
        """The point is there. `head` has the length that was told at the beginning."""

    def abandon(self) -> None:
        """Leave nothing of it; without effect on one that is finished."""


class StartPoints(Protocol):
    """What a start would have to read a whole log for: at some of its offsets, all that the records below say of producers and
    of voters, as bytes whose meaning (and checksums) are their readers' business.

    A log drops the points above a cut, durably, before it cuts; `reset` drops all of them; of those up to its start
    `advance_start` keeps the last. So after a crash a point at or below the log's end tells of that very log; one above the
    end is of records that a crash took, and has to be deleted before anything is appended.
    """

    @property
    def offsets(self) -> Sequence[Offset]:
        """Where the points are, ascending."""

    def save(self, offset: Offset, producers: bytes, voters: bytes, *, sync: bool = True) -> None:
        """Durable when it returns, unless `sync` is False: then a crash may leave it, nothing of it, or a damaged one. Raises
        StorageError."""

    def begin(self, offset: Offset, head_bytes: int) -> StartPointWriter:
        """Make a point in pieces. It is to be abandoned before the log is cut, reset or deleted. Raises StorageError."""

    def load(self, offset: Offset) -> tuple[bytes, bytes]:
        """What was saved, perhaps damaged. Raises StorageError when it cannot be read."""

    def delete(self, offsets: Sequence[Offset]) -> None:
        """Durable when it returns. Raises StorageError."""


class LogStore(Protocol):
    """The log of one group: whole record batches (v2), offsets contiguous, `end_offset` exclusive.

    Guarantees: (1) what `append` returned from is readable at once; (2) it survives a crash only after a flush that began
    later has completed; (3) after a crash the log is a prefix of what was appended, at least as long as the last completed
    flush, and every batch in it passes its CRC; (4) `truncate_to` and `reset` are durable with the next flush at the
    latest, and a crash before it leaves either the old or the new log, never a mix of both behind the cut.
    Every method raises `StorageError` when the disk fails; after that the node stops. `append` may raise `DiskFull`: then
    nothing was appended, the log is as it was, and may be appended to when there is room.
    """

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def epochs(self) -> Sequence[tuple[Epoch, Offset]]:
        """(epoch, its start offset), ascending: the leader-epoch-checkpoint. Kept by the log from what is appended."""

    @property
    def start_points(self) -> StartPoints: ...

    @property
    def segment_bases(self) -> Sequence[Offset]:
        """Where the segments begin, ascending."""

    def append(self, chunks: Sequence[bytes | bytearray | memoryview], spans: Sequence[BatchSpan]) -> Sequence[Offset]:
        """Append whole batches; `chunks` concatenated are exactly the bytes that `spans` describe, in order (one chunk
        may hold several batches). The first base offset must be `end_offset`; epochs must not go back. Returns where segments
        were begun behind others, mostly nowhere."""

    def read(self, start: Offset, limit: Offset, size_max: int) -> bytes:
        """Whole batches from the one that contains `start` on, none with an end offset above `limit`, at most `size_max`
        bytes but at least one batch (when one below `limit` exists; else b""). `start` lies in [start_offset, end_offset].
        """

    def truncate_to(self, end_offset: Offset) -> None:
        """Drop every batch that ends above `end_offset` (a batch boundary) and the epochs that start there or later."""

    def reset(self, start: OffsetAndEpoch) -> None:
        """Drop everything; the log is now empty and starts at `start.offset`, its last epoch `start.epoch`."""

    def advance_start(self, start_offset: Offset) -> Offset:
        """Retention: delete closed segments that lie wholly below `start_offset`; return the new first offset."""

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first batch whose largest timestamp is >= `timestamp_ms` (its base offset; the caller looks inside)."""

    def latest_timestamp(self) -> TimestampAndOffset | None:
        """The batch that holds the largest timestamp (Kafka's MAX_TIMESTAMP query)."""

    def segments(self) -> Sequence[SegmentInfo]:
        """The segments, oldest first; the last one is active."""

    def scrub(self, size_max: int) -> int:
        """Check up to about `size_max` bytes of the closed segments, where the last call ended; how many were read. Fewer than
        asked for: the end was reached, and the next call begins anew. Raises DamagedData."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    base_offset: Offset
    end_offset: Offset
    size: int
    timestamp_ms_max: int


class SnapshotWriter(Protocol):
    """A snapshot file that is being made: bytes at its end, then one step to a finished snapshot. It is invisible until
    then, and a crash leaves nothing of it."""

    @property
    def size(self) -> int:
        """Bytes appended so far."""

    @property
    def backlog(self) -> int:
        """Bytes appended that have not reached the file. A writer that is faster than the disk waits until they are few."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end. An error of the disk is told by `freeze`."""

    def freeze(self, done: Callable[[StorageError | None], None]) -> None:
        """Sync the file and make it a snapshot under its name, durably; later, on the driver's thread, call `done`. Not called
        when the snapshot's group is deleted meanwhile."""

    def abandon(self) -> None:
        """Drop what was written; `done` of a freeze under way is not called any more."""


class SnapshotStore(Protocol):
    """The snapshots (KIP-630) of every group: `<end offset>-<epoch>.checkpoint`. A finished one never changes.

    Kafka's bootstrap snapshot 0-0 holds the initial voters and no state: it is not listed here and never served.
    """

    def ids(self, group: GroupId) -> Sequence[OffsetAndEpoch]:
        """The finished snapshots of a group, oldest first."""

    def create(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> SnapshotWriter:
        """Begin a snapshot; an unfinished one of the same id is dropped. Raises StorageError."""

    def size(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> int | None:
        """Bytes of a finished snapshot, None when there is none. Raises StorageError."""

    def read(self, group: GroupId, snapshot_id: OffsetAndEpoch, position: int, size_max: int) -> bytes:
        """At most `size_max` bytes from `position` on, fewer only at its end. Raises StorageError, also when it is gone."""

    def delete(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> None:
        """Delete a finished snapshot; after a crash it may be there again. Raises StorageError."""


class LogDirectory(Protocol):
    """All logs of one node, and their snapshots."""

    @property
    def snapshots(self) -> SnapshotStore: ...

    def open(self, group: GroupId) -> LogStore:
        """Open or create the log of a group, recovering it after a crash (torn tail cut, indexes rebuilt). Raises DamagedData
        where durable records cannot be read; nothing is changed then."""

    def set_aside(self, group: GroupId, damage: DamagedData, epoch: Epoch) -> str:
        """Records that were durable cannot be read. Note durably that this replica, in `epoch`, is impaired; then close the log
        if it is open and cut it before the damage, keeping the damaged rest. Returns what was found and where the rest is.
        Raises StorageError where there is no damage after all."""

    def file_at(self, group: GroupId, offset: int) -> str:
        """The file that holds, or held, the record at `offset`, as an operator finds it."""

    def impairment(self, group: GroupId) -> tuple[Impairment, str] | None:
        """What `set_aside` has noted and `mend` has not taken back, and why."""

    def mend(self, group: GroupId) -> None:
        """The replica holds again what it had lost."""

    def prepare(self, groups: Sequence[GroupId]) -> None:
        """Create what `open` would create for those of `groups` that have nothing on disk yet, with a few waits for the disk
        in all: `open` alone waits several times for each."""

    def delete(self, groups: Sequence[GroupId]) -> None:
        """Delete the logs and election states of groups that no longer exist, with a few waits for the disk in all."""

    def groups(self) -> Sequence[GroupId]:
        """The groups that have a directory, in a fixed order."""

    def settle(self, group: GroupId) -> None:
        """All that was appended to the group's log is durable when it returns. Raises StorageError."""

    def look_for_room(self, done: Callable[[Room | None], None]) -> None:
        """Tell `done`, later on the driver's thread or at once, what the disk has; None where it does not say."""

    def give_up_ballast(self) -> bool:
        """The disk is full: make what room there is in reserve. False where nothing was."""

    def flush(self, logs: Sequence[LogStore], done: Callable[[StorageError | None], None], *, may_wait: bool = False) -> None:
        """Sync what was appended to `logs` before this call; later, on the driver's thread, call `done`. The driver has one
        flush under way at a time; logs deleted meanwhile are no error. With `may_wait` the caller has nothing else to
        do: the disk may keep it waiting, and `done` is then called before this method returns."""

    def checkpoint(self) -> None:
        """Called about once a second: remember for the next start how far each log is synced. Nothing waits for it."""


class ElectionStore(Protocol):
    """`quorum-state` of every group. A missing file is `None` only where no log exists either; damage is a StorageError."""

    def load(self, group: GroupId) -> ElectionState | None: ...

    def save(self, states: Mapping[GroupId, ElectionState]) -> None:
        """Write all of them atomically each and return when all are durable (file and directory synced). Raises DiskFull when
        there was no room for it: some of them may be durable, and the same save may be tried again."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""


class ListenerUse(Enum):
    """For whom the listener is that a request came in on."""

    SHARED = "shared"
    CLIENTS = "clients"
    PEERS = "peers"

    @property
    def takes_peers(self) -> bool:
        """Other nodes may ask here what replicas ask one another."""
        return self is not ListenerUse.CLIENTS


class Origin(Enum):
    """Who asks for something: what may be proposed depends on it."""

    CLIENT = "client"
    PEER = "peer"
    #: The node that is asked, itself.
    SELF = "self"


@dataclass(slots=True)
class PeerConnection:
    """What the server side remembers of one connection: `answer_sequence` is the driver's answer counter when it last
    answered a Fetch on it (0: never), `fetch_session` the number of the Fetch session that was opened on it last (0: none).
    One request is in flight on it at a time."""

    answer_sequence: int = 0
    fetch_session: int = 0
    listener: ListenerUse = ListenerUse.SHARED

    @property
    def origin(self) -> Origin:
        """For whom a command is taken that looks like a node's."""
        return Origin.PEER if self.listener.takes_peers else Origin.CLIENT


@dataclass(slots=True, eq=False)
class ClientConnection:
    """What the shell and the driver tell each other of a client's connection."""

    #: Checks of its records that are not done. The shell starts no further request while there are many.
    checks_aside: int = 0
    #: The driver calls it after each of these checks that is done: the shell may start a request again.
    on_check_done: Callable[[], None] = lambda: None
    #: It is closed: no answer can be sent on it.
    is_gone: bool = False


#: The first and the last kraft.version that a node knows.
KraftVersions = tuple[int, int]


class Aside(Protocol):
    """Work that takes long and needs nothing of the node."""

    def submit(self, job: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Do `job` without keeping the driver waiting; later, on the driver's thread, call `done` with its result. A job that
        raises is a bug, or memory that ran out: that is logged, and `done` gets None, for who waits has to be answered. Jobs
        are done one after another, and so are their calls of `done`, in the order of the calls of `submit`."""


class Network(Protocol):
    """RPCs to peers. Never raises for a peer that is down: `done` is called with the reason, later, on the driver's thread."""

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        """`peer` is reached there from now on (KIP-853: voters come and go). Harmless when nothing is new."""

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        """Ask the node at this address which kraft.versions it knows (ApiVersions, KIP-853). One that names none knows only 0.
        `done` is called as by `send`, within `quorum.request.timeout.ms`."""

    def send(self, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        """Send; `done` is called exactly once, never from within `send`. One FetchRpc per peer may be under way, any number
        of others. TIMED_OUT comes after `quorum.request.timeout.ms` (for a Fetch: plus its `wait_ms_max`); DISCONNECTED when
        the connection was refused or closed before an answer."""
