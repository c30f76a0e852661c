"""Linearizable reads (KIP-650 ReadOffset) at the leader and at followers."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports import PeerConnection, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from replica_cluster import Cluster, batch


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def _read(cluster: Cluster, node: object, group: object) -> ReadOffsetResult:
    results: list[ReadOffsetResult] = []
    node.begin_input()  # type: ignore[attr-defined]
    node.reads.read(group, results.append)  # type: ignore[attr-defined]
    cluster.run(20_000, until=lambda: bool(results))
    return results[0]


def test_a_linearizable_read_covers_every_acknowledged_append_wherever_it_is_asked(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("linearizable")
    for node in cluster.nodes.values():
        acknowledged = cluster.produce(group, batch(b"x")).base_offset
        result = _read(cluster, node, group)
        assert result.error is ErrorCode.NONE
        assert result.applied_offset > acknowledged
        assert node.partitions[group].high_watermark >= result.applied_offset


def test_reads_at_one_node_share_rounds() -> None:
    cluster = Cluster()
    follower = cluster.followers()[0]
    sent: list[object] = []
    send = follower.network.send
    follower.network.send = lambda peer, rpc, done: (  # type: ignore[method-assign]
        sent.append(rpc) if isinstance(rpc, ReadOffsetRpc) else None,
        send(peer, rpc, done),
    )[1]
    results: list[ReadOffsetResult] = []
    for _ in range(64):
        follower.kv.read(True, results.append)
    cluster.run(1000, until=lambda: len(results) == 64)
    assert len(sent) == 2, "one for the first, one for all that gathered behind it"


def test_a_leader_cut_off_from_the_majority_never_answers_a_read() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    old = cluster.leader(group)
    me = old.config.node_id
    cluster.cut = {(me, other) for other in cluster.voters if other != me}
    answers: list[ReadOffsetReply] = []
    rpc = ReadOffsetRpc(cluster_id=None, read_timestamp_ms=0, groups=(group,))
    old.receive(PeerConnection(), rpc, answers.append)  # type: ignore[arg-type]
    cluster.run(9_000)
    assert not answers
    cluster.run(3_000, until=lambda: bool(answers))
    assert answers[0].results[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_a_single_voter_answers_reads_by_itself() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("alone")
    cluster.produce(group, batch(b"x"))
    assert _read(cluster, cluster.leader(group), group).applied_offset == 2


def test_more_reads_than_a_node_will_hold_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.replica.reads.READS_MAX", 3)
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    results: list[ReadOffsetResult] = []
    for _ in range(5):
        leader.reads.read(group, results.append)
    assert [result.error for result in results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    cluster.run(1_000, until=lambda: len(results) == 5)
    assert [result.error for result in results[2:]] == [ErrorCode.NONE] * 3
    assert _read(cluster, leader, group).error is ErrorCode.NONE, "their room is free again"


def test_reads_that_end_without_an_answer_free_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.replica.reads.READS_MAX", 1)
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut = {(me, other) for other in cluster.voters if other != me}
    assert _read(cluster, leader, group).error is ErrorCode.REQUEST_TIMED_OUT
    cluster.cut = set()
    cluster.run(5_000)
    assert _read(cluster, leader, group).error is ErrorCode.NONE
