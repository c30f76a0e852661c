"""Linearizable reads (KIP-650 ReadOffset) as a node offers them, leader or not.

A read of a group gets an offset that its leader proved after the read arrived, and completes once this node's own high
watermark (and with it the state machine) has reached that offset. Reads that wait for the same group share a round:
while one question is under way the next reads gather for the one after it, never for it, since it may have been proven
before they arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, PeerReply, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.raft.actions import AnswerRead
from raftlake.raft.events import FailureReason, ReadRequested
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.proofs import AwaitedProofs
from raftlake.replica.timers import Timer

RETRY_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
DoneCallback = Callable[[ReadOffsetResult], None]

#: Reads of all groups that wait for their proof at one node.
READS_MAX = 50_000


@dataclass(slots=True)
class _Waiting:
    done: DoneCallback
    #: Wait until this node has the offset, or only name it.
    local: bool
    deadline: Timer | None = None
    stop_waiting: Callable[[], None] | None = None
    finished: bool = False


class GroupReads:
    """The reads of one group that were asked at this node."""

    def __init__(self, engine: Engine, group: GroupId, ask_core: Callable[[GroupId, DoneCallback], None]) -> None:
        self._engine = engine
        self._group = group
        self._ask_core = ask_core
        self._gathering: list[_Waiting] = []
        self._asked: list[_Waiting] = []
        self._under_way = False
        #: Rings when the group is asked for once more; one for all that gather.
        self._retry: Timer | None = None

    def read(self, done: DoneCallback, *, local: bool) -> None:
        waiting = _Waiting(done, local)
        at_ms = self._engine.now_ms + self._engine.config.read_timeout_ms
        waiting.deadline = self._engine.timers.schedule(at_ms, lambda: self._expire(waiting))
        self._gathering.append(waiting)
        if self._retry is None:
            self._ask()

    def _ask_later(self) -> None:
        if self._retry is None:
            at_ms = self._engine.now_ms + self._engine.config.raft.retry_backoff_ms
            self._retry = self._engine.timers.schedule(at_ms, self._ask_again)

    def _ask_again(self) -> None:
        self._retry = None
        self._ask()

    def _ask(self) -> None:
        if self._under_way or not self._gathering:
            return
        self._asked, self._gathering = self._gathering, []
        self._under_way = True
        partition = self._engine.partitions.get(self._group)
        if partition is None:
            self._answered(self._failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LEADER, Epoch(-1)))
        elif partition.core.is_leader:
            self._ask_core(self._group, self._answered)
        elif partition.core.leader_id in (NO_LEADER, self._engine.config.node_id):
            self._answered(self._failure(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, partition.core.epoch))
        else:
            rpc = ReadOffsetRpc(
                cluster_id=self._engine.cluster_id,
                read_timestamp_ms=self._engine.clock.wall_ms(),
                groups=(self._group,),
                replica_id=self._engine.config.node_id,
            )
            self._engine.network.send(partition.core.leader_id, rpc, self._on_reply)

    def _on_reply(self, reply: PeerReply | FailureReason) -> None:
        self._engine.begin_input()
        if isinstance(reply, ReadOffsetReply) and reply.results:
            self._answered(reply.results[0])
        else:
            self._answered(self._failure(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, Epoch(-1)))

    def _answered(self, result: ReadOffsetResult) -> None:
        self._under_way = False
        asked, self._asked = self._asked, []
        alive = [waiting for waiting in asked if not waiting.finished]
        if result.error in RETRY_ERRORS:
            # These arrived before the next question, so it may serve them too.
            self._gathering[:0] = alive
            if self._gathering:
                self._ask_later()
            return
        for waiting in alive:
            self._complete(waiting, result)
        self._ask()

    def _complete(self, waiting: _Waiting, result: ReadOffsetResult) -> None:
        if result.error is not ErrorCode.NONE or not waiting.local:
            self._finish(waiting, result)
            return
        partition = self._engine.partitions.get(self._group)
        if partition is None:
            # It was closed meanwhile, and nobody knows how far it will be.
            self._gathering.append(waiting)
        elif partition.high_watermark < result.applied_offset:
            waiting.stop_waiting = partition.wait_for_watermark(partial(self._advanced, partition, waiting, result))
        else:
            self._finish(waiting, result)

    def _advanced(self, partition: Partition, waiting: _Waiting, result: ReadOffsetResult, high_watermark: int) -> bool:
        """Whether the partition need not tell of further high watermarks."""
        if high_watermark >= result.applied_offset:
            return self._finish(waiting, result)
        if partition.deleted:
            # It was closed, and tells of no other. The group is asked for anew, until it is open again: once for all that wait.
            waiting.stop_waiting = None
            self._gathering.append(waiting)
            self._ask_later()
        return partition.deleted

    def _finish(self, waiting: _Waiting, result: ReadOffsetResult) -> bool:
        waiting.finished = True
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        if waiting.stop_waiting is not None:
            waiting.stop_waiting()
        waiting.done(result)
        return True

    def _expire(self, waiting: _Waiting) -> None:
        if not waiting.finished:
            partition = self._engine.partitions.get(self._group)
            if partition is None:
                result = self._failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_LEADER, Epoch(-1))
            else:
                result = self._failure(ErrorCode.REQUEST_TIMED_OUT, partition.core.leader_id, partition.core.epoch)
            self._finish(waiting, result)

    def _failure(self, error: ErrorCode, leader_id: NodeId, epoch: Epoch) -> ReadOffsetResult:
        return ReadOffsetResult(
            group=self._group, error=error, applied_offset=Offset(-1), leader_id=leader_id, leader_epoch=epoch
        )


def unknown_group(group: GroupId, error: ErrorCode) -> ReadOffsetResult:
    """The answer of a node that cannot ask for the group."""
    return ReadOffsetResult(group=group, error=error, applied_offset=Offset(-1), leader_id=NO_LEADER, leader_epoch=Epoch(-1))


class ReadService:
    """Reads of all groups, and the leader's answers to other nodes."""

    def __init__(self, engine: Engine, names: Names, fetch_server: FetchServer, proofs: AwaitedProofs) -> None:
        self._engine = engine
        self._names = names
        self._fetch_server = fetch_server
        self._proofs = proofs
        self._groups: dict[GroupId, GroupReads] = {}
        self._pending = 0
        self._counter = 0
        self._at_core: dict[int, tuple[GroupId, DoneCallback]] = {}

    def read(self, group: GroupId, done: DoneCallback, *, local: bool = True) -> None:
        """Call `done` once with a proven offset of `group` (with `local`: one that this node has reached) or an error:
        THROTTLING_QUOTA_EXCEEDED when too many reads wait already."""
        if group not in self._engine.partitions:
            done(unknown_group(group, self._names.why_unknown(group)))
            return
        if self._pending >= READS_MAX:
            done(unknown_group(group, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
            return
        reads = self._groups.get(group)
        if reads is None:
            reads = self._groups[group] = GroupReads(self._engine, group, self.ask_core)
        self._pending += 1

        def finished(result: ReadOffsetResult) -> None:
            self._pending -= 1
            done(result)

        reads.read(finished, local=local)

    def drop(self, group: GroupId) -> None:
        """The group was deleted: its core will not answer any more. Reads that were asked here end with their deadline."""
        self._groups.pop(group, None)
        self._proofs.drop(group)
        gone = [read_id for read_id, (of, _) in self._at_core.items() if of == group]
        for read_id in gone:
            _, done = self._at_core.pop(read_id)
            done(unknown_group(group, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    # --- at the leader ---

    def ask_core(self, group: GroupId, done: DoneCallback) -> None:
        self._counter += 1
        self._at_core[self._counter] = (group, done)
        self._proofs.add(group)
        sequence = self._fetch_server.answer_sequence
        self._engine.step(self._engine.partitions[group], ReadRequested(read_id=self._counter, sequence=sequence))

    def prove(self, group: GroupId, done: Callable[[bool], None]) -> None:
        """Call `done` once with whether this node, which leads the group as far as it knows, is proven to lead it still."""
        self.ask_core(group, lambda result: done(result.error is ErrorCode.NONE))

    def answered(self, action: AnswerRead) -> None:
        group, done = self._at_core.pop(action.read_id)
        self._proofs.remove(group)
        done(
            ReadOffsetResult(
                group=group,
                error=action.error,
                applied_offset=action.offset,
                leader_id=action.leader_id,
                leader_epoch=action.leader_epoch,
            )
        )

    def receive(self, rpc: ReadOffsetRpc, reply: Callable[[PeerReply], None]) -> None:
        """A ReadOffset RPC: a peer's question is for this node's own cores, a client's may be passed on."""
        results: dict[int, ReadOffsetResult] = {}

        def put(index: int, result: ReadOffsetResult) -> None:
            results[index] = result
            if len(results) == len(rpc.groups):
                ordered = tuple(results[i] for i in range(len(rpc.groups)))
                reply(ReadOffsetReply(error=ErrorCode.NONE, results=ordered))

        if not rpc.groups:
            reply(ReadOffsetReply(error=ErrorCode.NONE))
        for index, group in enumerate(rpc.groups):
            if rpc.replica_id < 0 or group not in self._engine.partitions:
                self.read(group, partial(put, index))
            else:
                self.ask_core(group, partial(put, index))
