"""The surviving directory of a quorum that lost its majority, and `raftlake recover` on it."""

from __future__ import annotations

from pathlib import Path

from contract.batches import fill
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.recovery.recover import Recovery
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import format_directory

ORDERS = GroupId("orders", 0, bytes(range(16)))
ME = NodeId(3)
HERE = Endpoint("127.0.0.1", 9093)


def make_survivor(root: Path) -> Path:
    """One directory of three: 12 records in `orders-0`, 5 in the metadata log, in epoch 4; once a vote in 6."""
    path = root / "survivor"
    format_directory(path, node_id=ME, cluster_id="mine")
    directory = FileLogDirectory(path, post=None)
    fill(directory.open(ORDERS), 12, epoch=4)
    fill(directory.open(METADATA_GROUP), 5, epoch=4)
    elections = FileElectionStore(path)
    elections.save({ORDERS: ElectionState(Epoch(4)), METADATA_GROUP: ElectionState(Epoch(6), None, ReplicaKey(NodeId(1)))})
    elections.close()
    directory.close()
    return path


def begin(place: Path, node_id: NodeId = ME) -> Recovery:
    return Recovery(place, node_id, HERE, METADATA_GROUP)


def recover(place: Path) -> DirectoryId:
    recovery = begin(place)
    try:
        return recovery.perform(recovery.examine(), "mine")
    finally:
        recovery.close()
