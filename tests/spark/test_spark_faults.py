"""Nodes that are killed while Spark reads and writes: nothing is lost, nothing is doubled, and the query goes on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from spark.streamkit import Append, Do, Expect, Scenario, Start, Step, Stop
from visiblekit import visible
from waitkit import attempt, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Enough for a write of a second or more.
ROWS = 600_000
#: So long all nodes are away: longer than one question, and its repetition.
OUTAGE_S = 15


@pytest.fixture(scope="module")
def own_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("faults")) as started:
        yield started


@pytest.fixture
def own_client(own_quorum: LocalQuorum) -> Iterator[Client]:
    with Client(own_quorum.bootstrap_servers) as made:
        yield made


def test_a_query_outlives_the_leaders_of_its_partitions(
    spark: SparkSession, own_quorum: LocalQuorum, own_client: Client, tmp_path: Path
) -> None:
    """Each round kills the leader of partition 0 between two batches, and brings it back after the next."""
    own_client.create_topic("query", 3)
    query = Scenario(spark, own_client, "query", tmp_path / "checkpoint", consistency="linearizable")
    numbers = itertools.count()
    appended: list[str] = []

    def more() -> list[Step]:
        values = [f"v{next(numbers):03d}" for _ in range(6)]
        appended.extend(values)
        return [Append(values), Expect(list(appended))]

    killed: list[int] = []

    def kill() -> None:
        killed.append(leader_of(own_client, "query"))
        own_quorum.kill(killed[-1])

    def revive() -> None:
        own_quorum.start(killed[-1])

    steps: list[Step] = [Start(), *more()]
    for _ in range(2):
        steps += [Do(kill), *more(), Do(revive), *more()]
    query.run(*steps, Stop(), *more()[:1], Start(), Expect(list(appended)))
    assert len(killed) == 2


def test_tasks_that_read_from_a_killed_node_read_from_another(
    spark: SparkSession, own_quorum: LocalQuorum, own_client: Client
) -> None:
    own_client.create_topic("tasks", 1)
    servers = own_quorum.bootstrap_servers
    rows = spark.range(20_000).selectExpr("cast(id as string) as value").coalesce(1)
    rows.write.format("raftlake").option("bootstrap.servers", servers).option("topic", "tasks").mode("append").save()
    options = {"bootstrap.servers": servers, "subscribe": "tasks", "minPartitions": "6"}
    # Planned before the kill, run after it: a third of the ranges is to be read from each node.
    frame = spark.read.format("raftlake").options(**options).load()
    assert frame.rdd.getNumPartitions() == 6
    victim = leader_of(own_client, "tasks")
    own_quorum.kill(victim)
    try:
        assert frame.selectExpr("count(*)", "count(distinct value)").first() == (20_000, 20_000)
    finally:
        own_quorum.start(victim)


def test_a_write_outlives_the_leader(spark: SparkSession, own_quorum: LocalQuorum, own_client: Client) -> None:
    """The leader dies when part of a task's rows is appended: the rest follows, and retried requests are not appended twice."""
    names = (f"write-{number}" for number in itertools.count())

    def is_written_over_a_kill() -> bool:
        """Every row is there, once. False where the write was over before its leader was killed."""
        topic = next(names)
        in_the_middle = write_and_kill(spark, own_quorum, own_client, topic)
        frame = spark.read.format("raftlake").option("bootstrap.servers", own_quorum.bootstrap_servers)
        counts = frame.option("subscribe", topic).load().selectExpr("count(*)", "count(distinct key)").first()
        assert counts == (ROWS, ROWS)
        return in_the_middle

    attempt(is_written_over_a_kill, "a write that is not over before its leader is killed")


def write_and_kill(spark: SparkSession, quorum: LocalQuorum, client: Client, topic: str) -> bool:
    """Whether the write was still going on after the kill. (It is Spark's session that is bound to the main thread.)"""
    client.create_topic(topic, 1)
    empty = client.read_offset(topic)[0]
    rows = spark.range(0, ROWS, 1, 1).selectExpr("cast(id as string) as key", "rpad(cast(id as string), 100, '.') as value")
    writer = rows.write.format("raftlake").option("bootstrap.servers", quorum.bootstrap_servers).option("topic", topic)
    is_saved = threading.Event()

    def kill_in_the_middle() -> tuple[int, bool]:
        while client.read_offset(topic)[0] == empty and not is_saved.wait(0.01):
            pass
        victim = leader_of(client, topic)
        quorum.kill(victim)
        return victim, not is_saved.is_set()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_in_the_middle)
        try:
            writer.mode("append").save()
        finally:
            is_saved.set()
        victim, in_the_middle = killing.result(timeout=60)
    quorum.start(victim)
    return in_the_middle


def test_a_query_outlives_an_outage_of_the_whole_quorum(
    spark: SparkSession, own_quorum: LocalQuorum, own_client: Client, tmp_path: Path
) -> None:
    """From topic to topic: once while the query has nothing to do, once with rows on their way. Each row is written once."""
    own_client.create_topic("before", 3)
    own_client.create_topic("after", 2)
    servers = own_quorum.bootstrap_servers
    source = spark.readStream.format("raftlake").options(subscribe="before", startingOffsets="earliest")
    rows = source.option("bootstrap.servers", servers).load().select("key", "value")
    sink = rows.writeStream.format("raftlake").option("topic", "after").option("bootstrap.servers", servers)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    values: list[str] = []

    def more(count: int) -> None:
        added = [f"v{number:05d}" for number in range(len(values), len(values) + count)]
        own_client.append_many("before", [(value, value) for value in added])
        values.extend(added)

    def is_written() -> bool:
        assert query.exception() is None
        return len(visible(own_client, "after")) >= len(values)

    try:
        more(30)
        wait_until(is_written, "the first rows", 120)
        for is_busy in (False, True):
            if is_busy:
                more(3_000)
            for node in (1, 2, 3):
                own_quorum.kill(node)
            assert not query.awaitTermination(OUTAGE_S), "the query waits for the quorum"
            own_quorum.start(1, 2, 3)
            more(30)
            wait_until(is_written, "all rows after the outage", 120)
            assert sorted(visible(own_client, "after")) == values
    finally:
        query.stop()
