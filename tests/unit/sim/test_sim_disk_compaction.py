"""A pass of compaction over a simulated log: what it installs, what stops it, and what a crash leaves of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from compactkit import LogInTheMaking, shown
from raftlake.errors import DamagedData, DiskFull, InvariantViolation, StorageError, UnfitBeginning
from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.config import SEGMENT_BYTES as NODE_SEGMENT_BYTES
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.sim.disk.log_image import span_of, stored
from raftlake.sim.disk.power import SimulatedCrash
from raftlake.wire.batches import iterate_headers

GROUP = GroupId("accounts", 0, bytes(range(16)))
SEGMENT_BYTES = 400
Outcome = Compacted | StorageError | None


class Machine:
    """Syncs one by one, when it is told to. It may crash at a port call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crash_at = ""
        #: So many of these calls go well first.
        self.passed = 0
        self.syncs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def port_call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.crash_at:
            self.passed -= 1
            if self.passed < 0:
                self.crash_at = ""
                raise SimulatedCrash(name)

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        self.syncs.append((complete, fail))

    def run(self, count: int = 1_000) -> None:
        while self.syncs and count:
            self.syncs.pop(0)[0]()
            count -= 1

    def run_until(self, call: str) -> None:
        while self.calls[-1:] != [call]:
            self.syncs.pop(0)[0]()


class Ground:
    """A disk with one log: keys a to d, each written over and over, in segments of three batches."""

    def __init__(self, rounds: int = 6) -> None:
        self.machine = Machine()
        self.disk = SimulatedDisk(self.machine, segment_bytes=SEGMENT_BYTES)
        self.disk.open(GROUP)
        self.made = LogInTheMaking()
        self.outcomes: list[Outcome] = []
        for number in range(rounds):
            for key in "abcd":
                self.made.data((key, f"{key}{number}".ljust(40)))
        self.append()
        self.sync()

    @property
    def log(self) -> MemoryLog:
        """Another one once it was set aside."""
        return self.disk.logs[GROUP]

    def append(self) -> None:
        for batch in map(stored, self.made.batches):
            if batch.base >= self.log.end_offset:
                self.log.append([batch.data], [span_of(batch)])

    def sync(self) -> None:
        self.disk.flush([self.log], lambda error: None)
        self.machine.run()

    def request(self, **changes: object) -> Compaction:
        asked = Compaction(
            dirty_from=self.log.start_offset,
            until=self.log.segments()[-1].base_offset,
            now_ms=1_700_000_000_000,
            delete_retention_ms=1_000,
            tombstones_below=self.log.end_offset,
            aborted=(),
            last_batches=frozenset(),
            keys_max=1_000,
            segment_bytes=NODE_SEGMENT_BYTES,
        )
        return replace(asked, **changes)  # type: ignore[arg-type]

    def compact(self, **changes: object) -> None:
        self.log.compact(self.request(**changes), self.outcomes.append)

    def compact_now(self) -> None:
        self.compact()
        self.machine.run()

    def shown(self) -> list[int]:
        return [offset for offset, _, _ in shown(batch.data for batch in self.log.batches)]


@pytest.fixture
def ground() -> Ground:
    return Ground()


def require_contiguous(log: MemoryLog) -> None:
    ends = [int(log.start_offset), *(batch.end for batch in log.batches)]
    assert [batch.base for batch in log.batches] == ends[:-1] and ends[-1] == log.end_offset
    assert [segment.base_offset for segment in log.segments()][1:] == [segment.end_offset for segment in log.segments()][:-1]


def test_a_pass_leaves_the_newest_record_of_each_key_in_fewer_segments(ground: Ground) -> None:
    before, until = ground.log.segments(), ground.log.segments()[-1].base_offset
    ground.compact()
    assert ground.outcomes == [] and len(ground.shown()) == 24
    ground.machine.run()
    (done,) = ground.outcomes
    assert isinstance(done, Compacted)
    assert done.clean_until == until == ground.log.compacted_until == 21
    assert done.records_removed == 17 and done.bytes_after < done.bytes_before
    assert ground.shown() == [17, 18, 19, 20, 21, 22, 23]
    require_contiguous(ground.log)
    assert len(ground.log.segments()) == len(before)
    # The segments are small now, and become one.
    ground.compact(dirty_from=until)
    ground.machine.run()
    assert len(ground.log.segments()) < len(before) and ground.shown() == [17, 18, 19, 20, 21, 22, 23]
    require_contiguous(ground.log)


def test_appends_and_reads_go_on_meanwhile(ground: Ground) -> None:
    ground.compact()
    ground.machine.run(3)
    ground.made.data(("a", "last"))
    ground.append()
    ground.machine.run()
    assert isinstance(ground.outcomes[0], Compacted) and ground.shown()[-1] == 24
    require_contiguous(ground.log)


