"""A tier and a key space whose answers a test gives by hand, for tests of the copiers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raftlake.kv.commands import Txn, encode
from raftlake.kv.machine import StateMachine
from raftlake.ports.tier import CopyRequest, Lineage, LineageEnd, RemoteSegment, TierError
from raftlake.raft.types import Epoch
from raftlake.replica.kv.outcomes import ProposeDone, ProposeOutcome, ProposeStatus


def segment_of(request: CopyRequest) -> RemoteSegment:
    """What a tier tells of the copy that was asked for."""
    return RemoteSegment(
        segment_id=request.segment_id,
        base_offset=request.base_offset,
        end_offset=request.end_offset,
        leader_epoch=request.leader_epoch,
        epochs=request.epochs,
        timestamp_ms_max=7,
        log_bytes=10,
        size=100,
        crc=5,
        file=f"partition=0/{request.segment_id}.parquet",
    )


@dataclass
class Tier:
    """Notes what is asked. `answer` is the test's."""

    copies: list[tuple[CopyRequest, Callable[[RemoteSegment | TierError], None]]] = field(default_factory=list)
    claims: list[tuple[Lineage, Epoch, Callable[[LineageEnd | TierError], None]]] = field(default_factory=list)

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        self.copies.append((request, done))

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        self.claims.append((lineage, leader_epoch, done))

    def copied(self) -> RemoteSegment:
        """The oldest copy that was asked for is shown."""
        request, done = self.copies.pop(0)
        segment = segment_of(request)
        done(segment)
        return segment

    def fail_copy(self, error: TierError) -> CopyRequest:
        request, done = self.copies.pop(0)
        done(error)
        return request

    def claimed(self, answer: LineageEnd | TierError) -> None:
        _, _, done = self.claims.pop(0)
        done(answer)


class Keys:
    """Stands for the key-value service: a state machine, and proposals that wait for the test."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.proposed: list[tuple[Txn, ProposeDone]] = []

    def propose_anywhere(self, txn: Txn, done: ProposeDone) -> None:
        self.proposed.append((txn, done))

    def apply(self, txn: Txn) -> ProposeOutcome:
        """As if it were committed next, whoever proposed it."""
        result = self.machine.apply(self.machine.applied_offset + 1, encode(txn))
        return ProposeOutcome(ProposeStatus.DONE, result)

    def commit(self) -> Txn:
        """The oldest proposal is committed, applied and answered."""
        txn, done = self.proposed.pop(0)
        done(self.apply(txn))
        return txn

    def answer(self, status: ProposeStatus) -> Txn:
        """The oldest proposal is answered so, and nothing of it is applied."""
        txn, done = self.proposed.pop(0)
        done(ProposeOutcome(status))
        return txn
