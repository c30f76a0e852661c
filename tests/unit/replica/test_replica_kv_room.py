"""The quota of the key space through the driver: who is refused, what counts meanwhile, what a refusal leaves behind."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete, Put, Txn, encode, put
from raftlake.kv.keyspace import entry_bytes
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import PeerReply, ProposeReply, ProposeRpc
from raftlake.replica.kv.forwarding import NO_ROOM_AT_THE_LEADER
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.room import Admission
from raftlake.replica.node import ReplicaNode
from raftlake.wire.batches import Record, build_batch
from replica_cluster import Cluster

QUOTA = 100_000


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(kv_quota_bytes=QUOTA)
    cluster.leader()
    cluster.run(1000)
    return cluster


def propose(cluster: Cluster, node: ReplicaNode, *txns: Txn, anywhere: bool = False) -> list[ProposeOutcome]:
    """Propose all in one turn."""
    outcomes: list[ProposeOutcome] = []
    for txn in txns:
        (node.kv.propose_anywhere if anywhere else node.kv.propose)(txn, outcomes.append)
    cluster.run(20_000, until=lambda: len(outcomes) == len(txns))
    return outcomes


def refused(outcome: ProposeOutcome) -> bool:
    return outcome.status is ProposeStatus.REFUSED


def test_a_burst_in_one_turn_stops_at_the_quota_and_nothing_of_the_rest_enters_the_log(cluster: Cluster) -> None:
    leader = cluster.leader()
    log_end = leader.partitions[leader.config.quorum_group].core.log_end
    outcomes = propose(cluster, leader, *(put(f"k{index}", bytes(9_000)) for index in range(50)))
    done = [outcome for outcome in outcomes if outcome.status is ProposeStatus.DONE]
    assert 0 < len(done) == len(outcomes) - sum(map(refused, outcomes)) < 50
    assert QUOTA - 2 * entry_bytes("k00", 9_000) < leader.kv.machine.size <= QUOTA
    assert leader.partitions[leader.config.quorum_group].core.log_end == log_end + len(done)
    assert leader.kv.room.under_way == 0
    cluster.run(1000)
    assert len({node.kv.machine.size for node in cluster.nodes.values()}) == 1


def test_a_refusal_names_the_setting_the_size_and_what_to_do(cluster: Cluster) -> None:
    (outcome,) = propose(cluster, cluster.leader(), put("large", bytes(QUOTA)))
    size = cluster.leader().kv.machine.size
    for part in (f"kv.quota.bytes={QUOTA}", f"{size} bytes", "nothing changed", "Delete keys"):
        assert part in outcome.reason


def test_deleting_makes_room_and_what_does_not_grow_passes_at_the_quota(cluster: Cluster) -> None:
    leader = cluster.leader()
    propose(cluster, leader, *(put(f"k{index}", bytes(9_000)) for index in range(50)))
    assert refused(propose(cluster, leader, put("new", bytes(9_000)))[0])
    for txn in (put("k0", bytes(9_000)), put("k0", b""), Txn((), (Delete("k1"), Put("moved", bytes(8_000))))):
        assert propose(cluster, leader, txn)[0].status is ProposeStatus.DONE
    assert propose(cluster, leader, put("new", bytes(9_000)))[0].status is ProposeStatus.DONE


def test_the_space_is_counted_alike_after_a_restart_and_behind_a_snapshot() -> None:
    cluster = Cluster(kv_quota_bytes=QUOTA, snapshot_bytes_between=20_000, segment_bytes=20_000)
    leader = cluster.leader()
    propose(cluster, leader, *(put(f"k{index}", bytes(9_000)) for index in range(50)))
    cluster.run(5_000)
    size = leader.kv.machine.size
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    leader = cluster.leader()
    cluster.run(3_000)
    assert {node.kv.machine.size for node in cluster.nodes.values()} == {size}
    assert refused(propose(cluster, cluster.leader(), put("new", bytes(9_000)))[0])


def test_a_full_space_takes_the_quorums_own_keys_and_topics(cluster: Cluster) -> None:
    propose(cluster, cluster.leader(), *(put(f"k{index}", bytes(9_000)) for index in range(50)))
    propose(cluster, cluster.leader(), *(put(f"s{index}", b"") for index in range(200)))
    cluster.create_topic("orders")


def test_a_forwarded_command_is_refused_too_and_the_asking_node_says_why(cluster: Cluster) -> None:
    leader, follower = cluster.leader(), cluster.followers()[0]
    (outcome,) = propose(cluster, follower, put("large", bytes(QUOTA)), anywhere=True)
    assert refused(outcome) and outcome.reason == NO_ROOM_AT_THE_LEADER[ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    for size, error in ((QUOTA, ErrorCode.THROTTLING_QUOTA_EXCEEDED), (QUOTA // 2, ErrorCode.NONE)):
        batch = build_batch([Record(value=encode(put("forwarded", bytes(size))))], timestamp_ms=1)
        replies: list[PeerReply] = []
        leader.kv.receive(ProposeRpc(batch=bytes(batch), source=follower.config.node_id), Origin.PEER, replies.append)
        assert leader.kv.room.under_way == (entry_bytes("forwarded", size) if error is ErrorCode.NONE else 0)
        cluster.run(1000, until=lambda: bool(replies))  # noqa: B023
        assert [reply.error for reply in replies if isinstance(reply, ProposeReply)] == [error]
        assert leader.kv.room.under_way == 0


def test_a_write_that_timed_out_counts_until_this_leader_has_applied_it() -> None:
    cluster = Cluster(kv_quota_bytes=QUOTA, propose_timeout_ms=300)
    leader = cluster.leader()
    me = leader.config.node_id
    cluster.run(1000)
    cluster.cut(me)
    (outcome,) = propose(cluster, leader, put("k", bytes(60_000)))
    assert outcome.status is ProposeStatus.UNKNOWN
    assert leader.partitions[leader.config.quorum_group].core.is_leader
    assert leader.kv.room.under_way == entry_bytes("k", 60_000)
    assert refused(propose(cluster, leader, put("l", bytes(60_000)))[0])
    cluster.heal()
    cluster.run(5_000)
    assert cluster.leader().kv.machine.get("k") is not None or leader is not cluster.leader()
    propose(cluster, cluster.leader(), put("small", b""))
    assert cluster.leader().kv.room.under_way == 0


def test_a_leader_that_lost_its_office_holds_nothing_for_what_it_had_proposed() -> None:
    cluster = Cluster(kv_quota_bytes=QUOTA, propose_timeout_ms=300)
    leader = cluster.leader()
    me = leader.config.node_id
    cluster.cut(me)
    propose(cluster, leader, put("k", bytes(60_000)))
    cluster.run(20_000, until=lambda: not leader.partitions[leader.config.quorum_group].core.is_leader)
    cluster.heal()
    cluster.run(5_000)
    assert cluster.leader() is not leader
    assert isinstance(leader.kv.room.reserve(put("x", b"")), Admission)
    assert leader.kv.room.under_way == entry_bytes("x", 0)


def test_levels_are_told_once_to_listeners_and_to_health_checks(cluster: Cluster) -> None:
    leader = cluster.leader()
    told: list[str] = []
    leader.kv.room.listeners.append(told.append)
    assert leader.kv.room.warnings == ()
    propose(cluster, leader, *(put(f"k{index}", bytes(8_900)) for index in range(9)))
    cluster.run(1000)
    assert len(told) == 0
    propose(cluster, leader, put("k9", bytes(5_000)))
    cluster.run(2000)
    assert len(told) == 1 and f"kv.quota.bytes={QUOTA}" in told[0] and " 8" in told[0]
    assert leader.kv.room.warnings == tuple(told)
    propose(cluster, leader, put("k10", bytes(9_000)))
    cluster.run(2000)
    assert len(told) == 2
    propose(cluster, leader, *(Txn((), (Delete(f"k{index}"),)) for index in range(5)))
    cluster.run(1000)
    assert leader.kv.room.warnings == () and len(told) == 2
