"""What becomes of a proposal, and the way of one that another node has to take.

Owns the tries of a transaction that this node itself wants: here where it leads, else at the leader, again while none leads.
Invariant: a proposal that may have been appended is never tried again; its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Txn, encode
from raftlake.kv.machine import TxnResult
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import PeerReply, ProposeReply, ProposeRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.wire.batches import Record, build_batch

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

#: What a node says whose proposal the leader refused for want of room; the leader's log and health check say more.
NO_ROOM_AT_THE_LEADER = {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the key space is full (kv.quota.bytes); nothing changed. Delete keys or topics",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "a majority of the voters has little room on its disks (log.dir.min.free.bytes); nothing changed. The leader's "
        "/health/ready names them"
    ),
    ErrorCode.INVALID_PARTITIONS: "so many more partitions would exceed the limit for all topics together; nothing changed",
}


class ProposeStatus(Enum):
    #: Committed and applied: see the result (its compares may have failed).
    DONE = "done"
    #: Never proposed: nothing can have changed.
    REFUSED = "refused"
    #: Refused because another node leads (or none does).
    NOT_LEADER = "not_leader"
    #: Proposed; whether it took effect, or will, is not known.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProposeOutcome:
    status: ProposeStatus
    result: TxnResult | None = None
    leader_id: NodeId = NO_LEADER
    #: Of a refusal for want of room, or by the leader's rules: what is the matter, and what to do.
    reason: str = ""
    #: It may be over soon: disks are nearly full.
    is_passing: bool = False
    #: What Kafka's clients are told of a refusal with a reason.
    error: ErrorCode = ErrorCode.POLICY_VIOLATION


def refused(error: ErrorCode, reason: str) -> ProposeOutcome:
    """What a leader's refusal for want of room means to who proposed."""
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ProposeOutcome(ProposeStatus.NOT_LEADER)
    told = error if error is ErrorCode.INVALID_PARTITIONS else ErrorCode.POLICY_VIOLATION
    return ProposeOutcome(ProposeStatus.REFUSED, reason=reason, error=told)


ProposeDone = Callable[[ProposeOutcome], None]


class Forwarding:
    """One transaction on its way to the leader, wherever that is."""

    __slots__ = ("_deadline_ms", "_done", "_node", "_txn")

    def __init__(self, node: ReplicaNode, txn: Txn, done: ProposeDone) -> None:
        self._node = node
        self._txn = txn
        self._done = done
        self._deadline_ms = node.now_ms + node.config.propose_timeout_ms

    def attempt(self) -> None:
        node = self._node
        leader_id = node.metadata_leader_id
        if node.config.is_opaque:
            self._done(ProposeOutcome(ProposeStatus.REFUSED))
        elif leader_id == node.config.node_id:
            node.kv.propose(self._txn, self._on_outcome, Origin.SELF)
        elif leader_id == NO_LEADER:
            self._on_outcome(ProposeOutcome(ProposeStatus.NOT_LEADER))
        else:
            now_ms = node.clock.wall_ms()
            record = Record(offset=0, timestamp_ms=now_ms, key=None, value=encode(self._txn))
            batch = build_batch([record], base_offset=0, leader_epoch=0, timestamp_ms=now_ms)
            node.network.send(leader_id, ProposeRpc(batch=bytes(batch), source=node.config.node_id), self._on_reply)

    def _on_reply(self, reply: PeerReply | FailureReason) -> None:
        self._node.begin_input()
        if not isinstance(reply, ProposeReply) or reply.error is ErrorCode.REQUEST_TIMED_OUT:
            self._done(ProposeOutcome(ProposeStatus.UNKNOWN))
        elif reply.error is not ErrorCode.NONE:
            reason = NO_ROOM_AT_THE_LEADER.get(reply.error, "")
            if reply.error is ErrorCode.POLICY_VIOLATION:
                # Trying again would not help, so this is no want of a leader.
                reason = f"the leader refused the change: {reply.message or 'see its log'}"
            self._on_outcome(refused(reply.error, reason))
        else:
            self._node.kv.await_result(reply.base_offset, self._done)

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        node = self._node
        if outcome.status is not ProposeStatus.NOT_LEADER or node.now_ms >= self._deadline_ms:
            self._done(outcome)
            return
        node.timers.schedule(node.now_ms + node.config.raft.retry_backoff_ms, self.attempt)
