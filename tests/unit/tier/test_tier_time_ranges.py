"""The offsets and times of row groups, as files tell them; files of other writers may tell less."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from historykit import fill, root_of
from raftlake.tier.ordered_rows import FileProblem
from raftlake.tier.reader import TopicHistory, store_of, time_ranges
from raftlake.tier.table_files import TableFile
from tierkit import local_settings

BASE_US = 1_700_000_000_000_000


def test_of_a_file_that_the_tier_wrote(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    fill(settings)
    history = TopicHistory(str(root_of(settings)))
    told = [time_ranges(history.store, history.uri, file) for file in history.files(2)]
    assert [(group.offset_min, group.offset_max) for (group,) in told] == [(0, 6), (7, 12), (13, 21), (22, 24)]
    assert [(group.time_min, group.time_max) for (group,) in told] == [
        (file.time_min, file.time_max) for file in history.files(2)
    ]
    assert [group.time_max for (group,) in told] == [BASE_US + offset * 1000 for offset in (6, 12, 21, 24)]
    (root_of(settings) / history.files(2)[0].path).unlink()
    with pytest.raises(FileProblem, match="is gone"):
        time_ranges(history.store, history.uri, history.files(2)[0])


def written(tmp_path: Path, times: Any, **options: Any) -> list[tuple[int | None, ...]]:
    """What a file with two row groups of two rows tells."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"offset": pa.array([3, 4, 5, 6]), "timestamp": times}), path, row_group_size=2, **options)
    file = TableFile(
        path=path.name, size=path.stat().st_size, partition=0, rows=4, offset_min=3, offset_max=6,
        incarnation_min=0, incarnation_max=0,
    )  # fmt: skip
    groups = time_ranges(store_of(str(tmp_path), {}), str(tmp_path), file)
    return [(group.offset_min, group.offset_max, group.time_min, group.time_max) for group in groups]


def test_of_files_that_others_wrote(tmp_path: Path) -> None:
    start = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    times = [start + timedelta(seconds=0.7 * number) for number in range(4)]
    micros = pa.array(times, pa.timestamp("us", "UTC"))
    assert written(tmp_path, micros) == [(3, 4, -1_000_000, -300_000), (5, 6, 400_000, 1_100_000)]
    assert written(tmp_path, micros, write_statistics=False) == [(None,) * 4] * 2
    # Other units would be taken for microseconds; Spark's old type tells nothing.
    for others in (pa.array(times, pa.timestamp("ms", "UTC")), pa.array(times, pa.timestamp("ns", "UTC"))):
        assert written(tmp_path, others, coerce_timestamps=None) == [(3, 4, None, None), (5, 6, None, None)]
    assert written(tmp_path, micros, use_deprecated_int96_timestamps=True) == [(3, 4, None, None), (5, 6, None, None)]
    assert written(tmp_path, pa.nulls(4, pa.timestamp("us", "UTC"))) == [(3, 4, None, None), (5, 6, None, None)]
