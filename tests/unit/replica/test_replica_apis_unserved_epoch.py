"""What consumers are told by a leader that has not committed in its own epoch, and by nodes that are behind: nothing that would
take back what they have seen."""

from __future__ import annotations

import importlib
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, fetch_request, produce_request

epochs = importlib.import_module("kio.schema.offset_for_leader_epoch.v4.request")
offsets = importlib.import_module("kio.schema.list_offsets.v7.request")


def epoch_ends(group: GroupId, epoch: int, *, replica_id: int = -1) -> Any:
    asked = epochs.OffsetForLeaderPartition(partition=group.partition, current_leader_epoch=-1, leader_epoch=epoch)
    topic = epochs.OffsetForLeaderTopic(topic=group.topic, partitions=(asked,))
    return epochs.OffsetForLeaderEpochRequest(topics=(topic,), replica_id=replica_id)


def ask_epoch_end(cluster: Cluster, node: ReplicaNode, request: Any) -> tuple[int, int, int]:
    answer = cluster.ask(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, request, version=4)
    part = answer.topics[0].partitions[0]
    return int(part.error_code), int(part.leader_epoch), int(part.end_offset)


def ask_latest(cluster: Cluster, node: ReplicaNode, group: GroupId, *, timestamp: int = -1) -> tuple[int, int, int]:
    asked = offsets.ListOffsetsPartition(partition_index=group.partition, timestamp=timestamp)
    topic = offsets.ListOffsetsTopic(name=group.topic, partitions=(asked,))
    request = offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
    part = cluster.ask(node, ApiKey.LIST_OFFSETS, request, version=7).topics[0].partitions[0]
    return int(part.error_code), int(part.offset), int(part.leader_epoch)


class Unserved:
    """A consumer has read up to `seen`; then the leader died, and `leader`, which has all of that but knows of less, cannot
    commit in its own epoch yet, because the third node stands still."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        (self.group,) = self.cluster.create_topic("t")
        self.cluster.run(2_000)
        old = self.cluster.leader(self.group)
        self.old_epoch = old.partitions[self.group].core.epoch
        # The followers will hear that this is committed with the next records, or some milliseconds later: never, here.
        self.cluster.produce(self.group, batch(b"a"))
        self.seen = self.cluster.fetch(old, self.group, 0).high_watermark
        self.cluster.stop(old.config.node_id)
        self.cluster.run(10_000, until=lambda: bool(self._leading()))
        (self.leader,) = self._leading()
        (self.other,) = (node_id for node_id in self.cluster.nodes if node_id != self.leader.config.node_id)
        self.cluster.pause(self.other)
        self.cluster.run(2)
        self.partition = self.leader.partitions[self.group]
        assert not self.partition.is_serving
        assert 0 < self.partition.high_watermark < self.seen < self.partition.log.end_offset

    def _leading(self) -> list[ReplicaNode]:
        return [node for node in self.cluster.nodes.values() if node.partitions[self.group].core.is_leader]

    def go_on(self) -> None:
        self.cluster.resume(self.other, timers_first=False)
        self.cluster.run(2_000, until=lambda: self.partition.is_serving)


def test_a_fetch_waits_for_the_own_epoch_and_is_answered_by_its_commit() -> None:
    scene = Unserved()
    answers = scene.cluster.send(scene.leader, ApiKey.FETCH, fetch_request(scene.group, 0, wait_ms=1_500))
    scene.cluster.run(50)
    assert not answers
    scene.go_on()
    part = answers[0].topics[0].partitions[0]
    assert (part.error, part.high_watermark) == (ErrorCode.NONE, scene.partition.high_watermark)
    assert part.high_watermark > scene.seen and part.records


def test_a_fetch_whose_wait_is_over_shows_no_older_high_watermark() -> None:
    scene = Unserved()
    for wait_ms in (0, 100):
        for offset in (0, scene.seen, scene.partition.log.end_offset, 99):
            part = scene.cluster.fetch(scene.leader, scene.group, offset, wait_ms=wait_ms)
            assert (part.error, part.high_watermark, part.last_stable_offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
            assert not part.records


def test_a_new_leader_that_restarted_with_the_rest_lets_consumers_wait_too() -> None:
    """Its high watermark is 0: nothing has told it yet how much of its log is committed."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a"))
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in (NodeId(1), NodeId(2), NodeId(3)):
        cluster.start(node_id)
    leading: list[ReplicaNode] = []

    def leads() -> bool:
        leading[:] = [node for node in cluster.nodes.values() if node.partitions[group].core.is_leader]
        return bool(leading)

    cluster.run(10_000, until=leads)
    assert leading[0].partitions[group].high_watermark == 0
    answers = cluster.send(leading[0], ApiKey.FETCH, fetch_request(group, 0, wait_ms=1_500))
    assert not answers
    cluster.run(2_000, until=lambda: bool(answers))
    part = answers[0].topics[0].partitions[0]
    assert part.error is ErrorCode.NONE and part.records


