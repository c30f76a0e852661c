"""Disks that fill up, through the driver: who is refused and told what, what goes on, and that it ends by itself."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import DiskFull, ErrorCode
from raftlake.kv.commands import Delete, Put, Txn, put
from raftlake.ports.driver import Room
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.apis.produce import NO_ROOM
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.forwarding import NO_ROOM_AT_THE_LEADER
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.disk.space import BALLAST_BYTES
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request

LIMIT = 100_000
#: One look, and the news of it at the leader.
LOOK_MS = 2_500


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(min_free_bytes=LIMIT)
    cluster.leader()
    cluster.run(LOOK_MS)
    return cluster


def fill(cluster: Cluster, free_bytes: int, *nodes: ReplicaNode) -> None:
    for node_id in [node.config.node_id for node in nodes] or list(cluster.disks):
        cluster.disks[NodeId(node_id)].space.fill(free_bytes)
    cluster.run(LOOK_MS)


def empty(cluster: Cluster, *nodes: ReplicaNode) -> None:
    for node_id in [node.config.node_id for node in nodes] or list(cluster.disks):
        cluster.disks[NodeId(node_id)].space.empty()
    cluster.run(LOOK_MS)


def propose(cluster: Cluster, node: ReplicaNode, txn: Txn, *, anywhere: bool = False) -> ProposeOutcome:
    outcomes: list[ProposeOutcome] = []
    (node.kv.propose_anywhere if anywhere else node.kv.propose)(txn, outcomes.append)
    cluster.run(20_000, until=lambda: bool(outcomes))
    return outcomes[0]


def ids(nodes: list[ReplicaNode]) -> list[int]:
    return sorted(node.config.node_id for node in nodes)


def test_clients_appends_are_refused_while_a_majority_is_low_and_go_on_by_themselves(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    leader, others = cluster.leader(group), cluster.followers(group)
    fill(cluster, LIMIT - 1, others[0])
    assert cluster.produce(group, batch(b"one")).error is ErrorCode.NONE
    fill(cluster, LIMIT - 1, others[1])
    end = leader.partitions[group].core.log_end
    result = cluster.produce(group, batch(b"two"))
    low = ", ".join(map(str, ids(others)))
    assert result.error is ErrorCode.NOT_ENOUGH_REPLICAS is NO_ROOM and result.base_offset == -1
    told = f"of 3 voters 2 have less room on their disks than log.dir.min.free.bytes, node {low}"
    assert told in (result.error_message or "")
    assert leader.partitions[group].core.log_end == end, "nothing was appended"
    empty(cluster, others[0])
    assert cluster.produce(group, batch(b"three")).error is ErrorCode.NONE


def test_the_leader_counts_itself(cluster: Cluster) -> None:
    leader, others = cluster.leader(), cluster.followers()
    fill(cluster, LIMIT - 1, leader)
    assert propose(cluster, leader, put("k", b"v")).status is ProposeStatus.DONE
    fill(cluster, LIMIT - 1, others[0])
    outcome = propose(cluster, leader, put("k", b"v"))
    assert outcome.status is ProposeStatus.REFUSED and outcome.is_passing
    assert f"node {', '.join(map(str, ids([leader, others[0]])))}" in outcome.reason


def test_the_limit_itself_is_enough_and_a_margin_ends_it(cluster: Cluster) -> None:
    leader = cluster.leader()
    fill(cluster, LIMIT)
    assert not leader.disk.is_low
    fill(cluster, LIMIT - 1)
    assert leader.disk.is_low
    fill(cluster, Room.above(LIMIT) - 1)
    assert leader.disk.is_low, "not before there is a margin"
    fill(cluster, Room.above(LIMIT))
    assert not leader.disk.is_low and propose(cluster, leader, put("k", b"v")).status is ProposeStatus.DONE


def test_with_a_limit_of_0_nothing_is_refused_before_the_disk_is_full() -> None:
    cluster = Cluster(min_free_bytes=0)
    cluster.leader()
    fill(cluster, 50_000)
    assert propose(cluster, cluster.leader(), put("k", bytes(10_000))).status is ProposeStatus.DONE


def asked_for_room(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool) -> list[int]:
    """When the disk of node 1 is asked from now on."""
    disk, asked = cluster.disks[NodeId(1)], list[int]()

    def look(done: Any) -> None:
        asked.append(cluster.now_ms)
        if is_answered:
            done(disk.space.room)

    monkeypatch.setattr(disk, "look_for_room", look)
    return asked


def test_what_is_appended_between_two_looks_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(size=1, min_free_bytes=LIMIT)
    leader = cluster.leader()
    (group,) = cluster.create_topic("orders")
    cluster.disks[NodeId(1)].space.fill(LIMIT + 50_000)
    cluster.run(1_200)
    assert not leader.disk.is_low
    asked_for_room(cluster, monkeypatch, is_answered=False)
    results = [cluster.produce(group, batch(bytes(9_000))).error for _ in range(20)]
    assert results[:5] == [ErrorCode.NONE] * 5 and results[6:] == [NO_ROOM] * 14
    assert leader.disk.free_bytes is not None and LIMIT - 10_000 < leader.disk.free_bytes < LIMIT


def test_a_disk_that_fills_fast_is_looked_at_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other nodes may write to it as well."""
    cluster = Cluster(size=1, min_free_bytes=LIMIT)
    leader = cluster.leader()
    (group,) = cluster.create_topic("orders")
    space = cluster.disks[NodeId(1)].space
    space.fill(10 * LIMIT)
    cluster.run(1_200)
    asked = asked_for_room(cluster, monkeypatch, is_answered=True)
    at_ms = cluster.now_ms
    for _ in range(5):
        space.take(150_000, "write another node's log")
        cluster.produce(group, batch(bytes(9_000)))
    assert cluster.now_ms - at_ms < 500 and len(asked) >= 2
    assert leader.disk.free_bytes is not None and abs(leader.disk.free_bytes - space.room.free_bytes) <= 150_000


