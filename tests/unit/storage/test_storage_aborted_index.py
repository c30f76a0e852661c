"""The index of aborted transactions as files: names and bytes, damage, what is synced when, and errors of the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raftlake.errors import DiskFull, StorageError
from raftlake.raft.types import Offset
from raftlake.storage import aborted_index, files
from raftlake.storage.aborted_index import READ_ENTRIES, FileAbortedIndex
from raftlake.wire.aborted_index import ENTRY, AbortedTransaction, encode

END = Offset(1 << 40)
#: Markers at 3, 8 and 12; the segments begin at 0 and at 10.
ENTRIES = [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 5, 8, 9), AbortedTransaction(1, 11, 12, 13)]
COUNTS = [(0, 2), (10, 1)]
BASES = [Offset(0), Offset(10)]


def index_at(path: Path, *entries: AbortedTransaction) -> FileAbortedIndex:
    index = FileAbortedIndex(path, lambda: BASES)
    if entries:
        index.append(entries)
    return index


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_each_segment_with_a_marker_has_a_file_in_the_format_of_kafka(tmp_path: Path) -> None:
    index_at(tmp_path, *ENTRIES)
    assert names(tmp_path) == ["00000000000000000000.txnindex", "00000000000000000010.txnindex"]
    assert (tmp_path / "00000000000000000000.txnindex").read_bytes() == encode(ENTRIES[:2])
    assert (tmp_path / "00000000000000000010.txnindex").read_bytes() == encode(ENTRIES[2:])
    assert index_at(tmp_path).find(Offset(0), END) == ENTRIES


def test_other_files_are_none_of_it(tmp_path: Path) -> None:
    for name in ("7.txnindex", f"{9:020d}.log", f"{9:020d}.txnindex.tmp"):
        (tmp_path / name).write_bytes(b"x")
    assert index_at(tmp_path).find(Offset(0), END) == [] and index_at(tmp_path).agrees(END, ())


def test_a_long_file_is_read_from_its_first_useful_entry_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [AbortedTransaction(7, 20 + 2 * n, 21 + 2 * n, 22 + 2 * n) for n in range(3 * READ_ENTRIES)]
    index_at(tmp_path, *entries)
    read: list[int] = []

    def counted(descriptor: int, size: int, position: int) -> bytes:
        read.append(size // ENTRY.size)
        return files.read_at(descriptor, size, position)

    monkeypatch.setattr(aborted_index, "read_at", counted)
    for first, last in ((0, 3), (700, 703), (len(entries) - 2, len(entries)), (10, 10 + READ_ENTRIES)):
        start, end = entries[first].first_offset, entries[last - 1].last_offset
        read.clear()
        assert index_at(tmp_path).find(Offset(start), Offset(end)) == entries[first:last]
        assert sum(read) <= last - first + 2 * READ_ENTRIES and len(read) < 20
    assert index_at(tmp_path).find(Offset(0), END) == entries
    short = tmp_path / "short"
    short.mkdir()
    index_at(short, *entries[:READ_ENTRIES])
    read.clear()
    assert index_at(short).find(Offset(entries[300].first_offset), Offset(entries[301].last_offset)) == entries[300:302]
    assert read == [READ_ENTRIES], "one read is enough"


def test_questions_of_one_reader_read_each_piece_of_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [AbortedTransaction(7, 20 + 2 * n, 21 + 2 * n, 22 + 2 * n) for n in range(2 * READ_ENTRIES + 5)]
    index = index_at(tmp_path, *entries)
    opened: list[str] = []
    open_file = aborted_index.open_file
    monkeypatch.setattr(aborted_index, "open_file", lambda file, flags: opened.append(str(file)) or open_file(file, flags))
    for entry in entries:
        assert index.find(Offset(entry.first_offset), Offset(entry.last_offset)) == [entry]
    assert len(opened) <= 6
    opened.clear()
    for _ in range(3):
        assert index.find(Offset(entries[-1].last_offset + 1), END) == []
    assert opened == []


@pytest.mark.parametrize("asked", [0, 1, READ_ENTRIES - 1, READ_ENTRIES, READ_ENTRIES + 1, 2 * READ_ENTRIES])
def test_what_was_read_before_changes_no_answer(tmp_path: Path, asked: int) -> None:
    entries = [AbortedTransaction(7, 20 + 2 * n, 21 + 2 * n, 22 + 2 * n) for n in range(2 * READ_ENTRIES + 1)]
    index = index_at(tmp_path, *entries)
    for then in (0, asked - 1, asked, asked + 1, 0):
        for number in (asked, then):
            start = Offset(max(entries[min(number, len(entries) - 1)].last_offset, 0))
            for further in (0, 1):
                expected = [each for each in entries if each.last_offset >= start + further]
                assert index.find(Offset(start + further), END) == expected


def test_an_entry_that_comes_behind_what_was_read_is_found(tmp_path: Path) -> None:
    index = index_at(tmp_path, *ENTRIES)
    assert index.find(Offset(11), END) == ENTRIES[2:] and index.find(Offset(13), END) == []
    more = [AbortedTransaction(5, 14, 15, 16), AbortedTransaction(5, 17, 18, 19)]
    for entry in more:
        index.append([entry])
        assert index.find(Offset(13), END) == more[: more.index(entry) + 1]


def test_what_is_gone_is_not_told_of_what_was_read_before(tmp_path: Path) -> None:
    entries = [AbortedTransaction(1, 11 + 2 * n, 12 + 2 * n, 13 + 2 * n) for n in range(4)]
    other = AbortedTransaction(9, 15, 16, 17)
    index = index_at(tmp_path, *ENTRIES[:2], *entries)
    assert index.find(Offset(11), END) == entries
    index.truncate_to(Offset(15))
    assert index.find(Offset(11), END) == entries[:2]
    index.append([other])
    assert index.find(Offset(11), END) == [*entries[:2], other]
    index.drop_below(Offset(14))
    assert index.find(Offset(0), END) == [entries[1], other]
    (tmp_path / "00000000000000000010.txnindex").unlink()
    index.forget(Offset(10))
    assert index.find(Offset(11), END) == []
    index.append([other])
    assert index.find(Offset(11), END) == [other]
    index.forget_all()
    (tmp_path / "00000000000000000010.txnindex").write_bytes(encode(entries))
    assert index.find(Offset(11), END) == entries


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (0, lambda data: data[:-34]),
        (0, lambda data: data[:-1]),
        (0, lambda data: b""),
        (0, lambda data: data[:18] + b"\x7f" + data[19:]),
        (0, lambda data: data[34:] + data[:34]),
        (10, lambda data: b"\1" + data[1:]),
        (10, lambda data: bytes(34)),
    ],
)
def test_a_damaged_file_is_not_agreed_with_below_points_behind_it(tmp_path: Path, name: int, damage: object) -> None:
    index_at(tmp_path, *ENTRIES)
    file = tmp_path / f"{name:020d}.txnindex"
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    again = index_at(tmp_path)
    assert not again.agrees(Offset(13), COUNTS)
    assert again.agrees(Offset(10), COUNTS[:1]) == (name == 10)
    assert again.agrees(Offset(0), ())


def test_bytes_behind_the_entries_of_a_closed_segment_are_damage_below_points_behind_it(tmp_path: Path) -> None:
    index_at(tmp_path, *ENTRIES)
    file = tmp_path / "00000000000000000000.txnindex"
    file.write_bytes(file.read_bytes() + bytes(34))
    again = index_at(tmp_path)
    assert not again.agrees(Offset(13), COUNTS) and again.agrees(Offset(10), COUNTS[:1])
    again.truncate_to(Offset(10))
    assert file.read_bytes() == encode(ENTRIES[:2])


def test_a_lost_file_is_not_agreed_with(tmp_path: Path) -> None:
    index_at(tmp_path, *ENTRIES)
    (tmp_path / "00000000000000000000.txnindex").unlink()
    assert not index_at(tmp_path).agrees(Offset(13), COUNTS)


@pytest.mark.parametrize("tail", [b"\0", bytes(34), bytes(4096), b"\xff" * 50])
def test_what_a_crash_left_behind_the_last_point_is_cut(tmp_path: Path, tail: bytes) -> None:
    index_at(tmp_path, *ENTRIES)
    file = tmp_path / "00000000000000000010.txnindex"
    file.write_bytes(file.read_bytes() + tail)
    again = index_at(tmp_path)
    assert again.agrees(Offset(13), COUNTS)
    again.truncate_to(Offset(13))
    more = AbortedTransaction(5, 14, 15, 16)
    again.append([more])
    assert file.read_bytes() == encode([ENTRIES[2], more])
    assert index_at(tmp_path).find(Offset(0), END) == [*ENTRIES, more]


def test_files_of_segments_that_a_crash_took_are_deleted(tmp_path: Path) -> None:
    index_at(tmp_path, *ENTRIES)
    again = index_at(tmp_path)
    again.truncate_to(Offset(10))
    assert names(tmp_path) == ["00000000000000000000.txnindex"] and again.find(Offset(0), END) == ENTRIES[:2]


def test_damage_that_a_reader_meets_names_the_file(tmp_path: Path) -> None:
    index_at(tmp_path, *ENTRIES)
    file = tmp_path / "00000000000000000010.txnindex"
    again = index_at(tmp_path)
    assert again.find(Offset(0), Offset(4)) == ENTRIES[:1]
    file.write_bytes(bytes(34))
    with pytest.raises(StorageError, match=r"0010\.txnindex is damaged"):
        again.find(Offset(0), END)
    file.unlink()
    with pytest.raises(StorageError, match=r"0010\.txnindex"):
        again.find(Offset(0), END)


def test_each_file_that_grew_is_synced_once_and_its_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(aborted_index, "sync_descriptor", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")[-11:]))
    monkeypatch.setattr(aborted_index, "sync_directory", lambda path: synced.append("names"))
    index = index_at(tmp_path, *ENTRIES[:2])
    index.sync()
    index.sync()
    assert synced == ["00.txnindex", "names"]
    index.append(ENTRIES[2:])
    index.append([AbortedTransaction(5, 14, 15, 16)])
    index.sync()
    assert synced[2:] == ["10.txnindex", "names"]
    index.append([AbortedTransaction(5, 17, 18, 19)])
    index.sync()
    assert synced[4:] == ["10.txnindex"]


def test_what_was_cut_away_is_not_synced(tmp_path: Path) -> None:
    index = index_at(tmp_path, *ENTRIES)
    index.truncate_to(Offset(10))
    index.sync()
    index.forget_all()
    index.sync()


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_at(tmp_path, *ENTRIES[:1])
    extend_file = aborted_index.extend_file

    def partly(path: Path, data: bytes, position: int) -> None:
        extend_file(path, data[:50], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(aborted_index, "extend_file", partly)
        with pytest.raises(DiskFull, match=r"txnindex.*ENOSPC"):
            index.append(ENTRIES[1:])
    assert index.find(Offset(0), END) == ENTRIES[:1]
    index.append(ENTRIES[1:])
    assert index.find(Offset(0), END) == index_at(tmp_path).find(Offset(0), END) == ENTRIES


def full_at_segment(base: int, patch: pytest.MonkeyPatch) -> None:
    """No room for a file that is not there yet."""
    extend_file = aborted_index.extend_file

    def extend(path: Path, data: bytes, position: int) -> None:
        if path.name == f"{base:020d}.txnindex":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        extend_file(path, data, position)

    patch.setattr(aborted_index, "extend_file", extend)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_of_an_append_to_two_files_all_entries_count_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Those of the first file counted, and again when the append was repeated: a reader then stopped the node."""
    index = index_at(tmp_path, *ENTRIES[:known])
    told = index.counts(END)
    for _ in range(2):
        with monkeypatch.context() as patch:
            full_at_segment(10, patch)
            with pytest.raises(DiskFull):
                index.append(ENTRIES[known:])
        assert index.find(Offset(0), END) == ENTRIES[:known] and index.counts(END) == told
    index.append(ENTRIES[known:])
    assert index.find(Offset(0), END) == ENTRIES and index.counts(END) == COUNTS
    assert index_at(tmp_path).find(Offset(0), END) == ENTRIES and index_at(tmp_path).agrees(END, COUNTS)


