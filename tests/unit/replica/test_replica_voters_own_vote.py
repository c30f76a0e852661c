"""What nodes ask about their own vote by themselves: to join, and to be reached where they are now."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.messages import RemoveVoter, UpdateVoter
from raftlake.raft.types import NodeId, VoterEndpoint
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.replica.quorum import address_in
from raftlake.replica.voters.own_vote import is_loopback
from replica_cluster import Cluster, batch

FOUR = NodeId(4)


def grown() -> Cluster:
    """Three nodes whose voters are in the log."""
    cluster = Cluster(3, directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    return cluster


def voters_of(cluster: Cluster) -> dict[int, bytes]:
    committed = cluster.leader().quorum.committed
    assert committed is not None
    return {int(node_id): bytes(key.directory_id) for node_id, key in committed.voters.items()}


def join(cluster: Cluster, *, auto_join: bool = True) -> list[tuple[str, str]]:
    """A fourth node, and what it hears about its vote."""
    cluster.wipe(FOUR)
    node = cluster.start(FOUR, auto_join=auto_join)
    return listen(node)


def listen(node: ReplicaNode) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []
    node.own_vote.listeners.append(lambda what, refusal: heard.append((what, refusal)))
    return heard


def remove(cluster: Cluster, node_id: NodeId) -> None:
    leader = cluster.leader()
    answers: list[AnswerVoterChange] = []
    leader.engine.begin_input()
    voter = leader.quorum.latest.voters[node_id]
    leader.voter_changes.request(leader.partitions[METADATA_GROUP], RemoveVoter(voter=voter), answers.append)
    cluster.run(5_000, lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE


# --- joining ---


def test_a_node_that_may_join_becomes_a_voter_of_every_group() -> None:
    """KafkaRaftClientAutoJoinTest.testAutoAddNewVoter."""
    cluster = grown()
    groups = cluster.create_topic("t", 2)
    heard = join(cluster)
    cluster.run(10_000, lambda: all(cluster.leader(g).partitions[g].core.voters.ids == (1, 2, 3, 4) for g in groups))
    assert 4 in voters_of(cluster)
    assert heard[-1] == ("become a voter", "")
    assert cluster.produce(groups[0], batch(b"x")).error is ErrorCode.NONE


def test_a_node_is_no_voter_unless_it_is_told_to_join() -> None:
    """testObserverDoesNotAddItselfWhenAutoJoinDisabled."""
    cluster = grown()
    heard = join(cluster, auto_join=False)
    cluster.run(10_000)
    assert cluster.nodes[FOUR].quorum.committed is not None
    assert 4 not in voters_of(cluster) and not heard


def test_nobody_joins_static_voters() -> None:
    """testObserverDoesNotAutoJoinWithKRaftVersion0."""
    cluster = Cluster(3, auto_join=True)
    cluster.wipe(FOUR)
    heard = listen(cluster.start(FOUR))
    cluster.run(10_000)
    assert cluster.leader().quorum.latest.ids == (1, 2, 3) and not heard


def test_a_replaced_disk_takes_the_place_of_the_old_one() -> None:
    """testObserverRemovesOldVoterAndAutoJoins."""
    cluster = grown()
    victim = cluster.followers()[0].config.node_id
    old = voters_of(cluster)[victim]
    cluster.stop(victim)
    cluster.wipe(victim)
    heard = listen(cluster.start(victim, auto_join=True))
    cluster.run(20_000, lambda: voters_of(cluster).get(victim, old) != old)
    assert voters_of(cluster)[victim] == cluster.nodes[victim].config.directory_id
    assert [what for what, refusal in heard if not refusal] == [
        "remove the voter that this node was with another directory",
        "become a voter",
    ]


def test_a_voter_that_was_removed_stays_out_until_it_is_started_again() -> None:
    """KAFKA-19850: it added itself again at once, and could not be removed while it ran."""
    cluster = grown()
    join(cluster)
    cluster.run(10_000, lambda: 4 in voters_of(cluster) and cluster.nodes[FOUR].partitions[METADATA_GROUP].core.is_voter)
    cluster.run(1_000)
    remove(cluster, FOUR)
    cluster.run(10_000)
    assert 4 not in voters_of(cluster)
    cluster.stop(FOUR)
    cluster.start(FOUR, auto_join=True)
    cluster.run(10_000, lambda: 4 in voters_of(cluster))


def test_a_voter_that_was_removed_while_it_was_down_joins_again() -> None:
    """Its own log says that it is a voter until it has fetched the rest."""
    cluster = grown()
    join(cluster)
    cluster.run(10_000, lambda: 4 in voters_of(cluster))
    cluster.run(1_000)
    cluster.stop(FOUR)
    remove(cluster, FOUR)
    cluster.start(FOUR, auto_join=True)
    cluster.run(10_000, lambda: 4 in voters_of(cluster))


def test_a_node_says_why_it_may_not_join_and_asks_again() -> None:
    cluster = grown()
    cluster.network.kraft_versions = (0, 0)
    heard = join(cluster)
    cluster.run(10_000, lambda: bool(heard))
    assert heard == [("become a voter", "node 4 does not know kraft.version 1")]
    cluster.run(10_000)
    assert len(heard) == 1, "the same is told once"
    cluster.network.kraft_versions = (0, 1)
    cluster.run(10_000, lambda: 4 in voters_of(cluster))
    assert heard[-1] == ("become a voter", "")


# --- moving ---


def move(cluster: Cluster, node_id: NodeId, address: Endpoint) -> list[tuple[str, str]]:
    """The node stops and starts again with another address in its settings."""
    cluster.stop(node_id)
    cluster.move(node_id, address)
    cluster.voters = {**cluster.voters, node_id: address}
    return listen(cluster.start(node_id))


def address_of(cluster: Cluster, node_id: NodeId) -> Endpoint | None:
    committed = cluster.leader().quorum.committed
    assert committed is not None
    return address_in(committed, node_id)


def test_a_voter_that_moved_tells_its_address_and_every_node_and_group_learns_it() -> None:
    cluster = grown()
    (group,) = cluster.create_topic("t")
    mover = cluster.followers()[0].config.node_id
    there = Endpoint("127.0.0.1", 9192)
    heard, met = move(cluster, mover, there), cluster.addresses_told()
    cluster.run(10_000, lambda: address_of(cluster, mover) == there)
    assert heard == [(f"be reached at {there}", "")]
    others = [node_id for node_id in cluster.nodes if node_id != mover]
    cluster.run(5_000, lambda: all(met.get((node_id, mover)) == there for node_id in others))
    cluster.run(5_000, lambda: address_in(cluster.leader(group).partitions[group].core.voters, mover) == there)
    sets = len(cluster.leader().partitions[METADATA_GROUP].core.voter_history.entries)
    cluster.run(10_000)
    assert len(cluster.leader().partitions[METADATA_GROUP].core.voter_history.entries) == sets, "it is said once"


def test_all_voters_may_move_the_leader_too() -> None:
    cluster = grown()
    there = {node_id: Endpoint("127.0.0.1", 9190 + node_id) for node_id in cluster.voters}
    for node_id in there:
        cluster.stop(node_id)
    for node_id, address in there.items():
        cluster.move(node_id, address)
    cluster.voters = dict(there)
    for node_id in there:
        cluster.start(node_id)
    cluster.run(20_000, lambda: all(address_of(cluster, node_id) == address for node_id, address in there.items()))


def test_an_address_at_which_nobody_answers_does_not_go_into_the_log() -> None:
    """A list of voters that is out of date would take a voter away from its peers."""
    cluster = grown()
    mover = cluster.followers()[0].config.node_id
    before = address_of(cluster, mover)
    cluster.stop(mover)
    nowhere = Endpoint("10.0.0.9", 9092)
    cluster.voters = {**cluster.voters, mover: nowhere}
    heard = listen(cluster.start(mover))
    cluster.run(10_000)
    assert address_of(cluster, mover) == before
    assert heard == [(f"be reached at {nowhere}", "REQUEST_TIMED_OUT")]


def test_the_address_of_another_voter_does_not_go_into_the_log() -> None:
    cluster = grown()
    leader, mover = cluster.leader(), cluster.followers()[0].config.node_id
    taken = cluster.listeners[cluster.followers()[1].config.node_id]
    partition = leader.partitions[METADATA_GROUP]
    change = UpdateVoter(
        voter=leader.quorum.latest.voters[mover],
        endpoints=(VoterEndpoint("CONTROLLER", taken.host, taken.port),),
        leader_epoch=partition.core.epoch,
    )
    answers: list[AnswerVoterChange] = []
    leader.engine.begin_input()
    leader.voter_changes.admit(partition, change, answers.append)
    assert answers[0].error is ErrorCode.INVALID_REQUEST and "is the address of node" in answers[0].message


def test_a_loopback_address_takes_no_others_place() -> None:
    """A node whose settings name no address listens at 127.0.0.1; its operator has told the quorum a better one."""
    cluster = grown()
    mover = cluster.followers()[0].config.node_id
    there = Endpoint("10.0.0.2", 9092)
    move(cluster, mover, there)
    cluster.run(10_000, lambda: address_of(cluster, mover) == there)
    heard = move(cluster, mover, Endpoint("127.0.0.1", 9092))
    cluster.run(10_000)
    assert address_of(cluster, mover) == there and not heard


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("node1", False)]
)
def test_what_is_a_loopback_address(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
