"""A log on disk that is compacted: what is read afterwards, which files are there, and what a restart finds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from crc32c import crc32c

from compactdisk import (
    GROUP,
    compacted,
    epochs_of,
    files_of,
    fill_keys,
    newest_values,
    opened,
    put,
    request_for,
    tried,
)
from compactkit import NOW_MS, RETENTION_MS
from contract.batches import read_all
from raftlake.errors import DamagedData, DiskFull, InvariantViolation, StorageError, UnfitBeginning
from raftlake.ports.driver import BatchSpan
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.cleaned import CleanedGroup
from raftlake.storage.dump import dump
from raftlake.storage.log import FileLog
from raftlake.storage.log_compaction import FILE_NAME
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batch_header import CRC_START
from raftlake.wire.batches import HEADER_BYTES, Record, build_batch, decode_records, iterate_headers, parse_header


class Place:
    """A directory, which may be closed and opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory, self.log = opened(path)

    def restart(self) -> FileLog:
        self.directory.close()
        self.directory, self.log = opened(self.path)
        return self.log


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path / "data")
    fill_keys(found.log, 6, epoch=1)
    fill_keys(found.log, 6, epoch=3, first=6)
    yield found
    found.directory.abandon()


def test_a_pass_leaves_the_newest_values_and_few_bytes(place: Place) -> None:
    log = place.log
    values, epochs, end = newest_values(log), epochs_of(log), log.end_offset
    segments, size = len(log.segments()), sum(each.size for each in log.segments())
    result = compacted(log)
    assert newest_values(log) == values
    assert epochs_of(log) == epochs
    assert log.end_offset == end
    assert len(log.segments()) < segments
    assert result.bytes_before - result.bytes_after == size - sum(each.size for each in log.segments()) > 0
    assert result.clean_until == log.segment_bases[-1] == log.compacted_until
    assert result.records_removed > 60 and result.next_horizon_ms is None
    log.verify()
    assert log.scrub(1 << 30) > 0


def test_the_file_with_how_far_logs_are_compacted_is_kafkas(place: Place) -> None:
    result = compacted(place.log)
    assert (place.path / FILE_NAME).read_text() == f"0\n1\norders 0 {result.clean_until}\n"


def test_a_restart_finds_what_the_pass_left(place: Place) -> None:
    assert place.log.compacted_until is None
    result = compacted(place.log)
    data, files, infos = read_all(place.log), files_of(place.log), place.log.segments()
    log = place.restart()
    assert read_all(log) == data
    # The active segment got its index files when the log was closed.
    assert [name for name in files_of(log) if int(name[:20]) < log.segment_bases[-1]] == files[:-1]
    assert log.segments() == infos
    assert log.compacted_until == result.clean_until
    fill_keys(log, 3, epoch=5)
    compacted(log, dirty_from=log.compacted_until)
    assert newest_values(log)[b"k1"] == b"last"


def test_each_segment_has_its_files_and_no_other_is_left(place: Place) -> None:
    compacted(place.log)
    active = place.log.segment_bases[-1]
    wanted = [f"{base:020d}{suffix}" for base in place.log.segment_bases[:-1] for suffix in (".index", ".log", ".timeindex")]
    assert [name for name in files_of(place.log) if int(name[:20]) != active] == wanted


def test_the_index_files_are_those_that_the_segment_would_get(place: Place) -> None:
    """A segment of many batches has entries."""
    log = place.log
    log.limit_segments(1 << 20)
    for number in range(300):
        put(log, [(f"many-{number}", "v" * 50)], epoch=3, time_ms=NOW_MS + number)
    log.roll()
    compacted(log, segment_bytes=1 << 20)
    base = log.segment_bases[-2]
    files = [log.path / f"{base:020d}{suffix}" for suffix in (".index", ".timeindex")]
    written = [file.read_bytes() for file in files]
    assert len(written[0]) > 16
    for file in files:
        file.unlink()
    place.restart().segments()
    place.log.find_timestamp(NOW_MS + 200)
    assert [file.read_bytes() for file in files] == written


