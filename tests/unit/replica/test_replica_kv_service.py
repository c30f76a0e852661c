"""The key-value state through the driver: proposing, forwarding, applying, unknown outcomes."""

from __future__ import annotations

import pytest

from raftlake.errors import DamagedData
from raftlake.kv.commands import Compare, Put, Txn
from raftlake.raft.types import NO_LEADER
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv import service as kv_service
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.faults.damage import FLIPPED_BYTE
from replica_cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def _propose(cluster: Cluster, node: object, txn: Txn, *, anywhere: bool = False) -> ProposeOutcome:
    outcomes: list[ProposeOutcome] = []
    kv = node.kv  # type: ignore[attr-defined]
    (kv.propose_anywhere if anywhere else kv.propose)(txn, outcomes.append)
    cluster.run(20_000, until=lambda: bool(outcomes))
    return outcomes[0]


def _state(node: ReplicaNode) -> object:
    return node.kv.machine.list("", None, 100)


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
    cluster.run(1_000, until=follower.is_ready)
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
    cluster.cut(me)
    outcome = _propose(cluster, leader, Txn(compares=(), ops=(Put("k", b"v"),)))
    assert outcome.status is ProposeStatus.UNKNOWN


@pytest.mark.parametrize("count", [1, 3])
def test_what_was_proposed_in_the_turn_that_finds_damage_is_answered(count: int) -> None:
    """Simulator, seed 1140007448. The metadata log was started anew before the turn took what had been proposed, and no later
    turn took it: a copy to the remote tier waited for its outcome for as long as the node led the partition."""
    cluster = Cluster()
    leader = cluster.leader()
    outcomes: list[ProposeOutcome] = []
    kept: list[ProposeOutcome] = []
    cluster.disks[leader.config.node_id].logs[METADATA_GROUP].damage(0, -1)
    leader.findings.found(METADATA_GROUP, DamagedData("a read came upon it", offset=0))
    for index in range(count):
        leader.kv.propose(Txn(compares=(), ops=(Put(f"k{index}", b"v"),)), outcomes.append)
    leader.kv.propose_anywhere(Txn(compares=(), ops=(Put("own", b"v"),)), kept.append)
    cluster.run(1, until=lambda: bool(outcomes))
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.NOT_LEADER] * count
    assert kept == [], "what the node itself wants is proposed again"
    cluster.run(20_000, until=lambda: bool(kept))
    assert [outcome.status for outcome in kept] == [ProposeStatus.DONE]
    # As the next turn does that appends to any log.
    leader.kv.batch_collected()
    cluster.run(5_000)
    assert len(outcomes) == count and len(kept) == 1, "each is answered once"
    assert [cluster.leader().kv.machine.get(f"k{index}") for index in range(count)] == [None] * count


def test_a_partition_that_is_closed_takes_no_proposal_with_it() -> None:
    cluster = Cluster()
    leader = cluster.leader()
    (group,) = cluster.create_topic("t", 1)
    outcomes: list[ProposeOutcome] = []
    leader.kv.propose(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
    leader.hosting.let_go(leader.partitions[group])
    assert outcomes == []
    cluster.run(1_000, until=lambda: bool(outcomes))
    assert outcomes[0].status is ProposeStatus.DONE


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


def test_a_result_that_this_node_does_not_come_to_apply_is_unknown_after_a_while() -> None:
    cluster = Cluster()
    follower = cluster.followers()[0]
    outcomes: list[ProposeOutcome] = []
    follower.engine.begin_input()
    follower.kv.await_result(10_000, outcomes.append)
    cluster.run(follower.config.propose_timeout_ms - 100)
    assert outcomes == []
    cluster.run(200)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.UNKNOWN]
    assert not follower.kv._awaiting


