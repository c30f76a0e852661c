"""The checks as SQL: none gives a row for a whole table, and each finds what it is there for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from historykit import END, fill, rewrite, root_of, with_value
from raftlake.tier.calls import TierSettings
from raftlake.tier.verify_sql import CHECKS, VIEW, checks_sql
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    settings = local_settings(tmp_path)
    fill(settings, (2, 0))
    return settings


def found(settings: TierSettings) -> dict[str, list[dict[str, Any]]]:
    """The rows of each check that has any, by the first word of its title."""
    builder = QueryBuilder().register(VIEW, DeltaTable(root_of(settings)))
    results = {title.split(":")[0]: pa.table(builder.execute(query).read_all()).to_pylist() for title, query in CHECKS}
    return {title: rows for title, rows in results.items() if rows}


def keep(rows: Any, *without: int) -> Any:
    return rows.filter(pa.array([offset not in without for offset in rows["offset"].to_pylist()]))


def test_a_whole_table_gives_no_row(settings: TierSettings) -> None:
    assert found(settings) == {}
    DeltaTable(root_of(settings)).optimize.z_order(["timestamp"])
    assert found(settings) == {}


def test_missing_rows(settings: TierSettings) -> None:
    rewrite(settings, lambda rows: pa.concat_tables([keep(rows.slice(0, END), 8, 9), rows.slice(END)]))
    results = found(settings)
    whole = {"partition": 0, "first_offset": 0, "last_offset": END - 1, "row_count": END - 2, "missing": 2}
    assert results == {"Gapless": [whole], "Gaps": [{"partition": 0, "first_missing": 8, "last_missing": 9}]}


def test_doubles(settings: TierSettings) -> None:
    rewrite(settings, lambda rows: pa.concat_tables([rows, rows.slice(END + 8, 1)]))
    assert found(settings)["Doubles"] == [{"partition": 2, "row_offset": 8, "times": 2}]
    # One row is gone and another one there twice: their number is right.
    rewrite(settings, lambda rows: pa.concat_tables([rows.slice(0, END + 20), rows.slice(END + 21)]))
    assert {"Gaps", "Doubles"} <= set(found(settings))


def test_epochs_that_go_back_and_rows_that_are_not_of_their_batch(settings: TierSettings) -> None:
    rewrite(settings, lambda rows: with_value(rows, "leader_epoch", 9, 2))
    results = found(settings)
    assert results["Epochs"] == [{"partition": 2, "row_offset": 9, "leader_epoch": 2, "previous": 3}]
    assert [row["batch_base_offset"] for row in results["Batches"]] == [7]
    rewrite(settings, lambda rows: with_value(rows, "leader_epoch", 9, 3))
    assert found(settings) == {}
    rewrite(settings, lambda rows: with_value(rows, "batch_crc", 9, 3))
    assert set(found(settings)) == {"Batches"}


def test_the_script_names_the_table_and_ends_each_query(settings: TierSettings) -> None:
    script = checks_sql("s3://bucket/it's`x")
    assert "delta.`s3://bucket/it's``x`;" in script and "delta_scan('s3://bucket/it''s`x')" in script
    # A program may cut it at each semicolon.
    statements = script.removesuffix(";").split(";")
    assert len(statements) == len(CHECKS) + 1
    assert all(re.match(r"(\s*--.*\n)*(SELECT|CREATE) ", statement.lstrip()) for statement in statements)
