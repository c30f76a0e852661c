"""Where in a partition a time begins: the questions of all clients, one after another and a little in each turn.

A question costs a look into the log and a batch that may decompress to 64 MiB, and a request may ask for each partition. So the
questions wait: the log is read and records are walked through within the turn's allowance, what is large is decompressed aside,
and between turns everything else is served. Each question sees its partition as it is when its turn comes. One that pauses and
reads on looks first whether the partition is still there, led here, and holds what is to be read.

The requests take turns, one question each, so that a short one does not wait for a long one. Questions beyond QUESTIONS_MAX,
and those that have waited for PATIENCE_MS, are answered OFFSET_NOT_AVAILABLE, after which clients ask again: who asked may be
gone, and what is left behind must come to an end.

Owns the finest answer: the record where the batch can be read, else the batch. It is one batch always: that whose header
names the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from raftlake.errors import CorruptBatch, ErrorCode, WireError
from raftlake.ports.driver import Aside, SegmentInfo, TimestampAndOffset
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.wire.batches import HEADER_BYTES, BatchHeader, parse_header
from raftlake.wire.compression import PayloadTooLarge, decompress, decompress_counting
from raftlake.wire.primitives import BytesLike
from raftlake.wire.record_times import RecordTimes, TimedRecord

MAX_TIMESTAMP = -3
#: What a question takes of the allowance, and a record that is walked over: 0.3 ms and 1 µs.
QUESTION_COST = 64 * 1024
RECORD_COST = 512
WALKED_AT_ONCE = 512
#: Of all requests together: one for each partition that a node can host, and some.
QUESTIONS_MAX = 1 << 14
#: As long as clients wait for an answer, by their defaults.
PATIENCE_MS = 30_000
#: A compressed byte may take as long as so many others.
PACKED_TIMES = 4
PAUSE_MS = 1
#: What a batch takes that is looked at because what the index names is deleted: 30 µs.
BATCH_COST = 6 * 1024


class FoundOffset(NamedTuple):
    """What ListOffsets says of a partition."""

    error: ErrorCode
    timestamp_ms: int = -1
    offset: int = -1
    epoch: int = -1


NOTHING = FoundOffset(ErrorCode.NONE)
NOT_NOW = FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)


def committed_end(partition: Partition) -> Offset:
    return partition.high_watermark


@dataclass(frozen=True, slots=True)
class Question:
    group: GroupId
    #: Milliseconds since 1970, or MAX_TIMESTAMP.
    timestamp: int
    #: The partition, as far as it may be asked now, or why not.
    serving: Callable[[], Partition | ErrorCode]
    done: Callable[[FoundOffset], None]
    #: Where what the client may read ends.
    end_of: Callable[[Partition], Offset] = committed_end


class AskedTogether:
    """The questions of one request that wait."""

    __slots__ = ("asked_at_ms", "questions")

    def __init__(self, asked_at_ms: int) -> None:
        self.asked_at_ms = asked_at_ms
        self.questions: deque[Question] = deque()


#: Yields what is to be done aside, and is sent the result; None for a pause.
Search = Generator[Callable[[], BytesLike | None] | None, BytesLike | None, FoundOffset]


class TimeSearches:
    """`deleted_below` tells from where on a partition's records count."""

    def __init__(
        self,
        engine: Engine,
        findings: Findings,
        allowance: Allowance,
        aside: Aside,
        deleted_below: Callable[[Partition], Offset],
    ) -> None:
        self._deleted_below = deleted_below
        self._engine = engine
        self._findings = findings
        self.aside = aside
        self._allowance = allowance
        #: The requests whose turn comes, in this order.
        self._waiting: deque[AskedTogether] = deque()
        self._count = 0
        #: The question under way, and how far it is.
        self._current: tuple[Question, Search] | None = None
        #: It goes on by itself: a call further up, a timer or a job aside.
        self._is_going_on = False

    def begin(self) -> AskedTogether:
        """For the questions of another request."""
        return AskedTogether(self._engine.now_ms)

    def ask(self, request: AskedTogether, question: Question) -> None:
        """Its `done` is called once, now or later."""
        if self._count >= QUESTIONS_MAX:
            question.done(NOT_NOW)
            return
        self._count += 1
        if not request.questions:
            self._waiting.append(request)
        request.questions.append(question)
        if not self._is_going_on:
            self._go_on(None)

    def _next(self) -> Question:
        """The first question of the request whose turn it is. The others of it wait for its next turn."""
        request = self._waiting.popleft()
        question = request.questions.popleft()
        if request.questions:
            self._waiting.append(request)
        self._count -= 1
        is_late = self._engine.now_ms >= request.asked_at_ms + PATIENCE_MS
        return replace(question, serving=lambda: ErrorCode.OFFSET_NOT_AVAILABLE) if is_late else question

    def _resume(self) -> None:
        self._engine.begin_input()
        self._allowance.renew()
        self._go_on(None)

    def _on_job(self, result: BytesLike | None) -> None:
        self._engine.begin_input()
        self._allowance.renew()
        self._go_on(result)

    def _go_on(self, result: BytesLike | None) -> None:
        self._is_going_on = True
        try:
            self._is_going_on = self._advance(result)
        except BaseException:
            # The disk failed. The next request begins with the next question.
            self._current, self._is_going_on = None, False
            raise

    def _advance(self, result: BytesLike | None) -> bool:
        """Answer what the allowance suffices for; whether there is more, which goes on by itself."""
        while self._current is not None or self._waiting:
            if self._allowance.left <= 0:
                self._engine.timers.schedule(self._engine.now_ms + PAUSE_MS, self._resume)
                return True
            if self._current is None:
                question = self._next()
                self._current = (question, self._search(question))
            question, search = self._current
            try:
                job = search.send(result)
            except StopIteration as end:
                self._current = None
                question.done(end.value)
            else:
                if job is not None:
                    self.aside.submit(job, self._on_job)
                    return True
            result = None
        return False

    def _search(self, question: Question) -> Search:
        partition = question.serving()
        if not isinstance(partition, Partition):
            return FoundOffset(partition)
        looked = self._findings.guarded(partition.group, lambda: self._look(partition, question))
        if looked is None:
            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        batch, data = looked
        if batch is None or not data:
            return NOTHING
        start = self._deleted_below(partition)
        if batch.offset < start:
            return (yield from self._search_behind(partition, question, start))
        wanted = batch.timestamp_ms if question.timestamp == MAX_TIMESTAMP else question.timestamp
        found = yield from self._walk(parse_header(data), data, wanted)
        if found is None:
            found = TimedRecord(batch.offset, batch.timestamp_ms)
        return FoundOffset(ErrorCode.NONE, found.timestamp_ms, found.offset, batch.epoch)

    def _search_behind(
        self, partition: Partition, question: Question, start: Offset
    ) -> Generator[Callable[[], BytesLike | None] | None, BytesLike | None, FoundOffset]:
        """What the log finds is deleted. Look at each batch behind that, of those segments that can hold the answer."""
        timestamp, end = question.timestamp, question.end_of(partition)
        is_latest, best = timestamp == MAX_TIMESTAMP, NOTHING
        segments = self._findings.guarded(partition.group, partition.log.segments)
        if segments is None:
            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        for segment in segments_behind(segments, timestamp, start):
            offset = max(segment.base_offset, start)
            while offset < min(segment.end_offset, end):
                refusal = _why_not_on(partition, question, offset)
                if refusal is not None:
                    return refusal
                read = partial(partition.read_intact, offset, end, 1)
                data = self._findings.guarded(partition.group, read)
                if not data:
                    return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
                header = parse_header(data)
                offset = Offset(header.end_offset)
                self._allowance.left -= len(data) + BATCH_COST
                wanted = max(best.timestamp_ms + 1, 0) if is_latest else timestamp
                if header.timestamp_ms_max >= wanted:
                    found = yield from self._walk(header, data, wanted, start, is_latest=is_latest)
                    if found is not None:
                        best = FoundOffset(ErrorCode.NONE, found.timestamp_ms, found.offset, header.leader_epoch)
                    if found is not None and not is_latest:
                        return best
                yield None
        return best

    def _walk(
        self, header: BatchHeader, data: bytes, wanted: int, start: int = 0, *, is_latest: bool = False
    ) -> Generator[Callable[[], BytesLike | None] | None, BytesLike | None, TimedRecord | None]:
        """The first record of the batch that is of this time or later, and not below `start`; or, where `is_latest`, the first
        of the latest ones. None where there is none, and where the records cannot be read."""
        content = self._at_once(header, memoryview(data)[HEADER_BYTES:])
        if content is None:
            content = yield lambda: _unpacked(header, data)
        latest: TimedRecord | None = None
        times = RecordTimes(header, content or b"", start)
        while content is not None and not times.is_over:
            try:
                found = times.find(wanted, WALKED_AT_ONCE)
            except WireError:
                # Unreadable records, of a time when records were not looked at.
                break
            if found is not None and not is_latest:
                return found
            if found is not None:
                latest, wanted = found, found.timestamp_ms + 1
            else:
                self._allowance.left -= WALKED_AT_ONCE * RECORD_COST
                yield None
        return latest

    def _look(self, partition: Partition, question: Question) -> tuple[TimestampAndOffset | None, bytes]:
        """The batch that has the time, None where there is none, and its bytes; none above what the client may read."""
        log, end, timestamp = partition.log, question.end_of(partition), question.timestamp
        self._allowance.left -= QUESTION_COST
        found = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp)
        if found is None or found.offset >= end:
            return None, b""
        # One batch, however large it is.
        data = partition.read_intact(found.offset, end, 1)
        self._allowance.left -= len(data)
        return found, data

    def _at_once(self, header: BatchHeader, payload: memoryview) -> BytesLike | None:
        """The records, where that takes no time worth mentioning."""
        if not header.is_compressed:
            return payload
        allowed = max(0, self._allowance.left)
        if PACKED_TIMES * len(payload) > allowed:
            return None
        try:
            content, cost = decompress_counting(header.compression, payload, allowed)
        except (PayloadTooLarge, MemoryError):
            self._allowance.left -= allowed
            return None
        except CorruptBatch:
            return b""
        self._allowance.left -= cost
        return content


