"""A node that lags names a topic that was deleted, and leads it still. It tells of the old topic's offsets under the name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connector.fakelog import FakeQuorum
from connector.fakequery import Query, options_of, view_of
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.planning import plan_batch_query
from raftlake.errors import ConfigError, ErrorCode, RequestRejected

T0 = TopicPartition("t", 0)
SELECTIONS = [{"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0]}'}]


def recreated(old_bounds: tuple[int, int], bounds: tuple[int, int], partitions: int = 1) -> tuple[FakeQuorum, bytes, bytes]:
    """A topic that was created again, with the ids of both. All nodes know the new one."""
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", old_bounds)
    old = quorum.ids["t"]
    quorum.calls.append("recreate")
    quorum.create("t", partitions)
    quorum.set_bounds("t", *[bounds] * partitions)
    return quorum, old, quorum.ids["t"]


def before(quorum: FakeQuorum, method: str, happens: Callable[[], None]) -> None:
    """Before the next call of this method."""
    ask = getattr(quorum, method)

    def behind(*args: object, **arguments: object) -> object:
        setattr(quorum, method, ask)
        happens()
        return ask(*args, **arguments)

    setattr(quorum, method, behind)


def refused(ask: Callable[[], object]) -> None:
    with pytest.raises(RequestRejected, match="deleted and created again") as caught:
        ask()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


# --- the start of a query ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_query_starts_with_the_offsets_of_the_new_topic(selection: dict[str, str], fail: str) -> None:
    quorum, old, new = recreated((50, 100), (0, 200))
    quorum.ids["t"] = old
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail, **selection)
    assert query.planner.initial_offsets() == {T0: 0}
    quorum.ids["t"] = new
    assert query.batch() + query.batch() == ["[0, 200) of t-0"]


@pytest.mark.parametrize("consistency", ["committed", "linearizable"])
def test_a_query_from_latest_starts_at_the_end_of_the_new_topic(consistency: str) -> None:
    quorum, old, new = recreated((0, 100), (0, 20))
    quorum.ids["t"] = old
    query = Query(quorum, consistency=consistency)
    assert query.planner.initial_offsets() == {T0: 20}
    quorum.ids["t"] = new
    assert query.batch() == []
    quorum.set_bounds("t", (0, 21))
    assert query.batch() == ["[20, 21) of t-0"]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_query_does_not_start_while_all_nodes_name_the_old_topic(selection: dict[str, str]) -> None:
    quorum, old, new = recreated((50, 100), (0, 200))
    quorum.ids["t"], quorum.do_all_lag = old, True
    query = Query(quorum, startingOffsets="earliest", **selection)
    refused(query.planner.initial_offsets)
    refused(query.planner.initial_offsets)
    quorum.ids["t"] = new
    assert query.batch() == ["[0, 200) of t-0"]


def test_a_topic_that_is_gone_behind_a_node_that_lags_does_not_exist() -> None:
    quorum, old, _ = recreated((50, 100), (0, 200))
    quorum.ids["t"] = old
    query = Query(quorum, startingOffsets="earliest")
    before(quorum, "describe_topic", lambda: quorum.vanished.add("t"))
    with pytest.raises(ConfigError, match="Topic 't' does not exist"):
        query.planner.initial_offsets()


def test_a_start_whose_offsets_nobody_tells_is_refused() -> None:
    """Behind the look every node that answers names the old topic."""
    quorum, old, _ = recreated((50, 100), (0, 200))
    query = Query(quorum, startingOffsets="earliest")

    def lag() -> None:
        quorum.ids["t"], quorum.do_all_lag = old, True

    before(quorum, "list_offsets", lag)
    refused(query.planner.initial_offsets)


@pytest.mark.parametrize("hears_before", ["list_offsets", "topics", "none"])
def test_a_batch_query_that_goes_on_reads_offsets_of_one_topic(hears_before: str) -> None:
    quorum, old, new = recreated((50, 100), (0, 200))
    quorum.ids["t"] = old
    if hears_before != "none":
        before(quorum, hears_before, lambda: quorum.ids.update(t=new))
    options = options_of(failOnDataLoss="false").for_batch()
    tasks = plan_batch_query(view_of(quorum, options), options)
    assert [(str(task.range), task.topic_id) for task in tasks] == [("[0, 200) of t-0", new)]


def test_partitions_and_replicas_are_those_of_the_new_topic() -> None:
    quorum, old, _ = recreated((0, 5), (0, 7), partitions=3)
    quorum.ids["t"] = old
    view = view_of(quorum, options_of())
    assert view.look() == tuple(TopicPartition("t", number) for number in range(3))
    assert view.replicas(TopicPartition("t", 2)) == (1, 2, 3)
    quorum.do_all_lag = True
    assert view.look() == () and view.topic_ids() == {} and view.replicas(T0) == ()


def test_a_topic_of_which_nothing_is_told_is_not_known_to_be_gone() -> None:
    quorum, old, _ = recreated((0, 5), (0, 7))
    view = view_of(quorum, options_of())
    view.look()
    for quorum.do_all_lag in (False, True):
        quorum.ids["t"] = old
        assert view.present([T0]) == {T0}
    quorum.vanished.add("t")
    assert view.present([T0]) == set()


# --- a running query ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("consistency", ["committed", "linearizable"])
@pytest.mark.parametrize("old_end", [0, 299, 300, 301, 5_000])
def test_ends_of_the_old_topic_are_not_planned_for_the_new_one(old_end: int, consistency: str, fail: str) -> None:
    quorum, old, new = recreated((0, old_end), (0, 300))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail, consistency=consistency)
    assert query.batch() == ["[0, 300) of t-0"]
    for all_lag in (False, True, True):
        quorum.ids["t"], quorum.do_all_lag = old, all_lag
        assert query.batch() == [] and query.end == {T0: 300}
    quorum.set_bounds("t", (0, 301))
    assert query.batch() == [] and query.end == {T0: 300}, "all nodes lag still"
    quorum.do_all_lag = False
    start = query.end or {}
    assert query.batch() == ["[300, 301) of t-0"], "the other nodes know the new topic"
    quorum.ids["t"] = new
    assert [task.topic_id for task in query.planner.plan_tasks(start, query.end or {})] == [new]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_run_that_begins_while_all_nodes_lag_goes_on_where_it_was(fail: str) -> None:
    quorum, old, new = recreated((0, 5_000), (0, 300))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail)
    query.batch()
    query.restart()
    quorum.ids["t"], quorum.do_all_lag = old, True
    assert query.batch() == [] and query.end == {T0: 300}
    quorum.ids["t"] = new
    quorum.set_bounds("t", (0, 310))
    assert query.batch() == ["[300, 310) of t-0"]


def test_a_topic_that_is_deleted_while_nodes_lag_is_gone_when_no_node_names_one() -> None:
    quorum, old, _ = recreated((0, 5_000), (0, 300))
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.ids["t"] = old
    del quorum.keys.topics["t"]
    assert query.batch() == [], "a node names a topic: it may be the one"
    quorum.vanished.add("t")
    del quorum.logs["t"]
    with pytest.raises(DataLoss, match="t-0 are gone"):
        query.batch()


@pytest.mark.parametrize("end", [0, 1, 299, 300, 301])
def test_a_topic_created_again_behind_the_look_is_found_by_the_next_one(end: int) -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 300))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()

    def recreate() -> None:
        quorum.recreate("t")
        quorum.set_bounds("t", (0, end))

    before(quorum, "list_offsets", recreate)
    quorum.calls.append("later")
    start = query.end or {}
    # Nodes name the new topic: the end of the old one is not known, and it is not said to be gone.
    query.now_ms += 1_000
    query.planner.plan_end(start, query.planner.default_limit())
    found = query.batch() + query.batch() + query.batch()
    assert found == [f"[0, {end}) of t-0"][: end > 0]


def test_a_topic_whose_beginning_nobody_tells_yet_begins_anew_with_a_later_look() -> None:
    """Else the query would go on amid it, as it grows."""
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 300), (0, 300))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    old = quorum.ids["t"]
    quorum.recreate("t")
    new = quorum.ids["t"]
    quorum.set_bounds("t", (0, 900), (0, 100))

    def lag() -> None:
        quorum.ids["t"], quorum.do_all_lag = old, True

    before(quorum, "list_offsets", lambda: before(quorum, "list_offsets", lag))
    for _ in range(2):
        assert query.batch() == [] and query.end == {T0: 300, TopicPartition("t", 1): 300}
    quorum.ids["t"] = new
    assert query.batch() == []
    assert query.batch() == ["[0, 900) of t-0", "[0, 100) of t-1"]


def test_an_end_that_cannot_be_proven_is_no_loss() -> None:
    """The topic is deleted between the two questions."""
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 100))
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.logs["t"][0].stale_end = 60
    before(quorum, "read_offset", lambda: quorum.vanished.add("t"))
    assert query.batch() == [] and query.end == {T0: 100}
    with pytest.raises(DataLoss, match="t-0 are gone"):
        query.batch()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_added_partition_whose_start_nobody_tells_is_not_passed_over(fail: str) -> None:
    quorum, old, new = recreated((0, 5), (0, 20))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail)
    quorum.ids["t"], quorum.do_all_lag = old, True
    refused(lambda: query.planner.plan_tasks({}, {T0: 20}))
    quorum.ids["t"] = new
    query.restart()
    assert query.ranges({}, {T0: 20}) == ["[0, 20) of t-0"]


# --- Trigger.AvailableNow ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 1, 4_999, 5_000, 5_001])
def test_what_is_available_is_that_of_the_topic_that_came_between_the_target_and_the_start(held: int) -> None:
    quorum = FakeQuorum(t=1)
    quorum.set_bounds("t", (0, 5_000))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.start_available_now()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, held))
    assert query.batch() == [f"[0, {held}) of t-0"][:held]
    assert query.batch() == []


def test_a_topic_that_came_between_the_target_and_the_start_is_told_of() -> None:
    quorum = FakeQuorum(t=1)
    query = Query(quorum, startingOffsets="earliest")
    query.start_available_now()
    quorum.recreate("t")
    with pytest.raises(DataLoss, match="Topic t was deleted and created again"):
        query.batch()


def test_available_now_has_the_ends_of_the_new_topic_behind_a_node_that_lags() -> None:
    quorum, old, new = recreated((0, 5_000), (0, 10))
    quorum.ids["t"], quorum.do_all_lag = old, True
    query = Query(quorum, startingOffsets="earliest")
    refused(query.start_available_now)
    quorum.do_all_lag = False
    query.start_available_now()
    quorum.ids["t"] = new
    assert query.batch() == ["[0, 10) of t-0"]
    assert query.batch() == []


def test_available_now_reads_on_with_its_target_while_nodes_lag() -> None:
    quorum, old, new = recreated((0, 5_000), (0, 10))
    query = Query(quorum, startingOffsets="earliest")
    query.end = {T0: 4}
    query.start_available_now()
    quorum.ids["t"], quorum.do_all_lag = old, True
    start = query.end
    query.now_ms += 1_000
    end = query.planner.plan_end(start, query.planner.default_limit())
    assert end == {T0: 10}, "Spark takes an end that is the start for the end of the query"
    (task,) = query.planner.plan_tasks(start, end)
    assert task.topic_id == new


@pytest.mark.parametrize("held", [1, 10])
def test_available_now_reads_a_new_topic_at_whose_beginning_it_stands(held: int) -> None:
    quorum = FakeQuorum(t=1)
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.end = {T0: 0}
    query.start_available_now()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, held))
    assert query.batch() == [f"[0, {held}) of t-0"]