def test_what_a_refused_append_has_written_is_synced_once_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(aborted_index, "sync_descriptor", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")[-11:]))
    monkeypatch.setattr(aborted_index, "sync_directory", lambda path: synced.append("names"))
    index = index_at(tmp_path)
    with monkeypatch.context() as patch:
        full_at_segment(10, patch)
        with pytest.raises(DiskFull):
            index.append(ENTRIES)
    index.sync()
    assert synced == []
    index.append(ENTRIES)
    index.sync()
    assert synced == ["00.txnindex", "10.txnindex", "names"]


@pytest.mark.parametrize("end", [4, 8, 9, 10, 11])
def test_a_cut_counts_nothing_that_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    between = AbortedTransaction(2, 5, 9, 10)
    entries = [*ENTRIES[:2], between, ENTRIES[2]]
    index = index_at(tmp_path, entries[0])
    with monkeypatch.context() as patch:
        full_at_segment(10, patch)
        with pytest.raises(DiskFull):
            index.append(entries[1:])
    index.truncate_to(Offset(end))
    assert index.find(Offset(0), END) == entries[:1]
    again = [entry for entry in entries[1:] if entry.last_offset < end]
    if again:
        index.append(again)
    assert index.find(Offset(0), END) == [entries[0], *again]
    index.append([ENTRIES[2]])
    assert index.find(Offset(0), END) == [entries[0], *again, ENTRIES[2]]


def test_a_start_after_a_refused_append_finds_what_a_point_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_at(tmp_path, *ENTRIES[:1])
    told = index.counts(END)
    with monkeypatch.context() as patch:
        full_at_segment(10, patch)
        with pytest.raises(DiskFull):
            index.append(ENTRIES[1:])
    again = index_at(tmp_path)
    assert again.agrees(Offset(8), told)
    again.truncate_to(Offset(8))
    assert again.find(Offset(0), END) == ENTRIES[:1]
    again.append(ENTRIES[1:])
    assert again.find(Offset(0), END) == ENTRIES


@pytest.mark.parametrize(("call", "doing"), [("sync_descriptor", "sync"), ("extend_file", "write")])
def test_errors_of_the_disk_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, doing: str) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(index: FileAbortedIndex) -> None:
        index.append([AbortedTransaction(5, 14, 15, 16)])
        index.sync()

    index = index_at(tmp_path, *ENTRIES)
    monkeypatch.setattr(aborted_index, call, fail)
    with pytest.raises(StorageError, match=rf"cannot {doing} .*00[01]0\.txnindex.*EIO"):
        write(index)
