"""Restarts and lost data: what a query that goes on from a checkpoint reads, and when data_loss ends it."""

from __future__ import annotations

import pytest

from connector.fakelog import FakeQuorum
from connector.fakequery import Query
from pyspark_raftlake.data_loss import report_data_loss
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.offsets import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def quorum() -> FakeQuorum:
    made = FakeQuorum(t=2, other=1)
    made.set_bounds("t", (0, 100), (10, 40))
    return made


# --- restarts ----------------------------------------------------------------------------------------------------------------


def test_a_restarted_query_goes_on_where_it_was(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.set_bounds("t", (0, 120), (10, 40))
    query.restart()
    assert query.batch() == ["[100, 120) of t-0"]


def test_a_replayed_first_batch_of_a_query_from_latest_loses_nothing(quorum: FakeQuorum) -> None:
    """Spark keeps the end of batch 0 and not its start. After a crash it asks for the start again, and "latest" has moved."""
    query = Query(quorum)
    assert query.batch() == []
    logged_end = dict(query.end or {})
    quorum.set_bounds("t", (0, 130), (10, 40))
    query.restart()
    start_again = query.planner.initial_offsets()
    assert start_again == {T0: 130, T1: 40}
    assert query.ranges(start_again, logged_end) == []
    query.end = logged_end
    assert query.batch() == ["[100, 130) of t-0"]


def test_the_first_batch_from_latest_marks_the_place_only(quorum: FakeQuorum) -> None:
    query = Query(quorum)
    query.planner.initial_offsets()
    quorum.set_bounds("t", (0, 105), (10, 40))
    assert query.batch() == []
    assert query.batch() == ["[100, 105) of t-0"]


# --- data loss ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["committed", "linearizable"])
def test_a_topic_deleted_while_a_batch_is_planned_is_gone_and_no_other_error(quorum: FakeQuorum, consistency: str) -> None:
    query = Query(quorum, startingOffsets="earliest", consistency=consistency)
    query.batch()
    quorum.vanished.add("t")
    with pytest.raises(DataLoss, match="t-0, t-1 are gone"):
        query.batch()
    lenient = Query(quorum, startingOffsets="earliest", consistency=consistency, failOnDataLoss="false")
    quorum.vanished.clear()
    lenient.batch()
    quorum.vanished.add("t")
    assert lenient.batch() == []


def test_a_lower_watermark_of_a_lagging_replica_is_no_loss(quorum: FakeQuorum) -> None:
    """estuary/flow#3092: after a hand-off the watermark fell back, and Spark aborted."""
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.logs["t"][0].stale_end = 60
    assert query.batch() == []
    assert query.end == {T0: 100, T1: 40}


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("told", [2, 0])
def test_a_lagging_node_that_does_not_know_a_partition_yet_is_no_loss(quorum: FakeQuorum, told: int, fail: str) -> None:
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail)
    query.batch()
    quorum.grow("t", 3)
    quorum.set_bounds("t", (0, 100), (10, 40), (0, 7))
    assert query.batch() == ["[0, 7) of t-2"]
    quorum.set_bounds("t", (0, 101), (10, 40), (0, 9))
    quorum.told["t"] = told
    assert query.batch() == ["[100, 101) of t-0"][:told]
    assert (query.end or {})[TopicPartition("t", 2)] == 7
    del quorum.told["t"]
    assert query.batch() == [*["[100, 101) of t-0"][told:], "[7, 9) of t-2"]


def test_a_lagging_node_that_does_not_know_a_topic_of_a_pattern_yet_is_no_loss(quorum: FakeQuorum) -> None:
    query = Query(quorum, subscribePattern="t|other", startingOffsets="earliest")
    query.batch()
    quorum.unlisted.add("other")
    assert query.batch() == []
    quorum.unlisted.clear()
    quorum.set_bounds("other", (0, 3))
    assert query.batch() == ["[0, 3) of other-0"]


