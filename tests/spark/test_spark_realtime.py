"""Real-time mode of the connector in Java, topic to topic: rows arrive while their batch is open, a restart goes on where the
last batch ended, and nothing is lost where a leader dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from realtimeflow import LONG, SHORT, SLOTS, WAIT_S, Flow

from leaderkit import leader_of
from pyspark_raftlake.jvm import REAL_TIME_SINKS_SETTING, find_jar
from raftlake import Client, LocalQuorum
from raftlake.client import NewRecord
from visiblekit import visible
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NODES = (1, 2, 3)
#: So long all of them are away.
OUTAGE_S = 8


@pytest.fixture(autouse=True)
def sinks_are_not_checked(spark: SparkSession) -> Iterator[None]:
    if find_jar() is None:
        pytest.fail("there is no jar: run tools/build-jar, as make test-spark does")
    spark.conf.set(REAL_TIME_SINKS_SETTING, "false")
    yield
    spark.conf.unset(REAL_TIME_SINKS_SETTING)


@pytest.fixture
def flow(spark: SparkSession, client: Client, tmp_path: Path) -> Iterator[Flow]:
    made = Flow(spark, client, tmp_path)
    yield made
    made.stop()


def test_rows_arrive_while_their_batch_is_open(flow: Flow) -> None:
    """A batch that is never over: a restart reads it again, which is at least once."""
    flow.append()
    flow.start(LONG)
    flow.wait_for_all()
    flow.append()
    flow.wait_for_all()
    assert flow.committed() == -1 and sorted(visible(flow.client, flow.after)) == flow.values
    flow.stop()
    flow.start(SHORT)
    flow.wait_for_batches()
    assert sorted(visible(flow.client, flow.after)) == sorted(flow.values * 2)


def test_a_restart_goes_on_where_the_last_batch_ended(flow: Flow) -> None:
    flow.start()
    for _ in range(2):
        flow.append()
        flow.wait_for_all()
        flow.wait_for_batches(2)
    flow.stop()
    ends = flow.client.read_offset(flow.before)
    assert flow.offsets() == {str(number): end for number, end in ends.items()}
    flow.append()
    flow.start()
    flow.wait_for_all()
    flow.wait_for_batches(2)
    assert sorted(visible(flow.client, flow.after)) == flow.values, "rows were read twice"


def test_a_checkpoint_moves_between_real_time_mode_and_micro_batches(flow: Flow) -> None:
    for lasts in (SHORT, None, SHORT, None):
        flow.append()
        flow.start(lasts)
        flow.wait_for_all()
        flow.wait_for_batches(2 if lasts else 0)
        flow.stop()
    assert sorted(visible(flow.client, flow.after)) == flow.values


def test_a_query_from_latest_reads_what_comes_after_its_start(flow: Flow) -> None:
    """Its first batch marks the place, at once: rows that come while the query is down are not skipped."""
    flow.append()
    seen = list(flow.values)
    flow.values.clear()
    flow.start(LONG, startingOffsets="latest")
    flow.wait_for_batches()
    flow.append()
    flow.wait_for_all()
    flow.stop()
    flow.append()
    flow.start(LONG, startingOffsets="latest")
    flow.wait_for_all()
    assert not set(seen) & set(visible(flow.client, flow.after))


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_rows_of_an_open_transaction(flow: Flow, level: str) -> None:
    """They come with its end to readers of what is committed, and at once to others."""
    flow.start(LONG, kafka__isolation__level=level)
    producer = flow.client.transactional_producer(f"open-{flow.before}")
    producer.append(flow.before, NewRecord(value=b"held", partition=0))
    flow.append()
    wait_until(lambda: "v0001" in visible(flow.client, flow.after), "a row of another partition", WAIT_S)
    if level == "read_uncommitted":
        wait_until(lambda: "held" in visible(flow.client, flow.after), "the row of the open transaction", WAIT_S)
        flow.wait_for_all()
    else:
        assert set(visible(flow.client, flow.after)) <= {"v0001", "v0003"}, "rows behind an open transaction"
    producer.commit()
    flow.values.append("held")
    flow.wait_for_all()
    assert sorted(visible(flow.client, flow.after)) == sorted(flow.values)


def test_partitions_that_are_added_are_read_by_the_next_batch(spark: SparkSession, client: Client, tmp_path: Path) -> None:
    flow = Flow(spark, client, tmp_path, partitions=1)
    try:
        flow.start()
        flow.append(2)
        flow.wait_for_all()
        client.create_partitions(flow.before, 2)
        wait_until(lambda: len(client.partitions(flow.before)) == 2, "the new partition", 30)
        flow.append(4)
        flow.wait_for_all()
        flow.wait_for_batches(2)
        assert sorted(visible(client, flow.after)) == flow.values
    finally:
        flow.stop()


def test_too_few_slots(spark: SparkSession, client: Client, tmp_path: Path) -> None:
    flow = Flow(spark, client, tmp_path, partitions=SLOTS + 1)
    try:
        query = flow.start()
        with pytest.raises(Exception, match=r"has 3, and there are 2 \(local\[2\]\)\. .* Start Spark with 3 \(local\[3\]"):
            query.awaitTermination(WAIT_S)
        assert flow.committed() == -1
    finally:
        flow.stop()


def test_two_queries_share_the_slots(spark: SparkSession, client: Client, flow: Flow, tmp_path: Path) -> None:
    """The second one has too few while the first one runs, and enough when it has ended."""
    second = Flow(spark, client, tmp_path / "second", partitions=1)
    flow.append()
    flow.start()
    try:
        flow.wait_for_all()
        with pytest.raises(Exception, match="has 1, other sources in real-time mode hold 2, and there are 2"):
            second.start().awaitTermination(WAIT_S)
        assert flow.query is not None and flow.query.isActive
        flow.stop()
        second.append(1)
        second.start()
        second.wait_for_all()
    finally:
        second.stop()


@pytest.mark.parametrize(("option", "value"), [("maxOffsetsPerTrigger", "10"), ("minPartitions", "4"), ("tier", "remote")])
def test_options_that_mean_nothing_there_are_refused(flow: Flow, option: str, value: str) -> None:
    with pytest.raises(Exception, match=f"Option '{option}' is not supported: "):
        flow.start(**{option: value}).awaitTermination(WAIT_S)


def test_a_query_outlives_leaders_and_an_outage(spark: SparkSession, tmp_path: Path) -> None:
    """In one open batch: nothing is lost, and without a failed task nothing comes twice."""
    with LocalQuorum(nodes=3, data_dir=tmp_path / "nodes") as quorum, Client(quorum.bootstrap_servers) as client:
        flow = Flow(spark, client, tmp_path)
        try:
            flow.start(LONG)
            flow.append()
            flow.wait_for_all()
            for topic in (flow.before, flow.after):
                victim = leader_of(client, topic)
                quorum.kill(victim)
                flow.append()
                flow.wait_for_all()
                quorum.start(victim)
            for node in NODES:
                quorum.kill(node)
            assert flow.query is not None and not flow.query.awaitTermination(OUTAGE_S), "the query waits for the quorum"
            quorum.start(*NODES)
            flow.append()
            flow.wait_for_all()
            assert sorted(visible(client, flow.after)) == flow.values
        finally:
            flow.stop()