def _why_not_on(partition: Partition, question: Question, offset: Offset) -> FoundOffset | None:
    """Why a search that has paused may not read on at `offset`; None where it may.

    The partition may have been closed or have lost its leader meanwhile. What is to be looked at next may be deleted: the rest
    tells neither what was asked then nor what is true now. Who asks again is told of what is left.
    """
    serving = question.serving()
    if not isinstance(serving, Partition):
        return FoundOffset(serving)
    return NOT_NOW if serving is not partition or offset < partition.log.start_offset else None


def segments_behind(segments: Sequence[SegmentInfo], timestamp: int, start: int) -> list[SegmentInfo]:
    """Of those that hold offsets from `start` on, the ones that may hold the answer: by their largest times."""
    behind = [segment for segment in segments if segment.end_offset > start]
    if timestamp != MAX_TIMESTAMP:
        return [segment for segment in behind if segment.timestamp_ms_max >= timestamp]
    whole = [segment for segment in behind if segment.base_offset >= start]
    latest = max(whole, key=lambda segment: segment.timestamp_ms_max, default=None)
    return [segment for segment in behind if segment.base_offset < start or segment is latest]


def _unpacked(header: BatchHeader, data: bytes) -> BytesLike | None:
    """The records of a compressed batch; None where they cannot be had."""
    try:
        return decompress(header.compression, memoryview(data)[HEADER_BYTES:])
    except (CorruptBatch, MemoryError):
        return None
