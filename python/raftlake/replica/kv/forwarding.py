"""The way of a proposal that another node has to take.

Owns the tries of a transaction that this node itself wants: here where it leads, else at the leader, again while none leads.
Invariant: a proposal that may have been appended is never tried again; its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Txn, encode
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import PeerReply, ProposeReply, ProposeRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeDone, ProposeOutcome, ProposeStatus, refused
from raftlake.replica.quorum import Quorum
from raftlake.wire.batches import Record, build_batch

#: What a node says whose proposal the leader refused for want of room; the leader's log and health check say more.
NO_ROOM_AT_THE_LEADER = {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the key space is full (kv.quota.bytes); nothing changed. Delete keys or topics",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "a majority of the voters has little room on its disks (log.dir.min.free.bytes); nothing changed. The leader's "
        "/health/ready names them"
    ),
    ErrorCode.INVALID_PARTITIONS: "so many more partitions would exceed the limit for all topics together; nothing changed",
}


class Forwarding:
    """One transaction on its way to the leader, on this node or another. `propose` proposes at this node. `await_result` waits
    for the result of what the leader has committed at an offset."""

    __slots__ = ("_await_result", "_deadline_ms", "_done", "_engine", "_propose", "_quorum", "_txn")

    def __init__(
        self,
        engine: Engine,
        quorum: Quorum,
        txn: Txn,
        done: ProposeDone,
        *,
        propose: Callable[[Txn, ProposeDone, Origin], None],
        await_result: Callable[[int, ProposeDone], None],
    ) -> None:
        self._engine = engine
        self._quorum = quorum
        self._propose = propose
        self._await_result = await_result
        self._txn = txn
        self._done = done
        self._deadline_ms = engine.now_ms + engine.config.propose_timeout_ms

    def attempt(self) -> None:
        engine = self._engine
        leader_id = self._quorum.leader_id
        if engine.config.is_opaque:
            self._done(ProposeOutcome(ProposeStatus.REFUSED))
        elif leader_id == engine.config.node_id:
            self._propose(self._txn, self._on_outcome, Origin.SELF)
        elif leader_id == NO_LEADER:
            self._on_outcome(ProposeOutcome(ProposeStatus.NOT_LEADER))
        else:
            now_ms = engine.clock.wall_ms()
            record = Record(offset=0, timestamp_ms=now_ms, key=None, value=encode(self._txn))
            batch = build_batch([record], base_offset=0, leader_epoch=0, timestamp_ms=now_ms)
            engine.network.send(leader_id, ProposeRpc(batch=bytes(batch), source=engine.config.node_id), self._on_reply)

    def _on_reply(self, reply: PeerReply | FailureReason) -> None:
        self._engine.begin_input()
        if not isinstance(reply, ProposeReply) or reply.error is ErrorCode.REQUEST_TIMED_OUT:
            self._done(ProposeOutcome(ProposeStatus.UNKNOWN))
        elif reply.error is not ErrorCode.NONE:
            reason = NO_ROOM_AT_THE_LEADER.get(reply.error, "")
            if reply.error is ErrorCode.POLICY_VIOLATION:
                # Trying again would not help, so this is no want of a leader.
                reason = f"the leader refused the change: {reply.message or 'see its log'}"
            self._on_outcome(refused(reply.error, reason))
        else:
            self._await_result(reply.base_offset, self._done)

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        engine = self._engine
        if outcome.status is not ProposeStatus.NOT_LEADER or engine.now_ms >= self._deadline_ms:
            self._done(outcome)
            return
        engine.timers.schedule(engine.now_ms + engine.config.raft.retry_backoff_ms, self.attempt)
