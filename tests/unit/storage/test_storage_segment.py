"""Reads from a segment: by the exact positions of the newest batches and by the sparse index, always the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, fill, make_batch
from raftlake.errors import StorageError
from raftlake.raft.types import Offset
from raftlake.storage import segment as segment_module
from raftlake.storage.files import FilePool
from raftlake.storage.segment import Segment

COUNTS = (1, 3, 2, 7, 1, 1, 4)


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    made = Segment.create(tmp_path, Offset(1_000), FilePool(4))
    yield made
    made.close()


def filled(segment: Segment, batches: int = 120) -> list[Batch]:
    """Batches of different numbers of records and sizes; every 30th is larger than what one look at the file takes in."""
    made = []
    for number in range(batches):
        size = 9_000 if number % 30 == 29 else 20 * (number % 5)
        made.append(make_batch(segment.end_offset, count=COUNTS[number % 7], size=size, timestamp_ms=number * 5 % 400))
        segment.append([made[-1][0]], [made[-1][1]], len(made[-1][0]))
    return made


def expected(batches: list[Batch], start: int, limit: int, size_max: int) -> bytes:
    """What a read must give, the slow way."""
    chosen: list[Batch] = []
    for batch in batches:
        if batch[1].end_offset > start:
            if batch[1].end_offset > limit or (chosen and len(data_of([*chosen, batch])) > size_max):
                break
            chosen.append(batch)
    return data_of(chosen)


def every_read(segment: Segment, batches: list[Batch]) -> None:
    end = batches[-1][1].end_offset
    for start in range(1_000, end, 7):
        for limit in (start, start + 1, start + 5, start + 40, end - 1, end, end + 9):
            for size_max in (0, 150, 4_000, 12_000, 1 << 20):
                found = segment.read(start, limit, size_max) if start < limit else b""
                assert found == expected(batches, start, limit, size_max), (start, limit, size_max)


def test_reads_by_exact_positions(segment: Segment) -> None:
    every_read(segment, filled(segment))


def test_reads_when_only_the_newest_positions_are_kept(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "TAIL_BATCHES", 8)
    every_read(segment, filled(segment))


def test_reads_by_the_index_of_a_sealed_segment(segment: Segment) -> None:
    batches = filled(segment)
    segment.prepare_seal()
    segment.seal()
    every_read(segment, batches)


def test_reads_by_an_index_that_was_loaded_again(segment: Segment) -> None:
    batches = filled(segment)
    segment.prepare_seal()
    segment.seal()
    segment.close()
    assert segment.timestamp_ms_max == 395, "known without the file"
    assert not segment.file.is_open
    every_read(segment, batches)


def test_every_batch_is_located(segment: Segment) -> None:
    batches = filled(segment)
    segment.prepare_seal()
    segment.seal()
    position = 0
    for data, span in batches:
        for offset in range(span.base_offset, span.end_offset):
            found = segment.locate(offset)
            assert (found.position, found.size, found.base_offset) == (position, len(data), span.base_offset)
        assert segment.position_of(span.base_offset) == position
        position += len(data)
    assert segment.position_of(segment.end_offset) == segment.size == position


def test_the_middle_of_a_batch_is_no_boundary(segment: Segment) -> None:
    filled(segment)
    with pytest.raises(StorageError, match="offset 1002 lies inside the batch"):
        segment.position_of(1_002)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 29, 30, 31, 77, 120])
def test_a_truncated_segment_is_as_if_it_had_never_been_longer(
    tmp_path: Path, segment: Segment, sealed: bool, kept: int
) -> None:
    batches = filled(segment)
    if sealed:
        segment.prepare_seal()
        segment.seal()
    segment.truncate(Offset(batches[kept][1].base_offset) if kept < 120 else segment.end_offset)
    (tmp_path / "fresh").mkdir()
    fresh = Segment.create(tmp_path / "fresh", Offset(1_000), FilePool(4))
    filled(fresh, kept)
    fresh.sync()
    assert (segment.size, segment.end_offset, segment.is_active) == (fresh.size, fresh.end_offset, True)
    assert segment.path.read_bytes() == fresh.path.read_bytes()
    assert segment.timestamp_ms_max == fresh.timestamp_ms_max
    again = make_batch(segment.end_offset)
    segment.append([again[0]], [again[1]], len(again[0]))
    every_read(segment, [*batches[:kept], again])
    fresh.close()


def test_deleting_leaves_no_file(tmp_path: Path, segment: Segment) -> None:
    filled(segment)
    segment.prepare_seal()
    segment.seal()
    assert len(list(tmp_path.iterdir())) == 3
    segment.delete()
    segment.delete()
    assert list(tmp_path.iterdir()) == []


def test_the_contract_batches_differ(segment: Segment) -> None:
    """The suites compare bytes: two batches of one log must never be the same."""

    class Log:
        end_offset = Offset(0)

        def append(self, chunks: list[bytes], spans: list[object]) -> None:
            self.end_offset = Offset(self.end_offset + 1)

    batches = fill(Log(), 50)  # type: ignore[arg-type]
    assert len({data for data, _ in batches}) == 50
