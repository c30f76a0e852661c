"""The plan of a new directory: which tables come back, how many partitions, and what is refused."""

from __future__ import annotations

import pytest

from raftlake.errors import ConfigError, WrongState
from raftlake.ports.tier import LineageFacts
from raftlake.raft.types import Epoch
from raftlake.replica.config import TOPIC_PARTITIONS_MAX
from raftlake.runtime.recovery.tables import plan_of
from raftlake.tier.told import ToldPartition, ToldTable
from recoverkit import facts, told, told_table

URI = "s3://history"


def test_each_partition_from_0_on_is_there() -> None:
    known = {
        1: told(1, 10, 50, ((3, 10), (6, 40)), leader_epoch=8),
        3: ToldPartition(facts=None, leader_epoch=Epoch(1_004), auxiliary=None, lacking="", timestamp_ms=-1),
    }
    plan = plan_of([told_table(known)], URI, {})
    assert (plan.cluster_id, plan.tier_uri) == ("mine", URI)
    (topic,) = plan.topics
    ends = {index: (each.facts.start_offset, each.facts.end_offset) for index, each in topic.partitions.items()}
    assert ends == {0: (0, 0), 1: (10, 50), 2: (0, 0), 3: (0, 0)}
    epochs = {index: each.facts.leader_epoch for index, each in topic.partitions.items()}
    assert epochs == {0: 0, 1: 8, 2: 0, 3: 1_004}, "a claim counts where there are no rows"
    assert (topic.partitions[1].auxiliary, topic.partitions[1].timestamp_ms) == (b"state", 77)
    assert [each.facts.lineage.group.partition for each in topic.partitions.values()] == [0, 1, 2, 3]


def test_the_highest_epoch_of_the_table_counts_and_not_that_of_one_incarnation() -> None:
    (topic,) = plan_of([told_table({0: told(0, 0, 5, ((3, 0),), leader_epoch=2_003, of_facts=3)})], URI, {}).topics
    assert topic.partitions[0].facts.leader_epoch == 2_003


def test_a_topic_had_more_partitions_than_its_table_shows() -> None:
    table = told_table({0: told(0, 0, 5, ((3, 0),))})
    (topic,) = plan_of([table], URI, {"orders": 3}).topics
    assert sorted(topic.partitions) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 0, TOPIC_PARTITIONS_MAX + 1])
def test_a_count_that_leaves_a_partition_out_or_is_none_is_refused(count: int) -> None:
    table = told_table({1: told(1, 0, 5, ((3, 0),))})
    with pytest.raises(ConfigError, match=rf"--partitions=orders={count}: accepted is 2\.\.{TOPIC_PARTITIONS_MAX}"):
        plan_of([table], URI, {"orders": count})


def test_a_topic_without_a_table_does_not_come_back() -> None:
    table = told_table({0: told(0, 0, 5, ((3, 0),))})
    with pytest.raises(ConfigError, match=r"--partitions=clicks=2: there is no table of a topic clicks at s3://history"):
        plan_of([table], URI, {"clicks": 2})


def test_tables_of_deleted_topics_are_left_out() -> None:
    gone = told_table({}, "clicks", is_dropped=True)
    kept = told_table({0: told(0, 0, 5, ((3, 0),))})
    assert [topic.name for topic in plan_of([gone, kept], URI, {}).topics] == ["orders"]
    with pytest.raises(WrongState, match="s3://history has no table of a topic"):
        plan_of([gone], URI, {})


def test_several_clusters_are_named() -> None:
    tables = [told_table({}, "clicks", cluster_id="theirs"), told_table({0: told(0, 0, 5, ((3, 0),))})]
    with pytest.raises(WrongState, match=r"several clusters, mine, theirs: say with --cluster-id"):
        plan_of(tables, URI, {})


def test_two_tables_of_one_name_are_refused() -> None:
    first, second = told_table({0: told(0, 0, 5, ((3, 0),))}), told_table({}, topic_id=bytes(16))
    with pytest.raises(WrongState, match=f"topic orders has two tables, {first.uri} and {second.uri}"):
        plan_of([first, second], URI, {})


def test_more_partitions_than_a_node_takes_are_refused() -> None:
    tables: list[ToldTable] = [told_table({}, name, topic_id=bytes([index] * 16)) for index, name in enumerate("ab")]
    most = TOPIC_PARTITIONS_MAX
    with pytest.raises(WrongState, match=rf"{most + 1} partitions in all; accepted are at most {most}"):
        plan_of(tables, URI, {"a": TOPIC_PARTITIONS_MAX})


def test_what_is_lacking_is_told_on() -> None:
    known = ToldPartition(
        facts=facts(0, 0, 5, ((3, 0),)), leader_epoch=Epoch(3), auxiliary=None, lacking="it is gone", timestamp_ms=5
    )
    (topic,) = plan_of([told_table({0: known})], URI, {}).topics
    assert topic.partitions[0].lacking == "it is gone" and isinstance(topic.partitions[0].facts, LineageFacts)
