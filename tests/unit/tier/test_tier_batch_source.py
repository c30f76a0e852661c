"""The batches of a copy in windows: whole batches, all of them, and what the file must have."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from contract.tier_contract import data_batch
from raftlake.errors import CorruptBatch
from raftlake.ports.tier import FileRange
from raftlake.tier.batch_source import source_bytes, windows
from raftlake.wire.batches import iterate_headers

BATCHES = [data_batch(base, 1, count=1 + base % 5) for base in (0, 1, 2, 5, 9, 14)]
WHOLE = b"".join(BATCHES)


@pytest.fixture
def source(tmp_path: Path) -> FileRange:
    path = tmp_path / "00.log"
    path.write_bytes(b"in front" + WHOLE + b"behind")
    return FileRange(str(path), 8, len(WHOLE))


@pytest.mark.parametrize("size", [1, 60, 61, 62, 100, 200, 500, len(WHOLE) - 1, len(WHOLE), 10_000])
def test_windows_are_cut_between_batches(source: FileRange, size: int) -> None:
    parts = [bytes(window) for window in windows(source, size)]
    assert b"".join(parts) == WHOLE
    edges = set(itertools.accumulate(map(len, BATCHES)))
    assert set(itertools.accumulate(map(len, parts))) <= edges
    largest = max(map(len, BATCHES))
    assert all(len(part) < size + 2 * largest for part in parts)
    assert sum(len(list(iterate_headers(part))) for part in parts) == len(BATCHES)


def test_bytes_are_one_window() -> None:
    assert list(windows(WHOLE)) == [WHOLE]
    assert source_bytes(WHOLE) == len(WHOLE)


def test_a_range_tells_its_size(source: FileRange) -> None:
    assert source_bytes(source) == len(WHOLE)


@pytest.mark.parametrize("size", [100, 10_000])
def test_a_file_that_is_too_short_is_named(source: FileRange, size: int) -> None:
    longer = FileRange(source.path, source.position, source.size + 7)
    with pytest.raises(CorruptBatch, match=r"00\.log ends 1 bytes before the end"):
        list(windows(longer, size))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CorruptBatch, match=f"cannot read {path}"):
            list(windows(FileRange(str(path), 0, 10)))


@pytest.mark.parametrize("size", [100, 10_000])
def test_what_is_no_batch_is_left_to_the_decoder(source: FileRange, size: int) -> None:
    """All bytes come, whatever a length claims."""
    for position, field in ((len(BATCHES[0]) + 8, b"\x7f\xff\xff\xff"), (len(BATCHES[0]) + 8, b"\xff\xff\xff\xff")):
        data = bytearray(WHOLE)
        data[position : position + 4] = field
        Path(source.path).write_bytes(b"in front" + data)
        assert b"".join(windows(source, size)) == data
