"""What an invariant may see, and the moments at which it is asked.

An invariant judges the cluster from the outside: it sees what only the whole cluster shows, never what a node believes about
another. Each subclass overrides the moments that it needs; `InvariantSuite` calls no others, so a moment costs what its
invariants cost. All checks are incremental: they look at what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_DIRECTORY, DirectoryId, ElectionState, NodeId, OffsetAndEpoch, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.sim.disk.observer import Installed


class Violation(Exception):
    """A promise was broken; the message names the promise, the nodes and the offsets."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


@dataclass(slots=True)
class ReplicaState:
    """One group on one incarnation of a node, as it was when it was last looked at."""

    node_id: NodeId
    incarnation: int
    group: GroupId
    log: MemoryLog
    epoch: int = -1
    is_leader: bool = False
    high_watermark: int = -1


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What never changes in a run, and a way to the logs on all disks, also of nodes that are down."""

    #: With whom every group begins; later its log says who votes (`CommittedLog.voters`).
    voters: tuple[NodeId, ...]
    #: The log of a group on a node's disk; None when it has none.
    log_of: Callable[[NodeId, GroupId], MemoryLog | None]
    #: What a node's disk says about an election.
    election_of: Callable[[NodeId, GroupId], ElectionState | None]
    #: Topics that the clients of this run delete.
    disposable_topics: Container[str] = ()
    #: Topics that may be compacted.
    compacted_topics: Container[str] = ()
    #: The finished snapshots of a group on a node's disk.
    snapshots_of: Callable[[NodeId, GroupId], Sequence[OffsetAndEpoch]] = lambda node_id, group: ()
    #: The directory id of a node's disk. It changes when the disk is lost.
    directory_of: Callable[[NodeId], DirectoryId] = lambda node_id: NO_DIRECTORY
    #: The voter sets in the log of a running group; None where it does not run.
    history_of: Callable[[NodeId, GroupId], VoterHistory | None] = lambda node_id, group: None

    @property
    def static_voters(self) -> VoterSet:
        """Who votes as long as no log says so."""
        return VoterSet({voter: ReplicaKey(voter) for voter in self.voters})

    def is_lost(self, voter: ReplicaKey) -> bool:
        """Whether the disk with which this voter voted is gone, and with it the voter."""
        return voter.directory_id not in (NO_DIRECTORY, self.directory_of(voter.id))


class Invariant:
    """One property; the moments are no-ops here."""

    #: What is promised, for the message.
    promise = ""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def on_election_saved(self, node_id: NodeId, group: GroupId, before: ElectionState | None, after: ElectionState) -> None:
        """A node's election file was replaced."""

    def on_vote_granted(self, node_id: NodeId, group: GroupId, epoch: int, candidate: ReplicaKey) -> None:
        """A node lets an answer go that grants its real vote of `epoch`."""

    def on_append(self, node_id: NodeId, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        """A node appended a batch after a record of `epoch_before` (-1: its log holds none before it)."""

    def on_role(self, node_id: NodeId, group: GroupId, before: str, action: ReportRole, may_stand: bool) -> None:
        """A running group reported its role; `before` is the one that it reported last ("-": it has just been started)
        and `may_stand` whether it may be elected."""

    def on_log_cut(self, node_id: NodeId, group: GroupId, end_offset: int) -> None:
        """A node truncated or reset its log; it now ends at `end_offset`."""

    def on_log_deleted(self, node_id: NodeId, group: GroupId) -> None:
        """A node deleted the log and the election state of a group."""

    def on_log_start(self, node_id: NodeId, group: GroupId, start_offset: int, is_reset: bool) -> None:
        """A node's log begins at `start_offset` now: old segments were deleted, or all of it was dropped (`is_reset`)."""

    def on_compacted(self, node_id: NodeId, group: GroupId, installed: Installed) -> None:
        """Compaction put other batches in the place of some segments of a node's log."""

    def on_pass_ended(self, node_id: NodeId, group: GroupId, request: Compaction, compacted: Compacted) -> None:
        """A pass of compaction over a node's log is over, and nothing stopped it."""

    def on_snapshot(self, node_id: NodeId, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """A snapshot is finished and durable on a node, taken there or fetched."""

    def on_fetch(self, node_id: NodeId, source: NodeId, now_us: int) -> None:
        """A Fetch (or FetchSnapshot) of `source` reached a running node."""

    def on_round(self, node_id: NodeId, source: NodeId, led: Mapping[GroupId, int], known: Mapping[GroupId, int]) -> None:
        """A node took a Fetch round of `source`. It counts for the groups `led` here, each in its epoch. `known` are the epochs
        of the sender's groups when it sent the round."""

    def on_leading(self, replica: ReplicaState, now_us: int) -> None:
        """Asked ten times a second of every leader whose process gets its processor time."""

    def on_crash(self, node_id: NodeId) -> None:
        """A node went down and its disk lost what it could lose."""

    def on_wiped(self, node_id: NodeId) -> None:
        """A node that is down lost its disk and got an empty one, with another directory id."""

    def on_epoch(self, replica: ReplicaState, before: int) -> None:
        """A running group's epoch changed from `before` (-1: it has just been started)."""

    def on_leader(self, replica: ReplicaState) -> None:
        """A group became leader."""

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        """A group's high watermark changed from `before` (-1: it has just been started)."""

    def on_turn(self, replica: ReplicaState) -> None:
        """A turn ended: everything that the core asked for has been done, and the group changed since the last turn."""

    def on_end(self, replicas: Sequence[ReplicaState]) -> None:
        """The run is over and healed; `replicas` are all running groups."""

    def fail(self, detail: str) -> Violation:
        return Violation(self.promise, detail)


MOMENTS = (
    "on_election_saved",
    "on_vote_granted",
    "on_append",
    "on_role",
    "on_log_cut",
    "on_log_deleted",
    "on_log_start",
    "on_compacted",
    "on_pass_ended",
    "on_snapshot",
    "on_fetch",
    "on_round",
    "on_leading",
    "on_crash",
    "on_wiped",
    "on_epoch",
    "on_leader",
    "on_high_watermark",
    "on_turn",
    "on_end",
)


class InvariantSuite:
    """Calls each moment of those invariants that override it."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        def overriding(moment: str) -> list[Callable[..., None]]:
            base = getattr(Invariant, moment)
            return [getattr(invariant, moment) for invariant in invariants if getattr(type(invariant), moment) is not base]

        (
            self.on_election_saved,
            self.on_vote_granted,
            self.on_append,
            self.on_role,
            self.on_log_cut,
            self.on_log_deleted,
            self.on_log_start,
            self.on_compacted,
            self.on_pass_ended,
            self.on_snapshot,
            self.on_fetch,
            self.on_round,
            self.on_leading,
            self.on_crash,
            self.on_wiped,
            self.on_epoch,
            self.on_leader,
            self.on_high_watermark,
            self.on_turn,
            self.on_end,
        ) = (_each(overriding(moment)) for moment in MOMENTS)


def _each(calls: list[Callable[..., None]]) -> Callable[..., None]:
    if len(calls) == 1:
        return calls[0]

    def call_all(*args: object) -> None:
        for call in calls:
            call(*args)

    return call_all
