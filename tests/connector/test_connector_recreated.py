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
