"""What follows once records are deleted: segments go from each disk, and the keys of topics that are gone go too."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import DiskFull, ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import STARTS_PREFIX, start_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset
from raftlake.replica import record_deletion
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.retention import TableBounds
from raftlake.replica.reserved import RecordStart
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster, batch


def written(count: int = 10, *, size: int = 3, segment_bytes: int = 400, partitions: int = 1) -> tuple[Cluster, GroupId]:
    """A cluster without retention, and a partition with a segment or two for each batch; offset 0 is its leader's."""
    cluster = Cluster(size, segment_bytes=segment_bytes, retention_ms=-1, retention_bytes=-1)
    group = cluster.create_topic("t", partitions)[0]
    for number in range(count):
        assert cluster.produce(group, batch(bytes(300), timestamp_ms=1_000 + number)).error is ErrorCode.NONE
    cluster.run(500)
    return cluster, group


def decide(cluster: Cluster, group: GroupId, offset: int, recovery: str = "") -> None:
    """Let the quorum decide it, and all nodes apply it."""
    outcomes: list[Any] = []
    txn = Txn(
        (), (Put(start_key(id_to_text(group.topic_id), group.partition), RecordStart(Offset(offset), recovery).encode()),)
    )
    cluster.leader().kv.propose(txn, outcomes.append, Origin.SELF)
    cluster.run(2_000, until=lambda: bool(outcomes))
    nodes = cluster.nodes.values()
    cluster.run(2_000, until=lambda: all((group.topic_id, group.partition) in node.kv.state.record_starts for node in nodes))


def starts(cluster: Cluster, group: GroupId) -> set[int]:
    return {node.partitions[group].log.start_offset for node in cluster.nodes.values()}


def keys(node: ReplicaNode) -> list[str]:
    return [key for key, _ in node.kv.machine.list(STARTS_PREFIX, None, 100)[0]]


def test_whole_segments_go_from_all_disks_and_a_snapshot_stands_at_the_new_start() -> None:
    cluster, group = written()
    decide(cluster, group, 6)
    cluster.run(3_000)
    for node in cluster.nodes.values():
        partition = node.partitions[group]
        bases = [segment.base_offset for segment in partition.log.segments()]
        assert 0 < partition.log.start_offset <= 6 < bases[1], "the segment of the start stays"
        assert partition.core.snapshot_id is not None and partition.core.snapshot_id.offset == partition.log.start_offset
        assert node.record_deletion._pending == {}
    assert all(cluster.fetch(node, group, 5).error is ErrorCode.OFFSET_OUT_OF_RANGE for node in cluster.nodes.values())


def test_an_active_segment_whose_records_are_all_deleted_is_closed_and_goes() -> None:
    cluster, group = written(segment_bytes=1 << 20)
    assert starts(cluster, group) == {0}
    decide(cluster, group, 11)
    cluster.run(3_000)
    assert starts(cluster, group) == {11}
    assert cluster.produce(group, batch(b"next")).base_offset == 11
    assert cluster.fetch(cluster.leader(group), group, 11).error is ErrorCode.NONE


def test_an_active_segment_with_one_record_that_stays_is_left_alone() -> None:
    cluster, group = written(segment_bytes=1 << 20)
    decide(cluster, group, 10)
    cluster.run(3_000)
    assert starts(cluster, group) == {0}
    assert all(len(node.partitions[group].log.segments()) == 1 for node in cluster.nodes.values())


def test_a_follower_that_was_away_trims_once_it_has_the_records() -> None:
    cluster, group = written(2)
    late = cluster.followers(group)[0].config.node_id
    cluster.stop(late)
    for _ in range(8):
        cluster.produce(group, batch(bytes(300)))
    decide(cluster, group, 11)
    node = cluster.start(late)
    cluster.run(10_000, until=lambda: group in node.partitions and node.partitions[group].log.start_offset == 11)
    assert cluster.fetch(node, group, 10).error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("start", "is_over"), [(10, True), (12, False), (20, False)])
def test_a_log_that_ends_before_the_start_is_looked_at_again(start: int, is_over: bool) -> None:
    """A follower that lags gets the deleted records after the key."""
    cluster, group = written(size=1, segment_bytes=1 << 20)
    node = cluster.leader(group)
    partition = node.partitions[group]
    assert partition.log.end_offset == 11
    assert node.record_deletion._trim(partition, partition.log.segments(), Offset(start)) is is_over
    assert len(partition.log.segments()) == 1


