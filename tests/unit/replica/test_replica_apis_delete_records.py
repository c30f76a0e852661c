"""DeleteRecords through the messages that clients send: what is answered, what consumers see afterwards, and who else knows."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from configkit import alter, created
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keys import start_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.apis import delete_records
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC
from raftlake.replica.kv.service import KvService
from raftlake.replica.node import ReplicaNode
from raftlake.replica.refused_for_good import DELETE as DELETE_RECORDS
from raftlake.replica.refused_for_good import Refusal
from raftlake.replica.reserved import RecordStart
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, decode_records
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster, batch

HIGH_WATERMARK = -1
EARLIEST, LATEST, EARLIEST_LOCAL, MAX_TIMESTAMP, EARLIEST_PENDING = -2, -1, -4, -3, -6


def request(*asked: tuple[str, int, int], version: int = 2, timeout_ms: int = 5_000) -> Any:
    """(topic, partition, offset) each, topics together."""
    schema: Any = importlib.import_module(f"kio.schema.delete_records.v{version}.request")
    names = list(dict.fromkeys(name for name, _, _ in asked))
    topics = tuple(
        schema.DeleteRecordsTopic(
            name=TopicName(name),
            partitions=tuple(
                schema.DeleteRecordsPartition(partition_index=i32(index), offset=i64(offset))
                for topic, index, offset in asked
                if topic == name
            ),
        )
        for name in names
    )
    return schema.DeleteRecordsRequest(topics=topics, timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)))


def lows(answer: Any) -> list[tuple[int, ErrorCode, int]]:
    """(partition, error, low watermark) each."""
    return [
        (int(part.partition_index), ErrorCode(int(part.error_code)), int(part.low_watermark))
        for topic in answer.topics
        for part in topic.partitions
    ]


def delete(cluster: Cluster, group: GroupId, offset: int, node: ReplicaNode | None = None) -> tuple[ErrorCode, int]:
    asked = request((group.topic, group.partition, offset))
    answer = cluster.ask(node or cluster.leader(group), ApiKey.DELETE_RECORDS, asked, version=2, wait_ms=10_000)
    ((index, error, low),) = lows(answer)
    assert index == group.partition
    return error, low


def listed(cluster: Cluster, group: GroupId, timestamp: int) -> tuple[ErrorCode, int]:
    schema: Any = importlib.import_module("kio.schema.list_offsets.v9.request")
    asked = schema.ListOffsetsPartition(partition_index=i32(group.partition), timestamp=i64(timestamp))
    topic = schema.ListOffsetsTopic(name=TopicName(group.topic), partitions=(asked,))
    message = schema.ListOffsetsRequest(replica_id=i32(-1), isolation_level=i8(0), topics=(topic,))
    answer = cluster.ask(cluster.leader(group), ApiKey.LIST_OFFSETS, message, version=9)
    found = answer.topics[0].partitions[0]
    return ErrorCode(int(found.error_code)), int(found.offset)


def written(count: int = 10, values: int = 1, **settings: Any) -> tuple[Cluster, GroupId]:
    """A cluster and a partition with so many batches of so many records; offset 0 is its leader's."""
    cluster = Cluster(3, **settings)
    (group,) = cluster.create_topic("t")
    for number in range(count):
        records = [b"%03d" % (number * values + index) for index in range(values)]
        assert cluster.produce(group, batch(*records, timestamp_ms=1_000 + number)).error is ErrorCode.NONE
    return cluster, group


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_partition_begins_at_the_offset_afterwards(version: int) -> None:
    cluster, group = written()
    answer = cluster.ask(cluster.leader(group), ApiKey.DELETE_RECORDS, request(("t", 0, 5), version=version), version=version)
    assert lows(answer) == [(0, ErrorCode.NONE, 5)]
    leader = cluster.leader(group)
    assert cluster.fetch(leader, group, 4).error is ErrorCode.OFFSET_OUT_OF_RANGE
    at_start = cluster.fetch(leader, group, 5)
    assert (at_start.error, at_start.log_start_offset) == (ErrorCode.NONE, 5)
    assert next(iter(decode_records(at_start.records))).offset == 5
    assert listed(cluster, group, EARLIEST) == listed(cluster, group, EARLIEST_LOCAL) == (ErrorCode.NONE, 5)
    assert listed(cluster, group, LATEST)[1] == 11
    assert cluster.produce(group, batch(b"more")).log_start_offset == 5


