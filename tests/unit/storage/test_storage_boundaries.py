"""The last byte, offset and log that still fit, and the first that do not: segments that fill up, cuts just below what is
synced, several logs that are deleted together."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.batches import data_of, fill, make_batch, read_all
from contract.file_faults import without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import log as log_module
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.index import SegmentIndex
from raftlake.storage.recovery_points import RecoveryPoints
from raftlake.storage.segment import Segment, file_name

GROUPS = [GroupId("orders", number, bytes(range(16))) for number in range(3)]
ONE = len(make_batch(0)[0])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


@pytest.mark.parametrize(("segment_bytes", "batches"), [(3 * ONE - 1, 2), (3 * ONE, 3), (3 * ONE + 1, 3), (ONE - 1, 1)])
def test_a_segment_takes_the_batch_that_fills_it_to_the_byte(tmp_path: Path, segment_bytes: int, batches: int) -> None:
    directory = FileLogDirectory(tmp_path, segment_bytes=segment_bytes, post=None)
    log = directory.open(GROUPS[0])
    written = fill(log, 7)
    assert list(log.segment_bases) == list(range(0, 7, batches))
    assert log.synced_end == log.segment_bases[-1], "what was sealed is synced"
    assert read_all(log) == data_of(written)
    directory.close()


@pytest.mark.parametrize(("offsets_max", "bases"), [(9, [0, 5, 10]), (10, [0, 10]), (11, [0, 10]), (14, [0, 10]), (15, [0])])
@pytest.mark.parametrize("together", [1, 3])
def test_a_segment_takes_no_offset_that_its_index_could_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsets_max: int, bases: list[int], together: int
) -> None:
    """Batches of five records, one an append or all in one, which begins a segment of its own where it does not fit."""
    monkeypatch.setattr(log_module, "SEGMENT_OFFSETS_MAX", offsets_max)
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUPS[0])
    if together == 1:
        written = fill(log, 3, count=5)
        assert list(log.segment_bases) == bases
    else:
        first = make_batch(0, count=1)
        log.append([first[0]], [first[1]])
        written = [make_batch(1 + 5 * number, count=5) for number in range(together)]
        log.append([data_of(written)], [span for _, span in written])
        assert list(log.segment_bases) == ([0] if offsets_max > 15 else [0, 1])
        written.insert(0, first)
    assert read_all(log) == data_of(written)
    directory.close()


@pytest.mark.parametrize("end", range(7))
@pytest.mark.parametrize("synced", [4, 5])
def test_a_cut_lowers_what_is_known_to_be_synced_to_where_it_cuts(tmp_path: Path, synced: int, end: int) -> None:
    """One record too many, and the next start would take the cut for damage."""
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUPS[0])
    fill(log, synced)
    directory.flush([log], lambda error: None)
    fill(log, 6 - synced)
    log.truncate_to(Offset(end))
    assert log.synced_end == min(end, synced)
    directory.checkpoint()
    directory.abandon()
    directory = FileLogDirectory(tmp_path, post=None)
    assert directory.open(GROUPS[0]).end_offset == end
    directory.close()


@pytest.mark.parametrize("start", [0, 3, 5, 9])
def test_a_sync_from_before_a_reset_says_nothing_of_the_log_behind_it(tmp_path: Path, start: int) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUPS[0])
    fill(log, 5)
    work = log.begin_flush()
    assert work is not None and log.synced_end == 0
    log.reset(OffsetAndEpoch(Offset(start), Epoch(1)))
    log.end_flush(work)
    assert log.synced_end == log.end_offset == start
    directory.close()


@pytest.mark.parametrize("size", [10, 3_000, 5_000])
@pytest.mark.parametrize("count", [1, 3])
def test_an_index_that_was_cut_anywhere_tells_of_what_is_left(size: int, count: int) -> None:
    """Also at the very batch that an entry is of, be it of one record."""
    times = [10, 20, 15, 30, 40, 35, 50, 60, 70, 70]

    def of(batches: int) -> SegmentIndex:
        made = SegmentIndex(100)
        for number in range(batches):
            made.note(100 + count * (number + 1), size * number, size, times[number])
        return made

    for kept in range(len(times) + 1):
        cut, whole, fresh = of(len(times)), of(len(times)), of(kept)
        end = 100 + count * kept
        cut.truncate(end, size * kept)
        assert (list(cut.last_offsets), list(cut.positions)) == (list(fresh.last_offsets), list(fresh.positions)), kept
        left = [each for each in zip(whole.times, whole.time_offsets, strict=True) if each[1] < end]
        assert list(zip(cut.times, cut.time_offsets, strict=True)) == left, "a time stays as long as its batch"
        assert cut.timestamp_ms_max == (left[-1][0] if left else -1)


def test_segments_go_one_by_one_each_name_durably_gone_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that vanish in another order leave a hole in the log."""
    directory = FileLogDirectory(tmp_path, segment_bytes=ONE, post=None)
    log = directory.open(GROUPS[0])
    fill(log, 6)
    seen: list[int | str] = []
    delete = Segment.delete
    monkeypatch.setattr(log_module, "sync_names", lambda path: seen.append("synced"))
    monkeypatch.setattr(Segment, "delete", lambda segment: (seen.append(segment.base_offset), delete(segment))[1])
    log.advance_start(Offset(2))
    assert seen == [0, "synced", 1, "synced"]
    seen.clear()
    log.truncate_to(Offset(3))
    assert seen == [5, "synced", 4, "synced"]
    directory.close()


def test_the_file_of_each_offset_is_named(tmp_path: Path) -> None:
    """The first offset of a segment is in that segment, not in the one before."""
    directory = FileLogDirectory(tmp_path, segment_bytes=3 * ONE, post=None)
    log = directory.open(GROUPS[0])
    fill(log, 9)
    log.advance_start(Offset(3))
    found = [Path(directory.file_at(GROUPS[0], offset)).name for offset in range(10)]
    assert found == [file_name(base) for base in (3, 3, 3, 3, 3, 3, 6, 6, 6, 6)]
    directory.close()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_several_logs_that_are_deleted_together_nothing_is_left(tmp_path: Path, count: int) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    for group in GROUPS:
        fill(directory.open(group), 3)
        writer = directory.snapshots.create(group, OffsetAndEpoch(Offset(2), Epoch(1)))
        writer.append(b"content")
        writer.freeze(lambda error: None)
    directory.flush([directory.open(group) for group in GROUPS], lambda error: None)
    directory.checkpoint()
    directory.delete(GROUPS[:count])
    assert list(directory.groups()) == GROUPS[count:]
    points = RecoveryPoints(tmp_path)
    assert [points.of(group) for group in GROUPS] == [None] * count + [3] * (3 - count)
    directory.prepare(GROUPS)
    for number, group in enumerate(GROUPS):
        assert directory.open(group).end_offset == (0 if number < count else 3)
        assert len(directory.snapshots.ids(group)) == (number >= count)
    directory.close()


def test_a_directory_that_is_lost_is_not_made_anew(tmp_path: Path) -> None:
    """Of three that are prepared together one was there before, and what it held is lost."""
    directory = FileLogDirectory(tmp_path, post=None)
    fill(directory.open(GROUPS[1]), 3)
    directory.close()
    directory = FileLogDirectory(tmp_path, post=None)
    (tmp_path / str(GROUPS[1])).rename(tmp_path / "elsewhere")
    directory.prepare(GROUPS)
    assert [(tmp_path / str(group)).exists() for group in GROUPS] == [True, False, True]
    directory.close()