def test_a_restarted_node_goes_on_with_what_it_had_not_deleted_yet() -> None:
    cluster, group = written()
    late = cluster.followers(group)[0].config.node_id
    decide(cluster, group, 6)
    cluster.stop(late)
    assert cluster.disks[late].logs[group].start_offset == 0
    node = cluster.start(late)
    cluster.run(10_000, until=lambda: group in node.partitions and node.partitions[group].log.start_offset > 0)
    assert node.partitions[group].log.start_offset <= 6


def test_a_later_deletion_goes_on_where_the_first_ended() -> None:
    cluster, group = written(20)
    decide(cluster, group, 6)
    cluster.run(3_000)
    (first,) = starts(cluster, group)
    decide(cluster, group, 15)
    cluster.run(3_000)
    (second,) = starts(cluster, group)
    assert first <= 6 < second <= 15


def test_what_the_tier_has_not_copied_stays_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, group = written(size=1)
    node = cluster.leader(group)
    partition = node.partitions[group]
    ends = [segment.end_offset for segment in partition.log.segments()]
    bounds = [TableBounds(0, ends[0])]
    monkeypatch.setattr(node.record_deletion, "_table", lambda _: bounds[0])
    decide(cluster, group, ends[3])
    cluster.run(3_000)
    assert partition.log.start_offset == ends[0]
    bounds[0] = TableBounds(0, ends[2])
    cluster.run(3_000)
    assert partition.log.start_offset == ends[2]
    bounds[0] = TableBounds(0, ends[5])
    cluster.run(3_000)
    assert partition.log.start_offset == ends[3], "and no further than was asked for"


def test_a_disk_without_room_for_a_new_segment_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, group = written(size=1, segment_bytes=1 << 20)
    partition = cluster.leader(group).partitions[group]
    roll, fails = partition.roll, [True, True]

    def rolled() -> None:
        if fails:
            fails.pop()
            raise DiskFull("no room")
        roll()

    monkeypatch.setattr(partition, "roll", rolled)
    decide(cluster, group, 11)
    cluster.run(6_000, until=lambda: partition.log.start_offset == 11)
    assert not fails


def test_few_partitions_are_looked_at_in_one_tick_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_deletion, "LOOKS_PER_TICK", 1)
    cluster = Cluster(1, segment_bytes=200)
    groups = cluster.create_topic("t", 3)
    for group in groups:
        for _ in range(3):
            cluster.produce(group, batch(bytes(150)))
        decide(cluster, group, 3)
    cluster.run(4_000)
    assert all(starts(cluster, group) == {3} for group in groups)


def test_the_keys_of_a_deleted_topic_go_and_those_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_deletion, "KEYS_PER_SWEEP", 2)
    cluster = Cluster(3)
    gone, stays = cluster.create_topic("gone", 5), cluster.create_topic("stays", 2)
    for group in (*gone, *stays):
        decide(cluster, group, 0)
    assert len(keys(cluster.leader())) == 7
    results: list[Any] = []
    topic = cluster.leader().names.topic("gone")
    assert topic is not None
    cluster.leader().topics.delete(topic, lambda *result: results.append(result))
    kept = sorted(start_key(id_to_text(group.topic_id), group.partition) for group in stays)
    cluster.run(120_000, until=lambda: all(keys(node) == kept for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        assert set(node.kv.state.record_starts) == {(group.topic_id, group.partition) for group in stays}


def test_a_topic_of_the_same_name_begins_with_all_of_its_records() -> None:
    cluster, group = written(3)
    decide(cluster, group, 3)
    topic = cluster.leader().names.topic("t")
    assert topic is not None
    results: list[Any] = []
    cluster.leader().topics.delete(topic, lambda *result: results.append(result))
    cluster.run(2_000, until=lambda: bool(results) and all(group not in node.partitions for node in cluster.nodes.values()))
    (again,) = cluster.create_topic("t")
    cluster.produce(again, batch(b"first"))
    assert cluster.fetch(cluster.leader(again), again, 0).error is ErrorCode.NONE


@pytest.mark.parametrize(("recovery", "offset"), [("", 6), (id_to_text(bytes(range(16))), 2)])
def test_a_start_goes_back_only_with_a_recovery(recovery: str, offset: int) -> None:
    cluster, group = written()
    decide(cluster, group, 6)
    decide(cluster, group, 2, recovery)
    cluster.run(500)
    assert {node.kv.state.records_from(group) for node in cluster.nodes.values()} == {offset}
    assert {NodeId(1), NodeId(2), NodeId(3)} == set(cluster.nodes)
