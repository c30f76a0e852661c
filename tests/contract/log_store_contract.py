"""What every log must do, whatever it is made of: the guarantees of `ports.LogStore` and `ports.LogDirectory`.

A test module derives `Test...` from `LogStoreContract` and says how a directory is opened, restarted and settled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.batches import data_of, end_of, fill, make_batch, read_all
from raftlake.errors import InvariantViolation, StorageError
from raftlake.ports.driver import BatchSpan, LogDirectory, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import BatchSource
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch

GROUP = GroupId("orders", 3, bytes(range(16)))
OTHER = GroupId("orders", 4, bytes(range(16)))
#: Small enough that a handful of batches fills a segment.
SEGMENT_BYTES = 2_000
NO_LIMIT = Offset(1 << 60)


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


def bytes_of(source: BatchSource) -> bytes:
    """What a source says is to be read."""
    if isinstance(source, bytes):
        return source
    with open(source.path, "rb") as file:
        file.seek(source.position)
        return file.read(source.size)


def appendable(batch: tuple[bytes, BatchSpan]) -> tuple[list[bytes], list[BatchSpan]]:
    return [batch[0]], [batch[1]]


class LogStoreContract(ABC):
    """The suite. `directory` holds no log at first; its segments are of SEGMENT_BYTES."""

    @abstractmethod
    def open_directory(self, place: Path) -> LogDirectory: ...

    @abstractmethod
    def restart(self, directory: LogDirectory) -> LogDirectory:
        """Stop cleanly and open the same directory again."""

    @abstractmethod
    def settle(self, directory: LogDirectory) -> None:
        """Let a flush that was asked for come to its end."""

    @abstractmethod
    def close(self, directory: LogDirectory) -> None: ...

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Iterator[LogDirectory]:
        opened = self.open_directory(tmp_path)
        yield opened
        self.close(opened)

    @pytest.fixture
    def log(self, directory: LogDirectory) -> LogStore:
        return directory.open(GROUP)

    def flush(self, directory: LogDirectory, *logs: LogStore) -> list[StorageError | None]:
        results: list[StorageError | None] = []
        directory.flush(logs, results.append)
        self.settle(directory)
        return results

    # --- rolling by hand, and where segments are to be read -------------------------------------------------------------

    def test_a_rolled_log_goes_on_in_a_new_segment(self, log: LogStore) -> None:
        batches = fill(log, 2)
        assert list(log.roll()) == [2]
        assert [(each.base_offset, each.end_offset) for each in log.segments()] == [(0, 2), (2, 2)]
        assert list(log.segment_bases) == [0, 2] and log.read(Offset(2), NO_LIMIT, 100) == b""
        batches += fill(log, 1)
        assert [(each.base_offset, each.end_offset) for each in log.segments()] == [(0, 2), (2, 3)]
        assert read_all(log) == data_of(batches)

    def limit_of(self, segment_bytes: int) -> int:
        """What the log is told so that its segments are so large."""
        return segment_bytes

    def test_a_limit_counts_from_the_next_append_on(self, log: LogStore) -> None:
        batches = fill(log, 3)
        size = log.segments()[0].size // 3
        log.limit_segments(self.limit_of(3 * size))
        assert len(log.segments()) == 1
        batches += fill(log, 4)
        assert [(each.base_offset, each.end_offset) for each in log.segments()] == [(0, 3), (3, 6), (6, 7)]
        log.limit_segments(self.limit_of(SEGMENT_BYTES))
        batches += fill(log, 4)
        assert [(each.base_offset, each.end_offset) for each in log.segments()] == [(0, 3), (3, 6), (6, 11)]
        assert read_all(log) == data_of(batches)

    def test_a_batch_above_the_limit_has_a_segment_of_its_own(self, log: LogStore) -> None:
        log.limit_segments(self.limit_of(1))
        batches = fill(log, 3)
        assert [(each.base_offset, each.end_offset) for each in log.segments()] == [(0, 1), (1, 2), (2, 3)]
        log.truncate_to(Offset(2))
        log.limit_segments(self.limit_of(SEGMENT_BYTES))
        batches = batches[:2] + fill(log, 1)
        assert read_all(log) == data_of(batches) and log.segments()[-1].end_offset == 3

    def test_an_empty_segment_is_not_rolled(self, log: LogStore) -> None:
        assert list(log.roll()) == []
        fill(log, 1)
        assert list(log.roll()) == [1]
        assert list(log.roll()) == []
        assert len(log.segments()) == 2

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_rolled_log_is_the_same_after_a_restart(self, directory: LogDirectory, log: LogStore, more: int) -> None:
        batches = fill(log, 3)
        log.roll()
        batches += fill(log, more)
        self.flush(directory, log)
        again = self.restart(directory).open(GROUP)
        assert read_all(again) == data_of(batches) and again.end_offset == 3 + more
        fill(again, 1)
        assert again.end_offset == 4 + more

    @pytest.mark.parametrize("end", [0, 1, 2, 3])
    def test_a_rolled_log_is_cut_like_any_other(self, log: LogStore, end: int) -> None:
        batches = fill(log, 2)
        log.roll()
        batches += fill(log, 2)
        log.truncate_to(Offset(end))
        assert log.end_offset == end and read_all(log) == data_of(batches[:end])
        begun = log.append(*appendable(make_batch(end, count=3)))
        assert list(begun) == [] and log.end_offset == end + 3
        assert log.segments()[-1].base_offset == (2 if end >= 2 else 0)

    @pytest.mark.parametrize(("start", "end"), [(0, 4), (0, 1), (1, 3), (3, 4)])
    def test_a_part_of_a_closed_segment_is_read_where_it_is_said_to_be(self, log: LogStore, start: int, end: int) -> None:
        batches = fill(log, 4)
        log.roll()
        fill(log, 1)
        source = log.locate(Offset(start), Offset(end))
        assert source is not None and bytes_of(source) == data_of(batches[start:end])

    def test_the_second_of_two_segments_is_found(self, log: LogStore) -> None:
        batches = fill(log, 2)
        log.roll()
        batches += fill(log, 3)
        log.roll()
        source = log.locate(Offset(2), Offset(5))
        assert source is not None and bytes_of(source) == data_of(batches[2:])

    @pytest.mark.parametrize(("start", "end"), [(0, 8), (4, 5), (2, 2), (2, 5)])
    def test_what_is_no_part_of_one_closed_segment_is_our_own_mistake(self, log: LogStore, start: int, end: int) -> None:
        fill(log, 2, count=2)
        log.roll()
        fill(log, 2, count=2)
        with pytest.raises(InvariantViolation):
            log.locate(Offset(start), Offset(end))

    @pytest.mark.parametrize(("start", "end"), [(0, 3), (1, 4), (1, 3), (2, 3)])
    def test_an_offset_amid_a_batch_bounds_no_part(self, log: LogStore, start: int, end: int) -> None:
        fill(log, 2, count=2)
        log.roll()
        assert log.locate(Offset(start), Offset(end)) is None

    # --- append and read ---------------------------------------------------------------------------------------------

    def test_a_new_log_is_empty(self, log: LogStore) -> None:
        assert (log.start_offset, log.end_offset, list(log.epochs)) == (0, 0, [])
        assert log.read(Offset(0), NO_LIMIT, 100) == b""
        assert log.find_timestamp(0) is None
        assert log.latest_timestamp() is None

    def test_what_was_appended_is_read_at_once(self, log: LogStore) -> None:
        batches = fill(log, 3, count=4)
        assert log.end_offset == 12
        assert log.read(Offset(0), log.end_offset, 1 << 20) == data_of(batches)

    def test_one_call_may_append_several_batches_in_several_chunks(self, log: LogStore) -> None:
        batches = [make_batch(0, count=2), make_batch(2), make_batch(3, epoch=5)]
        joined = data_of(batches)
        log.append([joined[:10], bytearray(joined[10:200]), memoryview(joined)[200:]], [span for _, span in batches])
        assert log.read(Offset(0), NO_LIMIT, 1 << 20) == joined
        assert list(log.epochs) == [(1, 0), (5, 3)]

    def test_a_read_begins_with_the_batch_that_holds_the_offset(self, log: LogStore) -> None:
        batches = fill(log, 5, count=4, size=20)
        for offset in range(20):
            data = log.read(Offset(offset), NO_LIMIT, 1 << 20)
            assert data == data_of(batches[offset // 4 :]), offset

    def test_no_batch_above_the_limit_is_read(self, log: LogStore) -> None:
        batches = fill(log, 5, count=4, size=20)
        for limit in range(21):
            assert log.read(Offset(0), Offset(limit), 1 << 20) == data_of(batches[: limit // 4]), limit

    def test_a_read_keeps_to_its_size_but_gives_one_batch(self, log: LogStore) -> None:
        batches = fill(log, 5)
        one = len(batches[0][0])
        for size, count in ((0, 1), (1, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (4 * one + 1, 4), (99 * one, 5)):
            assert log.read(Offset(0), NO_LIMIT, size) == data_of(batches[:count]), size

    def test_a_read_at_the_end_is_empty(self, log: LogStore) -> None:
        fill(log, 2)
        assert log.read(Offset(2), NO_LIMIT, 100) == b""
        assert log.read(Offset(1), Offset(1), 100) == b""

    @pytest.mark.parametrize("offset", [-1, 3])
    def test_a_read_outside_the_log_is_our_own_mistake(self, log: LogStore, offset: int) -> None:
        fill(log, 2)
        with pytest.raises(InvariantViolation):
            log.read(Offset(offset), NO_LIMIT, 100)

    @pytest.mark.parametrize(("offset", "epoch"), [(3, 2), (1, 2), (2, 1)], ids=["gap", "overlap", "epoch back"])
    def test_only_what_continues_the_log_is_appended(self, log: LogStore, offset: int, epoch: int) -> None:
        fill(log, 2, epoch=2)
        batch = make_batch(offset, epoch=epoch)
        with pytest.raises(InvariantViolation):
            log.append([batch[0]], [batch[1]])
        assert log.end_offset == 2

    def test_bytes_and_spans_must_agree(self, log: LogStore) -> None:
        data, span = make_batch(0)
        with pytest.raises(InvariantViolation):
            log.append([data, b"x"], [span])
        assert log.end_offset == 0

    # --- segments -----------------------------------------------------------------------------------------------------

    def test_the_log_rolls_by_size_and_reads_across(self, log: LogStore) -> None:
        batches = fill(log, 40, count=2)
        segments = log.segments()
        assert len(segments) > 3
        assert all(segment.size <= SEGMENT_BYTES for segment in segments)
        assert [segment.base_offset for segment in segments[1:]] == [segment.end_offset for segment in segments[:-1]]
        assert (segments[0].base_offset, segments[-1].end_offset) == (0, 80)
        assert read_all(log) == data_of(batches)
        for offset in range(80):
            first = log.read(Offset(offset), NO_LIMIT, 0)
            assert first == batches[offset // 2][0]

    def test_a_batch_larger_than_a_segment_has_one_of_its_own(self, log: LogStore) -> None:
        batches = [*fill(log, 1), *fill(log, 1, size=3 * SEGMENT_BYTES), *fill(log, 1)]
        assert [segment.base_offset for segment in log.segments()] == [0, 1, 2]
        assert read_all(log) == data_of(batches)

    def test_segments_know_their_newest_timestamp(self, log: LogStore) -> None:
        fill(log, 40)
        bases = [segment.base_offset for segment in log.segments()]
        newest = [segment.timestamp_ms_max for segment in log.segments()]
        assert newest == [1_000 + following - 1 for following in [*bases[1:], 40]]

    def test_retention_deletes_whole_closed_segments_below_the_offset(self, log: LogStore) -> None:
        batches = fill(log, 40)
        second, third = log.segments()[1:3]
        assert log.advance_start(Offset(third.base_offset + 1)) == third.base_offset
        assert log.start_offset == third.base_offset > second.base_offset
        assert read_all(log) == data_of(batches[third.base_offset :])
        with pytest.raises(InvariantViolation):
            log.read(second.base_offset, NO_LIMIT, 100)

    def test_retention_never_deletes_the_active_segment(self, log: LogStore) -> None:
        fill(log, 40)
        active = log.segments()[-1]
        assert log.advance_start(NO_LIMIT) == active.base_offset
        assert log.end_offset == 40
        assert log.advance_start(Offset(0)) == active.base_offset

    def test_a_noted_start_holds_over_restarts_and_moves_nothing(self, directory: LogDirectory, log: LogStore) -> None:
        batches = fill(log, 40)
        assert log.noted_start == 0
        log.note_start(Offset(3))
        log.note_start(Offset(7))
        assert (log.noted_start, log.start_offset) == (7, 0)
        assert read_all(log) == data_of(batches)
        self.flush(directory, log)
        directory.checkpoint()
        assert self.restart(directory).open(GROUP).noted_start == 7

    def test_a_cut_or_a_reset_below_a_noted_start_lowers_it(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 40)
        log.note_start(Offset(30))
        log.truncate_to(Offset(35))
        assert log.noted_start == 30
        log.truncate_to(Offset(20))
        assert log.noted_start == 20
        log.reset(OffsetAndEpoch(Offset(25), Epoch(3)))
        assert log.noted_start == 20
        log.reset(OffsetAndEpoch(Offset(10), Epoch(3)))
        assert log.noted_start == 10

    def test_a_deleted_log_leaves_no_noted_start(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 10)
        log.note_start(Offset(5))
        directory.delete([GROUP])
        assert directory.open(GROUP).noted_start == 0

    def test_a_log_is_partial_until_it_is_told_otherwise(self, directory: LogDirectory, log: LogStore) -> None:
        other = directory.open(OTHER)
        assert not log.is_partial
        log.note_partial(True)
        assert (log.is_partial, other.is_partial) == (True, False)
        fill(log, 10)
        log.truncate_to(Offset(0))
        log.reset(OffsetAndEpoch(Offset(10), Epoch(3)))
        assert log.is_partial
        directory = self.restart(directory)
        log, other = directory.open(GROUP), directory.open(OTHER)
        assert (log.is_partial, other.is_partial) == (True, False)
        for _ in range(2):
            log.note_partial(False)
            assert not log.is_partial

    def test_a_log_that_is_partial_no_more_is_not_after_a_restart(self, directory: LogDirectory, log: LogStore) -> None:
        for is_partial in (True, True, False, True, False):
            log.note_partial(is_partial)
        assert not self.restart(directory).open(GROUP).is_partial

    def test_a_log_of_the_same_name_as_a_deleted_one_is_not_partial(self, directory: LogDirectory, log: LogStore) -> None:
        log.note_partial(True)
        directory.delete([GROUP])
        assert not directory.open(GROUP).is_partial

    def test_retention_keeps_the_epoch_at_the_new_start(self, log: LogStore) -> None:
        fill(log, 20, epoch=1)
        fill(log, 20, epoch=2)
        start = log.advance_start(Offset(30))
        assert start > 20
        assert list(log.epochs) == [(2, start)]

    # --- truncation and reset -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", range(0, 42, 2))
    def test_truncation_keeps_exactly_what_lies_below(self, log: LogStore, end: int) -> None:
        batches = fill(log, 20, count=2)
        log.truncate_to(Offset(end))
        assert log.end_offset == min(end, 40)
        assert read_all(log) == data_of(batches[: end // 2])
        more = fill(log, 10, epoch=2)
        assert read_all(log) == data_of([*batches[: end // 2], *more])

    def test_truncation_cuts_the_epochs_that_start_at_or_after_it(self, log: LogStore) -> None:
        for epoch in (1, 3, 6):
            fill(log, 5, epoch=epoch)
        log.truncate_to(Offset(11))
        assert list(log.epochs) == [(1, 0), (3, 5), (6, 10)]
        log.truncate_to(Offset(10))
        assert list(log.epochs) == [(1, 0), (3, 5)]
        log.truncate_to(Offset(0))
        assert list(log.epochs) == []

    def test_truncation_at_or_behind_the_end_changes_nothing_else(self, log: LogStore) -> None:
        batches = fill(log, 3)
        log.truncate_to(Offset(3))
        log.truncate_to(Offset(9))
        assert log.end_offset == 3
        assert read_all(log) == data_of(batches)

    def test_truncation_below_the_start_is_our_own_mistake(self, log: LogStore) -> None:
        log.reset(at(7, 1))
        with pytest.raises(InvariantViolation):
            log.truncate_to(Offset(6))

    def test_a_reset_log_is_empty_and_remembers_the_epoch_before_its_start(self, log: LogStore) -> None:
        fill(log, 40)
        log.reset(at(100, 4))
        assert (log.start_offset, log.end_offset) == (100, 100)
        assert list(log.epochs) == [(4, 100)]
        assert len(log.segments()) == 1
        assert log.read(Offset(100), NO_LIMIT, 10) == b""
        more = fill(log, 3, epoch=4)
        assert list(log.epochs) == [(4, 100)]
        assert read_all(log) == data_of(more)

    def test_after_a_reset_a_new_epoch_at_the_start_can_be_truncated(self, log: LogStore) -> None:
        """The record before the start still has epoch 4: claiming epoch 6 for it could win an election that must be lost."""
        log.reset(at(100, 4))
        fill(log, 3, epoch=6)
        assert list(log.epochs) == [(6, 100)]
        log.truncate_to(Offset(100))
        assert list(log.epochs) == [(4, 100)]

    def test_a_reset_to_the_very_beginning_has_no_history(self, log: LogStore) -> None:
        fill(log, 3)
        log.reset(at(0, 0))
        assert (log.start_offset, log.end_offset, list(log.epochs)) == (0, 0, [])

    # --- timestamps ---------------------------------------------------------------------------------------------------

    def test_the_first_batch_at_or_after_a_timestamp_is_found(self, log: LogStore) -> None:
        fill(log, 60, step_ms=10)
        for wanted, offset in ((-1, 0), (0, 0), (1_000, 0), (1_001, 1), (1_010, 1), (1_585, 59), (1_590, 59)):
            found = log.find_timestamp(wanted)
            assert found is not None and (found.offset, found.timestamp_ms, found.epoch) == (offset, 1_000 + 10 * offset, 1)
        assert log.find_timestamp(1_591) is None

    def test_timestamps_need_not_rise(self, log: LogStore) -> None:
        times = [50, 10, 90, 20, 90, 5]
        for offset, time in enumerate(times):
            data, span = make_batch(offset, timestamp_ms=time)
            log.append([data], [span])
        for wanted in range(1, 92):
            expected = next((offset for offset, time in enumerate(times) if time >= wanted), None)
            found = log.find_timestamp(wanted)
            assert (None if found is None else found.offset) == expected, wanted
        latest = log.latest_timestamp()
        assert latest is not None and (latest.offset, latest.timestamp_ms) == (2, 90)

    def test_the_latest_timestamp_follows_a_truncation(self, log: LogStore) -> None:
        fill(log, 60, step_ms=10)
        for end in (59, 33, 7):
            log.truncate_to(Offset(end))
            latest = log.latest_timestamp()
            assert latest is not None and (latest.offset, latest.timestamp_ms) == (end - 1, 1_000 + 10 * (end - 1))

    # --- the directory ------------------------------------------------------------------------------------------------

    def test_a_log_is_the_same_after_a_restart(self, directory: LogDirectory, log: LogStore) -> None:
        batches = [*fill(log, 20, epoch=1), *fill(log, 20, epoch=3)]
        assert self.flush(directory, log) == [None]
        segments = list(log.segments())
        again = self.restart(directory).open(GROUP)
        assert (again.start_offset, again.end_offset) == (0, 40)
        assert list(again.epochs) == [(1, 0), (3, 20)]
        assert list(again.segments()) == segments
        assert read_all(again) == data_of(batches)
        fill(again, 5, epoch=3)
        assert again.end_offset == 45

    def test_a_truncated_or_reset_log_is_the_same_after_a_restart(self, directory: LogDirectory, log: LogStore) -> None:
        batches = [*fill(log, 20, epoch=1), *fill(log, 20, epoch=3)]
        log.truncate_to(Offset(13))
        self.flush(directory, log)
        directory = self.restart(directory)
        log = directory.open(GROUP)
        assert read_all(log) == data_of(batches[:13])
        assert list(log.epochs) == [(1, 0)]
        log.reset(at(100, 4))
        fill(log, 1, epoch=5)
        log.truncate_to(Offset(100))
        self.flush(directory, log)
        log = self.restart(directory).open(GROUP)
        assert (log.start_offset, log.end_offset, list(log.epochs)) == (100, 100, [(4, 100)])

    def test_retention_is_the_same_after_a_restart(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 20, epoch=1)
        fill(log, 20, epoch=2)
        start = log.advance_start(Offset(30))
        self.flush(directory, log)
        log = self.restart(directory).open(GROUP)
        assert (log.start_offset, log.end_offset, list(log.epochs)) == (start, 40, [(2, start)])

    def test_a_flush_reports_once(self, directory: LogDirectory, log: LogStore) -> None:
        other = directory.open(GroupId("orders", 4, GROUP.topic_id))
        fill(log, 2)
        fill(other, 2)
        assert self.flush(directory, log, other) == [None]
        assert self.flush(directory, log) == [None]
        assert self.flush(directory) == [None]

    def test_open_gives_the_same_log(self, directory: LogDirectory, log: LogStore) -> None:
        assert directory.open(GROUP) is log

    def test_groups_are_listed_in_order(self, directory: LogDirectory) -> None:
        assert list(directory.groups()) == []
        groups = [GroupId("a-b", 1, bytes(16)), GroupId("a", 2, bytes(range(16))), GroupId("a", 10, bytes(range(16)))]
        for group in groups:
            directory.open(group)
        assert list(directory.groups()) == [groups[1], groups[2], groups[0]]

    def test_a_deleted_group_is_gone_and_can_come_back_empty(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 5)
        directory.delete([GROUP])
        assert list(directory.groups()) == []
        recreated = GroupId(GROUP.topic, GROUP.partition, bytes(range(1, 17)))
        again = directory.open(recreated)
        assert again.end_offset == 0
        assert list(directory.groups()) == [recreated]

    def test_a_deleted_log_cannot_be_read(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 5)
        directory.delete([GROUP])
        with pytest.raises(StorageError, match="closed"):
            log.read(Offset(0), NO_LIMIT, 500)
        again = directory.open(GROUP)
        assert again.read(Offset(0), NO_LIMIT, 500) == b""
        fill(again, 1)
        assert again.read(Offset(0), NO_LIMIT, 500)

    def test_deleting_what_does_not_exist_is_no_error(self, directory: LogDirectory) -> None:
        directory.delete([GROUP])

    def test_a_log_may_be_deleted_under_a_flush(self, directory: LogDirectory, log: LogStore) -> None:
        results: list[StorageError | None] = []
        fill(log, 5)
        directory.flush([log], results.append)
        directory.delete([GROUP])
        self.settle(directory)
        assert results == [None]

    def test_a_read_ends_where_the_next_begins(self, log: LogStore) -> None:
        fill(log, 40)
        data = log.read(Offset(0), NO_LIMIT, 500)
        following = log.read(end_of(data), NO_LIMIT, 0)
        assert end_of(following) == end_of(data) + 1

    # --- start points -------------------------------------------------------------------------------------------------

    def save_points(self, log: LogStore) -> list[Offset]:
        """One where each segment begins behind the first."""
        bases = list(log.segment_bases)[1:]
        for base in bases:
            log.start_points.save(base, b"producers %d" % base, b"voters %d" % base)
        assert len(bases) > 2 and list(log.start_points.offsets) == bases
        return bases

    def test_an_append_tells_which_segments_it_began(self, log: LogStore) -> None:
        begun: list[Offset] = []
        for _ in range(40):
            data, span = make_batch(log.end_offset)
            begun += log.append([data], [span])
        assert list(log.segment_bases) == [segment.base_offset for segment in log.segments()] == [0, *begun]

    def test_a_point_survives_a_restart_and_may_be_replaced(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 40)
        bases = self.save_points(log)
        log.start_points.save(bases[0], b"other", b"", sync=False)
        log.start_points.delete(bases[1:2])
        self.flush(directory, log)
        points = self.restart(directory).open(GROUP).start_points
        assert list(points.offsets) == [bases[0], *bases[2:]]
        assert points.load(bases[0]) == (b"other", b"")
        assert points.load(bases[2]) == (b"producers %d" % bases[2], b"voters %d" % bases[2])
        with pytest.raises(StorageError):
            points.load(bases[1])

    def test_a_truncation_takes_the_points_above_it(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 40)
        bases = self.save_points(log)
        log.truncate_to(bases[1])
        assert list(log.start_points.offsets) == bases[:2]
        log.truncate_to(Offset(bases[1] - 1))
        assert list(log.start_points.offsets) == bases[:1]
        fill(log, 40, epoch=2)
        self.flush(directory, log)
        assert list(self.restart(directory).open(GROUP).start_points.offsets) == bases[:1]

    def test_a_reset_takes_all_points(self, directory: LogDirectory, log: LogStore) -> None:
        fill(log, 40)
        self.save_points(log)
        log.reset(at(500, 3))
        assert list(log.start_points.offsets) == []
        self.flush(directory, log)
        assert list(self.restart(directory).open(GROUP).start_points.offsets) == []

    def test_retention_keeps_the_last_point_at_or_below_the_start(self, log: LogStore) -> None:
        fill(log, 40)
        bases = self.save_points(log)
        log.start_points.delete([bases[1]])
        assert log.advance_start(bases[1]) == bases[1]
        assert list(log.start_points.offsets) == [bases[0], *bases[2:]]
        log.advance_start(bases[2])
        assert list(log.start_points.offsets) == bases[2:]
