"""The position of a source in the quorum: who may write it, over restarts, lost answers, two drivers, two equal sources."""

from __future__ import annotations

import pytest

from connector.fakekeys import FakeKeys, away
from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.options import Assign, Subscribe, SubscribePattern
from pyspark_raftlake.position_writer import SILENT_MS, PositionWriter, SourceOfRun, find_source
from pyspark_raftlake.query_position import FirstPosition, name_in, reads, write_first
from raftlake.client import query_positions as keys
from raftlake.errors import RequestRejected, UnknownOutcome
from raftlake.kv.commands import DeletePrefix, Put

READS = "subscribe t"


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def space() -> FakeKeys:
    return FakeKeys()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def source(run: str, reads: str = READS, writer: str | None = None) -> SourceOfRun:
    made = SourceOfRun(query="q", run=run, name="name", reads=reads, host="host-1", pid=17)
    if writer is None:
        return made
    return SourceOfRun(query="q", run=run, name="name", reads=reads, host="host-1", pid=17, writer=writer)


def at(offset: int) -> dict[str, dict[int, int]]:
    return {"t": {0: offset}}


def read(space: FakeKeys, number: int = 0) -> keys.SourcePosition:
    found = keys.decode(space.entries[keys.position_key("q", READS, number)][0])
    assert found is not None
    return found


def offset(space: FakeKeys, number: int = 0) -> int:
    return read(space, number).offsets["t"][0]


def test_the_value_is_that_of_the_connector_in_java(space: FakeKeys, clock: Clock) -> None:
    """PositionWriterTest.java has the same texts."""
    assert PositionWriter(space, source("run-1", writer="W"), clock).write({"t": {10: 7, 0: 5}, "a": {2: 0}}, 3, 4)
    [(key, (value, _))] = space.entries.items()
    assert key == "/sources/q/positions/a731a4f915475a69"
    assert value == (
        b'{"offsets":{"a":{"2":0},"t":{"0":5,"10":7}},"batch_ms":3,"seen_ms":4,"run":"run-1","writer":"W","generation":1,'
        b'"name":"name","reads":"subscribe t","host":"host-1","pid":17}'
    )


def test_what_a_source_reads_is_told_in_the_words_of_both() -> None:
    assert reads(Subscribe(("a", "b"))) == "subscribe a,b"
    assert reads(SubscribePattern("a.*")) == "subscribePattern a.*"
    assert reads(Assign((TopicPartition("a", 10), TopicPartition("a", 2)))) == "assign a-2,a-10"


def test_a_run_writes_on_and_the_next_one_takes_the_key(space: FakeKeys, clock: Clock) -> None:
    first = PositionWriter(space, source("run-1"), clock)
    assert all(first.write(at(each), each - 1, each) for each in (1, 2, 3))
    assert read(space).generation == 1
    second = PositionWriter(space, source("run-2"), clock)
    assert second.write(at(3), 0, 9)
    assert read(space).generation == 2
    assert read(space).batch_ms == 2, "of the batch that an earlier run has read"
    assert not first.write(at(4), 4, 10), "an older driver"
    assert offset(space) == 3
    assert second.write(at(5), 11, 11)
    assert not first.write(at(6), 12, 12), "and it stays so"
    assert offset(space) == 5


def test_a_query_that_is_set_back_is_told_as_it_is(space: FakeKeys, clock: Clock) -> None:
    """From an older checkpoint: the position is what the newer run says, and no maximum."""
    PositionWriter(space, source("run-1"), clock).write(at(9), 0, 1)
    assert PositionWriter(space, source("run-2"), clock).write(at(4), 0, 2)
    assert offset(space) == 4


def test_a_run_that_was_replaced_returns_where_the_other_is_silent_and_it_goes_on(space: FakeKeys, clock: Clock) -> None:
    first, second = (PositionWriter(space, source(run), clock) for run in ("run-1", "run-2"))
    first.write(at(1), 0, 1)
    second.write(at(1), 0, 1)
    assert not first.write(at(2), 0, 1)
    clock.ms += SILENT_MS
    assert not first.write(at(2), 0, 1), "it has not gone on"
    second.write(at(2), 0, 2)
    assert not first.write(at(3), 0, 1), "the other has"
    clock.ms += SILENT_MS - 1
    assert not first.write(at(4), 0, 1), "not for so long"
    clock.ms += 1
    assert first.write(at(4), 0, 1)
    assert (offset(space), read(space).generation) == (4, 3)
    assert not second.write(at(2), 0, 2)


def test_two_sources_of_a_run_that_read_the_same_have_a_key_each(space: FakeKeys, clock: Clock) -> None:
    one, two = (PositionWriter(space, source("run-1"), clock) for _ in range(2))
    other = PositionWriter(space, source("run-1", "subscribe u"), clock)
    for each in (1, 2):
        assert one.write(at(each), 0, 1) and two.write(at(each + 10), 0, 1) and other.write(at(99), 0, 1)
    assert len(space.entries) == 3
    assert (offset(space, 0), offset(space, 1)) == (2, 12)
    for each in (20, 21):
        # Started again they come in any order.
        assert PositionWriter(space, source("run-2"), clock).write(at(each), 0, 1)
    assert (offset(space, 0), offset(space, 1), len(space.entries)) == (20, 21, 3)


