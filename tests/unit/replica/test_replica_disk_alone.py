"""Whether a damaged node votes alone is said by its group's own voters, not by the settings that it was started with."""

from __future__ import annotations

import pytest

from raftlake.errors import DiskFull, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, NodeId, VoterSet
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.disk.alone import Solitude
from raftlake.sim.disk.disk import MemoryLog
from replica_cluster import Cluster, batch

SERVERS = (Endpoint("127.0.0.1", 1),)


@pytest.mark.parametrize("servers", [(), SERVERS], ids=["quorum.voters names this node", "bootstrap servers"])
@pytest.mark.parametrize("number", [0, -1], ids=["the first batch", "the last batch"])
def test_a_member_of_three_is_repaired_whatever_its_settings_say(servers: tuple[Endpoint, ...], number: int) -> None:
    cluster = Cluster(3, directories=True)
    (group,) = cluster.create_topic("orders")
    for value in (b"one", b"two", b"three"):
        cluster.produce(group, batch(value))
    cluster.run(2_000)
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    log = cluster.disks[follower].logs[METADATA_GROUP]
    assert log.damage(number % len(log.batches), -1) is not None
    cluster.voters = {} if servers else {follower: Endpoint("127.0.0.1", 9)}
    restarted = cluster.start(follower, bootstrap_servers=servers)
    assert restarted.fatal is None
    assert METADATA_GROUP in restarted.damage.impaired
    cluster.run(20_000, until=lambda: log.decay.is_sound and not restarted.damage.impaired)
    assert restarted.partitions[METADATA_GROUP].core.voters.ids == (1, 2, 3)


def test_who_is_the_only_voter_is_alone() -> None:
    cluster = Cluster(1, directories=True)
    cluster.run(1_000)
    node = cluster.nodes[NodeId(1)]
    solitude = Solitude(node.engine, node.names, node.quorum)
    assert solitude.votes_alone(METADATA_GROUP, None)
    assert solitude.votes_alone(METADATA_GROUP, node.partitions[METADATA_GROUP].core.voters)


@pytest.mark.parametrize("error", [TooManyFiles("many"), DiskFull("full")])
def test_who_can_open_no_file_does_not_know_whether_it_is_alone(monkeypatch: pytest.MonkeyPatch, error: DiskFull) -> None:
    """A quorum that began with one node, which its settings name alone. The metadata log waited for room when another log was
    found damaged: the node stopped as its only voter."""
    cluster = Cluster(3, directories=True)
    (group,) = cluster.create_topic("orders")
    cluster.produce(group, batch(b"one"))
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    follower = next(node_id for node_id in cluster.nodes if node_id != cluster.leader(group).config.node_id)
    cluster.stop(follower)
    cluster.voters = {follower: Endpoint("127.0.0.1", 9)}
    disk, left = cluster.disks[follower], [4]
    honest = disk.open

    def refusing(asked: GroupId) -> MemoryLog:
        if asked == METADATA_GROUP and left[0]:
            left[0] -= 1
            raise error
        return honest(asked)

    monkeypatch.setattr(disk, "open", refusing)
    # It has heard of an epoch, and of nobody who led in it.
    disk.elections[group] = ElectionState(epoch=disk.elections[group].epoch)
    log = disk.logs[group]
    assert log.damage(0, -1) is not None
    node = cluster.start(follower)
    cluster.run(20_000, until=lambda: group in node.partitions and disk.logs[group].decay.is_sound)
    assert node.fatal is None and group in node.partitions and left == [0]


def test_an_observer_whose_group_knows_no_voter_is_not_alone() -> None:
    """Simulator, seed 1120003662. The group's log named no voters, and the node was told addresses only: its core knew none. It
    was to begin its log anew, took itself for the only voter, and stopped at each start."""
    cluster = Cluster(3, directories=True)
    cluster.create_topic("orders")
    observer = NodeId(4)
    cluster.wipe(observer)
    node = cluster.start(observer, voters={}, bootstrap_servers=(Endpoint("127.0.0.1", 9091),))
    cluster.run(20_000, until=lambda: len(node.partitions) == 2)
    solitude = Solitude(node.engine, node.names, node.quorum)
    assert not any(solitude.votes_alone(group, VoterSet({})) for group in node.partitions)