@pytest.mark.parametrize(
    ("crash_at", "passed"),
    [("compact", 0), *[("install compacted segments", passed) for passed in range(5)], ("note what is compacted", 0)],
)
def test_a_crash_leaves_each_group_as_before_or_as_after(ground: Ground, crash_at: str, passed: int) -> None:
    whole = [batch.data for batch in ground.log.batches]
    ground.machine.crash_at, ground.machine.passed = crash_at, passed
    with pytest.raises(SimulatedCrash):
        ground.compact_now()
    ground.disk.crash(Random(passed))
    ground.machine.syncs.clear()
    assert ground.outcomes == [] and ground.log.compacted_until in (None, 0)
    require_contiguous(ground.log)
    is_old = [batch.data in whole for batch in ground.log.batches]
    assert is_old == sorted(is_old), "a segment changes only after those below it"
    assert is_old.count(False) >= passed
    if crash_at == "note what is compacted":
        assert ground.shown() == [17, 18, 19, 20, 21, 22, 23]
    ground.compact_now()
    assert ground.shown() == [17, 18, 19, 20, 21, 22, 23]


def test_until_the_end_is_told_a_crash_may_bring_back_the_last_note_but_no_older_one() -> None:
    found = set()
    for seed in range(30):
        ground = Ground()
        ground.compact(keys_max=1)
        ground.machine.run()
        first = ground.log.compacted_until
        ground.compact(dirty_from=first)
        ground.machine.run_until("note what is compacted")
        assert first is not None and ground.log.compacted_until == 21 > first and len(ground.outcomes) == 1
        ground.disk.crash(Random(seed))
        found.add(ground.log.compacted_until)
    assert found == {first, Offset(21)}


def test_what_was_told_is_durable(ground: Ground) -> None:
    ground.compact()
    ground.machine.run()
    for seed in range(10):
        ground.disk.crash(Random(seed))
        assert ground.log.compacted_until == 21


def test_a_cut_lowers_the_note_for_good(ground: Ground) -> None:
    ground.compact()
    ground.machine.run()
    ground.log.truncate_to(Offset(22))
    assert ground.log.compacted_until == 21
    ground.log.truncate_to(Offset(20))
    for seed in range(20):
        assert (ground.log.compacted_until or 0) <= 20
        ground.disk.crash(Random(seed))
    ground.log.reset(OffsetAndEpoch(Offset(50), Epoch(3)))
    assert ground.log.compacted_until is None


@pytest.mark.parametrize(
    "change",
    [
        lambda ground: ground.log.truncate_to(Offset(20)),
        lambda ground: ground.log.reset(OffsetAndEpoch(Offset(50), Epoch(3))),
        lambda ground: ground.log.advance_start(Offset(4)),
        lambda ground: ground.disk.delete([GROUP]),
    ],
    ids=["cut", "begun anew", "trimmed", "deleted"],
)
def test_a_pass_over_a_log_that_changes_is_given_up(ground: Ground, change: Callable[[Ground], None]) -> None:
    ground.compact()
    ground.machine.run(7)
    change(ground)
    ground.machine.run()
    assert ground.outcomes == [None]


def test_retention_that_finds_nothing_and_a_cut_behind_stop_no_pass(ground: Ground) -> None:
    ground.compact()
    ground.machine.run(7)
    ground.log.advance_start(Offset(1))
    ground.log.truncate_to(Offset(22))
    ground.machine.run()
    assert isinstance(ground.outcomes[0], Compacted)


def test_a_full_disk_ends_a_pass_and_leaves_what_is_installed(ground: Ground) -> None:
    ground.compact()
    ground.machine.run_until("install compacted segments")
    ground.disk.space.fill(0)
    ground.machine.run()
    (outcome,) = ground.outcomes
    assert isinstance(outcome, DiskFull) and ground.log.compacted_until == 0
    assert 7 < len(ground.shown()) < 24
    require_contiguous(ground.log)
    ground.disk.space.empty()
    ground.compact()
    ground.machine.run()
    assert ground.shown() == [17, 18, 19, 20, 21, 22, 23]


def test_damage_and_failing_syncs_end_a_pass(ground: Ground) -> None:
    ground.log.damage(8, 70)
    ground.compact()
    ground.machine.run()
    (outcome,) = ground.outcomes
    assert isinstance(outcome, DamagedData) and outcome.offset == 8 and len(ground.shown()) == 24
    ground.log.decay.damaged.clear()
    ground.compact()
    ground.machine.syncs.pop(0)[1]()
    assert isinstance(ground.outcomes[1], StorageError) and not ground.machine.syncs
    ground.compact()
    ground.machine.run()
    assert isinstance(ground.outcomes[2], Compacted)


