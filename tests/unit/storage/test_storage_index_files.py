"""The index files of a growing segment: near enough to its end for a quick start, and never trusted further than they fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, fill, make_batch, read_all
from contract.file_faults import without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage import index_files, scan
from raftlake.storage.directory import FileLogDirectory

GROUP = GroupId("orders", 0, bytes(range(16)))
BATCHES = 3_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each read of a segment."""
    sizes: list[int] = []
    real = scan.read_at

    def counted(descriptor: int, size: int, position: int) -> bytes:
        sizes.append(size)
        return real(descriptor, size, position)

    monkeypatch.setattr(scan, "read_at", counted)
    monkeypatch.setattr(index_files, "SAVE_BYTES", 50_000)
    without_sync(monkeypatch)
    return sizes


def killed(place: Path) -> list[Batch]:
    """A log that grew, with a checkpoint after each 100 batches, and was killed."""
    directory = FileLogDirectory(place, segment_bytes=1 << 30, post=None)
    log = directory.open(GROUP)
    batches: list[Batch] = []
    for epoch in range(1, BATCHES // 100 + 1):
        for _ in range(100):
            batches.append(make_batch(log.end_offset, epoch=epoch, timestamp_ms=1_000 + log.end_offset))
            log.append([batches[-1][0]], [batches[-1][1]])
        directory.flush([log], lambda error: None)
        directory.checkpoint()
    directory.abandon()
    return batches


def test_a_start_after_a_kill_reads_little(tmp_path: Path, reads: list[int]) -> None:
    batches = killed(tmp_path)
    whole = len(data_of(batches))
    reads.clear()
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUP)
    assert sum(reads) < whole
    # Each of the 30 epoch boundaries is looked at as well.
    assert sum(size for size in reads if size > scan.WINDOW_SMALL) < 2 * 50_000
    assert [epoch for epoch, _ in log.epochs] == list(range(1, 31))
    assert read_all(log) == data_of(batches)
    for wanted in range(1_000, 1_000 + BATCHES, 97):
        found = log.find_timestamp(wanted)
        assert found is not None and found.offset == wanted - 1_000
    again = fill(log, 50, epoch=31)
    assert read_all(log) == data_of([*batches, *again])
    directory.close()


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda whole: None,
    "empty": lambda whole: b"",
    "cut within an entry": lambda whole: whole[:-5],
    "half": lambda whole: whole[: len(whole) // 48 * 24],
    "zeros": lambda whole: bytes(len(whole)),
    "noise": lambda whole: b"\x5a" * len(whole),
    "last entry astray": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "a middle entry astray": lambda whole: whole[:31] + bytes([whole[31] ^ 1]) + whole[32:],
    "too long": lambda whole: whole + whole[-24:],
}


@pytest.mark.parametrize("suffix", index_files.SUFFIXES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_files_of_a_growing_segment_cost_only_time(
    tmp_path: Path, reads: list[int], suffix: str, damage: str
) -> None:
    batches = killed(tmp_path)
    path = tmp_path / str(GROUP) / f"{0:020d}{suffix}"
    content = DAMAGES[damage](path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GROUP)
    assert read_all(log) == data_of(batches)
    for number in range(0, BATCHES, 61):
        assert log.read(Offset(number), log.end_offset, 0) == batches[number][0]
    for wanted in range(1_000, 1_000 + BATCHES, 7):
        found = log.find_timestamp(wanted)
        assert found is not None and found.offset == wanted - 1_000
    directory.close()


def test_a_truncation_takes_the_files_away(tmp_path: Path, reads: list[int]) -> None:
    """They speak of batches that other ones will replace."""
    batches = killed(tmp_path)
    directory = FileLogDirectory(tmp_path, segment_bytes=1 << 30, post=None)
    log = directory.open(GROUP)
    directory.checkpoint()
    assert len(list((tmp_path / str(GROUP)).glob("*index"))) == 2
    log.truncate_to(Offset(10))
    assert list((tmp_path / str(GROUP)).glob("*index")) == []
    again = fill(log, 2_000, epoch=40, size=70)
    directory.flush([log], lambda error: None)
    directory.checkpoint()
    directory.abandon()
    directory = FileLogDirectory(tmp_path, post=None)
    assert read_all(directory.open(GROUP)) == data_of([*batches[:10], *again])
    directory.close()
