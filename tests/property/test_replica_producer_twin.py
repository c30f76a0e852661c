"""Producer state against a twin that keeps every batch in a list and counts sequences one by one.

Both see appends of a leader and of a follower, retries, new epochs, wraps, truncations, crashes, restarts, trimming, snapshots.
Once more with all that is done in slices: a slice is one producer, and anything happens between two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import AppendFetched, AppendLeaderChange, AppendRecords
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition import producer_state, start_points
from raftlake.replica.partition.partition import Partition, split_batches
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import BATCHES_KEPT, ProducerTally
from raftlake.replica.partition.start_points import LogFacts, Slices
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import Record, build_batch, iterate_headers, stamp

GROUP = GroupId("orders", 0, bytes(range(16)))
LARGEST = 2_147_483_647
#: Two or three batches each.
SEGMENT_BYTES = 250
FIRST_SEQUENCES = [0, 0, 0, 1, 5, LARGEST, LARGEST - 1, LARGEST - 2, LARGEST - 6]


def counted(first: int, count: int) -> list[int]:
    """The sequences of the records of a batch."""
    found = [first]
    while len(found) < count:
        found.append(0 if found[-1] == LARGEST else found[-1] + 1)
    return found


@dataclass(frozen=True, slots=True)
class Batch:
    producer: int
    epoch: int
    sequences: list[int]

    def encoded(self) -> bytearray:
        return build_batch(
            [Record(value=b"x")] * len(self.sequences),
            timestamp_ms=7,
            producer_id=self.producer,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[0],
        )


@dataclass(frozen=True, slots=True)
class Written:
    batch: Batch
    base: int

    @property
    def end(self) -> int:
        return self.base + len(self.batch.sequences)


class Twin:
    """Every batch that the log ever took and still has, or that retention took from it."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.end = 0
        #: The first sequences of producers that were sent back.
        self.sent_back: dict[tuple[int, int], int] = {}

    def of(self, producer: int, below: int | None = None) -> list[Written]:
        return [each for each in self.written if each.batch.producer == producer and (below is None or each.base < below)]

    def kept(self, producer: int, below: int | None = None) -> list[Written]:
        """The batches that count: the last five, of the last epoch."""
        found = self.of(producer, below)
        return [each for each in found if each.batch.epoch == found[-1].batch.epoch][-BATCHES_KEPT:]

    def next_sequence(self, producer: int) -> int:
        return counted(self.of(producer)[-1].batch.sequences[-1], 2)[1]

    def answer(self, batch: Batch, *, is_trimmed: bool) -> tuple[ErrorCode, int]:
        """(error, base offset) of an append, which is made."""
        found = self.of(batch.producer)
        first = batch.sequences[0]
        if not found:
            if not is_trimmed and not self._may_begin(batch):
                return ErrorCode.LEADER_NOT_AVAILABLE, -1
        elif batch.epoch < found[-1].batch.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif batch.epoch > found[-1].batch.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        else:
            for each in self.kept(batch.producer):
                if each.batch.sequences == batch.sequences:
                    return ErrorCode.NONE, each.base
            if first != self.next_sequence(batch.producer):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, self.append(batch)

    def _may_begin(self, batch: Batch) -> bool:
        first, key = batch.sequences[0], (batch.producer, batch.epoch)
        if key not in self.sent_back:
            if first != 0:
                self.sent_back[key] = first
            return first == 0
        # A producer has little under way: what comes first lies just before what was sent back, be it over the wrap.
        before = self.sent_back[key] - first
        return 0 <= before < 1_000_000 or before < -1_000_000

    def append(self, batch: Batch) -> int:
        self.sent_back.pop((batch.producer, batch.epoch), None)
        base = self.end
        self.written.append(Written(batch, base))
        self.end += len(batch.sequences)
        return base

    def cut(self, end: int) -> None:
        self.written = [each for each in self.written if each.base < end]
        self.end = end

    def rows(self, below: int) -> list[tuple[int, int, int, int, int]]:
        """What a producer state of the records below an offset says."""
        return [
            (producer, each.batch.epoch, each.batch.sequences[-1], each.end - 1, len(each.batch.sequences) - 1)
            for producer in sorted({each.batch.producer for each in self.written})
            for each in self.kept(producer, below)
        ]


class Core:
    """What a partition asks its core for."""

    impairment = None
    is_voter = True

    def __init__(self) -> None:
        self.log_start = 0
        self.log_end = 0


class Machine:
    """What a simulated disk asks its machine for: nothing crashes by itself."""

    def port_call(self, name: str) -> None:
        del name

    def flush_later(self, complete: object, fail: object) -> None:
        raise AssertionError("nothing here waits for a sync")


class ProducerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Machine(), segment_bytes=SEGMENT_BYTES)  # type: ignore[arg-type]
        self.log = self.disk.open(GROUP)
        self.core = Core()
        self.twin = Twin()
        self.open()

    #: None: nothing is done in slices.
    in_slices: Callable[[Slices], None] | None = None

    def open(self, snapshot: object = None) -> None:
        """A start: of all that the process knew the log is left."""
        history = VoterHistory(VoterSet({}))
        self.tally = ProducerTally()
        facts = LogFacts(
            GROUP,
            self.log,
            history,
            self.log.start_offset,
            snapshot,  # type: ignore[arg-type]
            tally=self.tally,
            in_slices=self.in_slices,
        )
        facts.restore(5_000, with_voters=False)
        self.partition = Partition(GROUP, self.core, self.log, facts, lambda: 1_000)  # type: ignore[arg-type]
        self.snapshot = snapshot
        self.core.log_start, self.core.log_end = self.log.start_offset, self.log.end_offset
        self.twin.sent_back.clear()

    # --- what is sent -------------------------------------------------------------------------------------------------

    producers = st.integers(1, 3)
    counts = st.integers(1, 4)
    kinds = st.sampled_from(
        ["next"] * 6
        + ["repeat"] * 4
        + ["resized"] * 2
        + ["shifted", "gap", "new epoch", "new epoch", "new epoch amid", "old epoch", "old epoch repeated"]
    )
    sends = st.lists(
        st.tuples(producers, kinds, counts, st.integers(0, 6), st.sampled_from(FIRST_SEQUENCES)), min_size=1, max_size=5
    )

    def batch_of(self, producer: int, kind: str, count: int, number: int, first: int) -> Batch:
        found = self.twin.of(producer)
        if not found:
            return Batch(producer, number % 2, counted(first, count))
        epoch, following = found[-1].batch.epoch, self.twin.next_sequence(producer)
        old = found[-1 - number % len(found)].batch
        match kind:
            case "repeat":
                return Batch(producer, epoch, old.sequences)
            case "resized":
                return Batch(producer, epoch, counted(old.sequences[0], len(old.sequences) + count))
            case "shifted":
                return Batch(producer, epoch, old.sequences[1:] or counted(old.sequences[0], 2))
            case "gap":
                return Batch(producer, epoch, counted(counted(following, 1 + count)[-1], count))
            case "new epoch":
                return Batch(producer, epoch + 1 + number // 6, counted(0, count))
            case "new epoch amid":
                return Batch(producer, epoch + 1, counted(first or following, count))
            case "old epoch":
                return Batch(producer, max(epoch - 1, 0), counted(first, count))
            case "old epoch repeated":
                return old
        return Batch(producer, epoch, counted(following, count))

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(sends=sends, begins=st.sampled_from([False, False, True]), is_proven=st.sampled_from([True, True, False]))
    def lead(self, sends: list[tuple[int, str, int, int, int]], *, begins: bool, is_proven: bool) -> None:
        """Requests of one turn: each is judged with those before it, then all are written at once. Where the leader `begins`,
        its first record is written between the two. A gap is told by a proven leader only."""
        epoch, opening = Epoch(self._epoch() + begins), Offset(self.twin.end)
        self.twin.end += begins
        self.core.log_end = self.twin.end
        expected, told = [], []
        for send in sends:
            batch = self.batch_of(*send)
            error, base = self.twin.answer(batch, is_trimmed=self.core.log_start > 0)
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_proven:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            expected.append((batch, error, base))
            told.append(self._send(batch))
        base = self.core.log_end
        admitted = self.partition.admit(lambda group, done: done(is_proven))
        self.core.log_end = self.twin.end
        if begins:
            me = NodeId(1)
            change = AppendLeaderChange(offset=opening, epoch=epoch, leader_id=me, voters=(me,), granting_voters=(me,))
            self.partition.append_control(change)
        if admitted:
            self.partition.append_records(
                AppendRecords(base_offset=Offset(base), end_offset=Offset(self.twin.end), epoch=epoch, payload=admitted)
            )
        self.partition.on_high_watermark(self.log.end_offset)
        assert [(batch, *answers[0]) for (batch, *_), answers in zip(expected, told, strict=True)] == expected

    def _send(self, batch: Batch) -> list[tuple[ErrorCode, int]]:
        data = batch.encoded()
        answers: list[tuple[ErrorCode, int]] = []

        def done(error: ErrorCode, base_offset: int, _why: str = "") -> None:
            answers.append((error, base_offset))

        pending = PendingAppend(data, tuple(iterate_headers(data)), 0, done, idempotent=True)
        self.partition.appending.append(pending)
        return answers

    def _epoch(self) -> int:
        return self.log.epochs[-1][0] if self.log.epochs else 1

    @rule(sends=sends)
    def follow(self, sends: list[tuple[int, str, int, int, int]]) -> None:
        """What a leader took comes in one answer."""
        answer = bytearray()
        for send in sends:
            batch, base = self.batch_of(*send), self.twin.end
            if self.twin.answer(batch, is_trimmed=True) == (ErrorCode.NONE, base) and self.twin.end > base:
                data = batch.encoded()
                stamp(data, 0, Offset(base), Epoch(self._epoch()))
                answer += data
        if answer:
            batches = split_batches(memoryview(answer), list(iterate_headers(answer)))
            self.partition.append_fetched(AppendFetched(batches=tuple(batches), leader_epoch=Epoch(self._epoch())))
        self.core.log_end = self.twin.end

    def ends(self) -> Sequence[int]:
        """Where the log may be cut."""
        return [self.log.start_offset, *self.log.image.ends]

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        """Nothing at all, the last batch, or more of them."""
        ends = self.ends()
        end = ends[max(len(ends) - 1 - back, 0)]
        self.partition.truncate(Offset(end))
        self.core.log_end = end
        self.twin.cut(end)
        self.twin.sent_back.clear()

    @rule()
    def flush(self) -> None:
        self.log.finish_flush(self.log.begin_flush())

    @rule(seed=st.integers(0, 1_000))
    def crash(self, seed: int) -> None:
        """What was not synced may be gone, or what was cut may be back: the twin looks at what is left."""
        self.log.crash(Random(seed))
        start, end = self.log.start_offset, self.log.end_offset
        self.twin.cut(start)
        for header in iterate_headers(self.log.read(start, end, 1 << 20)):
            if header.is_control:
                self.twin.end += header.record_count
                continue
            sequences = counted(header.base_sequence, header.record_count)
            self.twin.append(Batch(header.producer_id, header.producer_epoch, sequences))
        assert self.twin.end == end
        self.open(self.snapshot)

    @rule(clean=st.booleans())
    def restart(self, *, clean: bool) -> None:
        if clean:
            self.partition.save_start_point()
        self.open(self.snapshot)

    @rule()
    def stop_leading(self) -> None:
        self.partition.on_leadership_lost()
        self.twin.sent_back.clear()

    @precondition(lambda self: len(self.log.segment_bases) > 1)
    @rule(number=st.integers(1, 5))
    def trim(self, number: int) -> None:
        self.flush()
        bases = self.log.segment_bases
        keep_from = self.partition.can_begin_at(bases[min(number, len(bases) - 1)])
        assert keep_from in (self.log.start_offset, *self.log.start_points.offsets)
        self.core.log_start = self.log.advance_start(keep_from)

    @precondition(lambda self: self.log.start_points.offsets)
    @rule(number=st.integers(0, 5))
    def begin_behind_a_snapshot(self, number: int) -> None:
        """A replica whose leader has trimmed what it lacks: it knows what the snapshot there says."""
        points = [offset for offset in self.log.start_points.offsets if offset >= self.log.start_offset]
        if not points:
            return
        start = points[number % len(points)]
        known = self.partition.producers_at(start)
        assert known is not None
        self.partition.reset(OffsetAndEpoch(start, Epoch(self._epoch())), known)
        self.snapshot = known
        self.core.log_start = self.core.log_end = start
        self.twin.cut(start)
        self.twin.sent_back.clear()
        self.flush()

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_state_is_that_of_the_list(self) -> None:
        assert self.log.end_offset == self.twin.end
        rows = self.partition.producers.at(self.log.end_offset)
        assert sorted({row.producer_id for row in rows}) == sorted({each.batch.producer for each in self.twin.written})
        assert sorted((row[:5] for row in rows), key=lambda row: row[0]) == self.twin.rows(self.twin.end)
        known = len({each.batch.producer for each in self.twin.written})
        assert (self.tally.count, len(self.partition.producers)) == (known, known)
        assert self.partition.producers.row_count == len(rows)

    @invariant()
    def each_point_tells_what_stands_below_it(self) -> None:
        for offset in self.log.start_points.offsets:
            if offset <= self.log.end_offset:
                rows = producer_snapshot.decode(self.log.start_points.load(offset)[0])
                assert sorted((row[:5] for row in rows), key=lambda row: row[0]) == self.twin.rows(offset), offset


class SlicesMachine(ProducerMachine):
    """Each slice is one producer, and what one is enough for is done in slices too."""

    def __init__(self) -> None:
        self.work: deque[Slices] = deque()
        self.in_slices = self.work.append
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(producer_state, "SLICE_PRODUCERS", 1)
        self.patches.setattr(start_points, "SLICE_PRODUCERS", 0)
        super().__init__()

    def open(self, snapshot: object = None) -> None:
        self.work.clear()
        super().open(snapshot)

    def teardown(self) -> None:
        self.patches.undo()

    @precondition(lambda self: self.work)
    @rule(slices=st.integers(1, 6), number=st.integers(0, 3))
    def go_on(self, slices: int, number: int) -> None:
        """With any of what is under way: work of a log that was closed is over, and that of others need not be."""
        work = self.work[number % len(self.work)]
        for _ in range(slices):
            if next(work, self) is self:
                self.work.remove(work)
                return

    @rule()
    def look_for_idle_ones(self) -> None:
        """Nobody is idle for so long: nothing changes, but all is held meanwhile."""
        self.work.append(self.partition.producers.expiring(0))

    @rule()
    def end_all_work(self) -> None:
        while self.work:
            for _ in self.work.popleft():
                pass


TestProducers = ProducerMachine.TestCase
TestProducersInSlices = SlicesMachine.TestCase
TestProducersInSlices.settings = settings(max_examples=150, stateful_step_count=40)
TestProducers.settings = settings(max_examples=150, stateful_step_count=30)
