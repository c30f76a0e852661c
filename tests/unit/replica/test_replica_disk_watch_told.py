"""What a node believes of other disks, and what clients are told of its own."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from raftlake.errors import DiskFull
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchRpc
from raftlake.raft.types import NodeId, ReplicaKey, VoterSet
from raftlake.replica.apis.produce import NO_ROOM
from raftlake.replica.node import ReplicaNode
from raftlake.storage.files import storage_error
from replica_cluster import Cluster, batch

LIMIT = 100_000


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(min_free_bytes=LIMIT)
    cluster.leader()
    cluster.run(2_500)
    return cluster


def fetch_as(node: ReplicaNode, replica_id: int, *, is_low: bool = True) -> None:
    """One round of somebody who says to be that replica."""
    rpc = FetchRpc(
        cluster_id=None,
        replica_id=NodeId(replica_id),
        session_id=0,
        session_epoch=0,
        wait_ms_max=0,
        size_max=1_000,
        messages=(),
        disk_is_low=is_low,
    )
    node.receive(PeerConnection(), rpc, lambda _reply: None)


def test_nothing_is_noted_of_strangers_who_say_that_their_disks_are_low(cluster: Cluster) -> None:
    leader, voter = cluster.leader(), cluster.followers()[0].config.node_id
    for replica_id in range(100, 5_100):
        fetch_as(leader, replica_id)
    assert len(leader.disk._low_peers) == 0
    fetch_as(leader, voter)
    assert leader.disk.low_among(leader.quorum.latest) == (voter,)
    fetch_as(leader, voter, is_low=False)
    assert leader.disk.low_among(leader.quorum.latest) == ()


def test_what_is_noted_of_those_who_vote_no_longer_goes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = cluster.leader()
    everyone = leader.quorum.latest
    for number in range(100, 200):
        added: VoterSet = everyone.with_voter(ReplicaKey(NodeId(number)), ())
        monkeypatch.setattr(type(leader.quorum), "latest", property(lambda _self, added=added: added))
        fetch_as(leader, number)
        assert leader.disk.low_among(added) == (number,)
    assert len(leader.disk._low_peers) == 1


@pytest.mark.parametrize("directory", ["/srv/raftlake-data", "/srv/my data/node 1", "/data"])
def test_a_client_whose_append_found_no_room_is_told_no_path(
    cluster: Cluster, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    told: list[str] = []
    leader.disk.listeners.append(told.append)

    def find_no_room(*_args: Any, **_fields: Any) -> None:
        raise storage_error("write", Path(directory) / "orders-0" / "0.log", OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(leader.partitions[group].log, "append", find_no_room)
    result = cluster.produce(group, batch(b"x"), node=leader)
    assert result.error is NO_ROOM and result.error_message
    assert not any(part in result.error_message for part in ("/", "srv", "data", "node 1", "0.log"))
    assert any(directory in text for text in told), "the node's own log says where"


def test_each_disk_that_is_full_says_the_same_to_clients() -> None:
    full = storage_error("write", Path("/data/x"), OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert isinstance(full, DiskFull) and "/data" in str(full) and "/" not in full.for_clients
