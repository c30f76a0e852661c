"""The sink in real-time mode with a checkpoint at `raftlake://`: each row is visible once, with the end of its batch, however
the query ends; and what other checkpoints and options give."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from realtimeflow import LONG, SCHEME, SHORT, WAIT_S, Flow

from pyspark_raftlake.jvm import REAL_TIME_SINKS_SETTING, find_jar
from raftlake import Client, LocalQuorum
from sparkcluster import Driver, Stops, build_hooks
from sparkkit import session_at
from visiblekit import appended, visible
from waitkit import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: A batch whose end no test lives to see, and which the time limit of a transaction allows.
OPEN = "10 minutes"
#: A batch that does not end before a test has looked at it.
TIME_TO_ABORT = "20 seconds"
#: A driver on a busy machine, up to the end of its first batch.
START_S = 180
OF_THE_SINK = "raftlake-sink.a."


@pytest.fixture
def flow(spark: SparkSession, quorum: LocalQuorum, client: Client, tmp_path: Path) -> Iterator[Flow]:
    if find_jar() is None:
        pytest.fail("there is no jar: run tools/build-jar, as make test-spark does")
    session = session_at(spark, quorum)
    session.conf.set(REAL_TIME_SINKS_SETTING, "false")
    made = Flow(session, client, tmp_path, checkpoint=f"{SCHEME}realtime/{uuid.uuid4().hex[:8]}")
    yield made
    made.stop()


def query_id(flow: Flow) -> str:
    entry = flow.client.kv.get(f"/fs/{flow.checkpoint.removeprefix(SCHEME)}/metadata")
    assert entry is not None
    return str(json.loads(entry.value[entry.value.rindex(b'{"id"') :])["id"])


def of_the_sink(flow: Flow) -> dict[str, Any]:
    """What the sink has noted down of its newest batch."""
    entry = flow.client.kv.get(f"/sinks/apps/{query_id(flow)}/batch")
    return {"batch": -1} if entry is None else dict(json.loads(entry.value))


def wait_until_sent(flow: Flow) -> None:
    """Until all rows are in the log, visible or not."""

    def are_there() -> bool:
        assert flow.query is None or flow.query.exception() is None
        return set(appended(flow.client, flow.after)) >= set(flow.values)

    wait_until(are_there, f"all of {len(flow.values)} rows in the log", WAIT_S)


def require_once(flow: Flow) -> None:
    """All rows, each once, and nothing is left open."""
    assert sorted(visible(flow.client, flow.after)) == flow.values
    transactions = f"{OF_THE_SINK}{query_id(flow)}."
    wait_until(lambda: not flow.client.open_transactions(transactions), "the end of all transactions", 30)
    assert sorted(visible(flow.client, flow.after)) == flow.values


def go_on(flow: Flow) -> None:
    """More rows, and a run that ends well."""
    flow.append()
    finish(flow)


def finish(flow: Flow) -> None:
    """A run that ends well, behind which each row is there once."""
    flow.start()
    flow.wait_for_all()
    flow.wait_for_batches()
    flow.stop()
    require_once(flow)


def test_rows_of_two_partitions_become_visible_with_their_batch(flow: Flow) -> None:
    flow.append()
    flow.start()
    for _ in range(3):
        flow.append()
        flow.wait_for_all()
        flow.wait_for_batches()
    flow.stop()
    newest = of_the_sink(flow)
    assert newest["batch"] == flow.committed() >= 3
    assert newest["tasks"] == 2
    require_once(flow)


def test_a_batch_that_is_stopped_leaves_nothing_visible(flow: Flow) -> None:
    """Its rows are there for readers of what is not committed, and come once more for the others."""
    flow.append()
    flow.start(OPEN)
    wait_until_sent(flow)
    assert visible(flow.client, flow.after) == [] and flow.committed() == -1
    flow.stop()
    go_on(flow)


def test_the_checkpoint_moves_between_real_time_mode_and_micro_batches(flow: Flow) -> None:
    for lasts in (SHORT, None, SHORT, None):
        flow.append()
        flow.start(lasts)
        flow.wait_for_all()
        flow.wait_for_batches(1 if lasts else 0)
        flow.stop()
        assert of_the_sink(flow)["batch"] == flow.committed()
    require_once(flow)


@pytest.mark.parametrize("stop", ["before-offsets", "before-commits", "after-commits"])
def test_a_driver_that_is_killed_behind_the_commit_of_the_sink(
    flow: Flow, quorum: LocalQuorum, tmp_path: Path, stop: str
) -> None:
    """What it has committed in the sink alone is written anew. With the end of the batch it is visible, and not repeated."""
    flow.append(6)
    facts = {"before": flow.before, "after": flow.after, "checkpoint": flow.checkpoint, "lasts": SHORT}
    stops = Stops(tmp_path / "stops")
    stops.want(stop)
    job = Path(__file__).with_name("realtime_job.py")
    own, hooks = tmp_path / "driver", build_hooks(tmp_path)
    driver = Driver(job, own, quorum, facts, master="local[2]", conf={}, hooks=hooks, stops=stops.directory)
    try:
        wait_until(lambda: stops.is_reached() or driver.process.poll() is not None, stop, START_S)
        assert driver.process.poll() is None, driver.output()[-4000:]
        assert sorted(appended(flow.client, flow.after)) == flow.values
        is_decided = stop == "after-commits"
        assert sorted(visible(flow.client, flow.after)) == (flow.values if is_decided else [])
        assert (of_the_sink(flow)["batch"], flow.committed()) == ((0, 0) if is_decided else (-1, -1))
    finally:
        driver.end()
    go_on(flow)


def test_a_batch_whose_transactions_were_aborted_does_not_end(flow: Flow) -> None:
    """One error says why, Spark notes nothing down, and the next run writes the batch anew."""
    flow.append()
    query = flow.start(TIME_TO_ABORT)
    wait_until_sent(flow)
    for each in flow.client.open_transactions(f"{OF_THE_SINK}{query_id(flow)}."):
        flow.client.kv.txn({}, [each.end(commit=False)])
    with pytest.raises(Exception, match=r"the commit of batch 0: the transactions of 2 tasks were aborted before"):
        query.awaitTermination(WAIT_S)
    assert (of_the_sink(flow)["batch"], flow.committed()) == (-1, -1)
    assert visible(flow.client, flow.after) == []
    finish(flow)


def test_a_batch_that_is_visible_already_is_not_written_anew(flow: Flow) -> None:
    """A run of micro-batches that died before Spark's note leaves it so. Spark would write other rows under its number."""
    flow.append()
    flow.start()
    flow.wait_for_all()
    flow.wait_for_batches()
    flow.stop()
    key = f"/sinks/apps/{query_id(flow)}/batch"
    flow.client.kv.put(key, json.dumps({**of_the_sink(flow), "batch": flow.committed() + 1}).encode())
    told = r"is visible already, and Spark writes it anew with other rows.*raftlake sinks forget"
    with pytest.raises(Exception, match=told):
        flow.start().awaitTermination(WAIT_S)
    # Spark has forgotten the offsets of the batch: micro-batches would leave the new rows of its number out.
    flow.append()
    for _ in range(2):
        with pytest.raises(Exception, match=told):
            flow.start(None)
    flow.client.kv.delete(key)
    go_on(flow)


