"""KIP-650, sentence by sentence: linearizable reads of others than the leader. Each docstring quotes the sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import GroupId, PeerReply, PeerRpc, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.raft import actions as do
from raftlake.raft.events import FailureReason
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.listener.api_versions import answer_api_versions
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster as NodeCluster
from replica_cluster import batch

# --- at the core ----------------------------------------------------------------------------------------------------


def test_the_leader_answers_with_its_applied_offset() -> None:
    """“a separate RPC called ReadOffset shall be implemented for the non-leader node to query the current applied offset on
    the active leader's state machine for a linearizable query.” Ours also proves that it still leads (ARCHITECTURE, promise 2).
    """
    replica = Replica.leader(epoch=6)
    replica.append(4)
    replica.flush()
    replica.fetch(2, 5, 6)
    assert replica.read(1, sequence=0) is None
    replica.fetch(2, 5, 6, follows=1)
    (answer,) = replica.took(do.AnswerRead)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, 5)


def test_a_new_leader_answers_only_once_its_epoch_has_committed() -> None:
    """“Consider a case where there is one event for a football game final score, the message gets written to the leader, and
    successfully replicated to the follower majority, which is then visible to the client.” The leader that counted the
    majority is gone; its successor has the message, and does not know yet that it was visible.
    """
    replica = Replica.leader(epoch=6, log=(((5, 0),), 3))
    assert replica.read(1, sequence=0) is None
    for follows in (1, 2):
        replica.fetch(2, 3, 5, follows=follows)
        replica.fetch(3, 3, 5, follows=follows)
        assert replica.took(do.AnswerRead) == []
    replica.fetch(2, 4, 6, follows=3)
    (answer,) = replica.took(do.AnswerRead)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, 4)


def test_who_does_not_lead_refuses_and_names_the_leader() -> None:
    """“there is no way to guarantee linearizable result” from a secondary copy: only the leader answers."""
    answer = Replica.follower(epoch=6, leader=2).read(1, sequence=0)
    assert answer is not None
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_deposed_leader_never_answers(seed: int) -> None:
    """“the second read request [...] may not receive this message yet, so the result will show that the game hasn't stopped
    yet, which is inconsistent and a violation of linearizability.” The final score is written at the new leader; the old
    one, which does not know of it, is asked.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    others = [node for node in cluster.nodes if node != old]
    cluster.partition([old], others)
    cluster.run_until(lambda: any(cluster[node].is_serving_leader for node in others))
    assert cluster[old].is_leader, "it has not noticed yet"
    new = next(node for node in others if cluster[node].is_serving_leader)
    cluster.append(new, "the game is over")
    cluster.run(100)
    read_id = cluster.read(old)
    cluster.heal()
    cluster.run(10_000)
    assert cluster.nodes[old].reads[read_id].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- at a node ------------------------------------------------------------------------------------------------------


def read(cluster: NodeCluster, node: ReplicaNode, group: GroupId) -> list[ReadOffsetResult]:
    """A linearizable read at `node`; the list gets its answer."""
    answers: list[ReadOffsetResult] = []
    node.engine.begin_input()
    node.reads.read(group, answers.append)
    return answers


def test_all_kinds_of_readers_see_what_was_acknowledged() -> None:
    """“Metadata log is only written by the leader controller, but there would be three regular readers other than the leader
    controller” [...] Followers and clients are asked here; observers go the same way.
    """
    cluster = NodeCluster()
    (group,) = cluster.create_topic("t")
    for node in cluster.nodes.values():
        acknowledged = cluster.produce(group, batch(b"x")).base_offset
        by_node = read(cluster, node, group)
        by_client: list[ReadOffsetReply] = []
        rpc = ReadOffsetRpc(cluster_id=None, read_timestamp_ms=0, groups=(group,))
        node.receive(PeerConnection(), rpc, by_client.append)  # type: ignore[arg-type]
        cluster.run(1_000, until=lambda: bool(by_node and by_client))  # noqa: B023
        for result in (by_node[0], by_client[0].results[0]):
            assert result.error is ErrorCode.NONE
            assert result.applied_offset > acknowledged


def test_an_offset_read_says_how_far_the_leader_has_applied() -> None:
    """“The last applied offset on the leader.” Exclusive, as all end offsets here."""
    cluster = NodeCluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"x", b"y"))
    answers = read(cluster, cluster.leader(group), group)
    cluster.run(1_000, until=lambda: bool(answers))
    assert answers[0].applied_offset == cluster.leader(group).partitions[group].high_watermark


def test_reads_of_followers_do_not_load_the_leader() -> None:
    """“If we redirect all the log read request to the leader, it will get overloaded for sure” [...] Many reads at one
    follower are one or two questions to the leader, however many they are, and no data.
    """
    cluster = NodeCluster()
    follower = cluster.followers()[0]
    cluster.run(1_000)
    questions: list[ReadOffsetRpc] = []

    def spy(source: NodeId, peer: NodeId, rpc: PeerRpc) -> None:
        if isinstance(rpc, ReadOffsetRpc):
            questions.append(rpc)

    cluster.overhear(spy)
    answers: list[ReadOffsetResult] = []
    for _ in range(500):
        follower.kv.read(True, answers.append)
    cluster.run(1_000, until=lambda: len(answers) == 500)
    assert 1 <= len(questions) <= 2


