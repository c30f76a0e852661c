"""Commands with ranges of keys through the driver: results on every node, work in slices, and who may propose them."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import Compare, ComparePrefix, Delete, DeletePrefix, Put, Txn, encode, put
from raftlake.kv.keys import TIER_PREFIX, node_key, topic_key
from raftlake.kv.machine import TxnResult
from raftlake.kv.ranges import RangeResult
from raftlake.ports.driver import Origin
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv import service as kv_service
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.recent_results import RecentResults
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster


def propose(cluster: Cluster, node: ReplicaNode, *txns: Txn, anywhere: bool = False) -> list[ProposeOutcome]:
    """In one turn."""
    outcomes: list[ProposeOutcome] = []
    for txn in txns:
        (node.kv.propose_anywhere if anywhere else node.kv.propose)(txn, outcomes.append)
    cluster.run(20_000, until=lambda: len(outcomes) == len(txns))
    return outcomes


def results(outcomes: list[ProposeOutcome]) -> list[TxnResult]:
    assert all(outcome.status is ProposeStatus.DONE for outcome in outcomes)
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def keys_of(node: ReplicaNode) -> list[str]:
    return [key for key, _ in node.kv.machine.list("d/", None, 1_000)[0]]


def fill(cluster: Cluster, count: int) -> None:
    propose(cluster, cluster.leader(), Txn((), tuple(Put(f"d/{number:03}", b"v") for number in range(count))))


def test_a_range_is_compared_and_deleted_and_every_node_holds_the_same() -> None:
    cluster = Cluster()
    fill(cluster, 5)
    (refused,) = results(propose(cluster, cluster.leader(), Txn((ComparePrefix("d/", 0),), (DeletePrefix("d/"),))))
    assert not refused.succeeded and refused.ranges is not None
    ((prefix, newest),) = refused.ranges.newest
    assert prefix == "d/" and keys_of(cluster.leader()) == [f"d/{number:03}" for number in range(5)]
    whole = Txn((ComparePrefix("d/", newest),), (Put("gone", b""), DeletePrefix("d/")))
    (done,) = results(propose(cluster, cluster.leader(), whole))
    assert done.succeeded and done.ranges == RangeResult(deleted=5)
    cluster.run(5_000, until=lambda: not any(keys_of(node) for node in cluster.nodes.values()))
    assert [keys_of(node) for node in cluster.nodes.values()] == [[], [], []]


def test_a_node_that_forwards_is_told_of_the_range() -> None:
    cluster = Cluster()
    fill(cluster, 3)
    follower = cluster.followers()[0]
    cluster.run(1_000, until=follower.is_ready)
    wanted = [Txn((ComparePrefix("d/", 0),), (Put("k", b""),)), Txn((), (DeletePrefix("d/"),))]
    refused, done = (results(propose(cluster, follower, txn, anywhere=True))[0] for txn in wanted)
    assert refused.ranges is not None and [prefix for prefix, _ in refused.ranges.newest] == ["d/"]
    assert done.ranges == RangeResult(deleted=3)


@pytest.mark.parametrize(
    "ranges", [RangeResult(deleted=3), RangeResult(newest=(("d/", 7),)), RangeResult(deletes_too_large=("d/",)), RangeResult()]
)
def test_what_became_of_a_range_is_remembered(ranges: RangeResult) -> None:
    recent = RecentResults(kept_min=2)
    for succeeded in (True, False):
        result = TxnResult(succeeded=succeeded, offset=3 + succeeded, ranges=ranges)
        recent.note(result)
        assert recent.get(result.offset) == result


def test_a_batch_has_one_command_with_ranges_at_most() -> None:
    """A batch is applied as a whole, and its length says nothing of the keys of a range."""
    cluster = Cluster()
    leader = cluster.leader()
    ranged = Txn((ComparePrefix("e/", 0),), (Put("k", b""),))
    plain = put("k", b"")
    done = results(propose(cluster, leader, plain, plain, ranged, ranged, plain, ranged, plain, plain))
    offsets = [result.offset for result in done]
    log = cluster.disks[leader.config.node_id].logs[METADATA_GROUP]
    batches = [[offset - offsets[0] for offset in offsets if batch.base <= offset < batch.end] for batch in log.batches]
    assert [batch for batch in batches if batch] == [[0, 1, 2], [3], [4, 5], [6, 7]]


def test_much_work_for_ranges_is_done_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    leader = cluster.leader()
    fill(cluster, 40)
    monkeypatch.setattr(kv_service, "APPLY_SLICE_RANGE_KEYS", 100)
    answered: list[tuple[int, int]] = []
    txn = Txn((ComparePrefix("d/", 1 << 40),), (Put("k", b""),))
    for _ in range(12):
        leader.kv.propose(txn, lambda told: answered.append((told.result.offset, cluster.now_ms)))  # type: ignore[union-attr]
    cluster.run(2_000, until=lambda: len(answered) == 12)
    offsets, times = [offset for offset, _ in answered], [now_ms for _, now_ms in answered]
    assert offsets == list(range(offsets[0], offsets[0] + 12))
    # Three of them are as much work as is done at once.
    assert max(times.count(now_ms) for now_ms in times) == 3
    nodes = list(cluster.nodes.values())
    cluster.run(5_000, until=lambda: len({node.kv.machine.applied_offset for node in nodes}) == 1)
    assert len({node.kv.machine.list("", None, 1_000) for node in nodes}) == 1


def test_a_start_goes_on_behind_each_slice_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    fill(cluster, 40)
    for number in range(8):
        txn = Txn((ComparePrefix("d/", 1 << 40),), (Put(f"d/{number:03}", b"w"), Put("k", b"")))
        propose(cluster, cluster.leader(), txn, put("k", b"other"), txn)
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    monkeypatch.setattr(kv_service, "APPLY_SLICE_RANGE_KEYS", 1)
    node = cluster.start(follower)
    seen: list[int] = []
    node.kv.listeners.append(seen.append)
    cluster.run(5_000, until=node.is_ready)
    assert len(seen) >= 8 and seen == sorted(set(seen))
    whole = cluster.leader().kv.machine.list("", None, 1_000)
    cluster.run(1_000, until=lambda: node.kv.machine.list("", None, 1_000) == whole)
    assert node.kv.machine.list("", None, 1_000) == whole


@pytest.mark.parametrize(
    "txn",
    [
        Txn((Compare(topic_key("t"), 3),), (Delete(topic_key("t")), DeletePrefix("users/"))),
        Txn((Compare(node_key(2), 0), ComparePrefix("users/", 0)), (Put(node_key(2), b'{"host": "h", "port": 1}'),)),
        Txn((ComparePrefix(topic_key("t"), 3),), (Delete(topic_key("t")),)),
        Txn((ComparePrefix(TIER_PREFIX, 3),), (Put(TIER_PREFIX + "A" * 22 + "/0", b"{}"),)),
    ],
)
def test_no_node_changes_a_reserved_key_beside_a_range(txn: Txn) -> None:
    cluster = Cluster()
    gate = cluster.leader().kv.gate
    assert "ranges" in (gate.refusal(txn, Origin.PEER, cluster.followers()[0].config.node_id) or "")
    assert gate.refusal(txn, Origin.CLIENT, cluster.leader().config.node_id) is not None


def test_ranges_of_clients_are_forwarded() -> None:
    cluster = Cluster()
    txn = Txn((ComparePrefix("a/", 3), Compare("k", 2)), (DeletePrefix("users/"), Put("k", b"")))
    for origin in (Origin.PEER, Origin.CLIENT):
        assert cluster.leader().kv.gate.refusal(txn, origin, cluster.followers()[0].config.node_id) is None
    assert encode(txn)[0] == 2
