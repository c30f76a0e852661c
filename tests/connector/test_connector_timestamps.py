"""A stream that starts at a time: also where no record is that young yet, and when its first batch is planned again."""

from __future__ import annotations

import pytest

from connector.fakelog import FakeQuorum
from connector.fakequery import Query
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.offsets import TopicPartition
from raftlake.errors import ConfigError

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

#: In t-0 offset 50 is the first record at or after 1600; t-1 has none.
AT_1600 = (
    {"startingTimestamp": "1600", "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsetsByTimestamp": '{"t":{"0":1600,"1":1600}}', "startingOffsetsByTimestampStrategy": "latest"},
)
both_options = pytest.mark.parametrize("options", AT_1600, ids=["one time", "by partition"])


@pytest.fixture
def quorum() -> FakeQuorum:
    made = FakeQuorum(t=2)
    made.set_bounds("t", (0, 100), (10, 40))
    made.logs["t"][0].times = {0: 1000, 50: 2000}
    made.logs["t"][1].times = {10: 1500}
    return made


@both_options
def test_the_first_batch_marks_the_place_where_no_record_is_that_young(quorum: FakeQuorum, options: dict[str, str]) -> None:
    query = Query(quorum, **options)
    assert query.planner.initial_offsets() == {T0: 50, T1: 40}
    quorum.set_bounds("t", (0, 105), (10, 45))
    assert query.batch() == ["[50, 105) of t-0"], "what has a match is read at once"
    assert query.end == {T0: 105, T1: 40}
    assert query.batch() == ["[40, 45) of t-1"]


@both_options
@pytest.mark.parametrize(
    "times",
    [{10: 1500}, {10: 1500, 40: 1700}, {10: 1500, 43: 1700}, {10: 1500, 45: 1700}],
    ids=["still none", "the next record", "a later record", "the last record"],
)
def test_a_first_batch_that_is_planned_again_has_the_same_offsets(
    quorum: FakeQuorum, options: dict[str, str], times: dict[int, int]
) -> None:
    """Spark keeps the end of the first batch and asks for its start again. Meanwhile records of the asked time have come."""
    query = Query(quorum, **options)
    first = query.batch()
    logged_end = dict(query.end or {})
    quorum.set_bounds("t", (0, 105), (10, 46))
    quorum.logs["t"][1].times = times
    for _ in range(2):
        query.restart()
        assert query.ranges(query.planner.initial_offsets(), logged_end) == first == ["[50, 100) of t-0"]
    query.end = logged_end
    assert query.batch() == ["[100, 105) of t-0", "[40, 46) of t-1"], "nothing between the two starts is skipped"


@both_options
def test_what_retention_removed_before_a_first_batch_is_planned_again_is_lost(
    quorum: FakeQuorum, options: dict[str, str]
) -> None:
    query = Query(quorum, **options)
    query.batch()
    logged_end = dict(query.end or {})
    quorum.set_bounds("t", (101, 105), (10, 40))
    quorum.logs["t"][0].times = {101: 2000}
    query.restart()
    with pytest.raises(DataLoss, match="Partition t-0's offset was changed from 101 to 100"):
        query.ranges(query.planner.initial_offsets(), logged_end)


def test_a_time_beyond_the_end_is_refused_also_when_the_query_restarts(quorum: FakeQuorum) -> None:
    """Without the strategy \"latest\" a query of such a time never starts."""
    query = Query(quorum, startingTimestamp="1600")
    for _ in range(2):
        with pytest.raises(ConfigError, match="No offset matched from request of topic-partition t-1 and timestamp 1600"):
            query.batch()
        query.restart()
