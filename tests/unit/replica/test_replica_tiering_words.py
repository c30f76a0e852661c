"""Whole nodes and their tier, as clients and operators see it: one log start, deletions, and a tier that fails.

The last part has failures of other systems, by their numbers.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.keys import TIER_PREFIX
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, TierError, TierFailure
from raftlake.replica.node import ReplicaNode
from raftlake.replica.tiering.tiering import BUSY_MAX
from raftlake.sim.tier_table import Shown
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch

LAG_MS = 2_000
LIMIT = 100_000


def cluster_with_tier(**settings: Any) -> tuple[Cluster, GroupId]:
    cluster = Cluster(
        has_tier=True,
        segment_bytes=300,
        tier_target_lag_ms=LAG_MS,
        retention_check_interval_ms=500,
        **settings,
    )
    cluster.leader()
    (group,) = cluster.create_topic("orders")
    return cluster, group


def fill(cluster: Cluster, group: GroupId, batches: int = 8) -> None:
    for _ in range(batches):
        assert cluster.produce(group, batch(b"x" * 150)).error is ErrorCode.NONE
        cluster.run(100)


def table(cluster: Cluster, group: GroupId) -> Shown:
    return cluster.tier.of(Lineage(group, 0))


def starts(cluster: Cluster, group: GroupId) -> list[int]:
    """Where the local logs begin."""
    return [node.partitions[group].log.start_offset for node in cluster.nodes.values()]


def listed(cluster: Cluster, node: ReplicaNode, group: GroupId, which: int) -> tuple[int, int, int]:
    request: Any = importlib.import_module("kio.schema.list_offsets.v7.request")
    asked = request.ListOffsetsPartition(partition_index=group.partition, current_leader_epoch=-1, timestamp=which)
    topics = (request.ListOffsetsTopic(name=group.topic, partitions=(asked,)),)
    question = request.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    answer = cluster.ask(node, ApiKey.LIST_OFFSETS, question, version=7)
    (part,) = answer.topics[0].partitions
    return part.error_code, part.offset, part.leader_epoch


def test_a_partition_has_one_start_over_table_and_local_log() -> None:
    cluster, group = cluster_with_tier(local_retention_bytes=0)
    fill(cluster, group)
    cluster.run(20_000)
    leader = cluster.leader(group)
    epoch = leader.partitions[group].core.epoch
    local, end = leader.partitions[group].log.start_offset, leader.partitions[group].high_watermark
    assert local > 0 and table(cluster, group).start_offset == 0
    assert min(starts(cluster, group)) > 0, "followers delete by themselves"
    assert listed(cluster, leader, group, -2) == (0, 0, 1)
    assert listed(cluster, leader, group, -4) == (0, local, epoch)
    assert listed(cluster, leader, group, -5) == (0, end - 1, epoch)
    assert listed(cluster, leader, group, -6) == (0, end, epoch)
    assert cluster.fetch(leader, group, local).log_start_offset == 0
    assert cluster.fetch(leader, group, end + 99).log_start_offset == 0
    assert cluster.produce(group, batch(b"y")).log_start_offset == 0


def test_clients_see_the_new_start_when_old_files_leave_the_table() -> None:
    cluster, group = cluster_with_tier(retention_bytes=600)
    fill(cluster, group, 12)
    cluster.run(30_000)
    leader, shown = cluster.leader(group), table(cluster, group)
    start = shown.start_offset
    assert 0 < start < leader.partitions[group].high_watermark and sum(each.log_bytes for each in shown.segments) >= 600
    assert listed(cluster, leader, group, -2)[:2] == (0, start)
    assert all(here <= start for here in starts(cluster, group))


def test_the_table_of_a_deleted_topic_is_emptied_also_where_a_copy_was_under_way() -> None:
    cluster, group = cluster_with_tier()
    fill(cluster, group)
    cluster.run(15_000)
    shown = table(cluster, group)
    assert shown.segments
    topic = cluster.leader().names.topic("orders")
    assert topic is not None
    answers: list[ErrorCode] = []
    fill(cluster, group, 3)
    cluster.leader().topics.delete(topic, lambda _topic, error, _message: answers.append(error))
    cluster.run(20_000)
    assert answers == [ErrorCode.NONE] and shown.segments == [] and shown.is_dropped
    assert all(node.kv.machine.list(TIER_PREFIX, None, 10)[0] == () for node in cluster.nodes.values())
    (again,) = cluster.create_topic("orders")
    fill(cluster, again)
    cluster.run(15_000)
    assert again.topic_id != group.topic_id and table(cluster, again).segments


def test_a_topic_that_goes_while_the_store_is_down_is_emptied_later_by_another_leader() -> None:
    cluster, group = cluster_with_tier()
    fill(cluster, group)
    cluster.run(15_000)
    fate = cluster.tier.draw_fate
    cluster.tier.draw_fate = lambda: "stalls for ever"  # type: ignore[method-assign]
    topic = cluster.leader().names.topic("orders")
    assert topic is not None
    cluster.leader().topics.delete(topic, lambda *_: None)
    cluster.run(10_000)
    old = cluster.leader()
    assert any("orders" in warning for warning in old.tiering.warnings) and table(cluster, group).segments
    cluster.stop(old.config.node_id)
    cluster.tier.draw_fate = fate  # type: ignore[method-assign]
    cluster.run(20_000)
    assert table(cluster, group).segments == []
    assert cluster.leader().kv.machine.list(TIER_PREFIX, None, 10)[0] == ()


# --- a tier that fails ---


def test_while_the_store_does_not_answer_appends_go_on_and_nothing_is_deleted() -> None:
    cluster, group = cluster_with_tier(local_retention_bytes=0, retention_ms=1)
    cluster.tier.draw_fate = lambda: "stalls for ever"  # type: ignore[method-assign]
    fill(cluster, group, 20)
    cluster.run(20_000)
    assert set(starts(cluster, group)) == {0}
    leader = cluster.leader(group)
    (warning,) = leader.tiering.warnings
    assert warning.startswith("orders-0: not copied to the tier, since 20") and "no answer in" in warning
    (status,) = leader.tiering.statuses()
    assert status.error is not None and status.failures > 1 and status.failing_since_ms is not None


def test_a_full_disk_says_that_the_tier_takes_nothing_since_when_and_why() -> None:
    cluster, group = cluster_with_tier(min_free_bytes=LIMIT)
    cluster.tier.draw_fate = lambda: "stalls for ever"  # type: ignore[method-assign]
    fill(cluster, group)
    cluster.run(10_000)
    for disk in cluster.disks.values():
        disk.space.fill(LIMIT - 1)
    cluster.run(2_500)
    result = cluster.produce(group, batch(b"two"))
    assert result.error is ErrorCode.NOT_ENOUGH_REPLICAS
    told = result.error_message or ""
    assert "The remote tier does not make room: orders-0: not copied to the tier, since 20" in told and "no answer in" in told
    leader = cluster.leader(group)
    assert any("The remote tier does not make room" in warning for warning in leader.disk.warnings)


def test_a_full_disk_does_not_blame_a_tier_that_is_well() -> None:
    cluster, group = cluster_with_tier(min_free_bytes=LIMIT)
    fill(cluster, group)
    cluster.run(10_000)
    for disk in cluster.disks.values():
        disk.space.fill(LIMIT - 1)
    cluster.run(2_500)
    assert "tier" not in (cluster.produce(group, batch(b"two")).error_message or "")
    assert cluster.leader(group).tiering.warnings == ()


def test_a_file_with_a_flipped_byte_keeps_local_records_and_is_named() -> None:
    cluster, group = cluster_with_tier(local_retention_bytes=0)
    show, intact = cluster.tier.show, []

    def show_damaged(request: Any, segment: Any, batches: bytes) -> None:
        show(request, segment, batches)
        if segment.base_offset == 0:
            intact.append(batches)
            table(cluster, group).batches[0] = batches[:-1] + b"?"

    cluster.tier.show = show_damaged  # type: ignore[method-assign]
    fill(cluster, group)
    cluster.run(20_000)
    leader, shown = cluster.leader(group), table(cluster, group)
    assert set(starts(cluster, group)) == {0} and len(shown.segments) > 2, "copies go on"
    (warning,) = leader.tiering.warnings
    assert shown.segments[0].file in warning and "not as it was written" in warning
    assert leader.tiering.counts.damaged > 0
    shown.batches[0] = intact[0]
    cluster.stop(leader.config.node_id)
    cluster.run(30_000)
    assert min(starts(cluster, group)) > 0 and cluster.leader(group).tiering.warnings == (), "the next leader reads it back"


@pytest.mark.parametrize("failure", [TierFailure.UNUSABLE, TierFailure.FENCED, TierFailure.ELSEWHERE])
def test_what_no_retry_mends_is_told_at_once(failure: TierFailure) -> None:
    """Wrong credentials, a table of another topic, a commit of somebody else: the port answers so."""
    cluster, group = cluster_with_tier(local_retention_bytes=0)
    reason = "s3://b/orders-x/_delta_log is not readable: set AWS_ACCESS_KEY_ID"
    cluster.tier.judge = lambda request: TierError(failure, reason)  # type: ignore[method-assign]
    fill(cluster, group)
    cluster.run(LAG_MS + 1_000)
    (warning,) = cluster.leader(group).tiering.warnings
    assert warning.endswith(reason)
    cluster.run(20_000)
    assert set(starts(cluster, group)) == {0} and table(cluster, group).segments == []


@pytest.mark.parametrize("by_ms", [-(10**11), 10**13])
def test_a_wrong_clock_leaves_the_newest_copy_and_what_is_not_copied(by_ms: int) -> None:
    cluster, group = cluster_with_tier(retention_ms=3_600_000)
    now_ms = cluster.leader(group).engine.clock.wall_ms()
    for _ in range(8):
        cluster.produce(group, batch(b"x" * 150, timestamp_ms=now_ms))
    cluster.run(10_000)
    assert len(table(cluster, group).segments) > 2
    for machine in cluster.machines.values():
        machine.clock.wall_offset_ms += by_ms
    cluster.run(30_000)
    shown = table(cluster, group)
    assert (len(shown.segments) == 1) == (by_ms > 0) and shown.newest in shown.segments
    fill(cluster, group, 4)
    cluster.run(10_000)
    assert cluster.leader(group).tiering.warnings == () and shown.segments[-1] is shown.newest


# --- what went wrong elsewhere: docs/reliability.md -------------------------------------------------------------------------


def restart(cluster: Cluster, *, has_tier: bool = True, **settings: Any) -> None:
    """All nodes are killed and begin anew, with or without `tier.uri`."""
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id, machine in cluster.machines.items():
        machine._world = replace(machine._world, store=cluster.tier if has_tier else None)
        cluster.start(node_id, **settings)
    cluster.await_topics()


def first_offset(cluster: Cluster, group: GroupId) -> int:
    """What consumers are told, as soon as they are told something."""
    while (answer := listed(cluster, cluster.leader(group), group, -2))[0] != ErrorCode.NONE:
        cluster.run(10)
    return answer[1]


def test_a_restart_does_not_move_the_start_of_the_log_to_the_local_one() -> None:
    """KAFKA-15351: consumers began where the local log did, and skipped what the tier had."""
    cluster, group = cluster_with_tier(local_retention_bytes=0)
    fill(cluster, group)
    cluster.run(20_000)
    assert min(starts(cluster, group)) > 0
    restart(cluster)
    assert min(starts(cluster, group)) > 0 and first_offset(cluster, group) == 0
    leader = cluster.leader(group)
    cluster.run(5_000, until=lambda: cluster.fetch(leader, group, 0, wait_ms=100).error is ErrorCode.NONE)
    assert cluster.fetch(leader, group, 0, wait_ms=100).log_start_offset == 0


def test_no_replica_keeps_what_is_safe_in_the_table() -> None:
    """Aiven 562, KAFKA-17020: a follower kept copied segments for ever, also after restarts."""
    cluster, group = cluster_with_tier(local_retention_bytes=0)
    fill(cluster, group)
    away = cluster.followers(group)[0].config.node_id
    cluster.stop(away)
    fill(cluster, group)
    cluster.stop(cluster.leader(group).config.node_id)
    for node_id in cluster.machines.keys() - cluster.nodes.keys():
        cluster.start(node_id)
    fill(cluster, group)
    cluster.run(30_000)
    safe = table(cluster, group).segments[-1].end_offset
    assert safe == cluster.leader(group).partitions[group].high_watermark
    assert starts(cluster, group) == [safe] * 3


@pytest.mark.parametrize("retention_bytes", [-1, 900])
def test_records_from_before_the_tier_was_switched_on_are_copied(retention_bytes: int) -> None:
    """Aiven 699: of a topic that was there before, some old segments were never copied."""
    cluster, group = cluster_with_tier(retention_bytes=retention_bytes)
    restart(cluster, has_tier=False)
    fill(cluster, group, 20)
    cluster.run(5_000)
    assert table(cluster, group).segments == []
    (start,) = set(starts(cluster, group))
    assert (start > 0) == (retention_bytes > 0)
    restart(cluster, retention_bytes=-1)
    cluster.run(20_000)
    shown, leader = table(cluster, group), cluster.leader(group)
    assert (shown.start_offset, shown.segments[-1].end_offset) == (start, leader.partitions[group].high_watermark)
    assert first_offset(cluster, group) == start and leader.tiering.warnings == ()


def test_a_gap_from_a_time_without_the_tier_is_told_and_never_shown() -> None:
    """Redpanda 24247: on, off, records removed, on again: the table had a gap, or stood still without a word."""
    cluster, group = cluster_with_tier()
    fill(cluster, group)
    cluster.run(20_000)
    copied = table(cluster, group).segments[-1].end_offset
    restart(cluster, has_tier=False, retention_bytes=600)
    fill(cluster, group, 20)
    cluster.run(5_000)
    (start,) = set(starts(cluster, group))
    assert start > copied
    restart(cluster)
    cluster.run(5_000, until=lambda: cluster.leader(group).partitions[group].in_force is not None)
    fill(cluster, group)
    cluster.run(20_000)
    (warning,) = cluster.leader(group).tiering.warnings
    assert f"the table ends at {copied}, and the log begins at {start}" in warning
    assert table(cluster, group).segments[-1].end_offset == copied and set(starts(cluster, group)) == {start}
    assert first_offset(cluster, group) == start, "consumers see no gap either"


def test_topics_whose_tables_are_foreign_stop_no_other() -> None:
    """AutoMQ 3006: after one change of a schema nothing more was written, of any topic."""
    cluster, group = cluster_with_tier()
    others = cluster.create_topic("others", 4 * BUSY_MAX)
    cluster.tier.foreign.add(others[0].topic_id)
    for other in others:
        fill(cluster, other, 2)
    cluster.run(10_000)
    fill(cluster, group)
    cluster.run(10_000)
    leader = cluster.leader(group)
    assert table(cluster, group).segments[-1].end_offset == leader.partitions[group].high_watermark
    assert all(table(cluster, other).segments == [] for other in others)
    failing = {status.group for node in cluster.nodes.values() for status in node.tiering.statuses() if status.error}
    assert failing == set(others)
