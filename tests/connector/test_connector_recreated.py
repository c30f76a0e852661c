"""Topics that are created again under a query: each record of the new one is read, once, and none of it for the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

import clientkit
from connector.fakelog import FakeQuorum
from connector.fakequery import Query, options_of, view_of
from pyspark_raftlake import DefaultSource, source
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.options import Quorum
from pyspark_raftlake.planning import RangePartition, plan_batch_query
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.reader import FetchClient, read_range
from pyspark_raftlake.schema import source_schema
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


# --- nodes that lag ----------------------------------------------------------------------------------------------------------


def recreated(**options: str) -> tuple[FakeQuorum, Query, bytes, bytes]:
    """A query whose topic was created again before it began, with the ids of both."""
    quorum = FakeQuorum(t=1)
    old = quorum.ids["t"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 7))
    return quorum, Query(quorum, startingOffsets="earliest", failOnDataLoss="false", **options), old, quorum.ids["t"]


@pytest.mark.parametrize("selection", [{"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0]}'}])
def test_a_node_that_lags_and_names_the_old_topic_behind_the_new_one_is_not_believed(selection: dict[str, str]) -> None:
    quorum, query, old, new = recreated(**selection)
    assert query.batch() == ["[0, 7) of t-0"]
    quorum.ids["t"] = old
    assert query.batch() == []
    quorum.ids["t"] = new
    quorum.set_bounds("t", (0, 9))
    start = query.end or {}
    assert query.batch() == ["[7, 9) of t-0"]
    assert [task.topic_id for task in query.planner.plan_tasks(start, query.end or {})] == [new]


@pytest.mark.parametrize("selection", [{"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0]}'}])
def test_a_run_that_begins_at_a_node_that_lags_reads_no_rows_twice(selection: dict[str, str]) -> None:
    quorum, query, old, new = recreated(**selection)
    assert query.batch() == ["[0, 7) of t-0"]
    query.restart()
    quorum.ids["t"] = old
    assert query.batch() == []
    quorum.ids["t"] = new
    assert query.batch() + query.batch() == []


def test_a_replayed_batch_at_a_node_that_lags_is_of_the_new_topic() -> None:
    quorum, query, old, new = recreated()
    query.batch()
    query.restart()
    quorum.ids["t"] = old
    assert [task.topic_id for task in query.planner.plan_tasks({}, query.end or {})] == [new]


def test_rows_of_the_new_topic_are_read_after_a_node_has_named_the_old_one() -> None:
    quorum = FakeQuorum(t=1)
    old = quorum.ids["t"]
    quorum.recreate("t")
    fill(quorum, "a", 1)
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    found = list(values(quorum, run_batch(query)))
    new, quorum.ids["t"] = quorum.ids["t"], old
    run_batch(query)
    quorum.ids["t"] = new
    for word in ("b", "c"):
        fill(quorum, word, 1)
        found += values(quorum, run_batch(query))
    assert found == [b"a0", b"b0", b"c0"]


def test_the_ids_of_topics_are_not_asked_for_again_with_every_batch() -> None:
    quorum = FakeQuorum(t=1, u=1)
    query = Query(quorum, subscribePattern="t", startingOffsets="earliest")
    query.batch()
    assert len(quorum.keys.topics_asked) == 1, "what the query does not read is not asked for either"
    for end in (1, 1, 2):
        quorum.set_bounds("t", (0, end))
        query.batch()
    assert len(quorum.keys.topics_asked) == 1


def test_a_topic_that_is_created_again_between_the_start_and_the_first_look_begins_anew() -> None:
    """The offsets of the start are those of the topic that was there before they were asked for."""
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (50, 100))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    ask = quorum.list_offsets

    def recreate_behind(topic: str, timestamps: dict[int, int], **arguments: object) -> dict[int, int]:
        found = ask(topic, timestamps)
        quorum.recreate("t")
        quorum.set_bounds("t", (0, 200))
        quorum.list_offsets = ask  # type: ignore[method-assign]
        return found

    quorum.list_offsets = recreate_behind  # type: ignore[method-assign, assignment]
    assert query.planner.initial_offsets() == {("t", 0): 50}
    assert query.batch() + query.batch() == ["[0, 200) of t-0"]


@pytest.mark.parametrize("end", [0, 99, 100, 101])
def test_a_topic_created_again_before_the_first_batch_from_latest_is_read_from_its_beginning(end: int) -> None:
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 100), (0, 100))
    query = Query(quorum, startingOffsets="latest", failOnDataLoss="false")
    query.planner.initial_offsets()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, end), (0, 1))
    assert query.batch() == []
    quorum.set_bounds("t", (0, 150), (0, 1))
    assert query.batch() + query.batch() == ["[0, 150) of t-0", "[0, 1) of t-1"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_empty_topic_created_again_before_the_first_batch_from_latest_is_read_also_where_that_is_replayed(
    partitions: int,
) -> None:
    """The driver died before the first batch was committed. The new topic's records of that batch were passed over."""
    quorum = FakeQuorum(t=partitions)
    query = Query(quorum, startingOffsets="latest", failOnDataLoss="false")
    query.planner.initial_offsets()
    quorum.recreate("t")
    quorum.set_bounds("t", *[(0, 50)] * partitions)
    query.batch()
    planned = query.end
    assert planned is not None
    quorum.set_bounds("t", *[(0, 80)] * partitions)
    query.restart()
    start = dict(query.planner.initial_offsets())
    found = query.ranges(start, planned)
    query.end = planned
    assert found + query.batch() == [f"[0, 80) of t-{number}" for number in range(partitions)]


