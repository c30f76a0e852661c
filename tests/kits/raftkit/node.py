"""One replica with its disk: the smallest driver that honours the ordering contract of `raft/actions.py`.

The log is a list of batches, the disk a copy of that list taken when a sync began; a crash leaves the disk. Fetches wait at the
leader like in Kafka: the core parks them, and after `fetch_wait` milliseconds the node answers an empty one itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.core import RaftGroup
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse, FetchSnapshotResponse, Response
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, VoterSet
from raftlake.raft.voters import VoterHistory

if TYPE_CHECKING:
    from raftkit.cluster import Cluster

Batch = FetchedBatch
#: A snapshot is this long, and an answer to FetchSnapshot carries half of it.
SNAPSHOT = b"snap"
EMPTY_START = OffsetAndEpoch(Offset(0), Epoch(0))


@dataclass
class Disk:
    """What survives a crash."""

    batches: list[Batch] = field(default_factory=list)
    start: OffsetAndEpoch = EMPTY_START
    election: ElectionState | None = None
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)


class Node:
    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = NodeId(node_id)
        self.disk = Disk()
        self.batches: list[Batch] = []
        self.start = self.disk.start
        self.core: RaftGroup | None = None
        self.generation = 0
        self.is_flushing = False
        self.is_dirty = False
        #: Where a list, syncs that end only when a test says so.
        self.held_syncs: list[Callable[[], None]] | None = None
        self.answer_sequence = 0
        #: Per life of a leader's process: its answer counter when it sent the last answer that we received.
        self.seen: dict[tuple[NodeId, int], int] = {}
        #: Fetches that the core has not answered yet, by replica, with the way to answer them.
        self.waiting: dict[NodeId, tuple[FetchRequest, Callable[[FetchResponse], None]]] = {}
        self.release_next: dict[NodeId, None] = {}
        self.reads: dict[int, do.AnswerRead] = {}
        #: Answers to requests to change the voters.
        self.changes: dict[int, do.AnswerVoterChange] = {}
        self.responders: dict[int, Callable[[Response], None]] = {}
        self.wake_at_ms: int | None = None
        #: Values below the high watermark, in order.
        self.applied: list[object] = []

    @property
    def log_end(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def alive(self) -> RaftGroup:
        assert self.core is not None, f"node {self.id} is down"
        return self.core

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        entries = [] if self.start.epoch == 0 else [(self.start.epoch, self.start.offset)]
        for batch in self.batches:
            if not entries or batch.epoch != entries[-1][0]:
                entries.append((batch.epoch, batch.base_offset))
        return entries

    def voters(self) -> VoterHistory:
        history = VoterHistory(self.cluster.voters)
        for batch in self.batches:
            if batch.voters is not None:
                history.record(batch.base_offset, batch.voters)
        return history

    def boot(self) -> None:
        self.generation += 1
        self.batches = list(self.disk.batches)
        self.start = self.disk.start
        newest = max(self.disk.snapshots, default=None)
        if newest is not None and newest.offset > self.log_end:
            self.batches, self.start = [], newest
        self.waiting.clear()
        self.release_next.clear()
        self.responders.clear()
        self.seen.clear()
        self.answer_sequence = 0
        self.is_flushing = self.is_dirty = False
        self.core = RaftGroup(
            self.cluster.config,
            self.cluster.key(self.id),
            self.voters(),
            epochs=self.epochs(),
            log_start=self.start.offset,
            log_end=self.log_end,
            election=self.disk.election,
            snapshot_id=newest,
            rng=self.cluster.random,
            now_ms=self.cluster.now_ms,
        )
        self.step(on.Started())

    def crash(self) -> None:
        """Lose the process and everything that was not synced."""
        self.core = None
        self.generation += 1
        self.wake_at_ms = None

    def step(self, event: on.Event) -> None:
        if self.core is None:
            return
        actions = self.core.step(event, self.cluster.now_ms)
        self.cluster.on_step(self, event, actions)
        for action in actions:
            self.perform(action)
        self.schedule_wake()
        self.cluster.check_invariants(self)

    def schedule_wake(self) -> None:
        deadline = self.alive.next_deadline_ms()
        if deadline is None or (self.wake_at_ms is not None and self.wake_at_ms <= deadline):
            return
        self.wake_at_ms = deadline
        generation = self.generation

        def wake() -> None:
            if generation == self.generation and self.core is not None:
                self.wake_at_ms = None
                due = self.core.next_deadline_ms()
                if due is not None and due <= self.cluster.now_ms:
                    self.step(on.DeadlineReached())
                else:
                    self.schedule_wake()

        self.cluster.at(max(deadline, self.cluster.now_ms), wake)

    def perform(self, action: do.Action) -> None:
        match action:
            case do.SaveElectionState():
                self.disk.election = action.state
            case do.AppendRecords():
                offset = action.base_offset
                assert offset == self.log_end
                values = action.payload
                assert isinstance(values, tuple)
                for value, size in values:
                    end = Offset(offset + size)
                    self.batches.append(Batch(base_offset=offset, end_offset=end, epoch=action.epoch, payload=value))
                    offset = end
                assert offset == action.end_offset
                self.flush()
            case do.AppendLeaderChange():
                voters = action.initial_voters
                self.append_control(action, 1 if voters is None else 3, ("leader", action.leader_id), voters)
            case do.AppendVoters():
                payload = ("voters", action.voters.ids)
                self.append_control(action, 1 if action.kraft_version is None else 2, payload, action.voters)
            case do.AnswerVoterChange():
                self.changes[action.request_id] = action
            case do.AppendFetched():
                assert action.batches[0].base_offset == self.log_end
                self.batches.extend(action.batches)
                self.flush()
            case do.TruncateTo():
                while self.batches and self.batches[-1].end_offset > action.end_offset:
                    self.batches.pop()
                assert self.log_end == action.end_offset, "truncated inside a batch"
                self.flush()
            case do.ResetLog():
                self.batches.clear()
                self.start = action.start
                self.flush()
            case do.SendRequest():
                self.cluster.send(self, action.destination, action.request)
            case do.Respond():
                self.responders.pop(action.request_id)(action.response)
            case do.AnswerFetch():
                self.answer_fetch(action)
            case do.AnswerFetchSnapshot():
                self.responders.pop(action.request_id)(self.piece_of_snapshot(action))
            case do.WriteSnapshot() | do.AbandonSnapshot():
                pass
            case do.FinishSnapshot():
                self.finish_snapshot(action.snapshot_id)
            case do.ReleaseFetchRounds():
                for voter in self.alive.other_voters:
                    if voter in self.waiting:
                        self.end_round(voter)
                    else:
                        self.release_next[voter] = None
            case do.AdvanceHighWatermark():
                self.applied = [batch.payload for batch in self.batches if batch.end_offset <= action.high_watermark]
            case do.AnswerRead():
                self.reads[action.read_id] = action
            case do.ReportRole() | do.ReportRefusedEpoch() | do.AdoptLogStart():
                pass
            case _:
                assert_never(action)

    def take_snapshot(self, offset: int) -> OffsetAndEpoch:
        """A snapshot of everything below `offset`, durable at once."""
        snapshot_id = self.alive.snapshot_at(Offset(offset))
        self.disk.snapshots.append(snapshot_id)
        self.step(on.SnapshotTaken(snapshot_id=snapshot_id))
        return snapshot_id

    def piece_of_snapshot(self, action: do.AnswerFetchSnapshot) -> FetchSnapshotResponse:
        wanted, error, at = action.request.snapshot_id, action.error, action.request.position
        if error is ErrorCode.NONE and wanted not in self.disk.snapshots:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        return FetchSnapshotResponse(
            error=error,
            leader_id=action.leader_id,
            leader_epoch=action.leader_epoch,
            snapshot_id=wanted,
            size=len(SNAPSHOT),
            position=at,
            data=SNAPSHOT[at : at + 2] if error is ErrorCode.NONE else b"",
        )

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        generation = self.generation

        def done() -> None:
            if generation == self.generation and self.core is not None:
                self.disk.snapshots.append(snapshot_id)
                self.step(on.SnapshotReceived(snapshot_id=snapshot_id, is_intact=True))

        self.cluster.after(self.cluster.draw(self.cluster.timing.flush), done)

    def append_control(
        self, action: do.AppendLeaderChange | do.AppendVoters, size: int, payload: object, voters: VoterSet | None
    ) -> None:
        assert action.offset == self.log_end
        end = Offset(action.offset + size)
        self.batches.append(
            Batch(base_offset=action.offset, end_offset=end, epoch=action.epoch, payload=payload, voters=voters)
        )
        self.flush()

    def flush(self) -> None:
        """Start a sync of what is in the log now; one at a time."""
        if self.is_flushing:
            self.is_dirty = True
            return
        self.is_flushing, self.is_dirty = True, False
        batches, start, end = list(self.batches), self.start, self.log_end
        generation, log_generation = self.generation, self.alive.log_generation

        def done() -> None:
            if generation != self.generation or self.core is None:
                return
            self.disk.batches, self.disk.start = batches, start
            self.is_flushing = False
            if self.is_dirty:
                self.flush()
            self.step(on.RecordsFlushed(end_offset=end, generation=log_generation))

        if self.held_syncs is not None:
            self.held_syncs.append(done)
            return
        self.cluster.after(self.cluster.draw(self.cluster.timing.flush), done)

    def receive_fetch(self, request: FetchRequest, follows: int, answer: Callable[[FetchResponse], None]) -> None:
        replica = request.replica.id
        self.waiting[replica] = (request, answer)
        self.step(on.FetchRequestReceived(request=request, follows=follows))
        if self.waiting.get(replica, (None,))[0] is not request:
            return
        if self.release_next.pop(replica, 0) is None:
            self.end_round(replica)
        else:
            self.end_round_later(replica, request)

    def end_round_later(self, replica: NodeId, request: FetchRequest) -> None:
        generation = self.generation

        def expire() -> None:
            if generation == self.generation and self.waiting.get(replica, (None,))[0] is request:
                self.end_round(replica)

        self.cluster.after(self.cluster.timing.fetch_wait, expire)

    def waits_for(self, request: object) -> bool:
        return any(held[0] is request for held in self.waiting.values())

    def end_round(self, replica: NodeId) -> None:
        """The fetch of `replica` has waited long enough: answer it empty, or confirm it in its session and let it wait on."""
        if not self.cluster.timing.sessions:
            self.answer_empty(replica)
            return
        request = self.waiting[replica][0]
        follower = self.cluster.nodes[replica]
        lives = (self.generation, follower.generation)
        self.answer_sequence += 1
        sequence = self.answer_sequence

        def is_current() -> bool:
            return lives == (self.generation, follower.generation) and self.core is not None and follower.core is not None

        def confirm_leader() -> None:
            if is_current() and follower.alive.fetch_in_flight is request:
                follower.step(on.LeaderConfirmed(leader_id=self.id, at_ms=self.cluster.now_ms))
                if follower.alive.fetch_in_flight is request:
                    self.cluster.transmit(replica, self.id, confirm_replica)

        def confirm_replica() -> None:
            if is_current() and self.waiting.get(replica, (None,))[0] is request:
                confirmed = on.ReplicaConfirmed(
                    replica_id=replica,
                    at_ms=self.cluster.now_ms,
                    follows=sequence,
                    leader_epoch=request.leader_epoch,
                )
                self.step(confirmed)
                if self.waiting.get(replica, (None,))[0] is request:
                    self.end_round_later(replica, request)

        self.cluster.transmit(self.id, replica, confirm_leader)

    def answer_empty(self, replica: NodeId) -> None:
        core = self.alive
        _, answer = self.waiting.pop(replica)
        answer(
            FetchResponse(
                error=ErrorCode.NONE,
                leader_id=core.leader_id,
                leader_epoch=core.epoch,
                high_watermark=core.high_watermark,
            )
        )

    def answer_fetch(self, action: do.AnswerFetch) -> None:
        held = self.waiting.get(action.replica_id)
        if held is None or held[0] is not action.request:
            return  # It was answered when its wait was over; the replica has asked again.
        del self.waiting[action.replica_id]
        self.release_next.pop(action.replica_id, None)
        batches: tuple[Batch, ...] = ()
        if action.error is ErrorCode.NONE and action.diverging is None and action.snapshot_id is None:
            batches = tuple(batch for batch in self.batches if batch.base_offset >= action.request.fetch_offset)
        held[1](
            FetchResponse(
                error=action.error,
                leader_id=action.leader_id,
                leader_epoch=action.leader_epoch,
                high_watermark=action.high_watermark,
                log_start_offset=self.alive.announced_log_start,
                diverging=action.diverging,
                snapshot_id=action.snapshot_id,
                batches=batches,
            )
        )
