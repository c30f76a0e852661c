"""Nodes that are killed while either connector reads: nothing is lost or doubled, and the query goes on, or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, Connector
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.client import NewRecord
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def own_quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("contract-faults")) as started:
        yield started


@pytest.fixture(scope="module")
def own_client(own_quorum: LocalQuorum) -> Iterator[Client]:
    with Client(own_quorum.bootstrap_servers) as made:
        yield made


@pytest.fixture
def of_own(spark: SparkSession, own_quorum: LocalQuorum, connector: Connector) -> Connector:
    return Connector(spark, own_quorum.bootstrap_servers, connector.format)


def test_tasks_that_read_from_a_killed_node_read_from_another(
    own_quorum: LocalQuorum, own_client: Client, of_own: Connector
) -> None:
    name = f"contract-killed-{of_own.format == JAVA}".lower()
    own_client.create_topic(name, 1)
    own_client.append_many(name, [NewRecord(value=b"%d" % number) for number in range(20_000)])
    # Planned before the kill, run after it: a third of the ranges is to be read from each node.
    frame = of_own.read(name, minPartitions="6")
    assert frame.rdd.getNumPartitions() == 6
    victim = leader_of(own_client, name)
    own_quorum.kill(victim)
    try:
        assert frame.selectExpr("count(*)", "count(distinct value)").first() == (20_000, 20_000)
        assert of_own.read(name, consistency="linearizable").count() == 20_000, "it does not find the new leader"
    finally:
        own_quorum.start(victim)


def test_a_query_outlives_an_outage_of_all_nodes(
    own_quorum: LocalQuorum, own_client: Client, of_own: Connector, tmp_path: Path
) -> None:
    name = f"contract-outage-{of_own.format == JAVA}".lower()
    own_client.create_topic(name, 2)
    seen: list[str] = []

    def keep(rows: DataFrame, _batch: int) -> None:
        seen.extend(row.value for row in rows.selectExpr("cast(value as string) as value").collect())

    reader = of_own.spark.readStream.format(of_own.format).option("kafka.bootstrap.servers", of_own.servers)
    frame = reader.options(subscribe=name, startingOffsets="earliest", consistency="linearizable").load()
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    try:
        own_client.append(name, b"before", partition=0)
        wait_until(lambda: seen == ["before"], "the first record", 60)
        for node in NODES:
            own_quorum.kill(node)
        own_quorum.start(*NODES)
        own_client.append(name, b"after", partition=1)
        wait_until(lambda: seen == ["before", "after"] or not query.isActive, "the record that came after the outage", 90)
        assert query.isActive, query.exception()
        assert seen == ["before", "after"]
    finally:
        query.stop()


def test_patience_ends_with_one_line(own_quorum: LocalQuorum, own_client: Client, of_own: Connector, tmp_path: Path) -> None:
    name = f"contract-patience-{of_own.format == JAVA}".lower()
    own_client.create_topic(name, 1)
    patience = {"kafka.default.api.timeout.ms": "1000", "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "100"}
    reader = of_own.spark.readStream.format(of_own.format).option("kafka.bootstrap.servers", of_own.servers)
    frame = reader.options(subscribe=name, startingOffsets="earliest", **patience).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: query.lastProgress is not None, "a batch, or none to read", 60)
        for node in NODES:
            own_quorum.kill(node)
        wait_until(lambda: not query.isActive, "the end of the query's patience", 60)
        assert "the quorum could not be asked for" in str(query.exception())
        assert "(2 tries, as 'fetchOffset.numRetries' says)" in str(query.exception())
    finally:
        query.stop()
        own_quorum.start(*NODES)
