"""The sink's writers: what a task does with its batch, what the driver makes visible, and what is left of attempts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from connector.fakekeys import away
from connector.fakelog import FakeQuorum
from pyspark_raftlake import sink, sink_task
from pyspark_raftlake.errors import InvalidRow, SinkFailed, SinkFenced, UnsupportedMode
from pyspark_raftlake.option_names import FOREACH_RUN
from pyspark_raftlake.options import SinkOptions, parse_sink_options
from pyspark_raftlake.sink import BatchWriter, StreamWriter, count_rows, this_driver
from pyspark_raftlake.writer import Written, WrittenPartition
from raftlake.client import sink_keys as keys
from raftlake.errors import ConfigError
from raftlake.wire.batches import decode_records

SCHEMA = StructType().add("key", "string").add("value", "binary")
QUERY = "5e0c8a1e-query"


class Task:
    """What Spark tells a task."""

    def __init__(self) -> None:
        self.partition, self.attempt = 0, 0
        self.properties: dict[str, str] = {}

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def of_stream(self, batch: int, run: str = "run-1", partition: int = 0, attempt: int = 0) -> None:
        self.partition, self.attempt = partition, attempt
        self.properties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(batch), "spark.jobGroup.id": run}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    made = Task()
    monkeypatch.setattr(sink_task.TaskContext, "get", lambda: made)
    return made


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> FakeQuorum:
    made = FakeQuorum(t=1, u=1)
    for module in (sink, sink_task):
        monkeypatch.setattr(module, "client_of", lambda _: made)
    return made


def options(**more: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", **more})


def rows(*values: bytes) -> Iterator[Any]:
    keyed = pa.array([value.decode() for value in values], pa.string())
    return iter([pa.RecordBatch.from_arrays([keyed, pa.array(values, pa.binary())], names=["key", "value"])])


def stream() -> StreamWriter:
    return pickle.loads(pickle.dumps(StreamWriter(options(), SCHEMA)))  # type: ignore[no-any-return]


def sent(message: Any) -> Any:
    """As Spark brings it to the driver."""
    return pickle.loads(pickle.dumps(message))


def appended(quorum: FakeQuorum) -> list[bytes | None]:
    return [record.value for one in quorum.logs["t"][0].batches for record in decode_records(one)]


def batch_of(quorum: FakeQuorum, app: str = QUERY) -> Any:
    return json.loads(quorum.keys.entries[keys.batch_key(app)][0])


def test_tasks_write_under_ids_of_their_own_and_the_driver_makes_them_visible_together(quorum: FakeQuorum, task: Task) -> None:
    messages = []
    for partition in range(3):
        task.of_stream(0, partition=partition)
        messages.append(sent(stream().write(rows(b"a", b"b") if partition else iter(()))))
    # A task without rows has no transaction.
    assert quorum.keys.states() == {f"raftlake-sink.a.{QUERY}.1.{partition}.0": "Ongoing" for partition in (1, 2)}
    assert all(producer.is_closed for producer in quorum.producers)
    stream().commit(messages, 0)
    assert set(quorum.keys.states().values()) == {"Committed"}
    # Who reads now is shown the rows.
    assert quorum.keys.settled == [sorted(quorum.keys.states())]
    found = batch_of(quorum)
    assert (found["batch"], found["run"], found["rows"], found["tasks"], found["topics"]) == (0, "run-1", 4, 3, {"t": 4})


def test_a_batch_that_is_visible_is_not_written_again(quorum: FakeQuorum, task: Task) -> None:
    """Spark repeats a batch whose end it had not noted down."""
    task.of_stream(0)
    stream().commit([sent(stream().write(rows(b"a")))], 0)
    for run in ("run-1", "run-2"):
        task.of_stream(0, run=run)

        again = sent(stream().write(left := rows(b"a", b"b")))
        assert again.rows == 0
        assert not list(left), "the state of the query commits at the end of the rows"
        stream().commit([again], 0)
    assert appended(quorum) == [b"a"]
    assert batch_of(quorum)["run"] == "run-1"
    task.of_stream(1, run="run-2")
    stream().commit([sent(stream().write(rows(b"b")))], 1)
    assert (batch_of(quorum)["batch"], batch_of(quorum)["run"]) == (1, "run-2")


def test_a_batch_is_not_taken_for_the_one_behind_it(quorum: FakeQuorum, task: Task) -> None:
    for number in (4, 5, 7):
        task.of_stream(number)
        stream().commit([sent(stream().write(rows(b"%d" % number)))], number)
    assert appended(quorum) == [b"4", b"5", b"7"]
    assert batch_of(quorum)["batch"] == 7


def test_an_attempt_that_fails_aborts_its_transaction_and_the_next_one_has_another(quorum: FakeQuorum, task: Task) -> None:
    task.of_stream(0)
    wrong = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([b"1"]), pa.array([9], pa.int32())], names=["key", "value", "partition"]
    )
    writer = StreamWriter(options(), StructType([*SCHEMA.fields, StructField("partition", IntegerType())]))
    good = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([b"1"]), pa.array([0], pa.int32())], names=["key", "value", "partition"]
    )
    many = [good.slice(0, 1)] * 2

    def stumbling() -> Iterator[Any]:
        yield pa.concat_batches([good] * 100_000)
        yield from many
        yield wrong

    with pytest.raises(InvalidRow):
        writer.write(stumbling())
    assert [(producer.is_aborted, producer.is_closed) for producer in quorum.producers] == [(True, True)]
    task.of_stream(0, attempt=1)
    message = sent(writer.write(iter([good])))
    assert set(quorum.keys.states()) == {f"raftlake-sink.a.{QUERY}.1.0.{attempt}" for attempt in (0, 1)}
    # The driver aborts what the failed attempt may have left.
    writer.commit([message], 0)
    assert quorum.keys.states() == {
        f"raftlake-sink.a.{QUERY}.1.0.0": "Aborted",
        f"raftlake-sink.a.{QUERY}.1.0.1": "Committed",
    }


def test_lost_attempts_are_looked_for_after_each_batch(quorum: FakeQuorum, task: Task) -> None:
    """A speculative attempt that lost was killed, and its winner was the first attempt; or an older driver woke up."""
    for number in range(3):
        task.of_stream(number, run="run-2")
        message = sent(stream().write(rows(b"x")))
        lost = keys.app_transactional_id(QUERY, number, 0, 1)
        quorum.keys.begin(lost)
        stream().commit([message], number)
        assert quorum.keys.states()[lost] == "Aborted"


def test_a_run_that_was_replaced_leaves_nothing_open(quorum: FakeQuorum, task: Task) -> None:
    """The newer run has looked for attempts already, and may have no other batch to write."""
    task.of_stream(3, run="run-1")
    writer = stream()
    found = sent(writer.write(rows(b"seen")))
    task.of_stream(3, run="run-2")
    stream().commit([sent(stream().write(rows(b"new")))], 3)
    late = keys.app_transactional_id(QUERY, 1, 1, 0)
    messages = [found, replace(found, end=quorum.keys.begin(late), transaction=late)]
    with pytest.raises(SinkFenced):
        writer.commit(messages, 3)
    writer.abort(messages, 3)
    assert quorum.keys.states()[late] == "Aborted"


def test_a_run_that_was_replaced_writes_nothing(quorum: FakeQuorum, task: Task) -> None:
    task.of_stream(3, run="run-1")
    message = sent(stream().write(rows(b"old")))
    task.of_stream(3, run="run-2")
    newer = sent(stream().write(rows(b"new")))
    with pytest.raises(SinkFenced, match=r"run run-1 no longer owns .* batch 3 .*run-2 on host"):
        stream().commit([message], 3)
    task.of_stream(3, run="run-1", attempt=1)
    with pytest.raises(SinkFenced, match=r"The owner is run run-2 on host \S+ \(process \d+, since 2"):
        stream().write(rows(b"old"))
    stream().commit([newer], 3)
    assert quorum.keys.states() == {
        f"raftlake-sink.a.{QUERY}.1.0.0": "Aborted",
        f"raftlake-sink.a.{QUERY}.2.0.0": "Committed",
    }


def test_a_failed_batch_leaves_nothing_open(quorum: FakeQuorum, task: Task, caplog: pytest.LogCaptureFixture) -> None:
    task.of_stream(0)
    stream().abort([sent(stream().write(rows(b"a"))), None], 0)
    assert set(quorum.keys.states().values()) == {"Aborted"}
    assert "none of its rows is visible" in caplog.text
    stream().abort([None], 0)
    with pytest.raises(SinkFailed, match="no task has told"):
        stream().commit([], 0)


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_killed_tasks_of_a_failed_batch_left_is_aborted(
    quorum: FakeQuorum, task: Task, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    """Spark kills the other tasks of a batch that fails: they abort nothing, and tell nobody. One ends behind the abort."""
    killed = {number: f"raftlake-sink.a.{QUERY}.1.{number}.0" for number in (1, 2)}
    other = "raftlake-sink.a.another-query.1.0.0"
    task.of_stream(0)
    writer = stream() if is_stream else BatchWriter(options(txnAppId=QUERY, txnVersion="0"), SCHEMA, overwrite=False)
    messages = [sent(writer.write(rows(b"a"))), None, None]

    quorum.keys.begin(killed[1])
    quorum.keys.begin(other)
    monkeypatch.setattr(sink.time, "sleep", lambda _: quorum.keys.begin(killed[2]))
    writer.abort(messages, *((0,) if is_stream else ()))
    states = quorum.keys.states()
    assert {states[name] for name in killed.values()} == {"Aborted"}
    assert states[other] == "Ongoing"


def test_a_task_that_spark_tells_nothing_refuses(quorum: FakeQuorum, task: Task) -> None:
    with pytest.raises(SinkFailed, match="has not told this task its query"):
        stream().write(rows(b"a"))
    assert appended(quorum) == []


# --- batch writes -----------------------------------------------------------------------------------------------------------


def test_a_batch_write_is_visible_as_a_whole(quorum: FakeQuorum, task: Task, caplog: pytest.LogCaptureFixture) -> None:
    writer = BatchWriter(options(), SCHEMA, overwrite=False)
    crossed = pickle.loads(pickle.dumps(writer))
    messages = []
    for task.partition in range(2):
        messages.append(sent(crossed.write(rows(b"a", b"b"))))
    assert set(quorum.keys.states().values()) == {"Ongoing"}
    assert count_rows([*messages, None]) == 4
    quorum.keys.settle_failure = away()
    crossed.commit(messages)
    assert quorum.keys.settled == [sorted(quorum.keys.states())]
    assert "may be shown a little later" in caplog.text
    assert quorum.keys.states() == {"raftlake-sink.j.0.0.0": "Committed", "raftlake-sink.j.0.1.0": "Committed"}
    # A task that begins now is of an attempt that nobody needs.
    with pytest.raises(SinkFailed, match="began too late"):
        crossed.write(rows(b"c"))


def test_a_batch_write_that_fails_leaves_nothing_open(quorum: FakeQuorum, task: Task) -> None:
    writer = BatchWriter(options(), SCHEMA, overwrite=False)
    writer.abort([sent(writer.write(rows(b"a"))), None])
    assert set(quorum.keys.states().values()) == {"Aborted"}
    assert keys.decode_job(quorum.keys.entries[keys.job_key(0)][0]).is_done


def test_a_batch_write_of_an_app_happens_once(quorum: FakeQuorum, task: Task) -> None:
    once = {"txnAppId": "mover/1", "txnVersion": "7"}
    for _ in range(2):
        writer = BatchWriter(options(**once), SCHEMA, overwrite=False)
        writer.commit([sent(writer.write(rows(b"a")))])
    assert appended(quorum) == [b"a"]
    assert batch_of(quorum, "mover/1")["batch"] == 7
    writer = BatchWriter(options(txnAppId="mover/1", txnVersion="8"), SCHEMA, overwrite=False)
    writer.abort([sent(writer.write(rows(b"b")))])
    writer = BatchWriter(options(txnAppId="mover/1", txnVersion="8"), SCHEMA, overwrite=False)
    writer.commit([sent(writer.write(rows(b"b")))])
    assert sorted(quorum.keys.states().values()).count("Committed") == 2
    assert not [key for key in quorum.keys.entries if key.startswith(keys.JOBS)]


@pytest.mark.parametrize("is_of_stream", [True, False])
def test_the_rows_of_a_write_that_happened_are_read_for_the_state_of_a_query(
    quorum: FakeQuorum, task: Task, is_of_stream: bool
) -> None:
    if is_of_stream:
        task.of_stream(7)
    for _ in range(2):
        writer = BatchWriter(options(txnAppId="app", txnVersion="7"), SCHEMA, overwrite=False)
        writer.commit([sent(writer.write(left := rows(b"a")))])
    assert appended(quorum) == [b"a"]
    assert bool(list(left)) is not is_of_stream


def test_within_foreach_batch_the_run_is_that_of_the_query(quorum: FakeQuorum, task: Task) -> None:
    for number in range(2):
        task.of_stream(number, run="run-9")
        writer = BatchWriter(options(txnAppId="app", txnVersion=str(number)), SCHEMA, overwrite=False)
        writer.commit([sent(writer.write(rows(b"a")))])
        owner = keys.decode_owner(quorum.keys.entries[keys.owner_key("app")][0])
        assert (owner.run, owner.query, owner.generation) == ("run-9", QUERY, 1)


def test_a_job_group_within_foreach_batch_is_not_the_run_of_its_writes(quorum: FakeQuorum, task: Task) -> None:
    for number in range(3):
        task.of_stream(number, run="run-9" if number == 0 else "nightly totals")
        task.properties[FOREACH_RUN] = "run-9"
        writer = BatchWriter(options(txnAppId=QUERY, txnVersion=str(number)), SCHEMA, overwrite=False)
        writer.commit([sent(writer.write(rows(b"a")))])
        owner = keys.decode_owner(quorum.keys.entries[keys.owner_key(QUERY)][0])
        assert (owner.run, owner.generation) == ("run-9", 1)


@pytest.mark.usefixtures("quorum")
def test_what_a_write_cannot_be() -> None:
    with pytest.raises(UnsupportedMode, match="overwrite not allowed"):
        BatchWriter(options(), SCHEMA, overwrite=True)
    for wrong in ({"txnAppId": "a"}, {"txnVersion": "1"}, {"txnAppId": "", "txnVersion": "1"}):
        with pytest.raises(ConfigError, match="go together"):
            options(**wrong)
    with pytest.raises(ConfigError, match="0 or above"):
        options(txnAppId="a", txnVersion="x")
    with pytest.raises(ConfigError, match="a stream is known by its query id"):
        StreamWriter(options(txnAppId="a", txnVersion="1"), SCHEMA)
    nope = options(topic="nope")
    for make in (lambda: BatchWriter(nope, SCHEMA, overwrite=False), lambda: StreamWriter(nope, SCHEMA)):
        with pytest.raises(ConfigError, match="Topic 'nope' does not exist"):
            make()


def test_the_driver_is_named_by_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {50: ("python", 40), 40: ("python", 30), 30: ("java", 1)}
    files = {f"/proc/{pid}/comm": name + "\n" for pid, (name, _) in tree.items()}
    files |= {f"/proc/{pid}/stat": f"{pid} (a ) b) S {parent} 0" for pid, (_, parent) in tree.items()}
    monkeypatch.setattr(sink, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(sink.os, "getppid", lambda: 50)
    assert this_driver().pid == 30
    monkeypatch.setattr(sink, "_read", lambda path: "")
    assert this_driver().pid == 50


def test_rows_are_counted_by_topic(quorum: FakeQuorum, task: Task) -> None:
    task.of_stream(0)
    standing = sent(stream().write(iter(()))).standing
    parts = [
        WrittenPartition(topic=topic, partition=0, rows=count, start=0, end=count) for topic, count in (("u", 2), ("t", 3))
    ]
    stream().commit([Written(tuple(parts), standing=standing), Written((parts[0],), standing=standing)], 0)
    assert batch_of(quorum)["topics"] == {"t": 3, "u": 4}
