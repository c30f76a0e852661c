"""What a node tells of itself: forged epochs are counted and told, and leave the quorum as it was."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ControlRpc, PeerMessage
from raftlake.raft.actions import ReportRefusedEpoch, ReportRole
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, Request, VoteRequest
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reports import REFUSAL_ALARM_MS
from replica_cluster import Cluster

STRANGER, VOTER = NodeId(77), NodeId(2)


def forged(source: NodeId, epoch: Epoch) -> list[Request]:
    return [
        BeginQuorumEpochRequest(leader_id=source, leader_epoch=epoch),
        EndQuorumEpochRequest(leader_id=source, leader_epoch=epoch, preferred_candidates=()),
        VoteRequest(
            candidate=ReplicaKey(source), epoch=epoch, log_end=OffsetAndEpoch(Offset(2**40), Epoch(epoch - 1)), pre_vote=False
        ),
    ]


def ask(cluster: Cluster, node: ReplicaNode, request: Request) -> Any:
    replies: list[Any] = []
    message = PeerMessage(METADATA_GROUP, request)
    node.receive(PeerConnection(), ControlRpc(cluster_id=node.cluster_id, messages=(message,)), replies.append)
    cluster.run(1_000, until=lambda: bool(replies))
    return replies[0].messages[0].body


@pytest.mark.parametrize("directories", [False, True])
@pytest.mark.parametrize("source", [STRANGER, VOTER])
def test_a_forged_epoch_is_refused_counted_and_told_and_the_leader_goes_on(
    directories: bool, source: NodeId, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(directories=directories)
    cluster.run(2_000)
    leader = cluster.leader()
    source = source if source != leader.config.node_id else NodeId(1)
    before = leader.partitions[METADATA_GROUP].core.epoch
    asked = [node for node in cluster.nodes.values() if node.config.node_id != source]
    for node in asked:
        for request in forged(source, EPOCH_MAX):
            assert ask(cluster, node, request).error is ErrorCode.INVALID_REQUEST
        assert node.reports.refused_epochs == 3
        alarm = node.reports.alarms[METADATA_GROUP]
        assert f"refused epoch {EPOCH_MAX} of node {source}" in alarm and "Keep its data" in alarm
    assert cluster.leader() is leader
    assert {node.partitions[METADATA_GROUP].core.epoch for node in cluster.nodes.values()} == {before}
    told = [record for record in caplog.records if record.name == "raftlake.epochs"]
    assert len(told) == 2 * len(asked), "the first one, and the second"
    cluster.create_topic("afterwards")


def test_an_alarm_is_raised_before_epochs_have_come_to_an_end() -> None:
    cluster = Cluster(1)
    node = cluster.leader()
    partition = node.partitions[METADATA_GROUP]
    usable = EPOCH_MAX - EPOCH_LEAP_MAX
    for epoch, is_alarming in ((usable, False), (usable + 1, True)):
        node.reports.role(partition.group, ReportRole(role="Leader", epoch=Epoch(epoch), leader_id=NodeId(1), reason="test"))
        alarm = node.reports.alarms.get(METADATA_GROUP, "")
        assert ("raftlake recover" in alarm and "Keep the data of the others" in alarm) is is_alarming


def refuse(node: ReplicaNode, epoch: int) -> None:
    node.reports.refused_epoch(METADATA_GROUP, ReportRefusedEpoch(source=VOTER, epoch=Epoch(epoch), own_epoch=Epoch(5)))


def test_the_alarm_about_a_refused_epoch_ends_when_the_node_has_caught_up(caplog: pytest.LogCaptureFixture) -> None:
    """A node that was away refuses one voter's word before it hears the second one's."""
    cluster = Cluster(1)
    node = cluster.leader()
    partition = node.partitions[METADATA_GROUP]
    for _ in range(2):
        for epoch in (7_000_000, 7_000_009, 7_000_004):
            refuse(node, epoch)
        assert "refused epoch" in node.reports.alarms[METADATA_GROUP]
        for epoch, is_over in ((7_000_008, False), (7_000_009, True), (7_000_010, True)):
            node.reports.role(partition.group, ReportRole(role="Follower", epoch=Epoch(epoch), leader_id=VOTER, reason="test"))
            assert (METADATA_GROUP not in node.reports.alarms) is is_over
    told = [record for record in caplog.records if record.name == "raftlake.epochs"]
    assert len(told) == 3, "of six the first, second and fourth: an alarm that comes and goes fills no disk"


def test_the_alarm_about_refused_epochs_ends_a_while_after_the_last_one() -> None:
    """It stood until a restart: a forger's epoch is never reached."""
    cluster = Cluster(1)
    node = cluster.leader()
    refuse(node, 7_000_000)
    cluster.run(REFUSAL_ALARM_MS - 1_000)
    refuse(node, 6_000_000)
    cluster.run(REFUSAL_ALARM_MS - 1)
    assert "refused epoch" in node.reports.alarms[METADATA_GROUP]
    cluster.run(1)
    assert not node.reports.alarms
    refuse(node, 5_000_000)
    assert "refused epoch 5000000" in node.reports.alarms[METADATA_GROUP]
    report = ReportRole(role="Follower", epoch=Epoch(5_000_000), leader_id=VOTER, reason="test")
    node.reports.role(METADATA_GROUP, report)
    assert not node.reports.alarms, "the epoch of the alarm that is over is not waited for"


def test_that_epochs_come_to_an_end_is_told_before_and_after_refusals() -> None:
    cluster = Cluster(1)
    node = cluster.leader()
    report = ReportRole(role="Leader", epoch=EPOCH_MAX, leader_id=NodeId(1), reason="test")
    node.reports.role(METADATA_GROUP, report)
    refuse(node, EPOCH_MAX)
    assert "raftlake recover" in node.reports.alarms[METADATA_GROUP]
    cluster.run(REFUSAL_ALARM_MS)
    assert "raftlake recover" in node.reports.alarms[METADATA_GROUP]


@pytest.mark.parametrize("is_near_the_end", [False, True])
def test_no_alarm_advises_to_give_the_data_of_a_voter_up(is_near_the_end: bool) -> None:
    node = Cluster(1).leader()
    if is_near_the_end:
        report = ReportRole(role="Leader", epoch=EPOCH_MAX, leader_id=NodeId(1), reason="test")
        node.reports.role(METADATA_GROUP, report)
    else:
        refuse(node, EPOCH_MAX)
    alarm = node.reports.alarms[METADATA_GROUP].lower()
    assert not any(word in alarm for word in ("empty", "anew", "wipe", "delete", "remove"))
    assert "keep" in alarm


def test_alarms_of_a_deleted_topic_are_over_and_those_of_others_stay() -> None:
    """A hundred of them were all that is told, for good."""
    cluster = Cluster(1)
    gone, kept = cluster.create_topic("gone", 2), cluster.create_topic("kept", 2)
    node = cluster.leader()
    for groups in (gone, kept):
        refused = ReportRefusedEpoch(epoch=Epoch(EPOCH_MAX), own_epoch=Epoch(1), source=STRANGER)
        node.reports.refused_epoch(groups[0], refused)
        node.reports._end(groups[1], EPOCH_MAX)
    assert set(node.reports.alarms) == {*gone, *kept}
    topic = node.names.topic("gone")
    assert topic is not None
    node.topics.delete(topic, lambda *_: None)
    cluster.run(1_000, until=lambda: node.names.topic("gone") is None)
    assert set(node.reports.alarms) == {*kept}
    assert (node.reports.refused_epochs, len(node.reports._refusals)) == (2, 1)
