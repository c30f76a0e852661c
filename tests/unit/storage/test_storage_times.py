"""Looking for a time in a segment: always the first batch that has it, after a walk over little."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.batches import make_batch
from raftlake.raft.types import Offset
from raftlake.storage import scan
from raftlake.storage import segment as segment_module
from raftlake.storage.files import FilePool
from raftlake.storage.segment import Segment
from raftlake.storage.times import find_timestamp


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    made = Segment.create(tmp_path, Offset(1_000), FilePool(4))
    yield made
    made.close()


def fill(segment: Segment, times: list[int], count: int = 1) -> list[tuple[int, int]]:
    """A batch for each time; (base offset, time)."""
    made = []
    for time_ms in times:
        batch = make_batch(segment.end_offset, count=count, timestamp_ms=time_ms)
        made.append((batch[1].base_offset, time_ms))
        segment.append([batch[0]], [batch[1]], len(batch[0]))
    return made


def check(segment: Segment, made: list[tuple[int, int]]) -> None:
    largest = max(time_ms for _, time_ms in made)
    for wanted in {0, largest, largest + 1, *(time_ms + step for _, time_ms in made[::29] for step in (-1, 0, 1))}:
        found = find_timestamp(segment, wanted)
        expected = next((offset for offset, time_ms in made if time_ms >= wanted), None)
        assert (None if found is None else found.base_offset) == expected, wanted


@pytest.mark.parametrize("seed", range(4))
def test_the_first_batch_of_a_time_is_found_in_whatever_order_times_came(segment: Segment, seed: int) -> None:
    rng = random.Random(seed)
    largest = 100
    times = []
    for _ in range(900):
        # Long stretches without a new largest time, and short ones with many.
        largest += rng.choice((0, 0, 1, 5)) if rng.randrange(60) < 5 or seed % 2 else 0
        times.append(largest - rng.randrange(100) * rng.randrange(2))
    made = fill(segment, times, count=1 + seed % 3)
    check(segment, made)
    cut = len(made) * 2 // 3
    segment.truncate(Offset(made[cut][0]))
    made = made[:cut] + fill(segment, [time_ms + 3 for time_ms in times[: cut // 2]])
    check(segment, made)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_search_walks_over_little_however_many_batches_have_one_time(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """128 MiB of small batches behind the last of their time held the loop for seconds."""
    made = fill(segment, [1_000] + [0] * 5_000 + [2_000] + [0] * 500 + [3_000])
    if sealed:
        segment.prepare_seal()
        segment.seal()
    walked: list[int] = []
    read_batch = scan.read_batch
    monkeypatch.setattr(scan, "read_batch", lambda *given, **named: (walked.append(1), read_batch(*given, **named))[1])
    for wanted in (1, 1_000, 1_001, 2_000, 2_001, 3_000):
        walked.clear()
        found = find_timestamp(segment, wanted)
        assert found is not None and found.timestamp_ms_max >= wanted
        assert len(walked) < 400, "an interval of the index holds 60 of these batches"
    assert find_timestamp(segment, 3_001) is None
    assert len(made) == 5_503


def test_an_index_that_leads_behind_the_first_batch_of_a_time_is_not_believed(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(segment, [10 * number for number in range(900)])
    rebuilt: list[int] = []
    rebuild = segment_module.Segment.rebuild_index
    monkeypatch.setattr(segment_module.Segment, "rebuild_index", lambda self: (rebuilt.append(1), rebuild(self))[1])
    known = segment.loaded_index()
    entry = len(known.last_offsets) // 2
    honest = known.last_offsets[entry]
    known.last_offsets[entry] += 5
    found = find_timestamp(segment, made[honest + 2 - 1_000][1])
    assert found is not None and found.base_offset == honest + 2
    assert rebuilt, "the entry was found out"
    assert segment.loaded_index().last_offsets[entry] == honest