def test_minus_one_is_the_high_watermark_and_what_comes_then_is_there() -> None:
    cluster, group = written()
    assert delete(cluster, group, HIGH_WATERMARK) == (ErrorCode.NONE, 11)
    assert cluster.produce(group, batch(b"new")).base_offset == 11
    assert listed(cluster, group, EARLIEST) == (ErrorCode.NONE, 11)
    assert [record.value for record in decode_records(cluster.fetch(cluster.leader(group), group, 11).records)] == [b"new"]


@pytest.mark.parametrize(("offset", "answer"), [(12, ErrorCode.OFFSET_OUT_OF_RANGE), (-2, ErrorCode.OFFSET_OUT_OF_RANGE)])
def test_offsets_outside_of_what_is_committed_are_out_of_range(offset: int, answer: ErrorCode) -> None:
    cluster, group = written()
    assert delete(cluster, group, offset) == (answer, -1)
    assert listed(cluster, group, EARLIEST) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("offset", [0, 3, 5])
def test_what_is_deleted_already_is_answered_with_the_start(offset: int) -> None:
    cluster, group = written()
    assert delete(cluster, group, 5) == (ErrorCode.NONE, 5)
    applied = cluster.leader().kv.machine.applied_offset
    assert delete(cluster, group, offset) == (ErrorCode.NONE, 5)
    assert cluster.leader().kv.machine.applied_offset == applied, "nothing was decided anew"


