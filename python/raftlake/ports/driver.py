"""What the replica driver needs from the world, as protocols: one log for each group, election files, a network, clocks.

Two sets of implementations exist: `storage/` with `runtime/` (files, sockets, threads), and `sim/` (memory, one seed). The
driver is synchronous and calls the implementations from one thread only. A call waits for the
disk only where its docstring says so.
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
from raftlake.ports.tier import BatchSource
from raftlake.raft.events import FailureReason
from raftlake.raft.types import ElectionState, Epoch, Impairment, NodeId, Offset, OffsetAndEpoch
from raftlake.wire.aborted_index import AbortedTransaction

T = TypeVar("T")
#: What stays free on a large disk unless a setting says otherwise.
MIN_FREE_BYTES_MAX = 1 << 30


class BatchSpan(NamedTuple):
    """The offsets of one record batch, and what else a log needs to index the batch."""

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
    """The free bytes of a disk that this process may use, and the size of the disk."""

    free_bytes: int
    total_bytes: int

    def limit(self, min_free_bytes: int) -> int:
        """The bytes that have to stay free: `min_free_bytes`. -1 means 1 GiB, or 5 % of the disk where that is less."""
        return min_free_bytes if min_free_bytes >= 0 else min(MIN_FREE_BYTES_MAX, self.total_bytes // 20)

    @staticmethod
    def above(limit: int) -> int:
        """The bytes that have to be free before a low disk counts as normal again: 10 % more than the limit."""
        return limit + limit // 10


class StartPointWriter(Protocol):
    """A large start point in the making: each call writes a piece. The point is invisible until `finish`. Even then a crash may
    lose or damage it. Every method raises StorageError, and then nothing of the point is left."""

    def append(self, rows: bytes) -> None:
        """Write more rows about producers, behind the head."""

    def finish(self, head: bytes, voters: bytes) -> None:
        """Make the point visible. `head` is as long as `StartPoints.begin` was told."""

    def abandon(self) -> None:
        """Remove an unfinished point. A finished point stays."""


class StartPoints(Protocol):
    """Start points spare a start the reading of the whole log. Each holds, for one offset, what all records below say about
    producers and voters. Only the readers know what the bytes mean, and check them.

    Before a log is cut, it durably drops the points above the cut. `reset` drops all points. `advance_start` keeps the last
    point at or below the new start, and drops the points before that one. So after a crash a point at or below the end of the
    log belongs to that very log. A point above the end tells of records that the crash took. Such a point has to be deleted
    before anything is appended.
    """

    @property
    def offsets(self) -> Sequence[Offset]:
        """The offsets of the points, ascending."""

    def save(self, offset: Offset, producers: bytes, voters: bytes, *, sync: bool = True) -> None:
        """Write a point, which is durable when the call returns. Without `sync` a crash may lose or damage the point. Raises
        StorageError."""

    def begin(self, offset: Offset, head_bytes: int) -> StartPointWriter:
        """Make a point in pieces. The caller abandons it before the log is cut, reset or deleted. Raises StorageError."""

    def load(self, offset: Offset) -> tuple[bytes, bytes]:
        """The producers and voters of a point, perhaps damaged. Raises StorageError when the point cannot be read."""

    def delete(self, offsets: Sequence[Offset]) -> None:
        """Delete points, durably when the call returns. Raises StorageError."""


class AbortedIndex(Protocol):
    """The aborted transactions of one log (KIP-98), in the order of their markers. They follow from the log. So a start drops
    those behind its start point, and finds them again in the log.

    An entry belongs to the segment that holds its marker, and goes with that segment. `LogStore.truncate_to` and `reset` drop
    the entries whose markers they drop. Every method but `counts` raises StorageError.
    """

    def append(self, entries: Sequence[AbortedTransaction]) -> None:
        """Add entries behind the others. Their markers are in the log. They are durable once `sync` returns. Raises DiskFull:
        then none of them counts, and the caller may repeat the call."""

    def sync(self) -> None:
        """Make all entries durable. Costs nothing where they are."""

    def find(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The transactions with a marker at or behind `start` that begin below `end`, in the order of their markers. A reader
        of [start, end) leaves out their records. `end` is not above the last stable offset; others may be missing then."""

    def counts(self, end_offset: Offset) -> Sequence[tuple[Offset, int]]:
        """How many entries have a marker below `end_offset`, by the first offset of their segment; ascending, without those of
        0."""

    def agrees(self, end_offset: Offset, counts: Sequence[tuple[Offset, int]]) -> bool:
        """Whether all entries below `end_offset` are intact, and as many as `counts` told before. What it told of segments that
        are deleted is passed over."""

    def truncate_to(self, end_offset: Offset) -> None:
        """Drop the entries whose markers are at or above `end_offset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One pass of compaction over a log, from its start. Times are milliseconds since 1970."""

    #: Keys are collected from here on. What lies below was compacted before.
    dirty_from: Offset
    #: Exclusive: the end of a closed segment. All below is committed, and each transaction below is decided.
    until: Offset
    now_ms: int
    #: For so long a tombstone, or a marker, is kept after the pass that finds it first.
    delete_retention_ms: int
    #: No tombstone and no marker at or above it is removed.
    tombstones_below: Offset
    #: The aborted transactions that begin below `until`. The marker of one may stand behind it: see `AbortedIndex.find`.
    aborted: tuple[AbortedTransaction, ...]
    #: The last offsets of the newest batches of known producers. These batches stay, perhaps without records.
    last_batches: frozenset[Offset]
    #: (producer id, epoch) of producers whose epoch a marker has raised: that marker stays.
    last_markers: frozenset[tuple[int, int]] = frozenset()
    #: Producers whose newest known batches are all uncommitted: each of their batches stays, perhaps without records.
    unsettled: frozenset[int] = frozenset()
    #: The pass ends at the batch where it knows so many keys.
    keys_max: int
    #: Neighbouring segments become one where they fit in so many bytes.
    segment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What one pass did."""

    #: Each key has one value below, the newest. Tombstones may be there that wait for their time.
    clean_until: Offset
    #: Of the segments that were rewritten.
    bytes_before: int
    bytes_after: int
    records_removed: int
    #: When the next tombstone or marker may go, in milliseconds since 1970; None where none waits.
    next_horizon_ms: int | None


class LogStore(Protocol):
    """The log of one group: whole record batches (v2) with contiguous offsets. `end_offset` is exclusive.

    Guarantees: (1) appended batches can be read as soon as `append` returns. (2) Appended batches survive a crash once a flush
    has completed that began after the append. (3) After a crash the log is a prefix of what was appended, at least as long as
    the last completed flush, and every batch passes its CRC. (4) `truncate_to` and `reset` are durable with the next flush at
    the latest. A crash before that flush leaves either the old or the new log, never a mix of both behind the cut.
    Every method raises `StorageError` when the disk fails; then the node stops. `append` may raise `DiskFull`: then the log has
    not changed, and takes appends again when there is room.
    """

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def epochs(self) -> Sequence[tuple[Epoch, Offset]]:
        """(epoch, its start offset), ascending: the leader-epoch-checkpoint. The log learns the epochs from appended
        batches."""

    @property
    def start_points(self) -> StartPoints: ...

    @property
    def aborted(self) -> AbortedIndex: ...

    @property
    def segment_bases(self) -> Sequence[Offset]:
        """The first offsets of the segments, ascending."""

    def append(self, chunks: Sequence[bytes | bytearray | memoryview], spans: Sequence[BatchSpan]) -> Sequence[Offset]:
        """Append whole batches. The chunks one after the other are exactly the bytes that `spans` describe, in order; one chunk
        may hold several batches. The first base offset must be `end_offset`; epochs must not go back. Returns the first offset
        of each segment that the append began behind another one; mostly there is none."""

    def read(self, start: Offset, limit: Offset, size_max: int) -> bytes:
        """Whole batches, beginning with the batch that contains `start`. No batch ends above `limit`. Returns at most
        `size_max` bytes, but at least one batch where one below `limit` exists; else b"". `start` lies in [start_offset,
        end_offset]. A batch that compaction left without records may begin below `start`. It is cut to begin there.
        """

    def truncate_to(self, end_offset: Offset) -> None:
        """Drop every batch that ends above `end_offset` (a batch boundary) and the epochs that start there or later."""

    def reset(self, start: OffsetAndEpoch) -> None:
        """Drop everything: the log is empty then. It starts at `start.offset`, and its last epoch is `start.epoch`."""

    def advance_start(self, start_offset: Offset) -> Offset:
        """Retention: delete closed segments that lie wholly below `start_offset`; return the new first offset."""

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The base offset of the first batch whose largest timestamp is >= `timestamp_ms`. The caller looks into the batch."""

    def latest_timestamp(self) -> TimestampAndOffset | None:
        """The batch that holds the largest timestamp (Kafka's MAX_TIMESTAMP query)."""

    def segments(self) -> Sequence[SegmentInfo]:
        """The segments, oldest first; the last one is active."""

    def limit_segments(self, segment_bytes: int) -> None:
        """From now on an append that would make the active segment larger than that begins another one. A batch that is larger
        has a segment of its own. Changes nothing on disk."""

    def roll(self) -> Sequence[Offset]:
        """Close the active segment, unless it is empty, and begin another one. Returns where segments were begun, as `append`
        does. May raise DiskFull: then the log is as it was."""

    def locate(self, start: Offset, end: Offset) -> BatchSource | None:
        """Where the batches of [start, end), of one closed segment, are to be read; None where start or end lies amid a batch.
        Nothing of it changes before the segment is deleted."""

    @property
    def noted_start(self) -> Offset:
        """What `note_start` was told last; 0 where it was told nothing. After a restart it may be lower. A cut or a reset
        lowers it durably first."""

    def note_start(self, start_offset: Offset) -> None:
        """Remember for later starts that the log begins there for clients, in the midst of a segment perhaps. No caller waits
        for the disk."""

    @property
    def is_partial(self) -> bool:
        """What `note_partial` was told last, also after a crash. False where it was told nothing."""

    def note_partial(self, is_partial: bool) -> None:
        """The log, which is empty now, lacks some of what was committed when it was begun; with False it lacks nothing any
        more. Durable when the call returns. Raises StorageError; DiskFull: then nothing was noted."""

    @property
    def compacted_until(self) -> Offset | None:
        """What the last pass of `compact` told, and None where there was none. After a restart it may be lower. A cut or a
        reset lowers it durably first."""

    def compact(self, request: Compaction, done: Callable[[Compacted | StorageError | None], None]) -> None:
        """Begin a pass over the closed segments. Later, on the driver's thread, call `done` once. None: the pass was given up,
        since the log was cut, reset, deleted, closed or trimmed meanwhile. After an error the log goes on as it is. At each
        moment, and after a crash, each segment is as before the pass or as after it. A segment changes only after those below
        it. One log of a directory is compacted at a time. Offsets stay without gaps, and keep their leader epochs: what was
        removed leaves batches without records."""

    def scrub(self, size_max: int) -> int:
        """Check about `size_max` bytes of the closed segments, from where the last call ended, and return how many were read.
        Fewer than `size_max` mean that the end was reached: the next call begins anew. Raises DamagedData."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    base_offset: Offset
    end_offset: Offset
    size: int
    timestamp_ms_max: int


class SnapshotWriter(Protocol):
    """A snapshot file in the making: appends, then one step to a finished snapshot. The file is invisible until that step, and
    a crash leaves nothing of it."""

    @property
    def size(self) -> int:
        """Bytes appended so far."""

    @property
    def backlog(self) -> int:
        """Appended bytes that have not reached the file. A caller that is faster than the disk waits until they are few."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end. `freeze` reports errors of the disk."""

    def freeze(self, done: Callable[[StorageError | None], None]) -> None:
        """Sync the file and give it its final name, durably. Later, on the driver's thread, call `done`. `done` is not called
        when the group of the snapshot is deleted meanwhile."""

    def abandon(self) -> None:
        """Remove the unfinished file. `done` of a freeze under way is not called any more."""


