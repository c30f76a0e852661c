"""Nodes that cannot open a file for a while: nothing stops, what was asked for comes later, and the disk is not blamed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from raftlake.errors import ErrorCode, TooManyFiles
from raftlake.kv.commands import put
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.service import ProposeOutcome
from raftlake.replica.node import ReplicaNode
from raftlake.sim.disk.disk import MemoryLog
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch

TOLD = "cannot open /data/x.log: Too many open files (EMFILE)"


class Files:
    """The logs of some nodes cannot be read, or not be appended to; how often that was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.barred: set[int] = set()
        #: Else reads.
        self.bars_appends = False
        self.tries = 0
        read, append = MemoryLog.read, MemoryLog.append

        def guard(log: MemoryLog) -> None:
            if id(log) in self.barred:
                self.tries += 1
                raise TooManyFiles(TOLD)

        def barred_read(log: MemoryLog, *args: Any) -> bytes:
            if not self.bars_appends:
                guard(log)
            return read(log, *args)

        def barred_append(log: MemoryLog, *args: Any) -> Any:
            if self.bars_appends:
                guard(log)
            return append(log, *args)

        monkeypatch.setattr(MemoryLog, "read", barred_read)
        monkeypatch.setattr(MemoryLog, "append", barred_append)

    def bar(self, cluster: Cluster, node: ReplicaNode) -> None:
        self.barred |= {id(log) for log in cluster.disks[NodeId(node.config.node_id)].logs.values()}

    def free(self) -> None:
        self.barred.clear()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    found = Files(monkeypatch)
    yield found
    assert found.tries > 0, "nobody came upon it"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.leader()
    return cluster


def told_by(node: ReplicaNode) -> list[str]:
    told: list[str] = []
    node.disk.listeners.append(told.append)
    return told


def test_a_consumer_is_told_to_ask_again(cluster: Cluster, files: Files) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    assert cluster.produce(group, batch(b"one")).error is ErrorCode.NONE
    told, given_up = told_by(leader), []
    leader.engine.logs.give_up_ballast = lambda: bool(given_up.append(1))  # type: ignore[method-assign]
    files.bar(cluster, leader)
    result = cluster.fetch(leader, group, 0)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR and not result.records
    assert told == [f"too many files are open: {TOLD}. This node fetches nothing until there is room, and votes as ever"]
    assert leader.disk.warnings == ("too many files are open: this node fetches nothing until there is room",)
    assert given_up == [], "a ballast makes room on a disk"
    files.free()
    result = cluster.fetch(leader, group, 0)
    assert result.error is ErrorCode.NONE and result.records
    cluster.run(3_000)
    assert leader.disk.warnings == () and leader.fatal is None


def test_a_follower_is_given_the_records_later(cluster: Cluster, files: Files) -> None:
    (group,) = cluster.create_topic("orders")
    leader, (behind, _) = cluster.leader(group), cluster.followers(group)
    cluster.stop(behind.config.node_id)
    for number in range(3):
        assert cluster.produce(group, batch(b"%d" % number)).error is ErrorCode.NONE
    cluster.run(30_000)
    leader = cluster.leader(group)
    leader.fetch_server._recent._entries.clear()
    files.bar(cluster, leader)
    again = cluster.start(behind.config.node_id)
    cluster.run(3_000)
    assert leader.fatal is None and again.fatal is None
    files.free()
    cluster.run(20_000, until=lambda: again.partitions[group].core.log_end >= leader.partitions[group].high_watermark)


def test_commands_that_could_not_be_read_are_applied_by_themselves(files: Files) -> None:
    """A node applies in slices, between its turns. Nothing else happens that would make it go on."""
    cluster = Cluster(1)
    leader = cluster.leader()
    outcomes: list[ProposeOutcome] = []
    for number in range(40):
        leader.kv.propose(put(f"k{number}", bytes(200_000)), outcomes.append)
    cluster.run(60_000, until=lambda: leader.kv._behind is not None)
    files.bar(cluster, leader)
    cluster.run(500)
    files.free()
    high_watermark = leader.partitions[METADATA_GROUP].high_watermark
    end = leader.partitions[METADATA_GROUP].core.log_end
    cluster.run(5_000, until=lambda: leader.kv.machine.applied_offset == end)
    assert leader.fatal is None and high_watermark <= end


def test_a_command_that_a_turn_cannot_read_is_applied_later(cluster: Cluster, files: Files) -> None:
    """The turn took that for an append without room, and opened the group anew, which read the log again: the node stopped."""
    leader, follower = cluster.leader(), cluster.followers()[0]
    partition = follower.partitions[METADATA_GROUP]
    told = told_by(follower)
    files.barred.add(id(cluster.disks[NodeId(follower.config.node_id)].logs[METADATA_GROUP]))
    leader.kv.propose(put("k", b"v"), lambda outcome: None)
    cluster.run(300)
    assert follower.kv.machine.get("k") is None and len(told) == 1
    files.free()
    cluster.run(3_000, until=lambda: follower.kv.machine.get("k") is not None)
    assert follower.fatal is None and follower.partitions[METADATA_GROUP] is partition
    cluster.run(5_000)
    assert partition.high_watermark == leader.partitions[METADATA_GROUP].high_watermark and not follower.disk.is_full


def test_an_append_without_a_descriptor_is_refused_and_the_quorum_goes_on(cluster: Cluster, files: Files) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    files.bars_appends = True
    files.barred.add(id(cluster.disks[NodeId(leader.config.node_id)].logs[group]))
    told = told_by(leader)
    result = cluster.produce(group, batch(b"one"))
    assert result.error is ErrorCode.NOT_ENOUGH_REPLICAS and "too many files open" in (result.error_message or "")
    assert TOLD in told[0] and "/data" not in (result.error_message or "")
    files.free()
    cluster.run(30_000, until=lambda: cluster.leader(group).config.node_id != leader.config.node_id or not leader.disk.is_full)
    assert cluster.produce(group, batch(b"two")).error is ErrorCode.NONE
    assert leader.fatal is None


def test_a_question_for_a_time_is_answered_with_an_error(cluster: Cluster, files: Files) -> None:
    (group,) = cluster.create_topic("orders")
    leader = cluster.leader(group)
    assert cluster.produce(group, batch(b"one", timestamp_ms=7)).error is ErrorCode.NONE
    schema = importlib.import_module("kio.schema.list_offsets.v4.request")
    part = schema.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=3)
    topic = schema.ListOffsetsTopic(name="orders", partitions=(part,))
    request = schema.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
    files.bar(cluster, leader)
    answer = cluster.ask(leader, ApiKey.LIST_OFFSETS, request, version=4)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    files.free()
    answer = cluster.ask(leader, ApiKey.LIST_OFFSETS, request, version=4)
    assert answer.topics[0].partitions[0].offset == 1 and leader.fatal is None