@pytest.mark.parametrize("lost", ["lost before", "lost after"])
def test_an_outcome_that_is_not_known_is_looked_up_by_the_next_write(space: FakeKeys, clock: Clock, lost: str) -> None:
    writer = PositionWriter(space, source("run-1"), clock)
    space.outcomes = [lost]
    with pytest.raises(UnknownOutcome):
        writer.write(at(1), 0, 1)
    assert writer.write(at(2), 0, 1)
    space.outcomes = [lost]
    with pytest.raises(UnknownOutcome):
        writer.write(at(3), 0, 1)
    assert writer.write(at(4), 0, 1)
    assert (offset(space), read(space).generation, len(space.entries)) == (4, 1, 1)


def test_a_position_that_was_forgotten_is_written_again_by_the_newer_run(space: FakeKeys, clock: Clock) -> None:
    first, second = (PositionWriter(space, source(run), clock) for run in ("run-1", "run-2"))
    first.write(at(1), 0, 1)
    second.write(at(2), 0, 1)
    space.txn({}, [DeletePrefix("/sources/q/")])
    assert second.write(at(3), 0, 1)
    assert read(space).generation == 2
    assert not first.write(at(1), 0, 1)
    assert offset(space) == 3


def test_after_a_position_was_forgotten_two_runs_may_have_the_same_generation(space: FakeKeys, clock: Clock) -> None:
    """The one that took the key later is the newer one."""
    first, second = (PositionWriter(space, source(run), clock) for run in ("run-1", "run-2"))
    first.write(at(1), 0, 1)
    space.txn({}, [DeletePrefix("/sources/q/")])
    second.write(at(2), 0, 1)
    assert not first.write(at(1), 0, 1)
    assert (offset(space), read(space).generation) == (2, 1)


def test_what_is_no_position_is_replaced(space: FakeKeys, clock: Clock) -> None:
    space.txn({}, [Put(keys.position_key("q", READS), b'{"offsets":{"t":7}}')])
    assert PositionWriter(space, source("run-1"), clock).write(at(1), 0, 1)
    assert offset(space) == 1


def test_another_writer_comes_between_look_and_write(space: FakeKeys, clock: Clock) -> None:
    first, second = (PositionWriter(space, source(run), clock) for run in ("run-1", "run-2"))
    space.before_txn = [lambda: second.write(at(7), 0, 1)]
    assert first.write(at(1), 0, 1)
    assert read(space).generation == 2, "the one that took it last"
    assert not second.write(at(8), 0, 1)


# --- a driver that does not know its query -------------------------------------------------------------------------------


def first_position(writer: str = "w", start: int = 3) -> FirstPosition:
    return FirstPosition(writer=writer, reads=READS, host="host-1", pid=17, offsets=at(start))


def told(name: str) -> str | None:
    return {
        "sql.streaming.queryId": "q",
        "spark.jobGroup.id": "run-1",
        "spark.job.description": "totals\nid = q\nrunId = run-1\nbatch = 4",
    }.get(name)


def test_the_driver_finds_what_its_task_has_written_and_goes_on(space: FakeKeys, clock: Clock) -> None:
    for query in ("a", "b", "p"):
        other = SourceOfRun(query=query, run="r", name="", reads=READS, host="h", pid=1)
        PositionWriter(space, other, clock).write(at(1), 0, 1)
    assert find_source(space, "w") is None
    write_first(space, first_position(), told)
    found = find_source(space, "w")
    assert found is not None
    query, written = found
    assert (query, written.run, written.name, written.offsets, written.batch_ms) == ("q", "run-1", "totals", at(3), 0)
    driver = PositionWriter(space, source("run-1", writer="w"), clock)
    assert driver.write(at(5), 5, 5)
    assert (offset(space), read(space).generation) == (5, 1)
    # The task is repeated, and the driver was faster.
    write_first(space, first_position(), told)
    assert offset(space) == 5
    assert driver.write(at(6), 5, 5)


def test_a_driver_that_lost_its_key_to_a_run_of_before_is_found_out(space: FakeKeys, clock: Clock) -> None:
    """A task of an older run comes late: that run has the key then, until it is silent and the newer one goes on."""
    newer = PositionWriter(space, source("run-2", writer="n"), clock)
    newer.write(at(5), 0, 1)
    write_first(space, first_position("o"), told)
    assert not newer.write(at(6), 0, 1)
    clock.ms += SILENT_MS
    assert newer.write(at(7), 0, 1)
    assert offset(space) == 7


def test_a_task_never_fails_for_it(space: FakeKeys, caplog: pytest.LogCaptureFixture) -> None:
    space.outcomes = [away()]
    write_first(space, first_position(), told)
    assert isinstance(away(), RequestRejected) and "cannot be written down for `raftlake lag`" in caplog.text
    write_first(space, first_position(), lambda _: None)
    assert not space.entries


def test_the_name_of_a_query() -> None:
    assert name_in("totals of\nid = 7\nid = q\nrunId = 2\nbatch = init", "q") == "totals of\nid = 7"
    assert name_in("id = q\nrunId = 2\nbatch = init", "q") == name_in("", "q") == name_in("somebody's own", "q") == ""