class SnapshotStore(Protocol):
    """The snapshots (KIP-630) of every group: `<end offset>-<epoch>.checkpoint`. A finished snapshot never changes.

    Kafka's bootstrap snapshot 0-0 holds the initial voters and no state. The store neither lists nor serves it.
    """

    def ids(self, group: GroupId) -> Sequence[OffsetAndEpoch]:
        """The finished snapshots of a group, oldest first."""

    def create(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> SnapshotWriter:
        """Begin a snapshot. An unfinished snapshot of the same id is dropped. Raises StorageError."""

    def size(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> int | None:
        """The size of a finished snapshot, None where there is no such snapshot. Raises StorageError."""

    def read(self, group: GroupId, snapshot_id: OffsetAndEpoch, position: int, size_max: int) -> bytes:
        """`size_max` bytes from `position` on, fewer only at the end. Raises StorageError, also when the snapshot is gone."""

    def delete(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> None:
        """Delete a finished snapshot. After a crash the snapshot may be there again. Raises StorageError."""


class LogDirectory(Protocol):
    """All logs of one node, and their snapshots."""

    @property
    def snapshots(self) -> SnapshotStore: ...

    def open(self, group: GroupId) -> LogStore:
        """Open or create the log of a group. After a crash, cut the torn tail and rebuild the indexes. Raises DamagedData where
        durable records cannot be read; then nothing was changed."""

    def set_aside(self, group: GroupId, damage: DamagedData, epoch: Epoch) -> str:
        """Durable records cannot be read. Note durably that this replica is impaired, in `epoch`. Then close the log if it is
        open, cut it off where the damage begins, and keep the damaged rest. Of a log that was compacted, or whose beginning is
        unfit (UnfitBeginning), all is cut off. From then on it counts as compacted. Returns what was found, and where the rest
        is. Raises StorageError where there is no damage after all; DiskFull, after which the next call goes on from
        there."""

    def file_at(self, group: GroupId, offset: int) -> str:
        """The path of the file that holds, or held, the record at `offset`, for an operator."""

    def impairment(self, group: GroupId) -> tuple[Impairment, str] | None:
        """The note of `set_aside` with its reason, None where there is no note or `mend` has removed it."""

    def mend(self, group: GroupId) -> None:
        """The replica holds again what it had lost: remove the note of `set_aside`."""

    def prepare(self, groups: Sequence[GroupId]) -> None:
        """Create the files of those `groups` that have nothing on disk yet. The call waits for the disk a few times in all;
        `open` would wait several times for each group."""

    def delete(self, groups: Sequence[GroupId]) -> None:
        """Delete the logs and election states of groups that no longer exist. The call waits for the disk a few times in
        all."""

    def groups(self) -> Sequence[GroupId]:
        """The groups that have a directory, in a fixed order."""

    def settle(self, group: GroupId) -> None:
        """Sync the log of the group. All that was appended is durable when the call returns. Raises StorageError;
        DiskFull, after which it may be called again."""

    def look_for_room(self, done: Callable[[Room | None], None]) -> None:
        """Call `done` with the room of the disk, at once or later on the driver's thread; with None where the disk tells
        none."""

    def give_up_ballast(self) -> bool:
        """The disk is full: free the reserve. False where there was no reserve."""

    def flush(self, logs: Sequence[LogStore], done: Callable[[StorageError | None], None], *, may_wait: bool = False) -> None:
        """Sync what was appended to `logs` before this call; later, on the driver's thread, call `done`. The driver has one
        flush under way at a time. A log that is deleted meanwhile is no error. With `may_wait` the caller has nothing else to
        do, so the call may wait for the disk. Then `done` is called before the call returns."""

    def checkpoint(self) -> None:
        """Remember for the next start how far each log is synced. Called about once a second; no caller waits for the disk."""


class ElectionStore(Protocol):
    """The election state of every group. `load` returns None only where the group has no log either; damage is a
    StorageError."""

    def load(self, group: GroupId) -> ElectionState | None: ...

    def save(self, states: Mapping[GroupId, ElectionState]) -> None:
        """Write all states, each atomically. All are durable (file and directory synced) when the call returns. Raises DiskFull
        for want of room: then some states may be durable, and the caller may repeat the same save."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. The value may jump."""


class ListenerUse(Enum):
    """Whom the listener of a request serves."""

    SHARED = "shared"
    CLIENTS = "clients"
    PEERS = "peers"

    @property
    def takes_peers(self) -> bool:
        """Whether the listener takes the requests that replicas send one another."""
        return self is not ListenerUse.CLIENTS


class Origin(Enum):
    """Who proposes a command. The origin decides which commands are allowed."""

    CLIENT = "client"
    PEER = "peer"
    #: This node itself.
    SELF = "self"


@dataclass(slots=True)
class PeerConnection:
    """What the answering node remembers of one connection of another node. One Fetch is in flight on it at a time.

    `answer_sequence` is the driver's answer counter at the last answer to a Fetch on this connection (0: none yet).
    `fetch_session` is the number of the Fetch session that was opened last on this connection (0: none).
    """

    answer_sequence: int = 0
    fetch_session: int = 0
    listener: ListenerUse = ListenerUse.SHARED

    @property
    def origin(self) -> Origin:
        """The origin that a command gets when it claims to come from a node."""
        return Origin.PEER if self.listener.takes_peers else Origin.CLIENT


@dataclass(slots=True, eq=False)
class ClientConnection:
    """What the shell and the driver tell each other about the connection of a client."""

    #: Record checks of this connection that are not done. The shell starts no further request while there are many.
    checks_aside: int = 0
    #: The driver calls this function after each of these checks: the shell may start a request again.
    on_check_done: Callable[[], None] = lambda: None
    #: The connection is closed, and takes no more answers.
    is_gone: bool = False


#: The first and the last kraft.version that a node knows.
KraftVersions = tuple[int, int]


class Aside(Protocol):
    """A place for long work that needs nothing of the node."""

    def submit(self, job: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Do `job` while the driver goes on; later, on the driver's thread, call `done` with the result. A job raises only for
        a bug or for want of memory. The error is logged, and `done` gets None, because the waiting caller needs an answer. Jobs
        run one after another, in the order of the calls of `submit`; the calls of `done` keep that order."""


class Network(Protocol):
    """RPCs to peers. No method raises for a peer that is down: `done` gets the reason, later, on the driver's thread."""

    def meet(self, peer: NodeId, host: str, port: int) -> None:
        """Reach `peer` at this address from now on (KIP-853: voters come and go). A repeated call changes nothing."""

    def probe(self, host: str, port: int, done: Callable[[KraftVersions | FailureReason], None]) -> None:
        """Ask the node at this address which kraft.versions it knows (ApiVersions, KIP-853). A node that names none knows only
        0. `done` is called as by `send`, within `quorum.request.timeout.ms`."""

    def send(self, peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        """Send `rpc`. `done` is called exactly once, and never from within `send`. One FetchRpc to a peer may be under way, and
        any number of other RPCs. TIMED_OUT comes after `quorum.request.timeout.ms`, for a Fetch `wait_ms_max` later.
        DISCONNECTED comes when the connection was refused, or closed before an answer."""
