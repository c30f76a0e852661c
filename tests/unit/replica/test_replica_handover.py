"""A graceful stop of a leader amid appends: the successor has the whole log and is elected at the first attempt."""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ControlRpc, GroupId, PeerMessage
from raftlake.raft.messages import BeginQuorumEpochRequest
from raftlake.replica.handover import HOLD_MS, SETTLE_MS
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request


def amid_an_append(cluster: Cluster, group: GroupId) -> tuple[ReplicaNode, list[object]]:
    """The leader, with a record that it has written and nobody has acknowledged."""
    leader = cluster.leader(group)
    cluster.run(1000)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"on its way")), version=9)
    partition = leader.partitions[group]
    cluster.run(10, until=lambda: partition.core.log_end > partition.high_watermark)
    return leader, answers


def error_of(answers: list[object]) -> ErrorCode:
    error: ErrorCode = answers[0].topics[0].partitions[0].error  # type: ignore[attr-defined]
    return error


def test_a_leader_that_stops_amid_an_append_has_a_successor_within_a_few_round_trips() -> None:
    for seed in range(5):
        cluster = Cluster(seed=seed)
        (group,) = cluster.create_topic("t")
        leader, answers = amid_an_append(cluster, group)
        began_ms = cluster.now_ms
        leader.resign()
        others = [node for node in cluster.nodes.values() if node is not leader]
        cluster.run(1000, until=lambda: any(node.partitions[group].is_serving for node in others))  # noqa: B023
        assert cluster.now_ms - began_ms < 50
        assert error_of(answers) is ErrorCode.NONE
        cluster.run(1000, until=leader.handover.is_drained)


def test_what_arrives_from_the_beginning_of_the_stop_on_is_refused_with_the_name_of_the_next_leader() -> None:
    """Whoever is refused while nobody leads looks around in vain, again and again; this one goes where it is told."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader, _ = amid_an_append(cluster, group)
    leader.resign()
    amid_settling = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(500, until=lambda: not leader.partitions[group].core.is_leader)
    amid_election = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"later")), version=9)
    assert not amid_settling and not amid_election
    cluster.run(500, until=leader.handover.is_drained)
    successor = cluster.leader(group)
    afterwards = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"too late")), version=9)
    cluster.run(1)
    for answers in (amid_settling, amid_election, afterwards):
        assert error_of(answers) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answers[0].topics[0].partitions[0].current_leader == (successor.config.node_id, 2)  # type: ignore[attr-defined]
    assert cluster.produce(group, batch(b"again"), node=successor).error is ErrorCode.NONE


def test_what_arrives_at_a_leader_that_stops_is_refused_when_nobody_follows_it_for_long() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.run(1000)
    leader.resign()
    others = [node_id for node_id in cluster.voters if node_id != me]
    cluster.cut(me, *others)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(HOLD_MS - 1)
    assert not answers
    cluster.run(2)
    assert error_of(answers) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answers[0].topics[0].partitions[0].current_leader is None  # type: ignore[attr-defined]


def test_the_only_voter_has_nobody_to_name_and_appends_to_the_end() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(1000)
    leader.resign()
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(1)
    assert error_of(answers) is ErrorCode.NONE


def test_a_leader_whose_followers_do_not_keep_up_resigns_all_the_same() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.run(1000)
    cluster.cut(me)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"stuck")), version=9)
    cluster.run(10, until=lambda: leader.partitions[group].core.log_end > leader.partitions[group].high_watermark)
    leader.resign()
    cluster.run(SETTLE_MS - 1)
    assert leader.partitions[group].core.is_leader
    cluster.run(2)
    assert not leader.partitions[group].core.is_leader
    assert error_of(answers) is ErrorCode.REQUEST_TIMED_OUT, "it may still be committed by the next leader"


def test_a_group_without_anything_on_its_way_resigns_at_once() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(1000)
    leader.resign()
    assert not leader.partitions[group].core.is_leader


def test_what_is_held_by_a_leader_that_is_replaced_while_it_settles_is_refused() -> None:
    """It waited for a leader that was known, and was answered by the end of the process."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(1000)
    me = leader.config.node_id
    others = [node for node in cluster.nodes.values() if node is not leader]
    cluster.cut(me)
    cluster.run(5_000, until=lambda: any(node.partitions[group].is_serving for node in others))
    partition = leader.partitions[group]
    cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"stuck")), version=9)
    cluster.run(5, until=lambda: partition.core.log_end > partition.high_watermark)
    leader.resign()
    successor = next(node for node in others if node.partitions[group].is_serving)
    epoch = successor.partitions[group].core.epoch
    request = BeginQuorumEpochRequest(leader_id=successor.config.node_id, leader_epoch=epoch)
    rpc = ControlRpc(cluster_id=None, messages=(PeerMessage(group, request),))
    cluster.machines[me].run(leader.receive, PeerConnection(), rpc, lambda reply: None)
    cluster.run(1)
    assert partition.core.leader_id == successor.config.node_id
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(1)
    assert error_of(answers) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.core.is_resigning, "it does not campaign again"
    cluster.run(SETTLE_MS + HOLD_MS)
    assert leader.fatal is None and len(answers) == 1
    assert all(each.core.is_resigning for each in leader.partitions.values())


def test_what_the_only_voter_holds_while_it_settles_is_appended() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader, first = amid_an_append(cluster, group)
    leader.resign()
    later = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(1)
    assert error_of(first) is ErrorCode.NONE
    cluster.run(SETTLE_MS)
    assert error_of(later) is ErrorCode.NONE and later[0].topics[0].partitions[0].base_offset == 2  # type: ignore[attr-defined]


def test_what_the_only_voter_holds_is_appended_where_its_disk_is_slow() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(1000)
    partition = leader.partitions[group]
    machine = cluster.machines[leader.config.node_id]
    sync = machine.flush_later
    machine.flush_later = lambda *ends: cluster.after(3 * SETTLE_MS, lambda: sync(*ends))  # type: ignore[method-assign]
    first = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"on its way")), version=9)
    cluster.run(10, until=lambda: partition.core.log_end > partition.high_watermark)
    leader.resign()
    later = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")), version=9)
    cluster.run(SETTLE_MS + 1)
    assert not first and not later
    cluster.run(10 * SETTLE_MS, until=lambda: bool(first and later))
    assert (error_of(first), error_of(later)) == (ErrorCode.NONE, ErrorCode.NONE)
