"""All nodes stop while a query runs, and start again: the query goes on, and so does a sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from raftlake import Client, LocalQuorum
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: An outage that ended a query before questions were asked again: longer than the first tries take.
OUTAGE_S = 12.0


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as started:
        yield started


def test_a_query_outlives_a_stop_of_all_nodes(spark: SparkSession, own_quorum: LocalQuorum, tmp_path: Path) -> None:
    """With limits so short that a single question does not outlive the outage."""
    with Client(own_quorum.bootstrap_servers) as client:
        for topic in ("in", "out"):
            client.create_topic(topic, 2)
        at = {"kafka.bootstrap.servers": own_quorum.bootstrap_servers, "kafka.default.api.timeout.ms": "4000"}
        at |= {"fetchOffset.numRetries": "40", "fetchOffset.retryIntervalMs": "100"}
        rows = spark.readStream.format("raftlake").options(**at, subscribe="in", startingOffsets="earliest").load()
        sink = rows.select("key", "value").writeStream.format("raftlake").option("topic", "out")
        sink = sink.option("kafka.bootstrap.servers", own_quorum.bootstrap_servers)
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            client.append_many("in", ["before-1", "before-2"])
            wait_until(lambda: visible(client) == ["before-1", "before-2"], "the first batch", 120)
            for node_id in own_quorum.running():
                own_quorum.kill(node_id)
            # This producer is amid the outage, too.
            outcome: list[object] = []
            appending = threading.Thread(target=lambda: outcome.append(client.append("in", "during")))
            appending.start()
            threading.Event().wait(OUTAGE_S)
            assert query.isActive and appending.is_alive()
            starting = [threading.Thread(target=own_quorum.start, args=(node_id,)) for node_id in own_quorum.nodes]
            for each in starting:
                each.start()
            for each in [*starting, appending]:
                each.join(120)
            assert outcome
            wait_until(lambda: len(visible(client)) == 3 or not query.isActive, "the row of the outage", 120)
            assert query.isActive, query.exception()
            assert visible(client) == ["before-1", "before-2", "during"]
        finally:
            query.stop()


def visible(client: Client) -> list[str]:
    found = [record for partition in range(2) for record in client.read("out", partition, 0, max_wait_ms=0)]
    return sorted((record.value or b"").decode() for record in found)
