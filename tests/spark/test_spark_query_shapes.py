"""Queries of many shapes give the same batches with their state in the quorum as with Spark's own RocksDB on a local disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.query_shapes import EVENTS, Shape, Streams, shapes, write_files
from sparkkit import QUORUM_PROVIDER, STOCK_PROVIDER, session_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.cluster

# fmt: off
SHAPES = [
    "count-complete", "count-update", "sum-avg-min-max", "no-key", "having", "collected", "distinct", "sorted-and-limited",
    "limit", "rollup", "cube", "union", "static-join", "tumbling-append", "tumbling-update", "tumbling-complete",
    "sliding-append", "session-append", "session-gap", "chained-windows", "duplicates", "duplicates-by-time",
    "duplicates-within", "duplicates-then-windows", "join-inner", "join-left", "join-right", "join-full", "join-semi",
    "join-self", "join-in-one-store", "join-then-windows", "pandas-with-timeout", "pandas-append", "processor",
]
# fmt: on
#: Queries at a time: they wait for one another's tasks, and for the quorum.
AT_ONCE = 4
QUERY_TIMEOUT_S = 300

#: By number of the batch, its rows in the order of their text; of each run of the query.
Batches = list[dict[int, list[str]]]


def run(session: SparkSession, shape: Shape, directory: Path, checkpoint: str) -> dict[int, list[str]]:
    batches: dict[int, list[str]] = {}

    def note(batch: DataFrame, number: int) -> None:
        batches[number] = sorted(repr(tuple(row)) for row in batch.collect())

    made = shape.make(Streams(session, directory)).writeStream.outputMode(shape.mode).foreachBatch(note)
    query = made.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"{shape.name} did not end within {QUERY_TIMEOUT_S} s"
    finally:
        query.stop()
    return batches


def run_twice(session: SparkSession, shape: Shape, directory: Path, checkpoint: str) -> Batches:
    """Two files, and the last one after a restart."""
    write_files(directory, range(2))
    first = run(session, shape, directory, checkpoint)
    write_files(directory, range(2, len(EVENTS)))
    return [first, run(session, shape, directory, checkpoint)]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, spark: SparkSession, quorum: LocalQuorum, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[Batches, Batches]]]:
    """What the quorum's provider and the stock one gave, by shape."""
    directory = tmp_path_factory.mktemp("shapes")

    def both(shape: Shape) -> tuple[Batches, Batches]:
        place = directory / shape.name
        ours = session_at(spark, quorum, STOCK_PROVIDER if shape.is_stock else QUORUM_PROVIDER)
        stock = session_at(spark, quorum, STOCK_PROVIDER)
        for name, value in shape.settings.items():
            ours.conf.set(name, value)
            stock.conf.set(name, value)
        given = run_twice(ours, shape, place / "quorum", f"raftlake://shapes/{shape.name}")
        return given, run_twice(stock, shape, place / "stock", str(place / "checkpoint"))

    by_name = {shape.name: shape for shape in shapes()}
    # In the order of the tests, so that none waits for those behind it.
    tests = [item for item in request.session.items if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames]
    asked = [item.callspec.params["name"] for item in tests]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running: dict[str, Future[tuple[Batches, Batches]]] = {name: pool.submit(both, by_name[name]) for name in asked}
        yield lambda name: running[name].result()


@pytest.mark.parametrize("name", SHAPES)
def test_the_batches_are_those_of_the_stock_provider(
    outcomes: Callable[[str], tuple[Batches, Batches]], client: Client, name: str
) -> None:
    ours, stock = outcomes(name)
    assert ours == stock
    first, second = ours
    assert len(first) >= 2 and second and not set(first) & set(second), "each run had batches of its own"
    assert any(first.values()) and any(second.values()), "rows came before and after the restart"
    is_logged = client.kv.get(f"/fs-state/shapes/{name}") is not None
    assert is_logged == (name != "processor"), "the state is in a log of the quorum"


def test_each_shape_is_tried() -> None:
    assert [shape.name for shape in shapes()] == SHAPES
