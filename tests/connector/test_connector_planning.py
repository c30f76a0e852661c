"""Planning against a quorum in memory: positions, topics, admission control, tasks. Covers log_view and positions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

from connector.fakelog import FakeQuorum
from connector.fakequery import ALL, Query, options_of, view_of
from pyspark_raftlake.errors import DataLoss, UnsupportedLimit
from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.planning import (
    LOOK_AGE_MS_MAX,
    SPREAD_OFFSETS_MIN,
    RangePartition,
    check_before_start,
    plan_batch_query,
)
from pyspark_raftlake.positions import resolve_end, resolve_start
from raftlake.client.types import IsolationLevel
from raftlake.errors import ConfigError

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def quorum() -> FakeQuorum:
    made = FakeQuorum(t=2, other=1)
    made.set_bounds("t", (0, 100), (10, 40))
    return made


# --- positions ---------------------------------------------------------------------------------------------------------------


def test_earliest_and_latest(quorum: FakeQuorum) -> None:
    assert Query(quorum, startingOffsets="earliest").planner.initial_offsets() == {T0: 0, T1: 10}
    assert Query(quorum).planner.initial_offsets() == {T0: 100, T1: 40}


def test_offsets_per_partition_may_be_mixed(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets='{"t":{"0":7,"1":-2}}')
    assert query.planner.initial_offsets() == {T0: 7, T1: 10}


def test_every_partition_must_be_named(quorum: FakeQuorum) -> None:
    with pytest.raises(ConfigError, match=r"you must specify all TopicPartitions.*Specified: t-0\. Assigned: t-0, t-1"):
        Query(quorum, startingOffsets='{"t":{"0":7}}').planner.initial_offsets()


def test_every_partition_must_be_named_with_its_timestamp(quorum: FakeQuorum) -> None:
    with pytest.raises(ConfigError, match=r"If startingOffsetsByTimestamp is given, you must specify all TopicP.*") as caught:
        Query(quorum, startingOffsetsByTimestamp='{"t":{"0":7}}').planner.initial_offsets()
    assert "-1 for latest" not in str(caught.value), "it is no timestamp"


def test_no_partition_may_be_unknown(quorum: FakeQuorum) -> None:
    options = options_of(startingOffsets='{"t":{"0":7,"1":20,"2":0}}')
    with pytest.raises(ConfigError, match=r"'startingOffsets' names partitions that do not exist: t-2 .*t has 2"):
        check_before_start(view_of(quorum, options), options)


@pytest.mark.parametrize(("offset", "moved_to"), [(5, 10), (41, 40)])
def test_starting_offsets_outside_of_the_log(quorum: FakeQuorum, offset: int, moved_to: int) -> None:
    named = f'{{"t":{{"0":0,"1":{offset}}}}}'
    with pytest.raises(DataLoss, match=rf"startingOffsets for t-1 is {offset}, but the log holds \[10, 40\).*failOnDataLoss"):
        Query(quorum, startingOffsets=named).planner.initial_offsets()
    query = Query(quorum, startingOffsets=named, failOnDataLoss="false")
    assert query.planner.initial_offsets() == {T0: 0, T1: moved_to}


def test_timestamps(quorum: FakeQuorum) -> None:
    quorum.logs["t"][0].times = {0: 1000, 50: 2000}
    quorum.logs["t"][1].times = {10: 1500}
    assert Query(quorum, startingTimestamp="1001").planner.initial_offsets() == {T0: 50, T1: 10}
    per_partition = '{"t":{"0":1000,"1":1500}}'
    assert Query(quorum, startingOffsetsByTimestamp=per_partition).planner.initial_offsets() == {T0: 0, T1: 10}
    with pytest.raises(ConfigError, match=r"No offset matched from request of topic-partition t-1 and timestamp 1600\."):
        Query(quorum, startingTimestamp="1600").planner.initial_offsets()
    late = Query(quorum, startingTimestamp="1600", startingOffsetsByTimestampStrategy="latest")
    assert late.planner.initial_offsets() == {T0: 50, T1: 40}


def test_the_ends_of_a_batch_query(quorum: FakeQuorum) -> None:
    quorum.logs["t"][0].times = {0: 1000, 50: 2000}
    by_time = options_of(endingTimestamp="1500").for_batch()
    assert resolve_end(view_of(quorum, by_time), by_time.ending, by_time) == {T0: 50, T1: 40}
    by_offset = options_of(endingOffsets='{"t":{"0":-1,"1":20}}').for_batch()
    assert resolve_end(view_of(quorum, by_offset), by_offset.ending, by_offset) == {T0: 100, T1: 20}
    beyond = options_of(endingOffsets='{"t":{"0":101,"1":20}}').for_batch()
    with pytest.raises(ConfigError, match="endingOffsets for t-0 is 101, but the log ends at 100"):
        resolve_end(view_of(quorum, beyond), beyond.ending, beyond)
    tolerant = options_of(endingOffsets='{"t":{"0":101,"1":20}}', failOnDataLoss="false").for_batch()
    assert resolve_end(view_of(quorum, tolerant), tolerant.ending, tolerant) == {T0: 100, T1: 20}


def test_a_start_is_late_bound_where_it_is_the_end(quorum: FakeQuorum) -> None:
    options = options_of(startingOffsets='{"t":{"0":-1,"1":-2}}').for_stream()
    assert resolve_start(view_of(quorum, options), options.starting, options).late_bound == {T0}


# --- topics ------------------------------------------------------------------------------------------------------------------


def test_a_missing_topic_is_named_with_those_that_exist(quorum: FakeQuorum) -> None:
    options = options_of(subscribe="t,nope")
    with pytest.raises(ConfigError, match="Topic 'nope' does not exist; existing topics: other, t"):
        check_before_start(view_of(quorum, options), options)


def test_a_topic_that_one_node_does_not_list_yet_is_asked_for_by_name(quorum: FakeQuorum) -> None:
    quorum.unlisted.add("t")
    assert Query(quorum).planner.initial_offsets() == {T0: 100, T1: 40}
    assert "describe t" in quorum.calls


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": "earliest"}, {"startingOffsets": '{"t":{"0":1,"1":20}}'}, {"startingTimestamp": "5"}]
)
def test_a_topic_that_vanishes_before_its_offsets_are_known_does_not_exist(quorum: FakeQuorum, options: dict[str, str]) -> None:
    quorum.vanished.add("t")
    with pytest.raises(ConfigError, match="Topic 't' does not exist; existing topics: other"):
        Query(quorum, **options).planner.initial_offsets()


def test_assigned_partitions_must_exist(quorum: FakeQuorum) -> None:
    options = options_of(assign='{"t":[0,7]}')
    with pytest.raises(ConfigError, match="'assign' names partitions that do not exist: t-7"):
        check_before_start(view_of(quorum, options), options)


def test_only_assigned_partitions_are_read(quorum: FakeQuorum) -> None:
    assert Query(quorum, assign='{"t":[1]}', startingOffsets="earliest").batch() == ["[10, 40) of t-1"]


def test_a_pattern_finds_new_topics(quorum: FakeQuorum) -> None:
    query = Query(quorum, subscribePattern="o.*", startingOffsets="earliest")
    quorum.set_bounds("other", (0, 3))
    assert query.batch() == ["[0, 3) of other-0"]
    quorum.create("orders", 1)
    quorum.set_bounds("orders", (0, 5))
    assert query.batch() == ["[0, 5) of orders-0"]


def test_a_pattern_may_match_nothing_yet(quorum: FakeQuorum) -> None:
    options = options_of(subscribePattern="x.*")
    check_before_start(view_of(quorum, options), options)
    query = Query(quorum, subscribePattern="x.*", startingOffsets="latest")
    assert query.batch() == []
    quorum.create("x1", 1)
    quorum.set_bounds("x1", (0, 2))
    assert query.batch() == ["[0, 2) of x1-0"]


# --- batches -----------------------------------------------------------------------------------------------------------------


def test_batches_follow_one_another(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    assert query.batch() == ["[0, 100) of t-0", "[10, 40) of t-1"]
    assert query.batch() == []
    quorum.set_bounds("t", (0, 100), (10, 45))
    assert query.batch() == ["[40, 45) of t-1"]
    assert query.planner.seen_latest() == {T0: 100, T1: 45}


def test_nothing_new_is_exactly_the_start(quorum: FakeQuorum) -> None:
    """Spark compares the texts: another order would look like news for ever."""
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    end = query.end
    query.batch()
    assert list((query.end or {}).items()) == list((end or {}).items())


def test_a_query_without_news_asks_for_the_ends_alone(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    end = query.end
    assert end is not None
    quorum.calls.clear()
    assert query.planner.plan_end(end, ALL) is end
    assert quorum.calls == ["list t"], "Spark asks a hundred times a second"
    query.now_ms += LOOK_AGE_MS_MAX
    quorum.calls.clear()
    assert query.planner.plan_end(end, ALL) == end
    assert quorum.calls == ["topics", "list t"], "now and then for topics too"
    quorum.set_bounds("t", (0, 101), (10, 40))
    quorum.calls.clear()
    assert query.planner.plan_end(end, ALL) == {T0: 101, T1: 40}
    assert quorum.calls == ["list t", "topics", "list t"], "and before every batch"


def test_what_comes_and_goes_without_news_is_found_within_a_second(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.grow("t", 3)
    quorum.set_bounds("t", (0, 100), (10, 40), (0, 7))
    assert query.batch() == ["[0, 7) of t-2"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 100), (10, 40), (0, 7))
    with pytest.raises(DataLoss, match="Topic t was deleted and created again"):
        query.batch()


def test_only_the_topics_of_the_query_are_asked_for(quorum: FakeQuorum) -> None:
    for options in ({"subscribe": "t"}, {"assign": '{"t":[0]}'}):
        view = view_of(quorum, options_of(**options))
        view.look()
        assert list(view.topic_ids()) == ["t"]


def test_max_offsets_per_trigger(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", maxOffsetsPerTrigger="13")
    assert query.planner.default_limit() == ReadMaxRows(13)
    assert query.batch() == ["[0, 10) of t-0", "[10, 13) of t-1"]
    assert query.batch() == ["[10, 20) of t-0", "[13, 16) of t-1"]
    assert query.batch(ALL) == ["[20, 100) of t-0", "[16, 40) of t-1"], "Trigger.Once takes all"


def test_new_partitions_take_part_in_the_limit(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.batch(ALL)
    quorum.grow("t", 3)
    quorum.set_bounds("t", (0, 100), (10, 40), (0, 1000))
    assert query.batch() == ["[0, 10) of t-2"]


def test_min_offsets_per_trigger(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert query.planner.default_limit() == ReadMinRows(5)
    query.batch()
    quorum.set_bounds("t", (0, 104), (10, 40))
    assert query.batch() == [], "four are too few"
    query.now_ms = 10_000
    assert query.batch() == ["[100, 104) of t-0"], "but not for ever"
    quorum.set_bounds("t", (0, 109), (10, 40))
    assert query.batch() == ["[104, 109) of t-0"]
    quorum.set_bounds("t", (0, 110), (10, 40))
    assert query.batch(ALL) == ["[109, 110) of t-0"]


def test_both_limits(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="13")
    assert query.batch() == ["[0, 10) of t-0", "[10, 13) of t-1"]


def test_a_limit_of_bytes_is_refused(quorum: FakeQuorum) -> None:
    with pytest.raises(UnsupportedLimit, match="read limit"):
        Query(quorum, startingOffsets="earliest").batch(ReadMaxBytes(5))


def test_available_now_stops_at_what_was_there(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    query.start_available_now()
    quorum.set_bounds("t", (0, 500), (10, 40))
    quorum.create("other2", 1)
    seen = [query.batch(), query.batch(), query.batch()]
    assert seen == [["[0, 76) of t-0", "[10, 33) of t-1"], ["[76, 100) of t-0", "[33, 40) of t-1"], []]
    query.start_available_now()
    assert query.batch() == ["[100, 200) of t-0"]


def test_available_now_ignores_the_minimum(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    query.start_available_now()
    assert query.batch() == ["[0, 100) of t-0", "[10, 40) of t-1"]


def test_linearizable_plans_ask_for_proof(quorum: FakeQuorum) -> None:
    quorum.logs["t"][0].stale_end = 90
    assert Query(quorum, startingOffsets="earliest").batch() == ["[0, 90) of t-0", "[10, 40) of t-1"]
    query = Query(quorum, startingOffsets="earliest", consistency="linearizable")
    assert query.batch() == ["[0, 100) of t-0", "[10, 40) of t-1"]
    assert "read_offset t" in quorum.calls


# --- tasks -------------------------------------------------------------------------------------------------------------------


def test_large_ranges_are_spread_over_the_nodes_and_small_ones_are_read_from_the_leader() -> None:
    quorum = FakeQuorum(t=3)
    quorum.set_bounds("t", (0, SPREAD_OFFSETS_MIN), (0, SPREAD_OFFSETS_MIN - 1), (0, 9 * SPREAD_OFFSETS_MIN))
    options = options_of(minPartitions="8", startingOffsets="earliest").for_batch()
    tasks = plan_batch_query(view_of(quorum, options), options)
    assert [task.node_id for task in tasks] == [1, None, 3, 1, 2, 3, 1, 2]
    assert sum(task.range.size for task in tasks) == 11 * SPREAD_OFFSETS_MIN - 1


def test_a_batch_query_without_data_has_no_tasks() -> None:
    options = options_of().for_batch()
    assert plan_batch_query(view_of(FakeQuorum(t=2), options), options) == []


def test_a_partition_that_comes_between_both_looks_has_nothing_yet(quorum: FakeQuorum, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum.told["t"] = 1
    ask = quorum.list_offsets

    def grow(*what: Any, **how: Any) -> Any:
        quorum.told.clear()
        return ask(*what, **how)

    monkeypatch.setattr(quorum, "list_offsets", grow)
    batch = options_of().for_batch()
    assert [str(task.range) for task in plan_batch_query(view_of(quorum, batch), batch)] == ["[0, 100) of t-0"]
    assert not quorum.told


def test_a_batch_query_whose_end_lies_before_its_start(quorum: FakeQuorum) -> None:
    quorum.logs["t"][0].times = {50: 2000}
    options = options_of(
        startingTimestamp="1", startingOffsetsByTimestampStrategy="latest", endingOffsets='{"t":{"0":5,"1":40}}'
    )
    batch = options.for_batch()
    with pytest.raises(ConfigError, match="starting position of t-0 is offset 50, after its ending position 5"):
        plan_batch_query(view_of(quorum, batch), batch)


def test_an_end_where_the_log_begins_was_not_removed(quorum: FakeQuorum) -> None:
    quorum.logs["t"][0].times = {0: 2000}
    quorum.logs["t"][1].times = {20: 2000}
    for end, error, words in (
        (10, ConfigError, "starting position of t-1 is offset 20, after its ending position 10"),
        (9, DataLoss, "Partition t-1 ends at 9, before its start 20"),
    ):
        batch = options_of(startingTimestamp="1", endingOffsets=f'{{"t":{{"0":100,"1":{end}}}}}').for_batch()
        with pytest.raises(error, match=words):
            plan_batch_query(view_of(quorum, batch), batch)


def test_a_batch_query_whose_end_was_removed_by_retention(quorum: FakeQuorum) -> None:
    named = '{"t":{"0":100,"1":5}}'
    batch = options_of(endingOffsets=named).for_batch()
    with pytest.raises(DataLoss, match="Partition t-1 ends at 5, before its start 10"):
        plan_batch_query(view_of(quorum, batch), batch)
    tolerant = options_of(endingOffsets=named, failOnDataLoss="false").for_batch()
    assert [str(task.range) for task in plan_batch_query(view_of(quorum, tolerant), tolerant)] == ["[0, 100) of t-0"]


def test_tasks_cross_to_executors_by_pickle(quorum: FakeQuorum) -> None:
    options = options_of(includeHeaders="true").for_batch()
    (first, _) = plan_batch_query(view_of(quorum, options), options)
    copy = pickle.loads(pickle.dumps(first))
    assert isinstance(copy, RangePartition)
    assert (copy.range, copy.quorum, copy.include_headers) == (first.range, options.quorum, True)


LEVELS = [
    ("read_committed", "committed", {IsolationLevel.READ_COMMITTED}),
    ("read_uncommitted", "committed", {IsolationLevel.READ_UNCOMMITTED}),
    ("read_committed", "linearizable", {IsolationLevel.READ_COMMITTED}),
    # The high watermark is proven without a level.
    ("read_uncommitted", "linearizable", {IsolationLevel.READ_UNCOMMITTED}),
]


@pytest.mark.parametrize(("level", "consistency", "asked"), LEVELS)
def test_plans_and_tasks_ask_at_the_level_of_the_query(
    quorum: FakeQuorum, level: str, consistency: str, asked: set[IsolationLevel]
) -> None:
    options = options_of(
        **{"startingOffsets": "earliest", "consistency": consistency, "kafka.isolation.level": level}
    ).for_batch()
    tasks = plan_batch_query(view_of(quorum, options), options)
    assert set(quorum.isolations) == asked
    assert {task.reads_committed for task in tasks} == {level == "read_committed"}
