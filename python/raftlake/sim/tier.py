"""The simulated remote tier: one object store for all nodes, with tables that show copies as a Delta table does.

A call uploads, reads the table as it was some time ago, and puts a commit. The commit takes effect when no other commit on the
same lineage came between; else the call reads again. The fate of a call is drawn when it begins. It may be slow, lose its
answer, or stall until long after its caller gave it up, and take effect then. A crash of the node leaves its calls to it.

Promise 8 is judged at each commit: the copies of a lineage follow one another, and hold exactly what was committed in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

import crc32c

from raftlake.errors import CorruptBatch
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    FoundRecord,
    Lineage,
    LineageEnd,
    LineageFacts,
    ReadRequest,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.tier import STARTED_FIRST, CommittedKeys
from raftlake.sim.tier_table import NOT_OURS, Copy, Shown, batches_of, cut, facts_of, file_of, found_in, piece_of
from raftlake.sim.trace import Trace
from raftlake.tier.lineage import adopt, cut_off, hole_words
from raftlake.wire.batch_header import require_crc
from raftlake.wire.batches import iterate_headers

#: When a caller gives a call up.
TIMEOUT_MS = 3_000
#: A stalled call has its effect so much later, or never.
STALL_MS_MAX = 20_000
STEP_MS_MAX = 200
#: Looks at the table of one call.
TRIES = 4

#: What a call answers where it does not fail.
Success = RemoteSegment | LineageEnd | LineageFacts | RemoteState | FoundRecord | tuple[RemoteFile, ...] | bytes | int | None
Answer = Success | TierError


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
        self.keys = CommittedKeys(committed)
        #: What an unclean election removed from a table: segment, batches, auxiliary bytes.
        self.superseded: dict[GroupId, list[Copy]] = {}
        #: Topics at whose place somebody else has a table.
        self.foreign: set[bytes] = set()
        #: Copies that another program removed from the table of a lineage.
        self.removed: dict[Lineage, list[Copy]] = {}
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
        fence = self.fence(request.lineage, request.leader_epoch)
        end = shown.begin if shown.newest is None else shown.newest.end_offset
        if fence is None and end == 0 and request.is_continued:
            return TierError(TierFailure.UNUSABLE, "the table never showed a row")
        if fence is None and end != request.base_offset and (shown.newest is not None or end > 0):
            return TierError(TierFailure.ELSEWHERE, f"the table ends at {end}")
        return fence

    def fence(self, lineage: Lineage, leader_epoch: Epoch) -> TierError | None:
        """Why a leader of this epoch may change nothing."""
        shown = self.of(lineage)
        if lineage.group.topic_id in self.foreign:
            return NOT_OURS
        if shown.is_dropped:
            return TierError(TierFailure.FENCED, "the topic is deleted")
        newest = self.newest_incarnation(lineage.group)
        if lineage.incarnation < newest:
            return TierError(TierFailure.FENCED, f"incarnation {newest} has begun")
        if leader_epoch < shown.leader_epoch:
            return TierError(TierFailure.FENCED, f"epoch {shown.leader_epoch} has written there")
        return self.change(lineage)

    def change(self, lineage: Lineage) -> TierError | None:
        """What another program has done to a lineage, and has not undone."""
        gone = len(self.removed.get(lineage, []))
        return TierError(TierFailure.CHANGED, f"another program has removed {gone} copies") if gone else None

    def take_out(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        """Another program removes copies."""
        self.removed.setdefault(lineage, []).extend(self.of(lineage).take_out(segments))

    def put_back(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        """Another program puts back some of what it removed."""
        removed = self.removed[lineage]
        back = [copy for copy in removed if copy[0] in segments]
        self.removed[lineage] = [copy for copy in removed if copy not in back]
        self.of(lineage).put_back(back)

    def accept(self, lineage: Lineage, begin: Offset | None, reach: Offset | None) -> LineageFacts | TierError:
        """Go by what is shown, where that makes one run."""
        shown = self.of(lineage)
        start = shown.start_offset
        ends = [start if begin is None else begin, *(each.end_offset for each in shown.segments)]
        firsts = [*(each.base_offset for each in shown.segments), *([] if shown.segments else [start])]
        if any(first > end for first, end in zip(firsts, ends, strict=False)):
            return TierError(TierFailure.CHANGED, "the table has a hole")
        if reach is not None and ends[-1] < reach:
            return TierError(TierFailure.CHANGED, f"the table ends at {ends[-1]}, and the log begins at {reach}")
        if self.removed.pop(lineage, None):
            shown.newest = shown.segments[-1]
            shown.version += 1
        return facts_of(lineage, shown)

    def newest_incarnation(self, group: GroupId) -> int:
        return max((lineage.incarnation for lineage in self.lineages if lineage.group == group), default=0)

    def has_shown(self, group: GroupId) -> bool:
        """Whether the table of a partition knows where copies end, in any incarnation."""
        lineages = [shown for lineage, shown in self.lineages.items() if lineage.group == group]
        return any(shown.newest is not None or shown.begin > 0 for shown in lineages)

    def adopt(self, request: AdoptRequest) -> LineageFacts | TierError:
        """Begin a new incarnation, unless this recovery has begun it."""
        number = self.newest_incarnation(request.group)
        known = Lineage(request.group, number)
        shown = self.of(known)
        if shown.recovery != request.recovery:
            live = list(zip(shown.segments, shown.batches, shown.auxiliaries, strict=True))
            copies = {copy[0].segment_id: copy for copy in [*self.superseded.get(request.group, []), *live]}
            pieces = [piece_of(copy[0], is_live=copy in live) for copy in copies.values()]
            parts = adopt(pieces, request.epochs, request.log_start, request.end_offset)
            if (cut_by := cut_off(pieces, request.epochs, request.log_start, parts)) is not None:
                return TierError(TierFailure.ELSEWHERE, hole_words(cut_by, request.log_start))
            known = Lineage(request.group, number + 1)
            shown = self.lineages[known] = Shown(
                recovery=request.recovery, begin=request.log_start, leader_epoch=request.leader_epoch
            )
            for part in parts:
                shown.show(*cut(copies[part.piece.name], part))
            whole = {part.piece.name for part in parts if part.is_whole}
            self.superseded[request.group] = [copy for name, copy in copies.items() if name not in whole]
        shown.leader_epoch = max(shown.leader_epoch, request.leader_epoch)
        shown.version += 1
        return facts_of(known, shown)

    def show(self, request: CopyRequest, segment: RemoteSegment, batches: bytes) -> None:
        """Raises Violation where promise 8 is broken."""
        shown = self.of(request.lineage)
        self._require_committed(request, batches)
        shown.show(segment, batches, request.auxiliary)
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
            self._begin(f"copy {request.lineage.group}", lambda: fault, lambda: None, None, done)
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

        self._begin(f"copy {request.lineage.group}", lambda: self._store.judge(request), commit, request.lineage, done)

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        shown = self._store.of(lineage)

        def commit() -> LineageEnd:
            shown.leader_epoch = leader_epoch
            shown.version += 1
            return shown.end

        self._begin(f"claim {lineage.group}", lambda: self._store.fence(lineage, leader_epoch), commit, lineage, done)

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset, done: Callable[[Offset | TierError], None]) -> None:
        shown = self._store.of(lineage)

        def commit() -> Offset:
            if not self._store.keys.may_delete(lineage, until):
                raise Violation(STARTED_FIRST, f"{lineage.group}: what lies below {until}")
            shown.remove(sum(segment.end_offset <= until for segment in shown.segments))
            shown.leader_epoch = leader_epoch
            shown.version += 1
            return shown.start_offset

        self._begin(f"delete {lineage.group}", lambda: self._store.fence(lineage, leader_epoch), commit, lineage, done)

    def adopt(self, request: AdoptRequest, done: Callable[[LineageFacts | TierError], None]) -> None:
        store, group = self._store, request.group

        def judge() -> TierError | None:
            fence = store.fence(Lineage(group, store.newest_incarnation(group)), request.leader_epoch)
            if fence is None and request.is_continued and not store.has_shown(group):
                return TierError(TierFailure.UNUSABLE, "the table never showed a row")
            return fence

        self._begin(f"adopt {group}", judge, lambda: store.adopt(request), Lineage(group, 0), done)

    def accept(
        self,
        group: GroupId,
        begin: Offset | None,
        reach: Offset | None,
        done: Callable[[LineageFacts | TierError], None],
    ) -> None:
        store = self._store
        lineage = Lineage(group, store.newest_incarnation(group))

        def judge() -> TierError | None:
            shown = store.of(lineage)
            is_known = shown.newest is not None or bool(shown.recovery)
            return None if is_known else TierError(TierFailure.ABSENT, f"the table never showed a row of {group}")

        self._begin(f"accept {group}", judge, lambda: store.accept(lineage, begin, reach), lineage, done)

    def drop(self, group: GroupId, partitions: int, done: Callable[[TierError | None], None]) -> None:
        store = self._store

        def commit() -> None:
            for lineage in [Lineage(group._replace(partition=index), 0) for index in range(partitions)] + list(store.lineages):
                if lineage.group.topic_id == group.topic_id:
                    shown = store.of(lineage)
                    shown.remove(len(shown.segments))
                    shown.is_dropped = True
                    shown.version += 1

        self._begin(f"drop {group.topic}", lambda: None, commit, None, done)

    # --- calls that only read ---

    def check(self, lineage: Lineage, segment: RemoteSegment, done: Callable[[TierError | None], None]) -> None:
        def read() -> TierError | None:
            shown = self._store.of(lineage)
            if (change := self._store.change(lineage)) is not None:
                return change
            index = shown.index_of(segment.base_offset)
            if index is None or shown.segments[index] != segment:
                return TierError(TierFailure.ABSENT, f"the table does not show {segment.file}")
            if crc32c.crc32c(shown.batches[index]) != segment.crc:
                return TierError(TierFailure.DAMAGED, f"{segment.file} is not as it was written")
            shown.checked.add(segment.segment_id)
            return None

        self._read(f"check {lineage.group}", read, done)

    def read(self, request: ReadRequest, done: Callable[[bytes | TierError], None]) -> None:
        def read() -> bytes | TierError:
            shown = self._store.of(request.lineage)
            index = shown.index_of(request.offset)
            if index is None:
                return TierError(TierFailure.ABSENT, f"the table does not show offset {request.offset}")
            found = b""
            for header, batch in batches_of(shown.batches[index:]):
                if header.end_offset <= request.offset:
                    continue
                if header.end_offset > request.end_offset or (found and len(found) + len(batch) > request.size_max):
                    break
                if not _is_whole(batch):
                    return found or TierError(TierFailure.DAMAGED, f"offset {header.base_offset} is not as it was written")
                found += batch
            return found

        self._read(f"read {request.lineage.group}", read, done)

    def search(self, request: SearchRequest, done: Callable[[FoundRecord | TierError | None], None]) -> None:
        def read() -> FoundRecord | None:
            return found_in(self._store.of(request.lineage).batches, request)

        self._read(f"search {request.lineage.group}", read, done)

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        def read() -> RemoteState | TierError:
            shown = self._store.of(lineage)
            index = shown.index_of(offset)
            if index is None:
                return TierError(TierFailure.ABSENT, f"the table does not show offset {offset}")
            for segment, auxiliary in zip(shown.segments[index:], shown.auxiliaries[index:], strict=True):
                if auxiliary:
                    holding = shown.segments[index]
                    return RemoteState(segment, auxiliary, None if segment == holding else holding)
            return TierError(TierFailure.ABSENT, f"no copy from offset {offset} on has its auxiliary bytes")

        self._read(f"find {lineage.group}", read, done)

    def oldest(self, lineage: Lineage, count: int, done: Callable[[tuple[RemoteFile, ...] | TierError], None]) -> None:
        def read() -> tuple[RemoteFile, ...]:
            return tuple(file_of(segment) for segment in self._store.of(lineage).segments[:count])

        self._read(f"oldest {lineage.group}", read, done)

    def facts(self, lineage: Lineage | GroupId, done: Callable[[LineageFacts | TierError], None]) -> None:
        def read() -> LineageFacts | TierError:
            store = self._store
            known = [
                each
                for each, shown in store.lineages.items()
                if lineage in (each, each.group) and (shown.newest is not None or shown.recovery)
            ]
            if not known:
                return TierError(TierFailure.ABSENT, f"the table never showed a row of {lineage}")
            newest = max(known, key=lambda each: each.incarnation)
            return facts_of(newest, store.of(newest))

        self._read(f"facts of {lineage.group if isinstance(lineage, Lineage) else lineage}", read, done)

    # --- how a call goes ---

    def _read(self, name: str, read: Callable[[], Answer], done: Callable[..., None]) -> None:
        """A call that reads the table once, as it is by then."""
        self._begin(name, lambda: None, read, None, done)

    def _begin(
        self,
        name: str,
        judge: Callable[[], TierError | None],
        act: Callable[[], Answer],
        lineage: Lineage | None,
        done: Callable[..., None],
    ) -> None:
        """`lineage`: the one whose commits must not come between `judge` and `act`."""
        store = self._store
        call = _Call(store, self._caller, name, store.draw_fate(), done)
        store.scheduler.call_after(TIMEOUT_MS * US_PER_MS, call.give_up)
        if call.fate == "stalls for ever":
            return
        delay_ms = 1 + store.rng.randrange(STALL_MS_MAX if call.fate == "stalls" else STEP_MS_MAX)
        store.scheduler.call_after(delay_ms * US_PER_MS, self._look, call, judge, act, lineage, TRIES)

    def _look(
        self,
        call: _Call,
        judge: Callable[[], TierError | None],
        act: Callable[[], Answer],
        lineage: Lineage | None,
        tries: int,
    ) -> None:
        """Read the table, and put a commit that is made for what was read."""
        error = judge()
        if error is not None or lineage is None:
            call.answer(error if error is not None else act())
            return
        version = self._store.of(lineage).version
        delay_us = (1 + self._store.rng.randrange(STEP_MS_MAX)) * US_PER_MS
        self._store.scheduler.call_after(delay_us, self._put, call, judge, act, lineage, version, tries)

    def _put(
        self,
        call: _Call,
        judge: Callable[[], TierError | None],
        act: Callable[[], Answer],
        lineage: Lineage,
        version: int,
        tries: int,
    ) -> None:
        if self._store.of(lineage).version == version:
            call.answer(act())
        elif tries > 1:
            self._look(call, judge, act, lineage, tries - 1)
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
        case TierError(failure=failure, reason=reason):
            return f"{failure.value} ({reason})"
        case LineageEnd(last=last):
            return "nothing" if last is None else f"ends at {last.end_offset}"
        case RemoteSegment(base_offset=base, end_offset=end):
            return f"shows {base}..{end}"
        case RemoteState(segment=segment):
            return f"is in {segment.base_offset}..{segment.end_offset}"
        case FoundRecord(offset=offset):
            return f"found {offset}"
        case LineageFacts(start_offset=start, end_offset=end):
            return f"has {start}..{end}"
        case bytes():
            return f"{len(answer)} bytes"
        case int():
            return f"begins at {answer}"
        case tuple():
            return f"{len(answer)} files"
    return "done"


def _is_whole(batch: bytes) -> bool:
    try:
        require_crc(memoryview(batch), next(iterate_headers(batch)))
    except CorruptBatch:
        return False
    return True


def _fault_of(request: CopyRequest, batches: bytes) -> TierError | None:
    offset = request.base_offset
    epochs: list[tuple[Epoch, Offset]] = []
    view = memoryview(batches)
    position = 0
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
        position = header.end_position
    if position != len(batches):
        return TierError(TierFailure.DAMAGED, f"{len(batches) - position} bytes at the end are no batch")
    if epochs and epochs[-1][0] > request.leader_epoch:
        return TierError(TierFailure.DAMAGED, f"a batch is of epoch {epochs[-1][0]}, after {request.leader_epoch}")
    if offset != request.end_offset:
        return TierError(TierFailure.DAMAGED, f"the batches end at {offset}, and not at {request.end_offset}")
    if tuple(epochs) != request.epochs:
        return TierError(TierFailure.DAMAGED, f"the batches have the epochs {epochs}, and not {request.epochs}")
    return None
