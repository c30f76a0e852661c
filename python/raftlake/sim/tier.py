"""The simulated remote tier: one object store for all nodes, with tables that show copies as a Delta table does.

A call uploads, reads the table as it was some time ago, and puts a commit. The commit takes effect when no other commit on the
same lineage came between; else the call reads again. The fate of a call is drawn when it begins. It may be slow, lose its
answer, or stall until long after its caller gave it up, and take effect then. A crash of the node leaves its calls to it.

Promise 8 is judged at each commit: the copies of a lineage follow one another, and hold exactly what was committed in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

import crc32c

from raftlake.errors import CorruptBatch
from raftlake.ports.tier import (
    CopyRequest,
    Lineage,
    LineageEnd,
    RemoteSegment,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.trace import Trace
from raftlake.wire.batch_header import require_crc
from raftlake.wire.batches import iterate_headers

#: When a caller gives a call up.
TIMEOUT_MS = 3_000
#: A stalled call has its effect so much later, or never.
STALL_MS_MAX = 20_000
STEP_MS_MAX = 200
#: Looks at the table of one call.
TRIES = 4

Answer = RemoteSegment | LineageEnd | TierError


@dataclass(slots=True)
class Shown:
    """What the table shows of a lineage."""

    segments: list[RemoteSegment] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    #: Of the last leader that wrote.
    leader_epoch: int = -1
    #: Counts the commits on the lineage.
    version: int = 0

    @property
    def end(self) -> LineageEnd:
        return LineageEnd(self.segments[-1] if self.segments else None)


class Caller(Protocol):
    """The machine that asks."""

    node_id: NodeId
    incarnation: int

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None: ...


class ObjectStore:
    """What all nodes share. `is_healed` ends its faults."""

    def __init__(self, scheduler: Scheduler, rng: Random, committed: CommittedLogs, trace: Trace) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.trace = trace
        self.is_healed = False
        self.lineages: dict[Lineage, Shown] = {}
        self._committed = committed
        #: How often each fate was met.
        self.counts: dict[str, int] = {}

    def of(self, lineage: Lineage) -> Shown:
        return self.lineages.setdefault(lineage, Shown())

    @property
    def ends(self) -> dict[Lineage, LineageEnd]:
        return {lineage: shown.end for lineage, shown in self.lineages.items()}

    def draw_fate(self) -> str:
        number = 0 if self.is_healed else self.rng.randrange(20)
        fate = {19: "stalls", 18: "stalls for ever", 17: "answer lost", 16: "answer lost"}.get(number, "quick")
        self.counts[fate] = self.counts.get(fate, 0) + 1
        return fate

    def judge(self, request: CopyRequest) -> TierError | None:
        """As the commit of a copy judges the table that it was made for."""
        shown = self.of(request.lineage)
        if request.leader_epoch < shown.leader_epoch:
            return TierError(TierFailure.FENCED, f"epoch {shown.leader_epoch} has written there")
        if shown.segments and shown.segments[-1].end_offset != request.base_offset:
            return TierError(TierFailure.ELSEWHERE, f"the table ends at {shown.segments[-1].end_offset}")
        return None

    def show(self, request: CopyRequest, segment: RemoteSegment, batches: bytes) -> None:
        """Raises Violation where promise 8 is broken."""
        shown = self.of(request.lineage)
        self._require_committed(request, batches)
        shown.segments.append(segment)
        shown.batches.append(batches)
        shown.leader_epoch = request.leader_epoch
        shown.version += 1

    def _require_committed(self, request: CopyRequest, batches: bytes) -> None:
        log = self._committed.of(request.lineage.group)
        wanted = b"".join(
            batch.data for batch in log.batches if request.base_offset <= batch.base and batch.end <= request.end_offset
        )
        if wanted != batches or log.end < request.end_offset:
            raise Violation(
                "the tier is exact",
                f"{request.lineage.group}: a copy of [{request.base_offset}, {request.end_offset}) is not what was committed",
            )


class SimulatedTier:
    """Implements `ports.RemoteTier` for one machine."""

    def __init__(self, store: ObjectStore, caller: Caller) -> None:
        self._store = store
        self._caller = caller

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        batches = b"".join(source for source in request.sources if isinstance(source, bytes))
        fault = _fault_of(request, batches)
        if fault is not None:
            self._begin(f"copy {request.lineage.group}", lambda: fault, None, done)
            return
        segment = RemoteSegment(
            segment_id=request.segment_id,
            base_offset=request.base_offset,
            end_offset=request.end_offset,
            leader_epoch=request.leader_epoch,
            epochs=request.epochs,
            timestamp_ms_max=max(header.timestamp_ms_max for header in iterate_headers(batches)),
            log_bytes=len(batches),
            size=len(batches),
            crc=crc32c.crc32c(batches),
            file=f"partition={request.lineage.group.partition}/{request.segment_id}.parquet",
        )

        def commit() -> RemoteSegment:
            self._store.show(request, segment, batches)
            return segment

        self._begin(f"copy {request.lineage.group}", lambda: self._store.judge(request), (request.lineage, commit), done)

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        shown = self._store.of(lineage)

        def judge() -> TierError | None:
            if leader_epoch < shown.leader_epoch:
                return TierError(TierFailure.FENCED, f"epoch {shown.leader_epoch} has written there")
            return None

        def commit() -> LineageEnd:
            shown.leader_epoch = leader_epoch
            shown.version += 1
            return shown.end

        self._begin(f"claim {lineage.group}", judge, (lineage, commit), done)

    def _begin(
        self,
        name: str,
        judge: Callable[[], TierError | None],
        change: tuple[Lineage, Callable[[], Answer]] | None,
        done: Callable[..., None],
    ) -> None:
        store = self._store
        call = _Call(store, self._caller, name, store.draw_fate(), done)
        store.scheduler.call_after(TIMEOUT_MS * US_PER_MS, call.give_up)
        if call.fate == "stalls for ever":
            return
        delay_ms = 1 + store.rng.randrange(STALL_MS_MAX if call.fate == "stalls" else STEP_MS_MAX)
        store.scheduler.call_after(delay_ms * US_PER_MS, self._look, call, judge, change, TRIES)

    def _look(
        self,
        call: _Call,
        judge: Callable[[], TierError | None],
        change: tuple[Lineage, Callable[[], Answer]] | None,
        tries: int,
    ) -> None:
        """Read the table, and put a commit that is made for what was read."""
        error = judge()
        if error is not None or change is None:
            call.answer(error or TierError(TierFailure.UNKNOWN, "nothing to do"))
            return
        version = self._store.of(change[0]).version
        delay_us = (1 + self._store.rng.randrange(STEP_MS_MAX)) * US_PER_MS
        self._store.scheduler.call_after(delay_us, self._put, call, judge, change, version, tries)

    def _put(
        self,
        call: _Call,
        judge: Callable[[], TierError | None],
        change: tuple[Lineage, Callable[[], Answer]],
        version: int,
        tries: int,
    ) -> None:
        lineage, commit = change
        if self._store.of(lineage).version == version:
            call.answer(commit())
        elif tries > 1:
            self._look(call, judge, change, tries - 1)
        else:
            call.answer(TierError(TierFailure.UNKNOWN, "other commits came between each time"))


@dataclass(slots=True)
class _Call:
    store: ObjectStore
    caller: Caller
    name: str
    fate: str
    done: Callable[..., None]
    incarnation: int = -1
    is_over: bool = False

    def __post_init__(self) -> None:
        self.incarnation = self.caller.incarnation

    def answer(self, answer: Answer) -> None:
        if self.store.trace.enabled:
            self.store.trace.write("tier", f"{self.name} of {self.caller.node_id}: {_describe(answer)}")
        if self.fate == "quick":
            self._tell(answer)

    def give_up(self) -> None:
        self._tell(TierError(TierFailure.UNKNOWN, f"no answer in {TIMEOUT_MS} ms"))

    def _tell(self, answer: Answer) -> None:
        if not self.is_over:
            self.is_over = True
            self.caller.deliver(self.incarnation, partial(self.done, answer))


def _describe(answer: Answer) -> str:
    match answer:
        case TierError(failure, reason):
            return f"{failure.value} ({reason})"
        case LineageEnd(last):
            return "nothing" if last is None else f"ends at {last.end_offset}"
    return f"shows {answer.base_offset}..{answer.end_offset}"


def _fault_of(request: CopyRequest, batches: bytes) -> TierError | None:
    offset = request.base_offset
    epochs: list[tuple[Epoch, Offset]] = []
    view = memoryview(batches)
    for header in iterate_headers(view):
        try:
            require_crc(view, header)
        except CorruptBatch as error:
            return TierError(TierFailure.DAMAGED, str(error))
        if header.base_offset != offset:
            return TierError(TierFailure.DAMAGED, f"a batch at {header.base_offset} follows {offset}")
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((Epoch(header.leader_epoch), offset))
        offset = Offset(header.end_offset)
    if offset != request.end_offset:
        return TierError(TierFailure.DAMAGED, f"the batches end at {offset}, and not at {request.end_offset}")
    if tuple(epochs) != request.epochs:
        return TierError(TierFailure.DAMAGED, f"the batches have the epochs {epochs}, and not {request.epochs}")
    return None