def test_list_offsets_is_not_answered_before_the_own_epoch_commits() -> None:
    scene = Unserved()
    for timestamp in (-1, -2, -3, 1):
        answer = ask_latest(scene.cluster, scene.leader, scene.group, timestamp=timestamp)
        assert answer == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
    scene.go_on()
    error, offset, epoch = ask_latest(scene.cluster, scene.leader, scene.group)
    assert (error, epoch) == (0, scene.partition.core.epoch)
    assert offset > scene.seen


def test_a_consumer_is_not_told_of_a_truncation_that_did_not_happen() -> None:
    scene = Unserved()
    question = epoch_ends(scene.group, scene.old_epoch)
    assert ask_epoch_end(scene.cluster, scene.leader, question) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
    scene.go_on()
    assert ask_epoch_end(scene.cluster, scene.leader, question) == (0, scene.old_epoch, scene.seen)


def test_a_replica_is_told_where_an_epoch_ends_whatever_is_committed() -> None:
    """It cuts its log there: cut at the high watermark, it could lose records that a majority needs it for."""
    scene = Unserved()
    question = epoch_ends(scene.group, scene.old_epoch, replica_id=2)
    assert ask_epoch_end(scene.cluster, scene.leader, question) == (0, scene.old_epoch, scene.seen)


def test_the_end_of_the_current_epoch_is_the_high_watermark_for_a_consumer() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a"))
    leader = cluster.leader(group)
    partition = leader.partitions[group]
    committed, epoch = partition.high_watermark, partition.core.epoch
    for node in cluster.followers(group):
        cluster.pause(node.config.node_id)
    cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"b")), version=9)
    cluster.run(20)
    assert partition.is_serving and partition.log.end_offset == committed + 1
    assert ask_epoch_end(cluster, leader, epoch_ends(group, epoch)) == (0, epoch, committed)
    assert ask_epoch_end(cluster, leader, epoch_ends(group, epoch, replica_id=2)) == (0, epoch, committed + 1)


def test_an_epoch_before_the_first_one_of_the_log_ends_where_the_log_begins() -> None:
    """Kafka's LeaderEpochFileCache.endOffsetFor. Told (-1, -1), a consumer takes all that it has read for lost."""
    cluster = Cluster(segment_bytes=300, retention_bytes=0, retention_check_interval_ms=250)
    (group,) = cluster.create_topic("t")
    old = cluster.leader(group)
    first = old.partitions[group].core.epoch
    assert ask_epoch_end(cluster, old, epoch_ends(group, first - 1)) == (0, first - 1, 0)
    cluster.produce(group, batch(b"a"))
    cluster.stop(old.config.node_id)
    leader = cluster.leader(group)
    for _ in range(8):
        cluster.produce(group, batch(bytes(100)))
    partition = leader.partitions[group]
    cluster.run(5_000, until=lambda: partition.log.start_offset > 2)
    begins, epoch = partition.log.start_offset, partition.core.epoch
    assert list(partition.log.epochs) == [(epoch, begins)] and begins > 2 and first < epoch
    for replica_id in (-1, 2):
        for asked in range(epoch):
            answer = ask_epoch_end(cluster, leader, epoch_ends(group, asked, replica_id=replica_id))
            assert answer == (0, asked, begins), "the records are gone by retention, and nothing was truncated"
        assert ask_epoch_end(cluster, leader, epoch_ends(group, epoch + 1, replica_id=replica_id)) == (0, -1, -1)


def test_no_node_shows_a_high_watermark_below_the_position_asked_for() -> None:
    """A follower that has heard of less than the consumer has read: it may have the record, and does not know it."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a"))
    cluster.run(100)
    follower = cluster.followers(group)[0]
    partition = follower.partitions[group]
    known = partition.high_watermark
    (other,) = (node for node in cluster.followers(group) if node is not follower)
    cluster.pause(other.config.node_id)
    cluster.produce(group, batch(b"b"))
    assert (partition.high_watermark, partition.log.end_offset) == (known, known + 1)
    assert cluster.fetch(follower, group, known).high_watermark == known
    behind = cluster.fetch(follower, group, known + 1)
    assert (behind.error, behind.high_watermark) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    # With time to wait it hears of the commit before it has to say so.
    waited = cluster.fetch(follower, group, known + 1, wait_ms=100)
    assert (waited.error, waited.high_watermark) == (ErrorCode.NONE, known + 1)


def test_a_follower_without_the_offset_sends_the_consumer_away_at_once() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    cluster.run(100)
    follower = cluster.followers(group)[0]
    answers = cluster.send(follower, ApiKey.FETCH, fetch_request(group, 99, wait_ms=5_000))
    assert answers[0].topics[0].partitions[0].error is ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_leader_answers_an_appended_position_only_when_it_is_committed() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    end = leader.partitions[group].high_watermark
    for node in cluster.followers(group):
        cluster.pause(node.config.node_id)
    cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"b")), version=9)
    cluster.run(20)
    assert leader.partitions[group].log.end_offset == end + 1
    assert cluster.fetch(leader, group, end).high_watermark == end
    assert cluster.fetch(leader, group, end + 1).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert cluster.fetch(leader, group, end + 2).error is ErrorCode.OFFSET_OUT_OF_RANGE
