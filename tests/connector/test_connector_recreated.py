"""Topics that are created again under a query: each record of the new one is read, once, and none of it for the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import clientkit
from connector.fakelog import FakeQuorum
from connector.fakequery import Query, options_of, view_of
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.options import Quorum
from pyspark_raftlake.planning import RangePartition, plan_batch_query
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.reader import FetchClient, read_range
from raftlake.client import AsyncClient, Client
from raftlake.wire.batches import Record, build_batch


def fill(quorum: FakeQuorum, word: str, *counts: int) -> None:
    for log, count in zip(quorum.logs["t"], counts, strict=True):
        for number in range(count):
            log.append(build_batch([Record(0, 1, None, f"{word}{number}".encode())], timestamp_ms=0))


def values(client: FetchClient, tasks: list[RangePartition]) -> Iterator[bytes]:
    for task in tasks:
        for batch in read_range(client, task):
            yield from batch.column("value").to_pylist()


def run_batch(query: Query) -> list[RangePartition]:
    start = dict(query.planner.initial_offsets()) if query.end is None else query.end
    query.batch()
    return query.planner.plan_tasks(start, query.end or {})


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_a_batch_planned_before_reads_nothing_of_the_new_topic_and_the_next_ones_all_of_it(partitions: int) -> None:
    quorum = FakeQuorum(t=2)
    fill(quorum, "old", 3, 3)
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    tasks = run_batch(query)
    quorum.calls.append("recreate")
    quorum.create("t", partitions)
    fill(quorum, "new", *[5] * partitions)
    assert list(values(quorum, tasks)) == []
    found = [value for _ in range(3) for value in values(quorum, run_batch(query))]
    assert sorted(found) == sorted(f"new{n}".encode() for n in range(5) for _ in range(partitions))


def test_a_topic_created_again_between_the_end_of_a_batch_and_its_tasks_is_not_read_for_the_old_one() -> None:
    quorum = FakeQuorum(t=1)
    fill(quorum, "old", 3)
    query = Query(quorum, startingOffsets="earliest")
    start = dict(query.planner.initial_offsets())
    end = query.planner.plan_end(start, query.planner.default_limit())
    quorum.recreate("t")
    fill(quorum, "new", 3)
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 3\) of t-0 .*was deleted and created again"):
        list(values(quorum, query.planner.plan_tasks(start, end)))


def test_a_replayed_batch_is_of_the_topic_that_is_there() -> None:
    """The checkpoint holds no ids."""
    quorum = FakeQuorum(t=1)
    fill(quorum, "a", 3)
    query = Query(quorum, startingOffsets="earliest")
    start = dict(query.planner.initial_offsets())
    query.batch()
    query.restart()
    assert list(values(quorum, query.planner.plan_tasks(start, query.end or {}))) == [b"a0", b"a1", b"a2"]
    query.restart()
    del quorum.logs["t"]
    (task,) = query.planner.plan_tasks(start, query.end or {})
    assert task.topic_id is None, "what is gone is not asked for by its id: its executor says that it is gone"


def test_a_batch_query_reads_the_topic_that_it_was_planned_for() -> None:
    quorum = FakeQuorum(t=1)
    fill(quorum, "old", 3)
    options = options_of().for_batch()
    tasks = plan_batch_query(view_of(quorum, options), options)
    assert list(values(quorum, tasks)) == [b"old0", b"old1", b"old2"]
    quorum.recreate("t")
    fill(quorum, "new", 3)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        list(values(quorum, tasks))


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 2)])
def test_a_worker_that_knows_the_old_topic_reads_the_new_one(before: int, after: int, fail: bool) -> None:
    """Spark keeps its Python workers, and their client what it has learned."""

    def task(topic: clientkit.FakeTopic, partition: int) -> RangePartition:
        return RangePartition(
            range=OffsetRange(topic="t", partition=partition, start=0, end=1),
            topic_id=topic.topic_id,
            quorum=Quorum(bootstrap_servers="a:1", client_id="c"),
            node_id=None,
            replicas=(1,),
            include_headers=False,
            fail_on_data_loss=fail,
        )

    async def test() -> None:
        async with clientkit.FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as other:
            worker = Client(quorum.bootstrap)
            old = quorum.add_topic("t", partitions=before)
            await other.append("t", "old", partition=before - 1)
            assert await asyncio.to_thread(lambda: list(values(worker, [task(old, before - 1)]))) == [b"old"]
            new = quorum.add_topic("t", partitions=after)
            async with AsyncClient(quorum.bootstrap) as another:
                await another.append("t", "new", partition=after - 1)
            assert await asyncio.to_thread(lambda: list(values(worker, [task(new, after - 1)]))) == [b"new"]
            await asyncio.to_thread(worker.close)

    clientkit.run(test())


# --- planned by numbers alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [99, 10, 0])
def test_a_topic_created_again_while_a_batch_waits_for_more_is_read_from_its_beginning(end: int) -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 100))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false", minOffsetsPerTrigger="50", maxTriggerDelay="10m")
    assert query.batch() == ["[0, 100) of t-0"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, end))
    assert query.batch() == []
    quorum.set_bounds("t", (0, 160))
    assert query.batch() == ["[0, 160) of t-0"]


def test_an_end_at_the_start_still_waits_for_more() -> None:
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 100), (0, 100))
    query = Query(quorum, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="10m")
    query.batch()
    quorum.set_bounds("t", (0, 100), (0, 149))
    assert query.batch() == []
    quorum.set_bounds("t", (0, 100), (0, 150))
    assert query.batch() == ["[100, 150) of t-1"]


def test_a_node_that_lags_and_names_the_old_topic_costs_no_rows_twice() -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 5))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    old = quorum.ids["t"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 7))
    assert query.batch() + query.batch() == ["[0, 7) of t-0"]
    new, quorum.ids["t"] = quorum.ids["t"], old
    assert query.batch() == []
    assert query.planner.plan_tasks({}, query.end or {})[0].topic_id == new, "the old one would be read as lost"
    quorum.ids["t"] = new
    assert query.batch() + query.batch() == []
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 3))
    assert query.batch() + query.batch() == ["[0, 3) of t-0"], "a third topic is another one again"


@pytest.mark.parametrize(("end", "ranges"), [(0, []), (10, ["[0, 10) of t-0"]), (70, ["[0, 50) of t-0", "[50, 70) of t-0"])])
def test_what_is_available_now_of_a_topic_created_again_is_what_it_holds(end: int, ranges: list[str]) -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 100))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="50")
    query.start_available_now()
    assert query.batch() == ["[0, 50) of t-0"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, end))
    assert query.batch() == []
    assert [range_ for _ in range(3) for range_ in query.batch()] == ranges


@pytest.mark.parametrize("end", [99, 100, 101])
def test_available_now_notices_a_log_that_begins_anew_while_the_query_is_down(end: int) -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 100))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    quorum.set_bounds("t", (0, end))
    query.start_available_now()
    found = query.batch() + query.batch()
    assert found == {99: ["[0, 99) of t-0"], 100: [], 101: ["[100, 101) of t-0"]}[end]


def test_a_replayed_batch_of_a_topic_that_a_lagging_node_does_not_list_is_read() -> None:
    quorum = FakeQuorum(t=1)
    fill(quorum, "a", 3)
    query = Query(quorum, subscribePattern="t", startingOffsets="earliest")
    start = dict(query.planner.initial_offsets())
    query.batch()
    query.restart()
    quorum.unlisted.add("t")
    assert list(values(quorum, query.planner.plan_tasks(start, query.end or {}))) == [b"a0", b"a1", b"a2"]


def test_a_task_of_a_topic_that_was_gone_at_the_plan_reads_nothing_of_one_that_came_since() -> None:
    quorum = FakeQuorum(t=1)
    fill(quorum, "old", 3)
    for fail in ("true", "false"):
        query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail)
        start = dict(query.planner.initial_offsets())
        query.batch()
        query.restart()
        logs, quorum.logs = quorum.logs, {}
        tasks = query.planner.plan_tasks(start, query.end or {})
        quorum.logs = logs
        if fail == "true":
            with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 3\) of t-0 \(.*was gone at the plan"):
                list(values(quorum, tasks))
        else:
            assert list(values(quorum, tasks)) == []