def test_damage_that_comes_behind_the_reading_goes_with_the_segment(ground: Ground) -> None:
    ground.compact()
    ground.machine.run_until("install compacted segments")
    ground.log.damage(0, 5)
    ground.log.decay.damaged[(3, 1)] = 5
    ground.machine.run()
    assert isinstance(ground.outcomes[0], Compacted | DamagedData)


def test_a_read_amid_an_empty_batch_begins_there(ground: Ground) -> None:
    ground.compact()
    ground.machine.run()
    whole = next(iterate_headers(ground.log.read(Offset(0), ground.log.end_offset, 1)))
    assert whole.record_count == 0 and whole.last_offset > 1
    for start in range(1, whole.end_offset):
        data = ground.log.read(Offset(start), ground.log.end_offset, 1)
        (header,) = iterate_headers(data)
        assert (header.base_offset, header.end_offset, header.record_count) == (start, whole.end_offset, 0)
        assert header.leader_epoch == whole.leader_epoch


def test_of_a_compacted_log_nothing_is_kept_before_damage(ground: Ground) -> None:
    ground.log.damage(10, 70)
    ground.disk.set_aside(GROUP, DamagedData("damage", offset=Offset(10)), Epoch(1))
    assert ground.log.end_offset == 10
    other = Ground()
    other.compact()
    other.machine.run()
    other.log.decay.damaged[(other.log.batches[-1].base, other.log.batches[-1].epoch)] = 70
    other.disk.set_aside(GROUP, DamagedData("damage", offset=Offset(23)), Epoch(1))
    assert other.log.end_offset == other.log.start_offset == other.log.compacted_until == 0


def test_an_unfit_beginning_goes_though_nothing_is_damaged(ground: Ground) -> None:
    ground.disk.set_aside(GROUP, UnfitBeginning("found by a test", offset=ground.log.end_offset), Epoch(1))
    assert ground.log.end_offset == ground.log.start_offset == ground.log.compacted_until == 0
    assert ground.log.decay.impairment is not None


def test_what_is_installed_is_in_whatever_a_crash_brings_back(ground: Ground) -> None:
    ground.log.truncate_to(Offset(22))
    assert len(ground.log.images) == 2
    ground.compact()
    ground.machine.run()
    for image in ground.log.images:
        assert [offset for offset, _, _ in shown(batch.data for batch in image.batches)][:4] == [17, 18, 19, 20]
    for seed in range(10):
        ground.disk.crash(Random(seed))
        assert ground.shown()[:4] == [17, 18, 19, 20]


def test_an_old_log_cannot_come_back_where_a_new_segment_has_its_name(ground: Ground) -> None:
    ground.log.truncate_to(Offset(4))
    ground.made.batches, ground.made.end = ground.made.batches[:4], 4
    for number in range(12):
        ground.made.data(("a", f"other{number}".ljust(40)))
    ground.append()
    assert len(ground.log.images) == 2
    ground.compact()
    ground.machine.run()
    assert len(ground.log.images) == 1
    # The segments below the end of the pass are synced, the active one is not.
    assert ground.log.durable_end == ground.log.compacted_until


def test_entries_of_aborted_transactions_go_with_their_records_and_their_markers_later() -> None:
    ground = Ground(rounds=1)
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for number in range(4):
        ground.made.data(("a", f"x{number}".ljust(40)), base_sequence=number, **fields)
        ground.made.marker(7, commit=False)
    for number in range(6):
        ground.made.data(("b", f"y{number}".ljust(40)))
    ground.append()
    ground.log.aborted.append(ground.made.aborted)
    counts = ground.log.aborted.counts(ground.log.end_offset)
    assert sum(count for _, count in counts) == 4 and len(counts) > 1
    for number in range(6):
        aborted = tuple(ground.log.aborted.find(ground.log.start_offset, ground.log.end_offset))
        ground.compact(aborted=aborted, dirty_from=ground.log.compacted_until or 0, now_ms=1_700_000_000_000 + 2_000 * number)
        ground.machine.run()
        assert isinstance(ground.outcomes[-1], Compacted)
        # A start point that told of segments that are gone is still good.
        assert ground.log.aborted.agrees(ground.log.end_offset, counts)
        assert not ground.log.aborted.counts(ground.log.end_offset)
    headers = [header for batch in ground.log.batches for header in iterate_headers(batch.data)]
    assert not any(header.is_control for header in headers)


def test_a_pass_begins_where_a_segment_ends_and_alone(ground: Ground) -> None:
    with pytest.raises(InvariantViolation):
        ground.compact(until=Offset(20))
    ground.compact()
    with pytest.raises(InvariantViolation):
        ground.compact()
