"""What a leader's retention has deleted is gone on its followers too, and stays gone when one of them leads after a kill."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.configs.in_force import in_force
from raftlake.wire.fetch_response import FetchPartitionResult
from replica_cluster import Cluster, batch

ROUND_MS = 1_000
BATCHES = 12


def filled(**settings: Any) -> tuple[Cluster, GroupId]:
    """A partition whose leader has a segment for each three batches, and whose followers have one for each five."""
    cluster = Cluster(3, retention_check_interval_ms=ROUND_MS, **settings)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    for number in range(1, BATCHES + 1):
        assert cluster.produce(group, batch(b"%03d" % number, timestamp_ms=1_000 + number)).error is ErrorCode.NONE
        cluster.run(200)
        for node in cluster.nodes.values():
            if number % (3 if node is leader else 5) == 0:
                node.partitions[group].roll()
    return cluster, group


def trim(cluster: Cluster, group: GroupId, start: int) -> None:
    """Retention of the leader, and time for its followers to hear of it."""
    leader = cluster.leader(group)
    leader.snapshots.trim(leader.partitions[group], Offset(start))
    cluster.run(100)
    assert leader.partitions[group].log.start_offset == start


def starts(cluster: Cluster, group: GroupId) -> list[int]:
    return [node.remote_log.start_offset(node.partitions[group]) for node in cluster.nodes.values()]


def kill_all(cluster: Cluster, *, away: NodeId) -> None:
    """All nodes are killed at once, and all but one begin again."""
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.machines:
        if node_id != away:
            cluster.start(node_id)


def fetched(cluster: Cluster, group: GroupId, offset: int) -> FetchPartitionResult:
    return cluster.fetch(cluster.leader(group), group, offset, wait_ms=100)


def test_followers_begin_where_the_leader_does_though_their_segments_have_other_borders() -> None:
    cluster, group = filled()
    trim(cluster, group, 7)
    assert starts(cluster, group) == [7, 7, 7]
    assert {node.partitions[group].log.start_offset for node in cluster.followers(group)} == {0}


@pytest.mark.parametrize("seed", range(3))
def test_after_a_kill_of_all_nodes_another_leader_shows_nothing_deleted(seed: int) -> None:
    """Found by killing nodes: 3,000 deleted records could be read again, and an offset of a log went back for good."""
    cluster, group = filled(seed=seed)
    trim(cluster, group, 7)
    cluster.run(ROUND_MS)
    deposed = cluster.leader(group).config.node_id
    kill_all(cluster, away=deposed)
    cluster.run(10_000, until=lambda: any(node.partitions[group].is_serving for node in cluster.nodes.values()))
    leader = cluster.leader(group)
    assert leader.config.node_id != deposed
    assert leader.partitions[group].log.start_offset < 7 == leader.remote_log.start_offset(leader.partitions[group])
    gone = fetched(cluster, group, 6)
    assert (gone.error, gone.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 7)
    assert fetched(cluster, group, 7).error is ErrorCode.NONE


def test_a_new_leader_tells_its_followers_what_an_earlier_one_told_it() -> None:
    cluster, group = filled()
    leader = cluster.leader(group)
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    assert cluster.produce(group, batch(b"so that it cannot lead")).error is ErrorCode.NONE
    trim(cluster, group, 7)
    cluster.stop(leader.config.node_id)
    cluster.start(late)
    cluster.run(10_000, until=lambda: starts(cluster, group) == [7, 7])
    assert starts(cluster, group) == [7, 7]


def test_a_follower_that_was_cut_off_hears_of_it_when_it_is_back() -> None:
    """Nothing else happens to the partition meanwhile."""
    cluster, group = filled()
    victim = cluster.followers(group)[0]
    cluster.cut(victim.config.node_id, *(node_id for node_id in cluster.nodes if node_id != victim.config.node_id))
    trim(cluster, group, 7)
    assert victim.remote_log.start_offset(victim.partitions[group]) == 0
    cluster.heal()
    cluster.run(20_000, until=lambda: starts(cluster, group) == [7, 7, 7])
    assert starts(cluster, group) == [7, 7, 7]


def test_segments_below_it_go_in_the_next_round_whatever_the_topic_keeps() -> None:
    cluster, group = filled(retention_ms=-1, retention_bytes=-1)
    trim(cluster, group, 7)
    cluster.run(ROUND_MS + 500)
    assert [node.partitions[group].log.start_offset for node in cluster.followers(group)] == [6, 6]
    assert starts(cluster, group) == [7, 7, 7]


def test_an_active_segment_that_is_deleted_as_a_whole_is_closed_and_goes() -> None:
    cluster, group = filled(retention_ms=-1, retention_bytes=-1)
    end = cluster.leader(group).partitions[group].log.end_offset
    trim(cluster, group, end)
    cluster.run(2 * ROUND_MS + 500)
    assert [node.partitions[group].log.start_offset for node in cluster.nodes.values()] == [end] * 3
    assert cluster.produce(group, batch(b"more")).error is ErrorCode.NONE


def test_the_metadata_log_is_left_to_its_snapshots() -> None:
    cluster = Cluster(3, segment_bytes=500, snapshot_bytes_between=200, snapshot_interval_ms=500)
    for number in range(6):
        cluster.create_topic(f"other{number}")
        cluster.run(1_000)
    assert all(node.partitions[METADATA_GROUP].core.told_log_start == 0 for node in cluster.nodes.values())
    assert any(node.partitions[METADATA_GROUP].log.start_offset > 0 for node in cluster.nodes.values())


def test_a_partition_with_a_table_begins_where_the_quorums_keys_say() -> None:
    cluster = Cluster(3, has_tier=True)
    for name, adopted in (("tiered", 0), ("compacted", 7)):
        (group,) = cluster.create_topic(name)
        for node in cluster.nodes.values():
            partition = node.partitions[group]
            partition.core.told_log_start = Offset(7)
            if adopted:
                partition.obey(in_force({"cleanup.policy": "compact"}, node.config))
            assert node.remote_log.adopted_start(partition) == adopted
