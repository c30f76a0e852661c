"""A snapshot of our own, or a trim, that ends when the core has begun anew behind a later snapshot, in the same turn."""

from __future__ import annotations

import pytest

from raftlake.errors import StorageError
from raftlake.raft.handlers import fetch_snapshot
from raftlake.raft.types import Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.partition import Partition
from raftlake.replica.snapshots import snapshots
from replica_cluster import Cluster, batch


def test_a_snapshot_that_ends_beside_a_later_fetched_one_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator, seed 611872952: both were synced before the turn, and the older one was told to a core that had begun behind
    the later one. The node stopped."""

    class Seen(Exception):
        pass

    cluster = Cluster(3, snapshot_bytes_between=1 << 30)
    cluster.create_topic("t")
    cluster.run(1_000)
    node = cluster.followers()[0]
    partition = node.partitions[METADATA_GROUP]
    core, store = partition.core, node.engine.logs.snapshots
    later = OffsetAndEpoch(Offset(core.high_watermark + 5), core.epoch)
    honest = node.snapshots._on_taken
    told: list[OffsetAndEpoch] = []

    def behind_the_later_one(taking: snapshots._Taking, partition: Partition, error: StorageError | None) -> None:
        told.append(taking.maker.snapshot_id)
        assert list(store.ids(METADATA_GROUP)) == told
        fetch_snapshot._begin_at(core, later, core.voters)
        honest(taking, partition, error)
        raise Seen

    monkeypatch.setattr(node.snapshots, "_on_taken", behind_the_later_one)
    node.snapshots.take(partition)
    with pytest.raises(Seen):
        cluster.run(1_000)
    assert told[0].offset < later.offset == core.log_start
    assert core.snapshot_id == later and list(store.ids(METADATA_GROUP)) == []


def test_a_log_that_is_about_to_begin_behind_a_fetched_snapshot_is_not_trimmed_before_it() -> None:
    """Retention looks at the log, whose core has begun anew already in the same turn."""
    cluster = Cluster(3, segment_bytes=400, retention_bytes=800, retention_check_interval_ms=1_000_000)
    (group,) = cluster.create_topic("t")
    for number in range(20):
        cluster.produce(group, batch(b"%03d" % number * 30))
    cluster.run(1_000)
    node = cluster.followers(group)[0]
    partition = node.partitions[group]
    core, ids = partition.core, list(node.engine.logs.snapshots.ids(group))
    ends = [segment.end_offset for segment in partition.log.segments()[:-1]]
    fetch_snapshot._begin_at(core, OffsetAndEpoch(Offset(core.high_watermark + 5), core.epoch), core.voters)
    node.snapshots.trim(partition, Offset(ends[-1]))
    cluster.run(1)
    assert list(node.engine.logs.snapshots.ids(group)) == ids and not node.snapshots._trimming
