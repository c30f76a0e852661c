"""Trimming a log behind its snapshot: a segment a turn, and nothing twice."""

from __future__ import annotations

import itertools

import pytest

from raftlake.ports.driver import SnapshotWriter
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset, OffsetAndEpoch
from raftlake.replica.partition import snapshot_files
from raftlake.replica.partition.start_points import Slices
from replica_cluster import Cluster, batch


def filled() -> tuple[Cluster, GroupId]:
    """Three nodes, and a partition of many segments that nothing trims by itself."""
    cluster = Cluster(3, segment_bytes=400, retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    for number in range(30):
        cluster.produce(group, batch(b"%03d" % number * 30))
    cluster.run(1_000)
    return cluster, group


def test_a_log_is_trimmed_a_segment_a_turn() -> None:
    cluster = Cluster(3, segment_bytes=400, retention_bytes=1 << 30, retention_check_interval_ms=100)
    (group,) = cluster.create_topic("t")
    for number in range(60):
        cluster.produce(group, batch(b"%03d" % number * 30))
    cluster.run(1_000)
    node = cluster.leader()
    partition = node.partitions[group]
    segments = partition.log.segments()
    keep_from = segments[-2].end_offset
    assert len(segments) > 15 and partition.core.log_start == 0
    node.snapshots.trim(partition, keep_from)
    starts = [Offset(0)]
    while starts[-1] < keep_from:
        # Whoever asks again meanwhile, as retention does, changes nothing.
        node.snapshots.trim(partition, keep_from)
        cluster.run(1)
        starts.append(partition.log.start_offset)
        assert partition.core.log_start == starts[-1]
    begins = [segment.base_offset for segment in segments]
    steps = [begins.index(after) - begins.index(before) for before, after in itertools.pairwise(starts)]
    assert set(steps) == {0, 1}, "one segment at most in each millisecond"
    assert [each.offset for each in node.engine.logs.snapshots.ids(group)] == [keep_from]
    cluster.run(100)
    assert partition.log.start_offset == keep_from
    cluster.produce(group, batch(b"more"))


def test_a_trim_that_a_restart_broke_off_goes_on_with_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator, seed 840002979: retention then asked for less, and a snapshot below the newest one named no voters."""
    cluster = Cluster(3, segment_bytes=400, retention_bytes=1 << 30, retention_check_interval_ms=100)
    (group,) = cluster.create_topic("t")
    for number in range(60):
        cluster.produce(group, batch(b"%03d" % number * 30))
    cluster.run(1_000)
    node = cluster.leader()
    partition = node.partitions[group]
    segments = partition.log.segments()
    keep_from = segments[-2].end_offset
    node.snapshots.trim(partition, keep_from)
    cluster.run(1_000, until=lambda: node.engine.logs.snapshots.ids(group) and partition.log.start_offset > 0)
    assert partition.log.start_offset < segments[4].end_offset < keep_from
    node_id = node.engine.config.node_id
    cluster.stop(node_id)
    again = cluster.start(node_id)
    cluster.run(10_000, until=lambda: group in again.partitions and again.partitions[group].core.high_watermark >= keep_from)
    partition = again.partitions[group]
    assert 0 < partition.log.start_offset < segments[4].end_offset
    store, begun = again.engine.logs.snapshots, []

    def create(group: GroupId, snapshot_id: OffsetAndEpoch) -> SnapshotWriter:
        begun.append(snapshot_id)
        return begin(group, snapshot_id)

    begin = store.create
    monkeypatch.setattr(store, "create", create)
    again.snapshots.trim(partition, segments[4].end_offset)
    cluster.run(1_000, until=lambda: partition.log.start_offset == segments[4].end_offset)
    assert begun == [] and [each.offset for each in store.ids(group)] == [keep_from]
    assert partition.core.snapshot_id is not None and partition.core.snapshot_id.offset == keep_from
    again.snapshots.trim(partition, keep_from)
    cluster.run(1_000, until=lambda: partition.log.start_offset == keep_from)


def test_a_topic_that_is_deleted_while_its_log_is_trimmed_is_left_alone() -> None:
    cluster, group = filled()
    node = cluster.leader()
    partition = node.partitions[group]
    node.snapshots.trim(partition, partition.log.segments()[-2].end_offset)
    cluster.run(100, until=lambda: partition.core.log_start > 0)
    topic = node.names.topic("t")
    assert topic is not None
    gone: list[object] = []
    node.topics.delete(topic, lambda topic, error, message: gone.append(error))
    cluster.run(2_000, until=lambda: all(group not in each.partitions for each in cluster.nodes.values()))
    start = partition.core.log_start
    cluster.run(500)
    assert node.fatal is None and partition.core.log_start == start


def test_a_trim_whose_log_is_cut_before_its_turn_comes_leaves_no_snapshot() -> None:
    """Simulator, seed 1060000922: other work went first, damage was found meanwhile, and the log was cut below the trim's end.
    The snapshot told no producers. The node began behind it, led, and appended a batch that came again."""
    cluster = Cluster(3, segment_bytes=400, retention_bytes=1 << 30)
    (group,) = cluster.create_topic("t")
    for number in range(30):
        cluster.produce(group, batch(b"%03d" % number * 30, producer_id=7, producer_epoch=0, base_sequence=number))
    cluster.run(1_000)
    node = cluster.followers(group)[0]
    store, partition = node.engine.logs.snapshots, node.partitions[group]
    is_first = True

    def first() -> Slices:
        while is_first:
            yield

    node.producers.in_slices(first())
    damaged = partition.log.segments()[-3]
    keep_from = damaged.end_offset
    node.snapshots.trim(partition, keep_from)
    (begun,) = store._writers.values()  # type: ignore[attr-defined]
    log = cluster.disks[node.config.node_id].logs[group]
    log.damage([each.base for each in log.batches].index(damaged.base_offset), -1)
    assert node.findings.guarded(group, lambda: partition.log.scrub(1 << 20)) is None
    cluster.run(1)
    cut = node.partitions[group]
    assert cut is not partition and cut.log.end_offset < keep_from
    is_first = False
    cluster.run(1_000, until=lambda: cut.log.end_offset > keep_from)
    assert list(store.ids(group)) == [] and not node.snapshots._trimming
    assert begun.is_over, "nothing is left of it"
    node.snapshots.trim(cut, keep_from)
    cluster.run(1_000, until=lambda: cut.log.start_offset == keep_from)
    (taken,) = store.ids(group)
    known = snapshot_files.check(store, group, taken).producers
    assert known is not None and len(known.packed) > 0


def test_a_damaged_snapshot_at_the_start_of_a_log_is_renewed_where_nothing_tells_its_producers() -> None:
    cluster, group = filled()
    node = cluster.leader()
    store, partition = node.engine.logs.snapshots, node.partitions[group]
    keep_from = partition.log.segments()[-2].end_offset
    node.snapshots.trim(partition, keep_from)
    cluster.run(1_000, until=lambda: partition.log.start_offset == keep_from)
    (damaged,) = store.ids(group)
    store.delete(group, damaged)
    partition.log.start_points.delete([keep_from])
    node.snapshots.renew(partition, damaged)
    cluster.run(1_000, until=lambda: list(store.ids(group)) == [damaged])
    assert snapshot_files.check(store, group, damaged).producers is None