def test_a_time_is_found_in_a_compacted_log(place: Place) -> None:
    compacted(place.log)
    found = place.log.find_timestamp(NOW_MS + 80)
    assert found is not None and found.timestamp_ms >= NOW_MS + 80
    assert place.log.latest_timestamp() is not None


def test_segments_become_one_while_they_fit(place: Place) -> None:
    compacted(place.log, segment_bytes=1 << 20)
    assert len(place.log.segments()) == 2
    (first, _) = place.log.segments()
    assert first.timestamp_ms_max == NOW_MS + 100
    assert place.log.segments() == place.restart().segments()


def test_a_pass_that_changes_nothing_writes_nothing(place: Place) -> None:
    compacted(place.log, segment_bytes=1 << 20)
    inodes = {path.name: path.stat().st_ino for path in place.log.path.glob("0*")}
    result = compacted(place.log, dirty_from=place.log.compacted_until)
    assert {path.name: path.stat().st_ino for path in place.log.path.glob("0*")} == inodes
    assert result.records_removed == 0 and result.bytes_before == result.bytes_after


def test_a_map_that_is_full_ends_the_pass_early(place: Place) -> None:
    values = newest_values(place.log)
    result = compacted(place.log, keys_max=5)
    assert 0 < result.clean_until < place.log.segment_bases[-1]
    assert newest_values(place.log) == values
    while result.clean_until < place.log.segment_bases[-1]:
        result = compacted(place.log, keys_max=5, dirty_from=result.clean_until)
    assert newest_values(place.log) == values


def test_tombstones_go_in_a_later_pass(place: Place) -> None:
    log = place.log
    put(log, [("k0", None)], epoch=3)
    log.roll()
    result = compacted(log)
    assert result.next_horizon_ms == NOW_MS + RETENTION_MS
    place.restart()
    due = compacted(place.log, dirty_from=place.log.compacted_until, now_ms=NOW_MS + RETENTION_MS)
    assert due.next_horizon_ms is None and due.records_removed == 1
    assert not [record for record in decode_records(read_all(place.log)) if record.key == b"k0"]


# --- readers -----------------------------------------------------------------------------------------------------------------


def test_a_reader_begins_at_any_batch_of_the_old_log(place: Place) -> None:
    bases = [header.base_offset for header in iterate_headers(read_all(place.log))]
    compacted(place.log, segment_bytes=1 << 20)
    assert len(bases) >= 2 * len(list(iterate_headers(read_all(place.log))))
    for base in bases:
        data = place.log.read(Offset(base), place.log.end_offset, 1 << 20)
        headers = list(iterate_headers(data))
        assert headers[0].base_offset == base
        for header, following in pairwise(headers):
            assert header.end_offset == following.base_offset


def test_a_batch_with_records_is_not_cut(place: Place) -> None:
    (last,) = list(iterate_headers(read_all(place.log)))[-1:]
    data = place.log.read(Offset(last.last_offset), place.log.end_offset, 1 << 20)
    assert parse_header(data).base_offset == last.base_offset < last.last_offset


def test_appends_and_reads_go_on_during_a_pass(place: Place) -> None:
    """Between two groups of segments, as the callbacks of a pass come between the turns of the driver."""
    log, seen = place.log, []
    values = newest_values(log)
    install = log._install

    def between(group) -> None:  # type: ignore[no-untyped-def]
        seen.append(newest_values(log))
        put(log, [(f"new-{len(seen)}", "v")], epoch=3)
        install(group)

    log._install = between  # type: ignore[method-assign]
    compacted(log)
    assert len(seen) > 2
    assert newest_values(log) == values | {f"new-{number + 1}".encode(): b"v" for number in range(len(seen))}


# --- aborted transactions ----------------------------------------------------------------------------------------------------


