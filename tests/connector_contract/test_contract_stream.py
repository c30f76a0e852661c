"""What a stream of either connector reads, and that a checkpoint moves between both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, PYTHON, Connector
from raftlake.client import LATEST, NewRecord
from raftlake.client.query_positions import decode
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from raftlake import Client

pytestmark = pytest.mark.spark

Append = Callable[..., list[int]]


@pytest.fixture
def append(client: Client) -> Append:
    def append_to(topic: str, *values: str, partition: int = 0) -> list[int]:
        return [client.append(topic, value.encode(), partition=partition).offset for value in values]

    return append_to


@pytest.mark.parametrize("order", [(PYTHON, JAVA, PYTHON), (JAVA, PYTHON, JAVA)], ids=["python-java", "java-python"])
def test_a_checkpoint_moves_between_both(
    client: Client, append: Append, both: dict[str, Connector], tmp_path: Path, order: tuple[str, ...]
) -> None:
    name = f"contract-moved-{order[0] == JAVA}".lower()
    client.create_topic(name, 2)
    for turn, format_ in enumerate(order):
        append(name, f"{turn}a", f"{turn}b", partition=0)
        append(name, f"{turn}c", partition=1)
        batches = both[format_].batches(tmp_path, name, startingOffsets="earliest")
        assert sorted(value for values in batches.values() for value in values) == [f"{turn}a", f"{turn}b", f"{turn}c"]
        assert both[format_].batches(tmp_path, name, startingOffsets="earliest") == {}, "it read something twice"
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in (tmp_path / "offsets").glob("[0-9]*")]
    assert {tuple(each) for each in offsets} == {(name,)} and {tuple(each[name]) for each in offsets} == {("0", "1")}


def test_limited_batches(client: Client, connector: Connector, tmp_path: Path) -> None:
    name = f"contract-limited-{connector.format == JAVA}".lower()
    client.create_topic(name, 1)
    client.append_many(name, [NewRecord(value=b"%02d" % number) for number in range(25)])
    batches = connector.batches(tmp_path, name, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert [value for batch in sorted(batches) for value in batches[batch]] == [f"{number:02}" for number in range(25)]
    # Offsets are counted, and control records of leaders take some.
    assert len(batches) >= 3 and max(map(len, batches.values())) == 10


def test_a_query_from_latest_reads_what_comes_after(
    client: Client, append: Append, connector: Connector, tmp_path: Path
) -> None:
    name = f"contract-latest-{connector.format == JAVA}".lower()
    client.create_topic(name, 1)
    append(name, "before")
    assert connector.batches(tmp_path, name) == {}
    append(name, "after")
    assert list(connector.batches(tmp_path, name).values()) == [["after"]]


def test_partitions_and_topics_that_are_added(client: Client, append: Append, connector: Connector, tmp_path: Path) -> None:
    prefix = f"contract-added-{connector.format == JAVA}".lower()
    client.create_topic(f"{prefix}-1", 1)
    append(f"{prefix}-1", "1")

    def read() -> list[str]:
        batches = connector.batches(tmp_path, subscribePattern=f"{prefix}-[0-9]", startingOffsets="earliest")
        return sorted(value for values in batches.values() for value in values)

    assert read() == ["1"]
    client.create_partitions(f"{prefix}-1", 2)
    client.create_topic(f"{prefix}-2", 1)
    append(f"{prefix}-1", "2", partition=1)
    append(f"{prefix}-2", "3")
    assert read() == ["2", "3"]
    client.delete_topic(f"{prefix}-2")
    with pytest.raises(Exception, match=f"{prefix}-2-0 are gone. Some data may have been missed"):
        read()


def test_a_topic_that_was_created_again_while_the_query_was_down(
    client: Client, append: Append, both: dict[str, Connector], connector: Connector, tmp_path: Path
) -> None:
    """The other connector has written down which topic it was."""
    name = f"contract-again-{connector.format == JAVA}".lower()
    other = both[PYTHON if connector.format == JAVA else JAVA]
    client.create_topic(name, 1)
    append(name, "old")
    assert list(other.batches(tmp_path, name, startingOffsets="earliest").values()) == [["old"]]
    client.delete_topic(name)
    client.create_topic(name, 1)
    append(name, "lost", "new", "newer")
    with pytest.raises(Exception, match=f"Topic {name} was deleted and created again while the query was down"):
        connector.batches(tmp_path, name)
    values = sorted(value for each in connector.batches(tmp_path, name, failOnDataLoss="false").values() for value in each)
    assert values[-2:] == ["new", "newer"]
    append(name, "newest")
    assert list(connector.batches(tmp_path, name).values()) == [["newest"]], "the new topic was not written down"


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_that_were_deleted_while_the_query_was_down(
    client: Client, append: Append, connector: Connector, tmp_path: Path, fail: str
) -> None:
    name = f"contract-deleted-{connector.format == JAVA}-{fail}".lower()
    client.create_topic(name, 1)
    append(name, "old")
    assert list(connector.batches(tmp_path, name, startingOffsets="earliest").values()) == [["old"]]
    _, kept = append(name, "lost", "kept")
    client.delete_records(name, {0: kept})
    if fail == "false":
        assert list(connector.batches(tmp_path, name, failOnDataLoss=fail).values()) == [["kept"]]
        return
    with pytest.raises(Exception, match=rf"Cannot fetch records in \[\d+, {kept}\) of {name}-0") as raised:
        connector.batches(tmp_path, name)
    assert 'set the source option "failOnDataLoss" to "false"' in str(raised.value)


def test_a_topic_that_the_option_no_longer_names(client: Client, append: Append, connector: Connector, tmp_path: Path) -> None:
    one, two = (f"contract-named-{connector.format == JAVA}-{each}".lower() for each in (1, 2))
    for name in (one, two):
        client.create_topic(name, 1)
        append(name, name)
    assert list(connector.batches(tmp_path, f"{one},{two}", startingOffsets="earliest").values()) == [[one, two]]
    with pytest.raises(Exception, match=f"Option 'subscribe' was changed: it no longer names all of {two}"):
        connector.batches(tmp_path, one)


def test_too_little_is_waited_for(client: Client, append: Append, connector: Connector, tmp_path: Path) -> None:
    name = f"contract-little-{connector.format == JAVA}".lower()
    client.create_topic(name, 1)
    append(name, *"123")
    reader = connector.spark.readStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
    reader = reader.options(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    query = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()

    def rows() -> list[int]:
        return [count for batch in query.recentProgress if (count := batch["numInputRows"])]

    try:
        # The first batch of a query does not wait.
        wait_until(lambda: sum(rows()) == 3, "the first batch", 60)
        append(name, *"45")
        wait_until(lambda: query.status["message"].startswith("Waiting"), "the query has nothing to do", 60)
        append(name, *"678")
        wait_until(lambda: sum(rows()) == 8, "enough records are there", 60)
        assert rows() == [3, 5]
    finally:
        query.stop()


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_the_lag_is_told(client: Client, append: Append, both: dict[str, Connector], tmp_path: Path, is_shuffled: bool) -> None:
    """By the connector in Java alone: Spark has no metrics of sources in Python."""
    connector, name = both[JAVA], f"contract-lag-{is_shuffled}"
    client.create_topic(name, 2)
    client.append_many(name, [NewRecord(value=b"v", partition=number % 2) for number in range(20)])
    reader = connector.spark.readStream.format(JAVA).option("kafka.bootstrap.servers", connector.servers)
    reader = reader.options(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="12")
    # A shuffle: Spark may adapt the plan, and reads in a stage of its own.
    rows = reader.load().repartition(2, "offset") if is_shuffled else reader.load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    sources = [progress["sources"][0] for progress in query.recentProgress]
    assert {source["description"] for source in sources} == {f"raftlake[subscribe {name}]"}
    lags = [int(source["metrics"]["lag"]) for source in sources]
    assert lags[0] > 0 and lags[-1] == 0, lags
    assert all(int(source["metrics"]["endsMs"]) >= 0 for source in sources)
    read = [source for source in sources if source["numInputRows"]]
    assert len(read) >= 2 and all(int(source["metrics"]["bytesFetched"]) > 0 for source in read)
    assert all(int(source["metrics"][each]) >= 0 for source in read for each in ("fetchWaitMs", "fetchRetries"))
    assert not any("bytesFetched" in source["metrics"] for source in sources if not source["numInputRows"])
    assert int(sources[0]["metrics"][f"lag.{name}-0"]) + int(sources[0]["metrics"][f"lag.{name}-1"]) == lags[0]


@pytest.mark.parametrize("order", [(PYTHON, JAVA, PYTHON), (JAVA, PYTHON, JAVA)], ids=["python-java", "java-python"])
def test_how_far_a_query_is_stands_in_the_quorum(
    client: Client, append: Append, both: dict[str, Connector], tmp_path: Path, order: tuple[str, ...]
) -> None:
    """One key that both write, over restarts from the checkpoint: the last position, each run a generation."""
    name = f"contract-position-{order[0] == JAVA}".lower()
    client.create_topic(name, 2)
    for turn, format_ in enumerate(order, 1):
        append(name, "a", "b", partition=0)
        append(name, "c", partition=1)
        assert both[format_].batches(tmp_path, name, startingOffsets="earliest", maxOffsetsPerTrigger="3")
        query = json.loads((tmp_path / "metadata").read_text())["id"]
        [key] = [entry.key for entry in client.kv.list(f"/sources/{query}/positions/").entries]
        found = client.kv.get(key)
        assert found is not None
        position = decode(found.value)
        assert position is not None
        assert position.offsets == {name: client.list_offsets(name, {0: LATEST, 1: LATEST})}
        assert (position.generation, position.reads) == (turn, f"subscribe {name}")
        assert 0 < position.batch_ms <= position.seen_ms <= round(time.time() * 1000)
        append(name, "d", partition=1)
        lags = client.query_lags(query)
        assert [(lag.partition, lag.records) for lag in lags] == [(0, 0), (1, 1)]


def test_two_sources_of_one_query_have_positions_of_their_own(
    client: Client, append: Append, connector: Connector, tmp_path: Path
) -> None:
    """Two that read the same, and one more, while the query runs; it has a name."""
    names = [f"contract-union-{connector.format == JAVA}-{number}".lower() for number in range(2)]
    for name in names:
        client.create_topic(name, 1)
        append(name, "a", "b")

    def source(name: str) -> DataFrame:
        reader = connector.spark.readStream.format(connector.format).option("kafka.bootstrap.servers", connector.servers)
        return reader.options(subscribe=name, startingOffsets="earliest", positionIntervalMs="200").load()

    rows = source(names[0]).union(source(names[1])).union(source(names[0]))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).queryName(f"name of {names[0]}")
    query = writer.start()
    try:
        wait_until(lambda: len(client.kv.list(f"/sources/{query.id}/positions/").entries) == 3, "three sources", 60)
        for turn in range(2):
            append(names[turn], "c")
            ends = {name: client.list_offsets(name, {0: LATEST})[0] for name in names}

            def told(ends: dict[str, int] = ends) -> bool:
                found = {lag.topic: (lag.position, lag.name) for lag in client.query_lags(query.id)}
                return found == {name: (end, f"name of {names[0]}") for name, end in ends.items()}

            wait_until(told, "all have come to the end", 60)
    finally:
        query.stop()
    assert {lag.records for lag in client.query_lags(f"name of {names[0]}")} == {0}
