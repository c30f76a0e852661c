"""Changes of voters on their way through a node."""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.messages import RemoveVoter
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster


def grown(size: int = 3) -> Cluster:
    """A cluster whose voters are in the log."""
    cluster = Cluster(size, directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    return cluster


def remove(cluster: Cluster, asked: ReplicaNode, node_id: int) -> AnswerVoterChange:
    answers: list[AnswerVoterChange] = []
    voter = asked.quorum.latest.voters[cluster.nodes[node_id].config.node_id]  # type: ignore[index]
    asked.begin_input()
    asked.voter_changes.request(asked.partitions[METADATA_GROUP], RemoveVoter(voter=voter), answers.append)
    cluster.run(5_000, lambda: bool(answers))
    assert len(answers) == 1
    return answers[0]


def test_a_change_is_answered_when_it_is_committed() -> None:
    cluster = grown()
    leader = cluster.leader()
    follower = cluster.followers()[0]
    answer = remove(cluster, leader, follower.config.node_id)
    assert answer.error is ErrorCode.NONE
    committed = leader.quorum.committed
    assert committed is not None and follower.config.node_id not in committed and len(committed) == 2


def test_who_does_not_lead_names_the_leader() -> None:
    cluster = grown()
    answer = remove(cluster, cluster.followers()[0], cluster.leader().config.node_id)
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, cluster.leader().config.node_id)
