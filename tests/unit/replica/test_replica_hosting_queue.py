"""Topics of many partitions are opened and deleted in parts, and the node does everything else in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from raftlake.errors import DiskFull, ErrorCode, PathOutside
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.hosting.queue import DELETED_AT_ONCE, OPENED_AT_ONCE
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from replica_cluster import Cluster, batch

PARTITIONS = 5 * DELETED_AT_ONCE


class Work:
    """What one node's disk was told to create and to delete at a time, and how often the node ran a turn before each."""

    def __init__(self, cluster: Cluster, node_id: NodeId, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deleted: list[int] = []
        self.prepared: list[int] = []
        self.deleted_at_ms: list[int] = []
        self.prepared_at_ms: list[int] = []
        disk = cluster.disks[node_id]
        delete, prepare = disk.delete, disk.prepare

        def counted_delete(groups: Sequence[GroupId]) -> None:
            self.deleted.append(len(groups))
            self.deleted_at_ms.append(cluster.now_ms)
            delete(groups)

        def counted_prepare(groups: Sequence[GroupId]) -> None:
            self.prepared.append(len(groups))
            self.prepared_at_ms.append(cluster.now_ms)
            prepare(groups)

        monkeypatch.setattr(disk, "delete", counted_delete)
        monkeypatch.setattr(disk, "prepare", counted_prepare)


def remove(cluster: Cluster, name: str) -> None:
    """Delete the topic; returns once its deletion is committed and known to the leader."""
    leader = cluster.leader()
    results: list[tuple[Topic | None, ErrorCode, str]] = []
    topic = leader.names.topic(name)
    assert topic is not None
    leader.topics.delete(topic, lambda *result: results.append(result))
    cluster.run(1000, until=lambda: bool(results))
    assert results[0][1] is ErrorCode.NONE


def hosts_only_metadata(node: ReplicaNode) -> bool:
    return list(node.partitions) == [METADATA_GROUP]


def test_a_topic_is_created_and_deleted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    leader = cluster.leader()
    work = Work(cluster, leader.config.node_id, monkeypatch)
    groups = cluster.create_topic("wide", PARTITIONS)
    assert max(work.prepared) <= OPENED_AT_ONCE
    remove(cluster, "wide")
    assert hosts_only_metadata(leader), "nobody writes to what is deleted"
    assert len(cluster.disks[leader.config.node_id].logs) > 1, "though the disk has it still"
    assert leader.names.resolve_group("wide", 0) not in leader.partitions
    cluster.run(1000)
    assert (sum(work.deleted), max(work.deleted)) == (len(groups), DELETED_AT_ONCE)
    assert len(set(work.deleted_at_ms)) == len(work.deleted), "time passed between any two"
    assert all(list(disk.logs) == [METADATA_GROUP] for disk in cluster.disks.values())


def test_many_topics_of_one_request_are_created_and_deleted_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names in one small request: each topic's first groups were opened, and its directories deleted, at once."""
    cluster = Cluster()
    leader = cluster.leader()
    work = Work(cluster, leader.config.node_id, monkeypatch)
    results: list[tuple[Topic | None, ErrorCode, str]] = []
    names = [f"narrow-{index}" for index in range(3 * OPENED_AT_ONCE)]
    for name in names:
        leader.topics.create(name, 1, {}, lambda *result: results.append(result))
    cluster.run(2000, until=lambda: len(leader.partitions) == 1 + len(names))
    assert [error for _, error, _ in results] == [ErrorCode.NONE] * len(names)
    assert sum(work.prepared) == len(names) and max(work.prepared) <= OPENED_AT_ONCE
    assert len(set(work.prepared_at_ms)) == len(work.prepared), "time passed between any two"
    for topic, _, _ in results:
        assert topic is not None
        leader.topics.delete(topic, lambda *result: results.append(result))
    cluster.run(2000, until=lambda: all(list(disk.logs) == [METADATA_GROUP] for disk in cluster.disks.values()))
    assert sum(work.deleted) == len(names) and max(work.deleted) <= DELETED_AT_ONCE
    assert len(set(work.deleted_at_ms)) == len(work.deleted)


def test_writes_elsewhere_go_on_between_the_parts() -> None:
    cluster = Cluster()
    (other,) = cluster.create_topic("other")
    cluster.create_topic("wide", PARTITIONS)
    cluster.run(1000)
    remove(cluster, "wide")
    assert cluster.produce(other, batch(b"x")).error == ErrorCode.NONE
    assert all(len(disk.logs) > 2 for disk in cluster.disks.values()), "before the last part"


def test_a_name_that_is_created_again_while_the_old_topic_is_deleted_starts_anew() -> None:
    cluster = Cluster()
    old = cluster.create_topic("again", PARTITIONS)
    cluster.produce(old[0], batch(b"old"))
    remove(cluster, "again")
    new = cluster.create_topic("again", PARTITIONS)
    assert cluster.produce(new[0], batch(b"new")).base_offset == 1, "behind the leader's first record, as in any new log"
    cluster.run(1000)
    for node_id, node in cluster.nodes.items():
        assert set(node.partitions) == {METADATA_GROUP, *new}
        assert set(cluster.disks[node_id].logs) == {METADATA_GROUP, *new}


def test_a_crash_between_the_parts_leaves_nothing_for_good() -> None:
    cluster = Cluster()
    cluster.create_topic("wide", PARTITIONS)
    cluster.run(1000)
    remove(cluster, "wide")
    victim = cluster.leader().config.node_id
    assert len(cluster.disks[victim].logs) > 1
    cluster.stop(victim)
    cluster.start(victim)
    cluster.run(3000)
    assert hosts_only_metadata(cluster.nodes[victim])
    assert list(cluster.disks[victim].logs) == [METADATA_GROUP]


def test_a_group_that_is_asked_for_twice_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic is described twice while its groups wait: the second opening would replace a group that has voted."""
    cluster = Cluster()
    cluster.create_topic("other")
    node = cluster.leader()
    topic = Topic("wide", bytes(range(16)), 3)
    opened: list[GroupId] = []
    monkeypatch.setattr(node.topics._queue, "_is_wanted", lambda _: True)
    monkeypatch.setattr(node.topics._queue, "_open_group", opened.append)
    node.topics._queue._is_waiting = True
    for _ in range(2):
        node.topics._queue.open(topic.each_group())
    node.topics._queue._go_on()
    assert opened == topic.groups()


def test_a_wide_topic_that_waits_costs_no_memory_for_each_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    queue = cluster.leader().topics._queue
    opened: list[GroupId] = []
    monkeypatch.setattr(queue, "_is_wanted", lambda _: True)
    monkeypatch.setattr(queue, "_open_group", opened.append)
    queue.open(Topic("wide", bytes(range(16)), 10**12).each_group())
    assert len(opened) == OPENED_AT_ONCE and len(queue._to_open) == 1


def test_a_name_that_leads_out_of_the_data_directory_stops_neither_the_node_nor_the_other_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Storage judges by itself, also where no one before it has looked at the name."""
    cluster = Cluster()
    groups = cluster.create_topic("wide", OPENED_AT_ONCE)
    node = cluster.nodes[NodeId(2)]
    disk = cluster.disks[NodeId(2)]
    banned = {groups[1], groups[-1]}
    delete, prepare = disk.delete, disk.prepare

    def refusing(act: Callable[[Sequence[GroupId]], None]) -> Callable[[Sequence[GroupId]], None]:
        def call(asked: Sequence[GroupId]) -> None:
            if banned.intersection(asked):
                raise PathOutside("leads elsewhere")
            act(asked)

        return call

    monkeypatch.setattr(disk, "delete", refusing(delete))
    remove(cluster, "wide")
    cluster.run(1000)
    assert hosts_only_metadata(node)
    assert {group for group in groups if group in disk.logs} == banned
    # And where they are opened: the names are known once the topic is.
    monkeypatch.setattr(disk, "delete", delete)
    monkeypatch.setattr(disk, "prepare", refusing(prepare))
    banned.clear()
    node.topics._queue._is_wanted = lambda _: True  # type: ignore[method-assign]
    others = [GroupId("other", index, bytes(range(16))) for index in range(OPENED_AT_ONCE)]
    banned.update(others[:2])
    opened: list[GroupId] = []
    node.topics._queue._open_group = opened.append  # type: ignore[method-assign]
    node.topics._queue.open(others)
    assert opened == others[2:] and node.fatal is None
    assert [node.names.has_directory(group) for group in others] == [False] * 2 + [True] * (len(others) - 2)


def test_deletions_that_find_no_room_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stopped the node, and it is deletions that end it."""
    cluster = Cluster(1)
    groups = cluster.create_topic("wide", 2 * DELETED_AT_ONCE + 1)
    cluster.create_topic("kept")
    node, disk = cluster.leader(), cluster.disks[NodeId(1)]
    delete, tries = disk.delete, [0]

    def refuse(asked: Sequence[GroupId]) -> None:
        tries[0] += 1
        if tries[0] == 2:
            delete(asked[:3])
        if tries[0] <= 4:
            raise DiskFull("no space left on device")
        delete(asked)

    monkeypatch.setattr(disk, "delete", refuse)
    remove(cluster, "wide")
    cluster.run(10)
    assert tries[0] == 1 and node.fatal is None and groups[0] in disk.logs
    cluster.run(900)
    assert tries[0] == 1, "not before there can be room"
    cluster.run(10_000)
    assert not [group for group in groups if group in disk.logs] and tries[0] == 4 + 3
    assert node.fatal is None and cluster.create_topic("wide", 2)
