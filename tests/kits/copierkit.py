"""A tier and a key space whose answers a test gives by hand, for tests of those who act for one partition, and for tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Txn, encode
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetResult
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    Lineage,
    LineageEnd,
    LineageFacts,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeDone, ProposeOutcome, ProposeStatus
from raftlake.replica.kv.state import KvState

NO_ANSWER = TierError(TierFailure.UNKNOWN, "the test gave no answer")


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
    checks: list[tuple[Lineage, RemoteSegment, Callable[[TierError | None], None]]] = field(default_factory=list)
    deletes: list[tuple[Lineage, Epoch, Offset, Callable[[Offset | TierError], None]]] = field(default_factory=list)
    adoptions: list[tuple[AdoptRequest, Callable[[LineageFacts | TierError], None]]] = field(default_factory=list)
    drops: list[tuple[GroupId, int, Callable[[TierError | None], None]]] = field(default_factory=list)
    finds: list[tuple[Lineage, Offset, Callable[[RemoteState | TierError], None]]] = field(default_factory=list)
    looks: list[tuple[Lineage, int, Callable[[tuple[RemoteFile, ...] | TierError], None]]] = field(default_factory=list)
    accepts: list[tuple[GroupId, Offset | None, Offset | None, Callable[[LineageFacts | TierError], None]]] = field(
        default_factory=list
    )
    asked_facts: list[tuple[Lineage | GroupId, Callable[[LineageFacts | TierError], None]]] = field(default_factory=list)

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        self.copies.append((request, done))

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        self.claims.append((lineage, leader_epoch, done))

    def check(self, lineage: Lineage, segment: RemoteSegment, done: Callable[[TierError | None], None]) -> None:
        self.checks.append((lineage, segment, done))

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset, done: Callable[[Offset | TierError], None]) -> None:
        self.deletes.append((lineage, leader_epoch, until, done))

    def drop(self, group: GroupId, partitions: int, done: Callable[[TierError | None], None]) -> None:
        self.drops.append((group, partitions, done))

    def adopt(self, request: AdoptRequest, done: Callable[[LineageFacts | TierError], None]) -> None:
        self.adoptions.append((request, done))

    def accept(
        self,
        group: GroupId,
        begin: Offset | None,
        reach: Offset | None,
        done: Callable[[LineageFacts | TierError], None],
    ) -> None:
        self.accepts.append((group, begin, reach, done))

    def read(self, request: Any, done: Any) -> None:
        raise AssertionError("nobody reads here")

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        self.finds.append((lineage, offset, done))

    def oldest(self, lineage: Lineage, count: int, done: Callable[[tuple[RemoteFile, ...] | TierError], None]) -> None:
        self.looks.append((lineage, count, done))

    def facts(self, lineage: Lineage | GroupId, done: Callable[[LineageFacts | TierError], None]) -> None:
        self.asked_facts.append((lineage, done))

    @property
    def under_way(self) -> int:
        """Calls that have no answer yet."""
        changing = (self.copies, self.claims, self.deletes, self.drops, self.adoptions, self.accepts)
        reading = (self.checks, self.finds, self.looks, self.asked_facts)
        return sum(len(calls) for calls in (*changing, *reading))

    def copied(self, read_back: TierError | None = NO_ANSWER) -> RemoteSegment:
        """The oldest copy that was asked for is shown, and what reads it back at once is answered so."""
        request, done = self.copies.pop(0)
        segment = segment_of(request)
        done(segment)
        if self.checks and self.checks[-1][1] == segment:
            self.checks.pop()[2](read_back)
        return segment

    def fail_copy(self, error: TierError) -> CopyRequest:
        request, done = self.copies.pop(0)
        done(error)
        return request

    def claimed(self, answer: LineageEnd | TierError) -> None:
        _, _, done = self.claims.pop(0)
        done(answer)

    def checked(self, answer: TierError | None = None) -> RemoteSegment:
        """The oldest check is answered. Returns the copy that was to be read back."""
        _, segment, done = self.checks.pop(0)
        done(answer)
        return segment


class Keys:
    """Stands for the key-value service: a state machine, and proposals that wait for the test."""

    def __init__(self) -> None:
        self.state = KvState()
        self.machine = self.state.machine
        self.proposed: list[tuple[Txn, ProposeDone]] = []
        #: Linearizable reads are answered at once; those of a test that says no wait.
        self.is_current = True
        self.reads: list[Callable[[ReadOffsetResult], None]] = []

    def read(self, linearizable: bool, done: Callable[[ReadOffsetResult], None]) -> None:
        assert linearizable
        self.reads.append(done)
        if self.is_current:
            self.answer_reads()

    def answer_reads(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """All reads that wait are answered so."""
        result = ReadOffsetResult(
            group=METADATA_GROUP, error=error, applied_offset=Offset(0), leader_id=NodeId(1), leader_epoch=Epoch(1)
        )
        reads, self.reads = self.reads, []
        for done in reads:
            done(result)

    def propose_anywhere(self, txn: Txn, done: ProposeDone) -> None:
        self.proposed.append((txn, done))

    def propose(self, txn: Txn, done: ProposeDone, origin: Origin = Origin.CLIENT) -> None:
        assert origin is Origin.SELF
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

    def refuse(self, reason: str) -> Txn:
        """The leader refuses the oldest proposal."""
        txn, done = self.proposed.pop(0)
        done(ProposeOutcome(ProposeStatus.REFUSED, reason=reason))
        return txn
