"""A batch is planned in the quorum while Spark optimizes it, and no task of the batch begins before."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectorkit import JAVA
from raftlake import Client, LocalQuorum
from sparkkit import session_at
from visiblekit import visible
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TIMEOUT_S = 120


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    """One whose nodes may be stopped."""
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as started:
        yield started


def is_waiting_for_a_plan(spark: SparkSession) -> bool:
    """Whether the thread of a query waits for `offsets/N`."""
    traces: Any = spark._jvm.java.lang.Thread.getAllStackTraces()  # type: ignore[union-attr]
    queries = [thread for thread in traces.keySet() if "stream execution thread" in thread.getName()]
    return any("BatchPlans" in frame.getClassName() for thread in queries for frame in traces.get(thread))


def test_no_task_begins_before_the_batch_is_planned(spark: SparkSession, own_quorum: LocalQuorum, tmp_path: Path) -> None:
    """A sort has tasks of its own, in front of those that write. The source keeps nothing in the checkpoint."""
    session = session_at(spark, own_quorum)
    ran = tmp_path / "ran"
    ran.mkdir()

    def note(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for value in batch.column("value").to_pylist():
                (ran / value).touch()
            yield batch

    with Client(own_quorum.bootstrap_servers) as client, socket.create_server(("127.0.0.1", 0)) as server:
        client.create_topic("counts", 1)
        source = session.readStream.format("socket").option("host", "127.0.0.1").option("port", server.getsockname()[1])
        lines = source.load()
        counts = lines.mapInArrow(note, lines.schema).groupBy("value").count().orderBy("value")
        rows = counts.selectExpr("concat(value, '=', count) as value")
        writer = rows.writeStream.format(JAVA).option("kafka.bootstrap.servers", own_quorum.bootstrap_servers)
        writer = writer.option("topic", "counts").option("checkpointLocation", "raftlake://planned/main")
        query = writer.outputMode("complete").start()
        stopped = [own_quorum.pid(node) for node in own_quorum.running()[:2]]
        try:
            speaker, _ = server.accept()
            with speaker:
                for value in ("a", "b"):
                    speaker.sendall(f"{value}\n".encode())
                    wait_until((ran / value).exists, f"the batch of {value}", TIMEOUT_S)
                    query.processAllAvailable()
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                speaker.sendall(b"c\n")
                wait_until(lambda: is_waiting_for_a_plan(spark), "a plan that cannot be committed", TIMEOUT_S)
                assert not (ran / "c").exists()
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
                wait_until((ran / "c").exists, "the batch of c", TIMEOUT_S)
                query.processAllAvailable()
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            query.stop()
        assert sorted(visible(client, "counts")) == ["a=1", "a=1", "a=1", "b=1", "b=1", "c=1"]