def aborted_log(place: Place) -> list[AbortedTransaction]:
    """Each round: a batch of an aborted transaction, which some segments hold."""
    found = []
    for number in range(12):
        first = put(
            place.log, [(f"k{number % 3}", "aborted" * 20)], epoch=3, producer_id=9, producer_epoch=0, transactional=True
        )
        marker = put(place.log, [("ctl", "x")], epoch=3)
        found.append(AbortedTransaction(9, first, marker, marker + 1))
    place.log.aborted.append(found)
    place.log.roll()
    return found


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_aborted_transactions_without_records_are_forgotten(place: Place, segment_bytes: int) -> None:
    """Whether their segments vanish or not."""
    found = aborted_log(place)
    counts = place.log.aborted.counts(place.log.end_offset)
    assert len(counts) > 3
    compacted(place.log, aborted=tuple(found), segment_bytes=segment_bytes)
    assert (len(place.log.segment_bases) > 3) == (segment_bytes == 200)
    bases = set(place.log.segment_bases)
    left = place.log.aborted.counts(place.log.end_offset)
    assert {base for base, _ in left} <= bases
    assert [each for each in files_of(place.log) if each.endswith(".txnindex")] == [f"{base:020d}.txnindex" for base, _ in left]
    assert place.log.aborted.agrees(place.log.end_offset, counts), "start points that were saved before stay true"
    assert place.restart().aborted.agrees(place.log.end_offset, counts)
    assert not [record for record in decode_records(read_all(place.log)) if record.value == b"aborted" * 20]


def test_entries_are_dropped_when_all_records_are_gone(place: Place) -> None:
    """Then their markers may go: a reader that is told of a transaction waits for its marker."""
    found = aborted_log(place)
    end = place.log.segment_bases[-1]
    # The map ends amid a segment that holds entries on both sides.
    bases = place.log.segment_bases
    last = next(
        index
        for index in range(5, 12)
        if not any(found[index].last_offset < base <= found[index + 1].last_offset for base in bases)
    )
    result = compacted(place.log, aborted=tuple(found), keys_max=1, dirty_from=found[last].first_offset)
    until = result.clean_until
    assert found[last].last_offset < until <= found[last + 1].last_offset
    assert place.log.aborted.find(Offset(0), end) == [each for each in found if each.last_offset >= until]
    restarted = place.restart()
    assert restarted.aborted.find(Offset(0), end) == [each for each in found if each.last_offset >= until]
    compacted(restarted, aborted=tuple(found), dirty_from=until)
    assert restarted.aborted.find(Offset(0), end) == []
    assert not list(restarted.path.glob("*.txnindex"))


def test_a_lost_index_of_a_segment_that_stands_is_still_noticed(place: Place) -> None:
    aborted_log(place)
    counts = place.log.aborted.counts(place.log.end_offset)
    (place.log.path / f"{counts[1][0]:020d}.txnindex").unlink()
    assert not place.restart().aborted.agrees(place.log.end_offset, counts)


def test_what_the_map_does_not_reach_keeps_its_aborted_transactions(place: Place) -> None:
    """The segment in which the map ends does not join those below: its index tells of records that are still there."""
    found = aborted_log(place)
    result = compacted(place.log, aborted=tuple(found), keys_max=1, dirty_from=found[5].first_offset, segment_bytes=1 << 20)
    end = result.clean_until
    left = [header for header in iterate_headers(read_all(place.log)) if header.is_transactional and header.record_count]
    assert left and all(header.base_offset >= end for header in left)
    for header in left:
        told = place.log.aborted.find(Offset(header.base_offset), Offset(header.end_offset))
        assert header.base_offset in [each.first_offset for each in told]


# --- giving up ---------------------------------------------------------------------------------------------------------------


def test_a_cut_lowers_how_far_the_log_is_compacted(place: Place) -> None:
    result = compacted(place.log)
    place.log.truncate_to(place.log.end_offset - 2)
    assert place.log.compacted_until == result.clean_until
    place.log.truncate_to(Offset(40))
    assert place.log.compacted_until == 40
    assert (place.path / FILE_NAME).read_text() == "0\n1\norders 0 40\n", "durable before the log is cut"


