"""DuckDB reads what the tier wrote, without an extension: delta-rs names the files of a table, and DuckDB reads them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from historykit import END, all_rows, fill, root_of
from raftlake.tier.calls import TierSettings
from raftlake.tier.verify_sql import CHECKS, VIEW
from tierkit import local_settings

PARTITIONS = (2, 0)


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    """A table of two partitions, with control records and compressed batches."""
    settings = local_settings(tmp_path)
    fill(settings, PARTITIONS)
    return settings


def shown(settings: TierSettings) -> duckdb.DuckDBPyConnection:
    """A database whose view `history` is the table, as docs/tier.md makes it."""
    files = DeltaTable(root_of(settings)).file_uris()
    database = duckdb.connect()
    database.read_parquet(files, hive_partitioning=True).create_view(VIEW)
    return database


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_all_rows_are_those_of_the_log(settings: TierSettings, is_rewritten: bool) -> None:
    if is_rewritten:
        assert DeltaTable(root_of(settings)).optimize.compact()["numFilesAdded"] == len(PARTITIONS)
    database = shown(settings)
    for partition in PARTITIONS:
        query = f'SELECT "offset", value FROM {VIEW} WHERE kind = 0 AND partition = ? ORDER BY "offset"'
        found = database.execute(query, [partition]).fetchall()
        assert found == [(offset, b"v%d" % offset) for offset in range(1, END)]
    columns = ", ".join(f'"{name}"' for name in all_rows(settings).column_names)
    rows = database.sql(f'SELECT {columns} FROM {VIEW} ORDER BY partition, "offset"').to_arrow_table()
    assert rows.to_pylist() == all_rows(settings).to_pylist()


def test_the_sql_of_tier_verify_finds_nothing_and_finds_a_gap(settings: TierSettings) -> None:
    database = shown(settings)
    for title, query in CHECKS:
        assert database.execute(query).fetchall() == [], title
    damaged = f'CREATE VIEW damaged AS SELECT * FROM {VIEW} WHERE NOT (partition = 2 AND "offset" = 5)'
    database.execute(damaged)
    found = [title for title, query in CHECKS if database.execute(query.replace(f"FROM {VIEW} h", "FROM damaged h")).fetchall()]
    assert [title.split(":")[0] for title in found][:2] == ["Gapless", "Gaps"]


def test_headers_and_times_have_types_of_their_own(settings: TierSettings) -> None:
    query = f'SELECT headers, epoch_ms("timestamp"), key FROM {VIEW} WHERE partition = 2 AND "offset" = 2'
    headers = [{"key": "h", "value": b"1"}, {"key": "n", "value": None}]
    assert shown(settings).execute(query).fetchall() == [(headers, 1_700_000_000_002, None)]