def test_a_topic_that_is_only_compacted_keeps_its_records() -> None:
    """As in Kafka: of each key the newest record is there for good. The log of the node says why, once."""
    cluster = Cluster()
    (group,) = created(cluster, "kept", cleanup_policy="compact")
    told: list[Refusal] = []
    for node in cluster.nodes.values():
        node.refused_for_good.listeners.append(told.append)
    cluster.produce(group, build_batch([Record(key=b"k", value=b"v")], timestamp_ms=1))
    for offset in (1, HIGH_WATERMARK, 1_000_000):
        assert delete(cluster, group, offset) == (ErrorCode.POLICY_VIOLATION, -1)
    assert cluster.leader().kv.machine.get(start_key(id_to_text(group.topic_id), 0)) is None
    (refusal,) = told
    assert (refusal.kind, refusal.subject) == (DELETE_RECORDS, "kept") and "cleanup.policy=compact;" in refusal.why
    assert delete(cluster, group, 1, cluster.followers(group)[0])[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    alter(cluster, "kept", cleanup_policy="compact,delete")
    assert delete(cluster, group, 1) == (ErrorCode.NONE, 1)


def test_what_the_leaders_retention_has_removed_is_deleted_on_all_nodes() -> None:
    """Simulator seeds 40, 87: the leader's disk had let go of it, so nothing was decided. Other nodes went on showing it."""
    cluster, group = written()
    leader = cluster.leader(group)
    partition = leader.partitions[group]
    partition.roll()
    leader.snapshots.trim(partition, Offset(11))
    cluster.run(500, until=lambda: partition.log.start_offset == 11)
    assert partition.log.start_offset == 11
    assert delete(cluster, group, 7) == (ErrorCode.NONE, 11)
    for node in cluster.nodes.values():
        cluster.run(2_000, until=lambda node=node: node.kv.state.records_from(group) > 0)
        assert node.kv.state.records_from(group) == 7


def test_the_high_watermark_itself_is_the_last_offset_that_can_be_asked_for() -> None:
    cluster, group = written()
    assert delete(cluster, group, 11) == (ErrorCode.NONE, 11)


def test_only_the_leader_takes_it_and_only_for_partitions_that_exist() -> None:
    cluster, group = written()
    assert delete(cluster, group, 5, cluster.followers(group)[0]) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    asked = request(("t", 1, 0), ("nothing", 0, 0), (METADATA_TOPIC, 0, 1))
    answer = cluster.ask(cluster.leader(group), ApiKey.DELETE_RECORDS, asked, version=2)
    assert [error for _, error, _ in lows(answer)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_a_request_without_partitions_is_answered_and_a_partition_twice_is_refused() -> None:
    cluster, group = written()
    leader = cluster.leader(group)
    assert lows(cluster.ask(leader, ApiKey.DELETE_RECORDS, request(), version=2)) == []
    answer = cluster.ask(leader, ApiKey.DELETE_RECORDS, request(("t", 0, 5), ("t", 0, 7)), version=2)
    assert [error for _, error, _ in lows(answer)] == [ErrorCode.INVALID_REQUEST] * 2


def test_many_partitions_are_decided_in_few_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_records, "KEYS_PER_TXN", 2)
    cluster = Cluster(1)
    groups = cluster.create_topic("t", 5)
    for group in groups:
        cluster.produce(group, batch(b"a", b"b"))
    before = cluster.leader().kv.machine.applied_offset
    asked = request(*(("t", index, index % 3) for index in range(5)))
    answer = cluster.ask(cluster.leader(), ApiKey.DELETE_RECORDS, asked, version=2)
    assert lows(answer) == [(index, ErrorCode.NONE, index % 3) for index in range(5)]
    # Two of the five offsets are where the partitions begin anyway: three keys in two commands.
    assert cluster.leader().kv.machine.applied_offset == before + 2


def test_an_offset_amid_a_batch_gives_the_whole_batch_to_who_asks_for_it() -> None:
    cluster, group = written(count=3, values=10)
    assert delete(cluster, group, 14) == (ErrorCode.NONE, 14)
    leader = cluster.leader(group)
    fetched = cluster.fetch(leader, group, 14)
    assert next(record.offset for record in decode_records(fetched.records)) == 11, "as in Kafka"
    assert cluster.fetch(leader, group, 13).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_every_node_knows_and_a_later_leader_and_a_restarted_node_do() -> None:
    cluster, group = written()
    assert delete(cluster, group, 7) == (ErrorCode.NONE, 7)
    cluster.run(500)
    for node in cluster.nodes.values():
        assert cluster.fetch(node, group, 6).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert cluster.fetch(node, group, 7).error is ErrorCode.NONE
    first = cluster.leader(group).config.node_id
    cluster.stop(first)
    assert listed(cluster, group, EARLIEST) == (ErrorCode.NONE, 7)
    node = cluster.start(first)
    cluster.run(10_000, until=lambda: group in node.partitions and node.partitions[group].high_watermark >= 11)
    cluster.run(1_000)
    assert cluster.fetch(node, group, 6).error is ErrorCode.OFFSET_OUT_OF_RANGE
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.machines:
        cluster.start(node_id)
    cluster.run(2_000)
    assert listed(cluster, group, EARLIEST) == (ErrorCode.NONE, 7)


def test_a_node_that_has_not_read_the_keys_yet_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log on disk has the deleted records still. So they must not be shown before the keys are applied."""
    cluster, group = written()
    assert delete(cluster, group, 7) == (ErrorCode.NONE, 7)
    cluster.run(500)
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    with monkeypatch.context() as patch:
        patch.setattr(KvService, "advance", lambda *_: None)
        for node_id in cluster.machines:
            cluster.start(node_id)
        cluster.run(10_000, until=lambda: all(n.partitions[group].high_watermark >= 11 for n in cluster.nodes.values()))
        cluster.run(1_000)
        for node in cluster.nodes.values():
            assert [cluster.fetch(node, group, offset).error for offset in (3, 8)] == [ErrorCode.OFFSET_NOT_AVAILABLE] * 2
        for special in (EARLIEST, EARLIEST_LOCAL, 1_000):
            assert listed(cluster, group, special)[0] is ErrorCode.OFFSET_NOT_AVAILABLE
    for node in cluster.nodes.values():
        # What was held up comes with the next word of the leader.
        metadata = node.partitions[METADATA_GROUP]
        node.kv.advance(metadata, metadata.core.high_watermark)
    cluster.run(500)
    for node in cluster.nodes.values():
        assert cluster.fetch(node, group, 3).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert cluster.fetch(node, group, 8).error is ErrorCode.NONE


def test_without_a_leader_of_the_quorum_the_time_of_the_request_ends_it() -> None:
    cluster, group = written()
    leader = cluster.leader(group)
    others = [node_id for node_id in cluster.nodes if node_id != leader.config.node_id]
    answers = cluster.send(leader, ApiKey.DELETE_RECORDS, request(("t", 0, 5), timeout_ms=300), version=2)
    for node_id in others:
        cluster.pause(node_id)
    cluster.run(299)
    assert answers == []
    cluster.run(10)
    assert lows(answers[0]) == [(0, ErrorCode.REQUEST_TIMED_OUT, -1)]
    for node_id in others:
        cluster.resume(node_id, timers_first=False)
    cluster.run(5_000)
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(1_000, 6), (1_004, 6), (1_005, 6), (1_006, 7), (1_009, 10), (1_010, -1), (MAX_TIMESTAMP, 10)]
)
def test_times_are_looked_for_behind_what_is_deleted(timestamp: int, offset: int) -> None:
    cluster, group = written()
    delete(cluster, group, 6)
    assert listed(cluster, group, timestamp) == (ErrorCode.NONE, offset)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_times_amid_a_batch_and_of_deleted_records_are_no_answer(segment_bytes: int) -> None:
    """The latest record is deleted, and so is the first of a time."""
    cluster = Cluster(1, segment_bytes=segment_bytes)
    (group,) = cluster.create_topic("t")
    for base in (9_000, 100, 200):
        cluster.produce(group, batch(bytes(80), bytes(80), bytes(80), timestamp_ms=base))
    delete(cluster, group, 2)
    assert [listed(cluster, group, each)[1] for each in (100, 8_000, MAX_TIMESTAMP)] == [2, 2, 2], "its batch goes on there"
    delete(cluster, group, 5)
    assert [listed(cluster, group, each)[1] for each in (100, 101, 201, MAX_TIMESTAMP)] == [5, 7, -1, 7]


def test_a_start_that_another_request_moved_further_is_what_is_answered() -> None:
    cluster, group = written()
    leader = cluster.leader(group)
    answers = [cluster.send(leader, ApiKey.DELETE_RECORDS, request(("t", 0, offset)), version=2) for offset in (8, 4)]
    cluster.run(1_000, until=lambda: all(answers))
    assert [lows(each[0]) for each in answers] == [[(0, ErrorCode.NONE, 8)]] * 2


def test_a_node_that_forwards_the_decision_may_say_nothing_else() -> None:
    cluster, group = written()
    gate = cluster.leader().kv.gate
    key = start_key(id_to_text(group.topic_id), 0)

    def refusal(*ops: Any) -> str | None:
        return gate.refusal(Txn((), ops), Origin.PEER, NodeId(2))

    good = Put(key, RecordStart(Offset(5)).encode())
    assert refusal(good) is None
    other = start_key(id_to_text(group.topic_id), 1)
    assert refusal(good, Put(other, RecordStart(Offset(7)).encode())) is None
    for bad in (
        Put(other, b"{}"),
        Put(other, RecordStart(Offset(5), id_to_text(group.topic_id)).encode()),
        Put(key + "/more", good.value),
        Delete(other),
        Put("/raftlake/cluster", good.value),
    ):
        assert refusal(good, bad) is not None
    assert gate.refusal(Txn((), (good,)), Origin.CLIENT, NodeId(-1)) is not None