def test_a_reset_lowers_how_far_the_log_is_compacted(place: Place) -> None:
    compacted(place.log)
    place.log.reset(OffsetAndEpoch(Offset(30), Epoch(3)))
    assert place.log.compacted_until == 30
    assert place.restart().compacted_until == 30


def test_a_deleted_log_is_forgotten(place: Place) -> None:
    compacted(place.log)
    place.directory.delete([GROUP])
    assert place.directory.open(GROUP).compacted_until is None


def test_a_request_ends_where_a_closed_segment_ends(place: Place) -> None:
    for until in (place.log.segment_bases[-1] + 1, place.log.segment_bases[1] - 1, place.log.end_offset):
        with pytest.raises(InvariantViolation):
            tried(place.log, until=Offset(until))


def test_a_pass_over_nothing_marks_the_log(place: Place) -> None:
    result = compacted(place.log, until=Offset(0))
    assert (result.clean_until, result.bytes_before, place.log.compacted_until) == (0, 0, 0)
    assert place.restart().compacted_until == 0


def test_a_mark_that_found_no_room_is_saved_before_the_next_pass(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first pass on the log is one that was compacted, also after a crash."""

    def no_room(_path: Path, _data: bytes) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.recovery_points.replace_file", no_room)
        for _ in range(2):
            with pytest.raises(DiskFull):
                tried(place.log)
    assert not (place.path / FILE_NAME).exists()
    seen: list[str] = []
    install = FileLog._install

    def watched(log: FileLog, group: CleanedGroup) -> None:
        seen.append((place.path / FILE_NAME).read_text())
        install(log, group)

    monkeypatch.setattr(FileLog, "_install", watched)
    compacted(place.log)
    assert seen[0] == "0\n1\norders 0 0\n"


def test_how_far_a_log_is_compacted_is_saved_before_the_next_pass_where_it_found_no_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compacted(place.log, keys_max=1)
    (place.path / FILE_NAME).write_text("0\n1\norders 0 0\n")

    def no_room(_path: Path, _data: bytes) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.recovery_points.replace_file", no_room)
        second = compacted(place.log, keys_max=1, dirty_from=first.clean_until)
    assert "orders 0 0" in (place.path / FILE_NAME).read_text(), "the pass went well all the same"
    seen: list[str] = []
    install = FileLog._install

    def watched(log: FileLog, group: CleanedGroup) -> None:
        seen.append((place.path / FILE_NAME).read_text())
        install(log, group)

    monkeypatch.setattr(FileLog, "_install", watched)
    compacted(place.log, dirty_from=second.clean_until)
    assert seen[0] == f"0\n1\norders 0 {second.clean_until}\n"


def test_a_failed_log_is_not_compacted(place: Place) -> None:
    place.log.abandon()
    with pytest.raises(StorageError):
        place.log.compact(request_for(place.log), print)


# --- damage ------------------------------------------------------------------------------------------------------------------


def test_damage_in_a_segment_is_told_with_its_offset(place: Place) -> None:
    log = place.log
    base = log.segment_bases[3]
    path = log.path / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    *_, last = iterate_headers(bytes(data))
    before = files_of(log)
    result = tried(log)
    assert isinstance(result, DamagedData)
    assert result.offset == last.base_offset
    assert files_of(log) == before
    assert log.compacted_until == 0
    put(log, [("k", "v")], epoch=3)


def test_damage_found_late_leaves_the_groups_before_it_compacted(place: Place) -> None:
    """What the map does not need is read only when it is rewritten."""
    log = place.log
    base = log.segment_bases[3]
    values = newest_values(log)
    path = log.path / f"{base:020d}.log"
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    dirty = log.segment_bases[5]
    size = sum(each.size for each in log.segments())
    assert isinstance(tried(log, dirty_from=dirty), DamagedData)
    assert sum(each.size for each in log.segments()) < size
    assert not [name for name in files_of(log) if name.endswith(".cleaned")]
    path.write_bytes(intact)
    assert newest_values(log) == values


def test_a_segment_that_is_missing_is_an_error_of_the_pass(place: Place) -> None:
    log = place.log
    base = log.segment_bases[2]
    (log.path / f"{base:020d}.log").rename(log.path / "elsewhere")
    result = tried(log)
    assert isinstance(result, StorageError) and f"{base:020d}.log" in str(result)
    put(log, [("k", "v")], epoch=3)


def test_records_that_nobody_can_read_are_no_damage(place: Place) -> None:
    """The CRC is right: other replicas have the same bytes, and a repair would fetch them again."""
    log = place.log
    batch = bytearray(build_batch([Record(key=b"k", value=b"v")], base_offset=log.end_offset, leader_epoch=3, timestamp_ms=1))
    batch[HEADER_BYTES] = 0x7E
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    log.append([bytes(batch)], [BatchSpan(log.end_offset, log.end_offset + 1, 3, 1, len(batch))])
    log.roll()
    result = tried(log)
    assert isinstance(result, StorageError) and not isinstance(result, DamagedData)
    assert "cannot be compacted" in str(result)


def test_damage_of_a_compacted_log_takes_all_of_it(place: Place) -> None:
    """The peers that repair it may have removed tombstones that what is intact here would need."""
    compacted(place.log)
    end = place.log.end_offset
    path = place.log.path / f"{place.log.segment_bases[-2]:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedData) as damage:
        place.log.verify()
    place.directory.set_aside(GROUP, damage.value, Epoch(3))
    log = place.directory.open(GROUP)
    assert (log.start_offset, log.end_offset, log.compacted_until) == (0, 0, 0)
    impairment = place.directory.impairment(GROUP)
    assert impairment is not None and impairment[0].end_offset == end
    assert list(place.path.glob("*/damaged-*/*.log"))


def test_damage_of_another_log_leaves_what_is_intact(place: Place) -> None:
    path = place.log.path / f"{place.log.segment_bases[-2]:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedData) as damage:
        place.log.verify()
    place.directory.set_aside(GROUP, damage.value, Epoch(3))
    assert place.directory.open(GROUP).end_offset > 0


def test_a_beginning_that_is_unfit_goes_though_all_of_it_can_be_read(place: Place) -> None:
    """It was never compacted here, and what others have does not complete it."""
    end = place.log.end_offset
    place.directory.set_aside(GROUP, UnfitBeginning("found by a test", offset=end), Epoch(3))
    log = place.directory.open(GROUP)
    assert (log.start_offset, log.end_offset, log.compacted_until) == (0, 0, 0)
    impairment = place.directory.impairment(GROUP)
    assert impairment is not None and impairment[0].end_offset == end
    put(log, [("k0", "fetched")], epoch=3)
    log = place.restart()
    assert (log.end_offset, log.compacted_until) == (1, 0), "it is not taken for one whose beginning was kept"


def test_unfinished_files_can_be_dumped(place: Place) -> None:
    path = place.log.path / f"{0:020d}.log"
    for suffix in (".cleaned", ".swap"):
        copy = path.with_name(path.name + suffix)
        copy.write_bytes(path.read_bytes())
        assert list(dump(copy)) == list(dump(path))


def test_unfinished_files_are_swept(place: Place) -> None:
    (place.log.path / f"{0:020d}.log.cleaned").write_bytes(b"x")
    place.restart()
    assert not [name for name in files_of(place.log) if name.endswith(".cleaned")]


def test_the_scrub_goes_on_in_a_segment_that_was_replaced(place: Place) -> None:
    log = place.log
    log.scrub(log.segments()[0].size * 4 * 4)
    compacted(log, segment_bytes=1 << 20)
    for _ in range(8):
        log.scrub(20_000)
