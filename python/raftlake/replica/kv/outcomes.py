"""What becomes of a proposal, as who proposed it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from raftlake.errors import ErrorCode
from raftlake.kv.machine import TxnResult
from raftlake.raft.types import NO_LEADER, NodeId


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