def test_a_result_that_came_in_time_is_told_once() -> None:
    cluster = Cluster()
    follower = cluster.followers()[0]
    outcome = _propose(cluster, follower, Txn((), (Put("k", b"v"),)), anywhere=True)
    assert outcome.status is ProposeStatus.DONE
    cluster.run(2 * follower.config.propose_timeout_ms)
    assert not follower.kv._awaiting


def test_what_a_start_has_to_apply_comes_in_slices_and_shows_when_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for i in range(30):
        _propose(cluster, cluster.leader(), Txn(compares=(), ops=(Put(f"k{i}", bytes(50)),)))
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    monkeypatch.setattr(kv_service, "APPLY_SLICE_BYTES", 300)
    node = cluster.start(follower)
    seen: list[tuple[int, bool]] = []
    node.kv.listeners.append(lambda applied: seen.append((applied, node.is_ready())))
    cluster.run(5_000, until=node.is_ready)
    assert len(seen) > 5 and not any(is_ready for _, is_ready in seen), "ready behind the last slice only"
    assert [applied for applied, _ in seen] == sorted({applied for applied, _ in seen})
    assert _state(node) == _state(cluster.leader())


def test_commands_that_commit_together_are_answered_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    leader = cluster.leader()
    _propose(cluster, leader, Txn(compares=(), ops=(Put("first", b""),)))
    monkeypatch.setattr(kv_service, "APPLY_SLICE_BYTES", 300)
    monkeypatch.setattr(kv_service, "PROPOSED_BATCH_BYTES", 200)
    answered: list[tuple[int, int]] = []
    for i in range(20):
        leader.kv.propose(
            Txn(compares=(), ops=(Put(f"k{i:02d}", bytes(50)),)),
            lambda outcome: answered.append((outcome.result.offset, cluster.now_ms)),  # type: ignore[union-attr]
        )
    cluster.run(2_000, until=lambda: len(answered) == 20)
    offsets = [offset for offset, _ in answered]
    assert offsets == list(range(offsets[0], offsets[0] + 20))
    assert len({now_ms for _, now_ms in answered}) > 3, "in several turns"


def test_damage_under_a_later_slice_is_repaired_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for i in range(30):
        _propose(cluster, cluster.leader(), Txn(compares=(), ops=(Put(f"k{i}", bytes(50)),)))
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    monkeypatch.setattr(kv_service, "APPLY_SLICE_BYTES", 300)
    node = cluster.start(follower)
    cluster.run(5_000, until=lambda: node.kv.machine.applied_offset > 5)
    # Only an apply comes upon it: the start has looked at the log already.
    log = cluster.disks[follower].logs[METADATA_GROUP]
    assert log.damage(len(log.batches) - 3, FLIPPED_BYTE) is not None
    found: list[str | None] = []
    node.damage.listeners.append(lambda group, reason: found.append(reason))
    cluster.run(20_000, until=lambda: len(found) == 2 and _state(node) == _state(cluster.leader()))
    assert len(found) == 2 and found[0] is not None and found[1] is None, "damaged, then repaired"
    assert node.fatal is None
    assert _state(node) == _state(cluster.leader())


def test_a_writer_is_not_sent_to_a_leader_that_is_not_heard_of() -> None:
    """A follower goes on naming the leader of its epoch; whoever followed that name would meet a dead node."""
    cluster = Cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    cluster.run(1_000, until=follower.is_ready)
    outcomes: list[ProposeOutcome] = []
    follower.kv.propose(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
    assert outcomes.pop().leader_id == leader.config.node_id
    cluster.stop(leader.config.node_id)
    cluster.run(10, until=lambda: not follower.is_ready())
    assert follower.metadata_leader_id == leader.config.node_id
    follower.kv.propose(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
    assert outcomes.pop().leader_id == NO_LEADER
    cluster.run(20_000, until=follower.is_ready)
    follower.kv.propose(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
    assert follower.partitions[METADATA_GROUP].core.is_leader or outcomes.pop().leader_id == cluster.leader().config.node_id
