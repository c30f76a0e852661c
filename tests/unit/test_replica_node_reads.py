"""Consumers' fetches, offsets and linearizable reads, at the leader and at followers."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Put, Txn
from raftlake.ports import PeerConnection, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.replica.apis.offsets import find_offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv_service import ProposeOutcome, ProposeStatus
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records
from replica_cluster import Cluster, batch, fetch_request


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def test_a_parked_fetch_is_answered_by_the_append_it_waits_for(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("parked")
    for node in cluster.nodes.values():
        end = cluster.leader(group).partitions[group].high_watermark
        cluster.run(20)
        answers = cluster.send(node, ApiKey.FETCH, fetch_request(group, end, wait_ms=5000))
        cluster.run(5)
        assert not answers
        cluster.produce(group, batch(b"x"))
        cluster.run(20, until=lambda answers=answers: bool(answers))  # type: ignore[misc]
        assert [r.value for r in decode_records(answers[0].topics[0].partitions[0].records)] == [b"x"]


def test_a_fetch_that_times_out_leaves_nothing_behind(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("idle")
    leader = cluster.leader(group)
    for _ in range(50):
        assert not cluster.fetch(leader, group, 1, wait_ms=10).records
    assert not leader.partitions[group]._watermark_waiters


def test_offsets_outside_the_log_are_out_of_range_at_the_leader_and_not_available_at_a_follower(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("range")
    assert cluster.fetch(cluster.leader(group), group, 99).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.fetch(cluster.followers(group)[0], group, 99).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.fetch(cluster.leader(group), group, -1).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_is_fenced_by_epoch_and_told_where_it_diverged(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("fence")
    cluster.produce(group, batch(b"x"))
    leader = cluster.leader(group)
    epoch = leader.partitions[group].core.epoch
    assert cluster.fetch(leader, group, 1, current_leader_epoch=epoch - 1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.fetch(leader, group, 1, current_leader_epoch=epoch + 1).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.fetch(leader, group, 1, last_fetched_epoch=epoch).diverging_epoch is None
    assert cluster.fetch(leader, group, 1, last_fetched_epoch=0).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_that_read_a_tail_which_was_cut_learns_where_it_diverged() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"x"))
    old_epoch = cluster.leader(group).partitions[group].core.epoch
    cluster.stop(cluster.leader(group).config.node_id)
    leader = cluster.leader(group)
    cluster.produce(group, batch(b"y"))
    diverging = cluster.fetch(leader, group, 3, last_fetched_epoch=old_epoch).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (old_epoch, 2)


def test_read_committed_gets_an_empty_list_of_aborted_transactions(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("committed")
    result = cluster.fetch(cluster.leader(group), group, 0, isolation_level=1)
    assert result.aborted_transactions == []
    assert result.last_stable_offset == result.high_watermark


def test_offsets_by_time(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("times")
    cluster.produce(group, batch(b"a", timestamp_ms=5000))
    cluster.produce(group, batch(b"b", timestamp_ms=9000))
    cluster.produce(group, batch(b"c", timestamp_ms=7000))
    partition = cluster.leader(group).partitions[group]
    assert find_offset(partition, -2)[2] == 0
    assert find_offset(partition, -1)[2] == 4
    assert find_offset(partition, -3)[1:3] == (9000, 2)
    assert find_offset(partition, 9000)[1:3] == (9000, 2)
    assert find_offset(partition, 9001)[2] == -1


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


# --- the key-value state ---


def _propose(cluster: Cluster, node: object, txn: Txn, *, anywhere: bool = False) -> ProposeOutcome:
    outcomes: list[ProposeOutcome] = []
    kv = node.kv  # type: ignore[attr-defined]
    (kv.propose_anywhere if anywhere else kv.propose)(txn, outcomes.append)
    cluster.run(20_000, until=lambda: bool(outcomes))
    return outcomes[0]


def test_compare_and_set_has_one_winner_and_versions_are_offsets(cluster: Cluster) -> None:
    leader = cluster.leader()
    create = Txn(compares=(Compare("k", 0),), ops=(Put("k", b"1"),))
    first = _propose(cluster, leader, create)
    second = _propose(cluster, leader, create)
    assert first.result is not None and first.result.succeeded
    assert second.result is not None and not second.result.succeeded
    assert second.result.current == (("k", first.result.offset),)
    entry = leader.kv.machine.get("k")
    assert entry is not None and entry.version == first.result.offset


def test_commands_of_one_turn_share_a_batch_and_each_gets_its_own_version(cluster: Cluster) -> None:
    leader = cluster.leader()
    outcomes: list[ProposeOutcome] = []
    for i in range(10):
        leader.kv.propose(Txn(compares=(), ops=(Put(f"turn/{i}", b""),)), outcomes.append)
    cluster.run(1000, until=lambda: len(outcomes) == 10)
    offsets = [outcome.result.offset for outcome in outcomes if outcome.result is not None]
    assert offsets == list(range(offsets[0], offsets[0] + 10))


def test_a_follower_refuses_to_propose_but_forwards_for_its_own_needs(cluster: Cluster) -> None:
    follower = cluster.followers()[0]
    txn = Txn(compares=(), ops=(Put("forwarded", b"v"),))
    refused = _propose(cluster, follower, txn)
    assert refused.status is ProposeStatus.NOT_LEADER
    assert refused.leader_id == cluster.leader().config.node_id
    forwarded = _propose(cluster, follower, txn, anywhere=True)
    assert forwarded.status is ProposeStatus.DONE
    entry = follower.kv.machine.get("forwarded")
    assert entry is not None and forwarded.result is not None and entry.version == forwarded.result.offset


def test_a_proposal_that_a_deposed_leader_had_appended_is_unknown() -> None:
    cluster = Cluster()
    leader = cluster.leader()
    me = leader.config.node_id
    cluster.cut = {(me, other) for other in cluster.voters if other != me}
    outcome = _propose(cluster, leader, Txn(compares=(), ops=(Put("k", b"v"),)))
    assert outcome.status is ProposeStatus.UNKNOWN


def test_state_is_equal_on_all_nodes_after_a_full_restart() -> None:
    cluster = Cluster()
    for i in range(5):
        _propose(cluster, cluster.leader(), Txn(compares=(), ops=(Put(f"k{i}", b"v"),)))
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    leader = cluster.leader()
    cluster.run(2000)
    states = [node.kv.machine.list("", None, 100) for node in cluster.nodes.values()]
    assert states[0] == states[1] == states[2]
    assert leader.partitions[METADATA_GROUP].is_serving
    assert {key for key, _ in states[0][0]} >= {f"k{i}" for i in range(5)}