def test_deletions_topics_elections_and_reads_go_on(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    propose(cluster, cluster.leader(), put("k", b"v"))
    cluster.produce(group, batch(b"one"))
    fill(cluster, 50_000)
    leader = cluster.leader()
    assert propose(cluster, leader, Txn((), (Delete("k"),))).status is ProposeStatus.DONE
    assert propose(cluster, leader, put("/raftlake/producers/next", b"9000"), anywhere=True).status is ProposeStatus.DONE
    assert cluster.fetch(cluster.leader(group), group, 0).high_watermark > 0
    cluster.stop(leader.config.node_id)
    leader = cluster.leader()
    cluster.leader(group)
    answers: list[Any] = []
    topic = leader.names.topic("orders")
    assert topic is not None
    leader.topics.delete(topic, lambda *answer: answers.append(answer))
    cluster.run(5_000, until=lambda: bool(answers))
    assert answers[0][1] is ErrorCode.NONE
    cluster.run(1_000)
    assert all(group not in node.partitions for node in cluster.nodes.values())


def test_topics_are_not_created_and_whoever_asks_is_told_why(cluster: Cluster) -> None:
    fill(cluster, LIMIT - 1)
    follower = cluster.followers()[0]
    answers: list[Any] = []
    follower.topics.create("orders", 1, {}, lambda *answer: answers.append(answer))
    cluster.run(20_000, until=lambda: bool(answers))
    assert answers == [(None, ErrorCode.POLICY_VIOLATION, NO_ROOM_AT_THE_LEADER[ErrorCode.NOT_ENOUGH_REPLICAS])]
    outcome = propose(cluster, follower, Txn((), (Delete("k"), Put("l", b""))), anywhere=True)
    assert outcome.status is ProposeStatus.REFUSED and "log.dir.min.free.bytes" in outcome.reason


def test_a_batch_that_comes_again_is_answered_and_no_trace_stays_of_one_that_was_refused(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    sent = {"producer_id": 7, "producer_epoch": 0}
    first = cluster.produce(group, batch(b"a", base_sequence=0, **sent))
    fill(cluster, LIMIT - 1)
    again = cluster.produce(group, batch(b"a", base_sequence=0, **sent))
    assert (again.error, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    for sequence in (1, 2):
        assert cluster.produce(group, batch(b"b", base_sequence=sequence, **sent)).error is NO_ROOM
    new = {"producer_id": 8, "producer_epoch": 0}
    for sequence in (0, 1):
        assert cluster.produce(group, batch(b"x", base_sequence=sequence, **new)).error is NO_ROOM
    empty(cluster)
    # The second of two that were refused comes first: it is sent back, not taken.
    assert cluster.produce(group, batch(b"b", base_sequence=2, **sent)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.produce(group, batch(b"x", base_sequence=1, **new)).error is ErrorCode.LEADER_NOT_AVAILABLE
    for sequence in (1, 2):
        assert cluster.produce(group, batch(b"b", base_sequence=sequence, **sent)).error is ErrorCode.NONE
    for sequence in (0, 1):
        assert cluster.produce(group, batch(b"x", base_sequence=sequence, **new)).error is ErrorCode.NONE


def test_a_silent_producer_is_refused_too(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    fill(cluster, LIMIT - 1)
    leader = cluster.leader(group)
    end = leader.partitions[group].core.log_end
    cluster.send(leader, *_silent(group))
    cluster.run(1_000)
    assert leader.partitions[group].core.log_end == end


def _silent(group: GroupId) -> tuple[Any, Any]:
    return ApiKey.PRODUCE, produce_request(group, batch(b"s"), acks=0)


def test_changes_are_told_once_and_health_checks_name_the_nodes(cluster: Cluster) -> None:
    leader, others = cluster.leader(), cluster.followers()
    told: dict[int, list[str]] = {}
    for node in cluster.nodes.values():
        node.disk.listeners.append(told.setdefault(node.config.node_id, []).append)
    fill(cluster, LIMIT - 1, *others)
    cluster.run(10_000)
    low = ", ".join(map(str, ids(others)))
    for node in others:
        assert len(told[node.config.node_id]) == 1 and f"log.dir.min.free.bytes={LIMIT}" in told[node.config.node_id][0]
        assert len(node.disk.warnings) == 1
    assert len(told[leader.config.node_id]) == 1 and f"node {low}." in told[leader.config.node_id][0]
    assert leader.disk.warnings == (f"clients' writes are refused: the disks of nodes {low} are low",)
    empty(cluster)
    cluster.run(5_000)
    assert [len(told[node_id]) for node_id in sorted(told)] == [2, 2, 2]
    assert all(node.disk.warnings == () for node in cluster.nodes.values())


def test_a_disk_that_does_not_say_is_taken_for_well(cluster: Cluster) -> None:
    node = Cluster(size=1, min_free_bytes=LIMIT).nodes[NodeId(1)]
    node.disk._looked(0, None)
    assert node.disk.free_bytes is not None, "what the first look told"
    assert not node.disk.is_low


# --- full ---


def test_a_full_follower_goes_on_voting_and_catches_up_when_there_is_room(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    leader, (follower, other) = cluster.leader(group), cluster.followers(group)
    follower_id = follower.config.node_id
    cluster.disks[follower_id].space.fill(BALLAST_BYTES)
    for _ in range(30):
        assert cluster.produce(group, batch(bytes(1_000))).error is ErrorCode.NONE
    assert follower.disk.is_full and follower.fatal is None
    assert follower.partitions[group].log.end_offset == follower.partitions[group].core.log_end < 30
    refused = cluster.disks[follower_id].space.refused
    cluster.run(10_000)
    assert follower.disk.is_full and cluster.leader(group) is leader
    assert cluster.disks[follower_id].space.refused == refused, "it asks for nothing that it could not write"
    # Its vote is what elects the other one, which has everything.
    cluster.disks[follower_id].space.fill(50)
    cluster.stop(leader.config.node_id)
    cluster.run(5_000, until=lambda: other.partitions[group].core.is_leader)
    cluster.start(leader.config.node_id)
    empty(cluster)
    cluster.run(10_000)
    ends = {node.partitions[group].log.end_offset for node in cluster.nodes.values()}
    assert len(ends) == 1 and not follower.disk.is_full
    assert cluster.produce(group, batch(b"on")).error is ErrorCode.NONE


def test_a_full_leader_hands_over_and_what_it_could_not_write_is_refused(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    cluster.disks[leader.config.node_id].space.fill(10)
    result = cluster.produce(group, batch(bytes(2_000)))
    assert result.error is NO_ROOM and "nothing was appended" in (result.error_message or "") and leader.fatal is None
    cluster.run(5_000)
    assert cluster.leader(group) is not leader
    assert cluster.produce(group, batch(b"x")).error is ErrorCode.NONE
    empty(cluster)
    cluster.run(5_000)
    assert leader.partitions[group].log.end_offset == cluster.leader(group).partitions[group].log.end_offset


def test_what_was_acknowledged_stays_when_all_disks_are_full_and_the_nodes_start_again(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("orders")
    acknowledged = [cluster.produce(group, batch(b"%d" % number)).base_offset for number in range(5)]
    fill(cluster, 0)
    result = cluster.produce(group, batch(b"refused"))
    assert result.error is NO_ROOM
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.run(5_000)
    assert all(node.fatal is None for node in cluster.nodes.values())
    empty(cluster)
    cluster.run(5_000)
    assert cluster.produce(group, batch(b"next")).error is ErrorCode.NONE
    fetched = cluster.fetch(cluster.leader(group), group, acknowledged[0])
    for number in range(5):
        assert b"%d" % number in bytes(fetched.records or b"")


def test_a_node_that_votes_alone_waits_on_a_full_disk_and_goes_on() -> None:
    cluster = Cluster(size=1, min_free_bytes=0)
    node = cluster.leader()
    assert propose(cluster, node, put("k", b"v")).status is ProposeStatus.DONE
    space = cluster.disks[NodeId(1)].space
    space.fill(0)
    space._has_ballast = False
    node.kv.propose(put("l", b"v"), lambda _outcome: None)
    cluster.run(20_000)
    assert node.fatal is None and node.disk.is_full
    assert node.partitions[METADATA_GROUP].core.epoch < 100, "no storm of elections"
    space.empty()
    cluster.run(5_000)
    assert propose(cluster, cluster.leader(), put("m", b"v")).status is ProposeStatus.DONE


def test_a_vote_that_cannot_be_saved_is_not_given_before_it_is(cluster: Cluster) -> None:
    leader, (one, other) = cluster.leader(), cluster.followers()
    for node in (one, other):
        space = cluster.disks[node.config.node_id].space
        space.fill(0)
        space._has_ballast = False
    before = {node.config.node_id: node.partitions[METADATA_GROUP].core.epoch for node in (one, other)}
    cluster.stop(leader.config.node_id)
    cluster.run(10_000)
    for node in (one, other):
        saved = cluster.disks[node.config.node_id].elections[METADATA_GROUP]
        assert saved.epoch == before[node.config.node_id] and not node.partitions[METADATA_GROUP].is_serving
        assert node.fatal is None
    empty(cluster, one, other)
    assert cluster.leader() in (one, other)


def test_new_topics_are_opened_on_a_full_node_when_it_has_room(cluster: Cluster) -> None:
    leader, (follower, _) = cluster.leader(), cluster.followers()
    disk = cluster.disks[follower.config.node_id]
    refused: list[int] = []
    real = disk.prepare

    def prepare(groups: Any) -> None:
        if len(refused) < 3 and groups:
            refused.append(1)
            raise DiskFull("no room")
        real(groups)

    disk.prepare = prepare  # type: ignore[method-assign]
    answers: list[Any] = []
    leader.topics.create("orders", 20, {}, lambda *answer: answers.append(answer))
    cluster.run(2_000)
    assert answers[0][0] is not None
    assert follower.fatal is None and len(refused) >= 1
    cluster.run(10_000)
    assert len(refused) == 3
    assert sum(group.topic == "orders" for group in follower.partitions) == 20


def test_a_snapshot_without_room_is_taken_later_and_the_log_is_cut_then() -> None:
    cluster = Cluster(min_free_bytes=0, snapshot_bytes_between=5_000, segment_bytes=2_000)
    leader = cluster.leader()
    cluster.run(1_000)
    space = cluster.disks[leader.config.node_id].space
    space.fill(20_000)
    for number in range(8):
        propose(cluster, leader, put(f"k{number}", bytes(1_000)))
    space.fill(100)
    space._has_ballast = False
    cluster.run(3_000)
    assert leader.fatal is None and not leader.engine.logs.snapshots.ids(METADATA_GROUP)
    assert leader.kv.bytes_since_snapshot > 5_000
    space.empty()
    cluster.run(35_000)
    assert leader.engine.logs.snapshots.ids(METADATA_GROUP)


def test_a_low_disk_takes_a_snapshot_only_where_it_leaves_half() -> None:
    cluster = Cluster(size=1, min_free_bytes=LIMIT)
    node = cluster.leader()
    cluster.disks[NodeId(1)].space.fill(LIMIT - 1)
    cluster.run(LOOK_MS)
    free = node.disk.free_bytes
    assert free is not None and node.disk.has_room_for(free // 2) and not node.disk.has_room_for(free // 2 + 1)
    cluster.disks[NodeId(1)].space.empty()
    cluster.run(LOOK_MS)
    assert node.disk.has_room_for(1 << 60)


def test_a_node_whose_disk_is_full_amid_a_sync_hears_its_leader_on() -> None:
    """Its rounds waited for a Fetch of the group that had written, and a full node sends none. All groups that follow that
    leader lost sight of it for a fetch timeout, and campaigned."""
    cluster = Cluster(min_free_bytes=0)
    led: dict[NodeId, list[GroupId]] = {}
    for number in range(6):
        (group,) = cluster.create_topic(f"t{number}")
        led.setdefault(cluster.leader(group).config.node_id, []).append(group)
    cluster.run(1_000)
    leader_id, (busy, *idle) = max(led.items(), key=lambda each: len(each[1]))
    follower = next(node for node_id, node in cluster.nodes.items() if node_id != leader_id)
    partition, fetcher = follower.partitions[busy], follower.fetchers._fetchers[leader_id]
    roles: list[tuple[GroupId, str]] = []
    follower.reports.role_listeners.append(lambda group, report: roles.append((group, report.role)))
    end = partition.core.log_end
    cluster.send(cluster.nodes[leader_id], ApiKey.PRODUCE, produce_request(busy, batch(bytes(300))), version=9)
    cluster.run(1_000, until=lambda: partition.log.end_offset > end and partition.core.flushed_end < partition.core.log_end)
    cluster.disks[follower.config.node_id].space.fill(0)
    follower.disk.on_full(DiskFull("an append of another group"))
    follower.disk._looked = lambda *_: None  # type: ignore[method-assign]
    last_ms = fetcher.last_answer_ms
    for _ in range(10):
        cluster.run(follower.config.replica_fetch_wait_ms + 10)
        assert fetcher.last_answer_ms > last_ms, "a round goes on"
        last_ms = fetcher.last_answer_ms
    assert [role for group, role in roles if group in idle] == []
