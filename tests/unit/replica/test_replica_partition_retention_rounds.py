"""Rounds of retention over several topics, and of snapshots: what each may delete, and what it leaves for the next round."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition import snapshot_files
from raftlake.replica.partition.partition import Partition
from raftlake.replica.snapshots.snapshots import SLICE_INTERVAL_MS
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request

ROUND_MS = 100


def trimming_cluster(**settings: Any) -> Cluster:
    return Cluster(3, segment_bytes=400, retention_check_interval_ms=ROUND_MS, **settings)


def write(cluster: Cluster, group: GroupId, count: int) -> None:
    for number in range(count):
        assert cluster.produce(group, batch(b"%03d" % number * 100)).error is ErrorCode.NONE


def put_keys(cluster: Cluster, count: int) -> None:
    for number in range(count):
        outcomes: list[object] = []
        cluster.leader().kv.propose(put(f"k{number}", bytes(200)), outcomes.append)
        cluster.run(1_000, until=lambda outcomes=outcomes: bool(outcomes))  # type: ignore[misc]


def starts(cluster: Cluster, group: GroupId) -> set[int]:
    return {node.partitions[group].log.start_offset for node in cluster.nodes.values()}


def closed_ends(partition: Partition) -> list[Offset]:
    return [segment.end_offset for segment in partition.log.segments()[:-1]]


# --- retention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [None, 0, 1, 2])
def test_a_round_trims_every_topic_but_the_one_that_is_damaged_and_never_the_metadata_log(broken: int | None) -> None:
    cluster = trimming_cluster(retention_bytes=0)
    groups = cluster.create_topic("t", 3)
    put_keys(cluster, 10)
    node = cluster.leader()
    if broken is not None:
        guarded = node.findings.guarded
        damaged = groups[broken]
        node.findings.guarded = lambda group, read: None if group == damaged else guarded(group, read)  # type: ignore[method-assign]
    for group in groups:
        write(cluster, group, 4)
    cluster.run(5 * ROUND_MS)
    trimmed = [node.partitions[group].log.start_offset > 0 for group in groups]
    assert trimmed == [number != broken for number in range(3)]
    assert len(node.partitions[METADATA_GROUP].log.segments()) > 3 and starts(cluster, METADATA_GROUP) == {0}


def test_a_round_without_anything_to_delete_leaves_no_snapshot() -> None:
    cluster = trimming_cluster(retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 5)
    cluster.run(5 * ROUND_MS)
    assert [list(node.engine.logs.snapshots.ids(group)) for node in cluster.nodes.values()] == [[], [], []]


def test_what_is_not_committed_stays_however_much_it_is() -> None:
    cluster = trimming_cluster(retention_bytes=0)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 3)
    leader = cluster.leader(group)
    committed = leader.partitions[group].high_watermark
    me = leader.config.node_id
    cluster.cut(me)
    for _ in range(6):
        cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(bytes(300))))
    cluster.run(3 * ROUND_MS)
    partition = leader.partitions[group]
    assert partition.log.end_offset == committed + 6 and partition.high_watermark == committed
    assert closed_ends(partition)[0] > committed - 1 and partition.log.start_offset <= committed
    assert leader.fatal is None


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_one_trim_deletes_every_segment_that_it_was_asked_to(count: int) -> None:
    cluster = trimming_cluster(retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 8)
    node = cluster.leader(group)
    partition = node.partitions[group]
    for keep_from in (closed_ends(partition)[count - 1], closed_ends(partition)[count]):
        node.snapshots.trim(partition, keep_from)
        cluster.run(20 + count * SLICE_INTERVAL_MS)
        assert partition.log.start_offset == partition.core.log_start == keep_from
        assert [each.offset for each in node.engine.logs.snapshots.ids(group)] == [keep_from]


def test_a_trim_that_came_to_nothing_does_not_stand_in_the_way_of_the_next() -> None:
    cluster = trimming_cluster(retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 6)
    node = cluster.leader(group)
    partition = node.partitions[group]
    keep_from = closed_ends(partition)[2]
    node.snapshots.trim(partition, keep_from)
    known, partition.core.high_watermark = partition.core.high_watermark, Offset(keep_from - 1)
    cluster.run(20)
    assert partition.log.start_offset == 0 and list(node.engine.logs.snapshots.ids(group)) == []
    partition.core.high_watermark = known
    node.snapshots.trim(partition, keep_from)
    cluster.run(20)
    assert partition.log.start_offset == keep_from


@pytest.mark.parametrize(("times", "told"), [((50, 70, 60, 90), 70), ((70, 50, 60, 90), 70), ((50, 60, 70, 90), 70)])
def test_the_snapshot_of_a_trim_tells_the_newest_time_of_what_goes(
    monkeypatch: pytest.MonkeyPatch, times: tuple[int, ...], told: int
) -> None:
    """Of the segments up to the new start, the last of them with it, and of none behind."""
    heard: list[int] = []
    header = snapshot_files.header_batch

    def note(epoch: int, timestamp_ms: int, last_contained_ms: int, *others: Any) -> bytes:
        heard.append(last_contained_ms)
        return header(epoch, timestamp_ms, last_contained_ms, *others)

    monkeypatch.setattr(snapshot_files, "header_batch", note)
    cluster = trimming_cluster(retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    ends = [cluster.produce(group, batch(bytes(300), timestamp_ms=time)).base_offset + 1 for time in (*times, 99)]
    node = cluster.leader(group)
    node.snapshots.trim(node.partitions[group], Offset(ends[2]))
    assert heard == [told]


# --- the metadata log -------------------------------------------------------------------------------------------------


def taken(cluster: Cluster, node: ReplicaNode) -> OffsetAndEpoch:
    """A snapshot of the key space as it is now."""
    node.snapshots.take(node.partitions[METADATA_GROUP])
    cluster.run(50)
    found = node.partitions[METADATA_GROUP].core.snapshot_id
    assert found is not None and found.offset == node.kv.machine.applied_offset
    return found


def quiet_cluster() -> Cluster:
    """It takes snapshots when it is told to."""
    cluster = Cluster(3, segment_bytes=400, snapshot_bytes_between=1 << 30)
    put_keys(cluster, 10)
    cluster.run(1_000)
    return cluster


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_snapshot_is_begun_and_kept_up_to_the_high_watermark_itself(missing: int) -> None:
    """The log of a node was repaired, and knows less to be committed than has been applied: by one record, or two."""
    cluster = quiet_cluster()
    node = cluster.followers()[0]
    partition = node.partitions[METADATA_GROUP]
    known = partition.core.high_watermark
    assert node.kv.machine.applied_offset == known
    node.snapshots.take(partition)
    partition.core.high_watermark = Offset(known - missing)
    cluster.run(20)
    assert [each.offset for each in node.engine.logs.snapshots.ids(METADATA_GROUP)] == ([] if missing else [known])
    node.kv.bytes_since_snapshot = 1 << 31
    partition.core.snapshot_id = None
    node.snapshots.tick()
    assert (node.kv.bytes_since_snapshot == 0) == (not missing), "begun or not"
    assert node.fatal is None


def test_no_second_snapshot_is_begun_where_the_first_ends() -> None:
    cluster = quiet_cluster()
    node = cluster.followers()[0]
    taken(cluster, node)
    node.kv.bytes_since_snapshot = 1 << 31
    node.snapshots.tick()
    assert node.kv.bytes_since_snapshot == 1 << 31


def test_a_first_snapshot_alone_deletes_nothing_and_a_second_what_lies_before_the_first() -> None:
    cluster = quiet_cluster()
    node = cluster.followers()[0]
    log = node.partitions[METADATA_GROUP].log
    first = taken(cluster, node)
    assert log.start_offset == 0 and len(log.segments()) > 3
    put_keys(cluster, 10)
    cluster.run(1_000)
    second = taken(cluster, node)
    assert 0 < log.start_offset <= first.offset < second.offset
    assert list(node.engine.logs.snapshots.ids(METADATA_GROUP)) == [first, second]


@pytest.mark.parametrize("which", ["newest", "older"])
def test_the_snapshot_that_followers_are_told_of_is_renewed_even_where_nothing_was_written_since(which: str) -> None:
    cluster = quiet_cluster()
    node = cluster.leader()
    first = taken(cluster, node)
    put_keys(cluster, 3)
    cluster.run(1_000)
    newest = taken(cluster, node)
    store = cluster.disks[node.config.node_id].snapshots
    damaged = newest if which == "newest" else first
    data = bytearray(store._finished[METADATA_GROUP, damaged])
    data[len(data) // 2] ^= 1
    store._finished[METADATA_GROUP, damaged] = bytes(data)
    node.snapshots.renew(node.partitions[METADATA_GROUP], damaged)
    cluster.run(50)
    assert (store._finished[METADATA_GROUP, damaged] != bytes(data)) == (which == "newest")


@pytest.mark.parametrize("own", [1, 2])
def test_a_log_that_begins_anew_behind_the_leaders_snapshot_keeps_none_of_its_own(own: int) -> None:
    cluster = quiet_cluster()
    away = cluster.followers()[0]
    node_id: NodeId = away.config.node_id
    old = []
    for _ in range(own):
        put_keys(cluster, 3)
        cluster.run(1_000)
        old.append(taken(cluster, away))
    cluster.stop(node_id)
    leader = cluster.leader()
    for _ in range(2):
        put_keys(cluster, 20)
        cluster.run(1_000)
        taken(cluster, leader)
    cluster.run(1_000)
    assert leader.partitions[METADATA_GROUP].core.log_start > old[-1].offset
    node = cluster.start(node_id)
    assert list(node.engine.logs.snapshots.ids(METADATA_GROUP)) == old
    core = node.partitions[METADATA_GROUP].core
    cluster.run(10_000, until=lambda: core.log_start > old[-1].offset)
    cluster.run(20)
    assert list(node.engine.logs.snapshots.ids(METADATA_GROUP)) == [core.snapshot_id]


def test_the_voters_come_with_a_fetched_snapshot_and_stay_over_a_restart() -> None:
    """The record that names them lies before the log start: without the snapshot's word for it nobody would be a voter."""
    cluster = trimming_cluster(retention_bytes=800, directories=True)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 10)
    cluster.run(2_000)
    leader = cluster.leader(group).partitions[group].core
    voters, named_at = leader.voters, leader.voter_history.latest_offset
    assert leader.voter_history.kraft_version == 1 and named_at is not None and named_at < leader.log_start
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    del cluster.disks[late].logs[group]
    cluster.disks[late].snapshots.forget(group)
    for _ in range(2):
        node = cluster.start(late)
        cluster.run(10_000, until=lambda node=node: group in node.partitions and node.partitions[group].log.end_offset >= 11)  # type: ignore[misc]
        core = node.partitions[group].core
        assert core.log_start > named_at
        assert core.voters == core.voter_history.at(core.log_start) == voters
        cluster.stop(late)