def test_an_end_that_is_proven_lower_is_a_loss(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.set_bounds("t", (0, 60), (10, 40))
    query.restart()
    with pytest.raises(DataLoss, match=r"Partition t-0's offset was changed from 100 to 60, some data may have been missed\. "):
        query.batch()


@pytest.mark.parametrize("consistency", ["committed", "linearizable"])
def test_an_end_exactly_where_the_query_stands_is_no_loss_and_one_before_it_is(quorum: FakeQuorum, consistency: str) -> None:
    query = Query(quorum, startingOffsets="earliest", consistency=consistency)
    query.batch()
    query.restart()
    assert query.batch() == []
    # A replica that lags by one record is no loss either.
    quorum.logs["t"][0].stale_end = 99
    assert query.batch() == [] and query.end == {T0: 100, T1: 40}
    quorum.logs["t"][0].stale_end = None
    quorum.set_bounds("t", (0, 99), (10, 40))
    with pytest.raises(DataLoss, match="Partition t-0's offset was changed from 100 to 99"):
        query.batch()


def test_a_log_that_begins_exactly_where_the_query_stands_is_no_loss_and_one_behind_it_is(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    stood = query.end
    quorum.set_bounds("t", (100, 200), (40, 41))
    query.restart()
    assert query.batch() == ["[100, 200) of t-0", "[40, 41) of t-1"]
    query.end = stood
    quorum.set_bounds("t", (101, 200), (40, 41))
    query.restart()
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[100, 101\) of t-0: the log begins at 101"):
        query.batch()


def test_a_replayed_first_batch_from_the_beginning_whose_records_are_gone_is_a_loss(quorum: FakeQuorum) -> None:
    """Only a start that was the end of the log may lie behind the end of its batch."""
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    logged_end = dict(query.end or {})
    quorum.set_bounds("t", (150, 200), (10, 40))
    query.restart()
    start_again = query.planner.initial_offsets()
    with pytest.raises(DataLoss, match="Partition t-0's offset was changed from 150 to 100"):
        query.ranges(start_again, logged_end)


def test_an_end_below_a_place_that_was_not_marked_is_a_loss(quorum: FakeQuorum) -> None:
    query = Query(quorum)
    assert query.planner.initial_offsets() == {T0: 100, T1: 40}
    assert query.ranges({T0: 100, T1: 40}, {T0: 90, T1: 40}) == []
    with pytest.raises(DataLoss, match="Partition t-0's offset was changed from 101 to 90"):
        query.ranges({T0: 101, T1: 40}, {T0: 90, T1: 40})


def test_after_a_loss_a_tolerant_query_reads_the_new_log_from_its_beginning(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    query.batch()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 60), (0, 400))
    query.restart()
    assert query.batch() == ["[40, 400) of t-1"], "of a topic that is longer than the old one was, nobody can tell"
    assert query.batch() == ["[0, 60) of t-0"]


def test_a_topic_that_was_recreated_while_the_query_runs_is_noticed_by_its_id(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 200), (0, 200))
    with pytest.raises(DataLoss, match="Topic t was deleted and created again"):
        query.batch()
    tolerant = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    tolerant.batch()
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 300), (0, 300))
    assert tolerant.batch() == []
    assert tolerant.batch() == ["[0, 300) of t-0", "[0, 300) of t-1"]


def test_a_deleted_topic(quorum: FakeQuorum) -> None:
    query = Query(quorum, subscribe="t,other", startingOffsets="earliest")
    tolerant = Query(quorum, subscribe="t,other", startingOffsets="earliest", failOnDataLoss="false")
    quorum.set_bounds("other", (0, 3))
    query.batch()
    tolerant.batch()
    del quorum.logs["other"]
    quorum.set_bounds("t", (0, 101), (10, 40))
    with pytest.raises(DataLoss, match=r"other-0 are gone\. Some data may have been missed"):
        query.batch()
    assert tolerant.batch() == ["[100, 101) of t-0"]


@pytest.mark.parametrize(
    ("before", "after", "option"),
    [
        ({"subscribe": "t,other"}, {"subscribe": "t"}, "subscribe"),
        ({"subscribePattern": "t|other"}, {"subscribePattern": "t"}, "subscribePattern"),
        ({"assign": '{"t":[0,1],"other":[0]}'}, {"assign": '{"t":[0,1]}'}, "assign"),
    ],
)
def test_a_topic_that_a_changed_option_no_longer_names(
    quorum: FakeQuorum, before: dict[str, str], after: dict[str, str], option: str
) -> None:
    quorum.set_bounds("other", (0, 3))
    query = Query(quorum, startingOffsets="earliest", **before)
    query.batch()
    end = query.end
    for fail in ("true", "false"):
        query = Query(quorum, startingOffsets="earliest", failOnDataLoss=fail, **after)
        query.end = end
        if fail == "true":
            with pytest.raises(DataLoss, match=f"Option '{option}' was changed: it no longer names all of other"):
                query.batch()
        else:
            assert query.batch() == []


def test_offsets_that_retention_removed_stop_a_restarted_query(quorum: FakeQuorum) -> None:
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.set_bounds("t", (150, 200), (10, 40))
    query.restart()
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[100, 150\) of t-0: the log begins at 150"):
        query.batch()


def test_a_new_partition_that_has_lost_its_beginning(quorum: FakeQuorum) -> None:
    query = Query(quorum, subscribePattern=".*", startingOffsets="earliest")
    query.batch()
    quorum.create("late", 1)
    quorum.set_bounds("late", (5, 9))
    with pytest.raises(DataLoss, match="Added partition late-0 starts from 5 instead of 0"):
        query.batch()


def test_one_policy(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLoss, match=r'^gone\. Some data .* "failOnDataLoss" to "false"'):
        report_data_loss("gone", fail=True)
    report_data_loss("gone", fail=False)
    assert [record.getMessage() for record in caplog.records] == ["gone; going on because failOnDataLoss is false"]


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize("limit", ["50", "100"])
def test_available_now_does_not_end_early_where_a_node_lags(known: int, limit: str) -> None:
    """Spark ends the query with the first batch that has no news."""
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 100), (0, 100))
    query = Query(quorum, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    query.start_available_now()
    query.batch()
    quorum.set_bounds("t", (0, 100), (0, 120))
    quorum.told["t"] = known
    while query.batch():
        pass
    assert query.end == {T0: 100, T1: 100}, "and no row that came later"


def test_available_now_reads_nothing_of_a_partition_whose_end_was_not_known() -> None:
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 100), (0, 100))
    query = Query(quorum, startingOffsets="earliest")
    query.batch()
    quorum.set_bounds("t", (0, 110), (0, 110))
    quorum.told["t"] = 1
    query.start_available_now()
    assert query.batch() == ["[100, 110) of t-0"]
    assert query.end == {T0: 110, T1: 100}
