"""Group commit and what happens by the clock: shared syncs, failed syncs, retention of closed segments."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.disk.syncer import ALONE_AFTER_MS
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request


def _count_syncs(node: ReplicaNode) -> list[int]:
    """How many logs each sync of the node covers, from now on."""
    syncs: list[int] = []
    flush = node.engine.logs.flush
    node.engine.logs.flush = lambda logs, done, *, may_wait: (syncs.append(len(logs)), flush(logs, done))[1]  # type: ignore[method-assign, assignment]
    return syncs


def test_logs_written_in_one_turn_share_a_sync_and_what_comes_meanwhile_shares_the_next() -> None:
    cluster = Cluster(1)
    groups = cluster.create_topic("t", 3)
    leader = cluster.leader(groups[0])
    cluster.run(50)
    syncs = _count_syncs(leader)
    answers = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x"))) for group in groups]
    leader.run_turn()
    answers += [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"y"))) for group in groups * 2]
    cluster.run(100, until=lambda: all(answers))
    assert syncs == [3, 3]


def test_an_append_is_not_acknowledged_before_the_sync_that_covers_it() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(50)
    held: list[object] = []
    leader.engine.logs.flush = lambda logs, done, *, may_wait: held.append(done)  # type: ignore[method-assign, assignment]
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x")))
    cluster.run(1000)
    assert held
    assert not answers


def test_a_failed_sync_stops_the_node_and_is_not_tried_again() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(50)
    tries: list[int] = []

    def fail(logs: object, done: object, *, may_wait: bool) -> None:
        tries.append(1)
        done(StorageError("no sync"))  # type: ignore[operator]

    leader.engine.logs.flush = fail  # type: ignore[method-assign, assignment]
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x")))
    leader.run_turn()
    leader.run_turn()
    assert isinstance(leader.fatal, StorageError)
    assert tries == [1]
    assert not answers


@pytest.mark.parametrize("gone", range(3))
def test_a_group_that_is_deleted_during_a_sync_keeps_no_other_from_hearing_of_it(gone: int) -> None:
    """The first, the second or the last of the three that the sync covers."""
    cluster = Cluster(1)
    groups = cluster.create_topic("t", 3)
    leader = cluster.leader(groups[0])
    cluster.run(50)
    held: list[Any] = []
    flush = leader.engine.logs.flush
    leader.engine.logs.flush = lambda logs, done, *, may_wait: held.append((list(logs), done))  # type: ignore[method-assign, assignment]
    answers = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x"))) for group in groups]
    leader.run_turn()
    ((logs, done),) = held
    assert [log.group for log in logs] == groups
    leader.engine.logs.flush = flush  # type: ignore[method-assign]
    leader.partitions[groups[gone]].deleted = True
    done(None)
    leader.run_turn()
    assert [bool(answer) for answer in answers] == [number != gone for number in range(3)]


def test_only_a_node_that_leads_no_appends_waits_for_its_disk() -> None:
    cluster = Cluster(3)
    groups = cluster.create_topic("t", 3)
    waits: dict[NodeId, list[tuple[int, int, bool]]] = {node_id: [] for node_id in cluster.nodes}
    led_ms = dict.fromkeys(cluster.nodes, cluster.now_ms)

    def watch(node: ReplicaNode) -> None:
        flush, me = node.engine.logs.flush, node.config.node_id

        def flush_and_note(logs: Any, done: Any, *, may_wait: bool) -> None:
            if any(node.partitions[log.group].core.is_leader for log in logs):
                led_ms[me] = cluster.now_ms
            waits[me].append((len(logs), cluster.now_ms - led_ms[me], may_wait))
            flush(logs, done)

        node.engine.logs.flush = flush_and_note  # type: ignore[method-assign]

    for node in cluster.nodes.values():
        watch(node)
    for pause_ms in (ALONE_AFTER_MS // 3, ALONE_AFTER_MS):
        for group in groups:
            cluster.produce(group, batch(b"x"))
            cluster.run(pause_ms)
    noted = [each for every in waits.values() for each in every]
    assert all(may_wait == (count == 1 and since_ms >= ALONE_AFTER_MS) for count, since_ms, may_wait in noted)
    assert {may_wait for _, _, may_wait in noted} == {True, False}


def test_what_a_sync_brings_about_leaves_in_the_same_turn_when_it_is_over_at_once() -> None:
    cluster = Cluster(3)
    (group,) = cluster.create_topic("t")
    cluster.run(100)
    for disk in cluster.disks.values():
        disk.is_quick = True
    assert cluster.produce(group, batch(b"x")).error is ErrorCode.NONE
    cluster.run(100)
    ends = {node.partitions[group].core.flushed_end for node in cluster.nodes.values()}
    assert ends == {cluster.leader(group).partitions[group].core.log_end}


def _fill(cluster: Cluster, group: GroupId, count: int) -> None:
    for _ in range(count):
        assert cluster.produce(group, batch(bytes(1000))).error is ErrorCode.NONE


def test_retention_trims_every_replica_and_readers_below_are_out_of_range() -> None:
    cluster = Cluster(retention_bytes=3000, retention_check_interval_ms=1000, segment_bytes=2000)
    (group,) = cluster.create_topic("t")
    _fill(cluster, group, 20)
    cluster.run(3000)
    for node in cluster.nodes.values():
        assert node.partitions[group].log.start_offset > 0
        assert node.partitions[group].core.log_start == node.partitions[group].log.start_offset
    assert cluster.fetch(cluster.leader(group), group, 0).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_replica_that_missed_what_retention_deleted_begins_at_the_leaders_log_start() -> None:
    cluster = Cluster(retention_bytes=3000, retention_check_interval_ms=1000, segment_bytes=2000)
    (group,) = cluster.create_topic("t")
    down = cluster.followers(group)[0].config.node_id
    cluster.run(500)
    cluster.stop(down)
    _fill(cluster, group, 20)
    cluster.run(3000)
    start = cluster.leader(group).partitions[group].log.start_offset
    assert start > 1
    node = cluster.start(down)
    cluster.run(3000)
    leader = cluster.leader(group).partitions[group]
    assert node.partitions[group].log.start_offset >= 1
    assert node.partitions[group].log.end_offset == leader.log.end_offset
    assert node.partitions[group].high_watermark == leader.high_watermark