def test_at_least_once_where_it_is_asked_for(flow: Flow) -> None:
    flow.append()
    flow.start(LONG, sink={"realTimeDelivery": "at-least-once"})
    flow.wait_for_all()
    assert flow.committed() == -1 and of_the_sink(flow)["batch"] == -1


def test_what_cannot_be_given_is_refused(flow: Flow, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"'kafka.transaction.timeout.ms' is '900000', expected 1830000 or more"):
        flow.start(LONG).awaitTermination(WAIT_S)
    flow.checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(Exception, match=r"'realTimeDelivery' is 'exactly-once', expected at-least-once: the checkpoint"):
        flow.start(SHORT, sink={"realTimeDelivery": "exactly-once"}).awaitTermination(WAIT_S)


def test_a_checkpoint_in_another_quorum_is_not_that_of_the_sink(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    with LocalQuorum(nodes=1, data_dir=tmp_path / "other") as other:
        flow.spark = session_at(spark, other)
        # Hadoop keeps a file system for each pipeline, with the settings of whoever came first.
        flow.checkpoint = f"{SCHEME}{uuid.uuid4().hex[:8]}/other"
        flow.spark.conf.set(REAL_TIME_SINKS_SETTING, "false")
        flow.append()
        flow.start(OPEN)
        flow.wait_for_all()
        flow.stop()