def test_a_log_that_lost_its_end_before_the_first_batch_from_latest_is_read_from_its_beginning() -> None:
    """The other partition still marks the place."""
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 100), (0, 100))
    query = Query(quorum, startingOffsets="latest", failOnDataLoss="false")
    query.planner.initial_offsets()
    quorum.set_bounds("t", (0, 99), (0, 101))
    assert query.batch() == []
    assert query.batch() == ["[0, 99) of t-0", "[100, 101) of t-1"]


@pytest.mark.parametrize("named", ["old", "new"])
def test_a_batch_query_that_goes_on_reads_the_topic_that_has_the_name_now(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    quorum = FakeQuorum(t=1)
    fill(quorum, "old", 1)
    old = quorum.ids["t"]
    quorum.recreate("t")
    fill(quorum, "new", 2)
    new = quorum.ids["t"]
    if named == "old":
        quorum.ids["t"] = old
    monkeypatch.setattr(source, "client_of", lambda _: quorum)
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    schema = source_schema(include_headers=False)
    told = {fail: DefaultSource({**options, "failOnDataLoss": fail}).reader(schema).partitions() for fail in ("false", "true")}
    assert [task.topic_id for task in cast("list[RangePartition]", told["false"])] == [new]
    assert [task.topic_id for task in cast("list[RangePartition]", told["true"])] == [quorum.ids["t"]], "or tells of the loss"


def test_loading_asks_for_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """No query runs yet, and the client of keys takes its time to import."""
    quorum = FakeQuorum(t=1)
    monkeypatch.setattr(source, "client_of", lambda _: quorum)
    DefaultSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}).schema()
    assert quorum.keys.topics_asked == []


def test_a_batch_query_does_not_mix_the_offsets_of_two_topics() -> None:
    """Created again between the looks for its start and its end."""
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (5, 10))
    old = quorum.ids["t"]
    options = options_of(failOnDataLoss="false").for_batch()
    ask = quorum.list_offsets

    def recreate_behind(topic: str, timestamps: dict[int, int], **arguments: object) -> dict[int, int]:
        found = ask(topic, timestamps)
        quorum.recreate("t")
        quorum.set_bounds("t", (0, 10))
        quorum.list_offsets = ask  # type: ignore[method-assign]
        return found

    quorum.list_offsets = recreate_behind  # type: ignore[method-assign, assignment]
    tasks = plan_batch_query(view_of(quorum, options), options)
    assert [task.topic_id for task in tasks] == [old], "records 0 to 4 of the new one would be missing silently"