def test_a_read_waits_until_the_follower_has_applied_enough() -> None:
    """“Once getting the offset read result, follower/observers would buffer those pending read requests until its state machine
    has already reached the marked applied offset level, to ensure the read consistency on the follower side.”
    """
    cluster = NodeCluster()
    (group,) = cluster.create_topic("t")
    follower = cluster.followers(group)[0]
    cluster.run(500)
    marked = Offset(follower.partitions[group].high_watermark + 2)
    send = follower.engine.network.send

    def leader_is_ahead(peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        if not isinstance(rpc, ReadOffsetRpc):
            send(peer, rpc, done)
            return
        result = ReadOffsetResult(
            group=group, error=ErrorCode.NONE, applied_offset=marked, leader_id=peer, leader_epoch=Epoch(1)
        )
        cluster.after(1, lambda: done(ReadOffsetReply(error=ErrorCode.NONE, results=(result,))))

    follower.engine.network.send = leader_is_ahead  # type: ignore[method-assign]
    answers = read(cluster, follower, group)
    cluster.produce(group, batch(b"one"))
    cluster.run(1_000)
    assert answers == []
    cluster.produce(group, batch(b"two"))
    cluster.run(100, until=lambda: bool(answers))
    assert follower.partitions[group].high_watermark >= marked


def test_a_read_that_takes_too_long_fails_and_can_be_asked_elsewhere() -> None:
    """“If the query was on hold for too long, we rely on client side to timeout and retry another candidate based off its own
    timeout, instead of implementing a complex lag tracking mechanism” [...]. The node gives up as well, after a while.
    """
    cluster = NodeCluster(read_timeout_ms=1_000)
    (group,) = cluster.create_topic("t")
    away, other = cluster.followers(group)
    me = away.config.node_id
    cluster.cut(me)
    held = read(cluster, away, group)
    elsewhere = read(cluster, other, group)
    cluster.run(999, until=lambda: bool(elsewhere))
    assert (held, elsewhere[0].error) == ([], ErrorCode.NONE)
    cluster.run(1_001, until=lambda: bool(held))
    assert held[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_a_client_chooses_between_stale_and_linearizable() -> None:
    """“Client side could optionally implement a flag to decide whether to perform stale read or linearizable read to avoid long
    holding for the result, which could be done in the follow-up work.”
    """
    cluster = NodeCluster()
    cluster.run(1_000)
    away = cluster.followers()[0]
    me = away.config.node_id
    cluster.cut(me)
    stale: list[ReadOffsetResult] = []
    linearizable: list[ReadOffsetResult] = []
    away.kv.read(False, stale.append)
    away.kv.read(True, linearizable.append)
    cluster.run(500)
    assert stale[0].error is ErrorCode.NONE
    assert linearizable == []


def test_older_clients_do_not_see_it() -> None:
    """“This is a new feature which does not affect existing component's behavior. Older client should also be
    compatible.” Its key is private: it is not in what ApiVersions tells.
    """
    told: Any = answer_api_versions(4)
    keys = {int(api.api_key) for api in told.api_keys}
    assert ApiKey.READ_OFFSET not in keys
    assert {ApiKey.FETCH, ApiKey.VOTE} <= keys


def test_the_time_of_a_read_is_carried_and_proves_nothing() -> None:
    """“The timestamp of the read query.”"""
    cluster = NodeCluster()
    (group,) = cluster.create_topic("t")
    acknowledged = cluster.produce(group, batch(b"x")).base_offset
    for timestamp in (-1, 0, 2**62):
        replies: list[ReadOffsetReply] = []
        rpc = ReadOffsetRpc(cluster_id=None, read_timestamp_ms=timestamp, groups=(group,))
        cluster.leader(group).receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
        cluster.run(1_000, until=lambda replies=replies: bool(replies))  # type: ignore[misc]
        assert replies[0].results[0].applied_offset > acknowledged


@pytest.mark.parametrize("seed", range(3))
def test_the_leader_is_ahead_of_its_followers(seed: int) -> None:
    """“As we know the leader controller always sees the latest change, where there is always a certain lag between its
    own log and the followers.” So its offset, not the follower's own, is what a follower's read waits for.
    """
    cluster = Cluster((1, 2, 3), seed=seed)
    cluster.start()
    leader = cluster.await_leader()
    cluster.run(500)
    end = cluster.append(leader.local.id, "final score")
    cluster.run_until(lambda: leader.high_watermark >= end)
    behind = [cluster[node].high_watermark for node in leader.other_voters]
    assert max(behind) < end
    read_id = cluster.read(leader.local.id)
    cluster.run(50)
    assert cluster.nodes[leader.local.id].reads[read_id].offset == end
