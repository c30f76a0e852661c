"""polars reads what the tier wrote: a reader of Delta tables that is none of ours and not Spark."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal

from historykit import END, all_rows, fill, root_of
from raftlake.tier.calls import TierSettings
from tierkit import local_settings

PARTITIONS = (2, 0)
#: Of each partition: the first record is a control record.
RECORDS = [(offset, b"v%d" % offset) for offset in range(1, END)]


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    """A table of two partitions, with control records and compressed batches."""
    settings = local_settings(tmp_path)
    fill(settings, PARTITIONS)
    return settings


def scan(settings: TierSettings) -> polars.LazyFrame:
    return polars.scan_delta(str(root_of(settings)))


def of_clients(rows: polars.LazyFrame, partition: int) -> list[tuple[int, bytes]]:
    """The records as docs/tier.md reads them."""
    wanted = rows.filter((polars.col("kind") == 0) & (polars.col("partition") == partition))
    return wanted.select("offset", "value").sort("offset").collect().rows()


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_all_rows_are_those_of_the_log(settings: TierSettings, is_rewritten: bool) -> None:
    if is_rewritten:
        assert DeltaTable(root_of(settings)).optimize.compact()["numFilesAdded"] == len(PARTITIONS)
    for partition in PARTITIONS:
        assert of_clients(scan(settings), partition) == RECORDS
    rows = scan(settings).sort("partition", "offset").collect()
    assert_frame_equal(rows, polars.from_arrow(all_rows(settings)))
    gapless = rows.group_by("partition").agg(polars.len() == polars.col("offset").max() - polars.col("offset").min() + 1)
    assert gapless["len"].to_list() == [True] * len(PARTITIONS)
    assert rows.filter(polars.col("kind") == 1).select("partition", "offset").rows() == [(0, 0), (2, 0)]


def test_headers_and_times_have_types_of_their_own(settings: TierSettings) -> None:
    rows = (
        scan(settings).filter(partition=2, offset=2).select("headers", polars.col("timestamp").dt.epoch("ms"), "key").collect()
    )
    assert rows.rows() == [([{"key": "h", "value": b"1"}, {"key": "n", "value": None}], 1_700_000_000_002, None)]


def test_a_filter_on_a_partition_opens_no_file_of_another(settings: TierSettings) -> None:
    for path in (root_of(settings) / "partition=0").iterdir():
        path.unlink()
    assert of_clients(scan(settings), 2) == RECORDS
    with pytest.raises(OSError, match="partition=0"):
        of_clients(scan(settings), 0)


@pytest.mark.parametrize(("first", "last", "needed"), [(7, 12, [1]), (12, 13, [1, 2]), (0, 6, [0]), (22, 99, [3])])
def test_a_filter_on_offsets_opens_no_file_without_them(
    settings: TierSettings, first: int, last: int, needed: list[int]
) -> None:
    """The statistics in the table's log tell what a file has."""
    for number in {0, 1, 2, 3}.difference(needed):
        (root_of(settings) / f"partition=2/p2s{number}.parquet").unlink()
    rows = scan(settings).filter((polars.col("partition") == 2) & polars.col("offset").is_between(first, last))
    assert rows.select("offset").sort("offset").collect()["offset"].to_list() == list(range(first, min(last + 1, END)))
