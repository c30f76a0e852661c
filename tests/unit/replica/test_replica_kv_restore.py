"""A key space on its way back from a snapshot while no file can be opened for some time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from test_replica_snapshots import agree, trimmed_cluster, write, write_on

from raftlake.errors import StorageError, TooManyFiles
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.restore import NO_FILE_INTERVAL_MS
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster

#: Of each batch of a snapshot the header is read, then the rest.
READS_OF_A_BATCH = 2


class Shortage:
    """Reads of the snapshots of a node, as they are counted from now on; those of some numbers can open no file."""

    def __init__(self, cluster: Cluster, node_id: NodeId, *numbers: int) -> None:
        self.numbers = numbers
        self.is_lasting = False
        self.reads: list[int] = []
        self.failed_at_ms: list[int] = []
        self._cluster, self._node_id = cluster, node_id
        self._store = cluster.disks[node_id].snapshots
        self._read = self._store.read
        self._store.read = self._counting  # type: ignore[method-assign]

    def _counting(self, group: Any, snapshot_id: Any, position: int, size_max: int) -> bytes:
        node = self._cluster.nodes.get(self._node_id)
        if node is None or not node.kv.is_restoring:
            return self._read(group, snapshot_id, position, size_max)
        self.reads.append(position)
        if self.is_lasting or len(self.reads) in self.numbers:
            self.failed_at_ms.append(self._cluster.now_ms)
            raise TooManyFiles("read 1.checkpoint: [Errno 24] Too many open files")
        return self._read(group, snapshot_id, position, size_max)


def stopped() -> tuple[Cluster, NodeId]:
    """A cluster of which a follower is stopped that starts from a snapshot."""
    cluster = trimmed_cluster()
    node_id = cluster.followers()[0].config.node_id
    cluster.stop(node_id)
    return cluster, node_id


def restored(cluster: Cluster, node: ReplicaNode) -> bool:
    return not node.kv.is_restoring and agree(cluster)


@pytest.mark.parametrize("number", [1, READS_OF_A_BATCH, READS_OF_A_BATCH + 1, 2 * READS_OF_A_BATCH, 3 * READS_OF_A_BATCH])
def test_a_read_without_a_descriptor_is_tried_again(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """It ended the node."""
    cluster, node_id = stopped()
    shortage = Shortage(cluster, node_id, number)
    with caplog.at_level(logging.WARNING, logger="raftlake.snapshots"):
        node = cluster.start(node_id)
        cluster.run(10_000, until=lambda: restored(cluster, node))
    assert node.fatal is None and len(shortage.failed_at_ms) == 1
    assert sum("Too many open files; the key space is restored from" in line for line in caplog.messages) == 1
    # Each batch once, and what was read of the one that failed.
    again = shortage.reads[number - 1 :]
    batches = len(set(shortage.reads)) // READS_OF_A_BATCH
    assert len(shortage.reads) == READS_OF_A_BATCH * batches + 1 + (number - 1) % READS_OF_A_BATCH
    assert again[0] in again[1:]


def test_it_goes_on_for_as_long_as_that_lasts_and_tells_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster, node_id = stopped()
    shortage = Shortage(cluster, node_id)
    shortage.is_lasting = True
    with caplog.at_level(logging.WARNING, logger="raftlake.snapshots"):
        node = cluster.start(node_id)
        cluster.run(5 * NO_FILE_INTERVAL_MS)
    assert [later - earlier for earlier, later in zip(shortage.failed_at_ms, shortage.failed_at_ms[1:], strict=False)] == [
        NO_FILE_INTERVAL_MS
    ] * (len(shortage.failed_at_ms) - 1)
    assert len(shortage.failed_at_ms) >= 4 and len(caplog.messages) == 1
    assert node.kv.is_restoring and node.partitions[METADATA_GROUP].high_watermark == 0
    write(cluster, "meanwhile")
    shortage.is_lasting = False
    cluster.run(10_000, until=lambda: restored(cluster, node))
    assert node.kv.machine.get("meanwhile") is not None, "what was committed meanwhile is applied"


def test_a_node_that_runs_and_fetched_the_snapshot_goes_on_too() -> None:
    cluster = trimmed_cluster()
    behind = cluster.followers()[0]
    cluster.cut(behind.config.node_id)
    write_on(cluster)
    shortage = Shortage(cluster, behind.config.node_id, 3, 4)
    cluster.heal()
    cluster.run(20_000, until=lambda: len(shortage.failed_at_ms) == 2)
    assert behind.kv.is_restoring
    cluster.run(20_000, until=lambda: restored(cluster, behind))
    assert behind.fatal is None


def test_a_start_in_between_begins_with_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, node_id = stopped()
    shortage = Shortage(cluster, node_id, 2 * READS_OF_A_BATCH)
    node = cluster.start(node_id)
    cluster.run(1_000, until=lambda: bool(shortage.failed_at_ms))
    assert node.kv.is_restoring
    cluster.stop(node_id)
    shortage.reads.clear()
    shortage.numbers = ()
    node = cluster.start(node_id)
    cluster.run(10_000, until=lambda: restored(cluster, node))
    assert shortage.reads[0] == 0


def test_what_is_not_to_be_restored_any_more_reads_nothing() -> None:
    cluster, node_id = stopped()
    shortage = Shortage(cluster, node_id)
    shortage.is_lasting = True
    node = cluster.start(node_id)
    cluster.run(1_000, until=lambda: bool(shortage.failed_at_ms))
    restoring = node.kv._restoring
    assert restoring is not None
    restoring.cancel()
    cluster.run(3 * NO_FILE_INTERVAL_MS)
    assert len(shortage.failed_at_ms) == 1


def test_a_disk_that_fails_stops_the_node_still() -> None:
    cluster, node_id = stopped()
    store = cluster.disks[node_id].snapshots
    read = store.read

    def failing(*given: Any) -> bytes:
        node = cluster.nodes.get(node_id)
        if node is not None and node.kv.is_restoring:
            raise StorageError("read 1.checkpoint: [Errno 5] Input/output error")
        return read(*given)

    store.read = failing  # type: ignore[method-assign]
    node = cluster.start(node_id)
    with pytest.raises(StorageError, match="Input/output error"):
        cluster.run(1_000)
    assert node.fatal is not None
