"""What topics ask for is done: at once, on all nodes, for that topic alone, and by no topic that comes after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from configkit import alter, created, described, own, schema, settle
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.apis.produce import NOT_KNOWN_YET
from raftlake.replica.config import SEGMENT_BYTES
from raftlake.replica.partition.partition import Partition
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers, validate
from replica_cluster import Cluster, batch

ROUND_MS = 500
#: A simulated disk of 1 MiB segments stands for a node of 128 MiB: sizes of segments shrink by 128.
DISK_SEGMENT_BYTES, SCALE = 1 << 20, 128
OLD_MS = 10_000


def new_cluster(**settings: Any) -> Cluster:
    assert SEGMENT_BYTES == SCALE * DISK_SEGMENT_BYTES
    return Cluster(retention_check_interval_ms=ROUND_MS, segment_bytes=DISK_SEGMENT_BYTES, **settings)


def wall_ms(cluster: Cluster) -> int:
    return cluster.leader().engine.clock.wall_ms()


def write(cluster: Cluster, group: GroupId, *values: bytes, age_ms: int = 0, **fields: Any) -> Any:
    """The answer to one batch of records of that age."""
    return cluster.produce(group, batch(*values, timestamp_ms=wall_ms(cluster) - age_ms, **fields))


def everywhere(cluster: Cluster, group: GroupId, ask: Callable[[Partition], Any]) -> set[Any]:
    """What is so on the nodes, once."""
    cluster.run(2_000, until=lambda: len({node.partitions[group].log.end_offset for node in cluster.nodes.values()}) == 1)
    return {ask(node.partitions[group]) for node in cluster.nodes.values()}


def starts(cluster: Cluster, group: GroupId) -> set[int]:
    return everywhere(cluster, group, lambda partition: partition.log.start_offset)


def counts(cluster: Cluster, group: GroupId) -> set[int]:
    """How many segments the logs have."""
    return everywhere(cluster, group, lambda partition: len(partition.log.segments()))


def restart(cluster: Cluster, **settings: Any) -> None:
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
        cluster.start(node_id, **settings)


# --- retention ------------------------------------------------------------------------------------------------------------


def test_one_topics_retention_is_not_anothers() -> None:
    cluster = new_cluster()
    (short,) = created(cluster, "short", retention_ms="3000")
    (kept,) = created(cluster, "kept")
    for group in (short, kept):
        write(cluster, group, b"a", age_ms=OLD_MS)
    cluster.run(6 * ROUND_MS)
    (end,) = starts(cluster, short)
    assert end > 0 and starts(cluster, kept) == {0}
    write(cluster, short, b"young")
    cluster.run(3 * ROUND_MS)
    assert starts(cluster, short) == {end}


def test_a_change_counts_at_once_on_all_nodes_and_its_deletion_too() -> None:
    cluster = new_cluster()
    first, second = created(cluster, "t", partitions=2)
    for group in (first, second):
        write(cluster, group, b"a", age_ms=OLD_MS)
    cluster.run(6 * ROUND_MS)
    assert starts(cluster, first) | starts(cluster, second) == {0}
    alter(cluster, "t", retention_ms="3000")
    cluster.run(6 * ROUND_MS)
    (end,) = starts(cluster, first)
    assert end > 0 and starts(cluster, second) == {end}
    alter(cluster, "t", "retention.ms")
    write(cluster, first, b"b", age_ms=OLD_MS)
    cluster.run(6 * ROUND_MS)
    assert starts(cluster, first) == {end}


def test_a_topic_may_keep_more_than_its_node() -> None:
    cluster = new_cluster(retention_ms=3_000)
    (kept,) = created(cluster, "kept", retention_ms="-1")
    (short,) = created(cluster, "short")
    for group in (kept, short):
        write(cluster, group, b"a", age_ms=OLD_MS)
    cluster.run(6 * ROUND_MS)
    assert starts(cluster, kept) == {0} and min(starts(cluster, short)) > 0


def test_a_node_that_restarts_deletes_nothing_before_it_knows_what_its_topics_want_kept() -> None:
    """The node's own retention is short, and the topic's is for ever: the key that says so is read long after the log."""
    cluster = new_cluster(retention_ms=3_000)
    (group,) = created(cluster, "kept", retention_ms="-1")
    write(cluster, group, b"a", age_ms=OLD_MS)
    restart(cluster)
    cluster.run(6 * ROUND_MS)
    assert starts(cluster, group) == {0}
    for node_id in (1, 2, 3):
        cluster.stop(node_id)
    alone = cluster.start(1)
    cluster.run(20 * ROUND_MS)
    assert group in alone.partitions and alone.partitions[group].in_force is None
    assert alone.partitions[group].log.start_offset == 0, "it hears of no leader, and of no key"


def test_retention_by_size_is_the_topics() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", segment_bytes=str(SCALE * 150), retention_bytes="300")
    (other,) = created(cluster, "other", segment_bytes=str(SCALE * 150))
    for number in range(9):
        for each in (group, other):
            write(cluster, each, b"%090d" % number)
    cluster.run(3 * ROUND_MS)
    assert min(starts(cluster, group)) > 3 and starts(cluster, other) == {0}
    assert everywhere(cluster, group, lambda partition: sum(each.size for each in partition.log.segments()) >= 300) == {True}


# --- segments -------------------------------------------------------------------------------------------------------------


def test_a_change_of_segment_bytes_counts_for_the_open_segment() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t")
    (other,) = created(cluster, "other")
    for each in (group, other):
        for number in range(4):
            write(cluster, each, b"%0100d" % number)
    assert counts(cluster, group) == {1}
    alter(cluster, "t", segment_bytes=str(SCALE * 200))
    assert counts(cluster, group) == {1}, "nothing is closed before the next append"
    for each in (group, other):
        for number in range(3):
            write(cluster, each, b"%0100d" % number)
    assert counts(cluster, group) == {4} and counts(cluster, other) == {1}
    alter(cluster, "t", "segment.bytes")
    for number in range(3):
        write(cluster, group, b"%0100d" % number)
    assert counts(cluster, group) == {4}


def test_segments_of_a_restarted_node_are_as_the_topic_says() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", segment_bytes=str(SCALE * 200))
    write(cluster, group, b"%0100d" % 0)
    restart(cluster)
    cluster.leader(group)
    settle(cluster)
    before = min(counts(cluster, group))
    for number in range(3):
        write(cluster, group, b"%0100d" % number)
    assert min(counts(cluster, group)) == before + 3


# --- large batches --------------------------------------------------------------------------------------------------------


def test_a_batch_above_the_topics_limit_is_refused_with_its_name() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "small", max_message_bytes="100")
    (other,) = created(cluster, "other")
    refused = write(cluster, group, bytes(100))
    assert refused.error is ErrorCode.MESSAGE_TOO_LARGE and refused.base_offset == -1
    size = len(batch(bytes(100), timestamp_ms=wall_ms(cluster)))
    assert refused.error_message == f"a batch of {size} bytes exceeds max.message.bytes=100 of topic 'small'"
    assert write(cluster, group, b"a").error is ErrorCode.NONE
    assert write(cluster, other, bytes(100)).error is ErrorCode.NONE
    alter(cluster, "small", max_message_bytes=str(size))
    assert write(cluster, group, bytes(100)).error is ErrorCode.NONE, "so large is accepted"
    assert write(cluster, group, bytes(101)).error is ErrorCode.MESSAGE_TOO_LARGE
    alter(cluster, "small", "max.message.bytes")
    assert write(cluster, group, bytes(101)).error is ErrorCode.NONE


def test_each_batch_counts_by_itself() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", max_message_bytes="100")
    small = batch(b"a", timestamp_ms=1)
    assert cluster.produce(group, small, bytearray(small), bytearray(small)).error is ErrorCode.NONE
    assert cluster.produce(group, bytearray(small), batch(bytes(100))).error is ErrorCode.MESSAGE_TOO_LARGE


def idempotent(value: bytes, sequence: int) -> bytearray:
    return build_batch([Record(value=value)], timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=sequence)


def test_a_batch_that_comes_again_is_in_the_log_whatever_the_limit_is_by_now() -> None:
    """Told that it is too large, a Java producer would split it and append it a second time."""
    cluster = new_cluster()
    (group,) = created(cluster, "t")
    first = cluster.produce(group, idempotent(bytes(100), 0))
    alter(cluster, "t", max_message_bytes="100")
    again = cluster.produce(group, idempotent(bytes(100), 0))
    assert (again.error, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert cluster.produce(group, idempotent(bytes(100), 1)).error is ErrorCode.MESSAGE_TOO_LARGE


# --- time -----------------------------------------------------------------------------------------------------------------


def test_the_leader_writes_its_time_into_batches_of_such_a_topic_alone() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", message_timestamp_type="LogAppendTime")
    (other,) = created(cluster, "other")
    before_ms = wall_ms(cluster)
    told = write(cluster, group, b"a", b"b", age_ms=OLD_MS)
    assert told.error is ErrorCode.NONE and before_ms <= told.log_append_time_ms <= wall_ms(cluster)
    assert write(cluster, other, b"a", age_ms=OLD_MS).log_append_time_ms == -1
    for node in cluster.nodes.values():
        cluster.run(1_000, until=lambda: node.partitions[group].high_watermark > told.base_offset + 1)  # noqa: B023
        data = node.partitions[group].log.read(told.base_offset, told.base_offset + 2, 1 << 20)  # type: ignore[arg-type]
        (header,) = validate(data)
        assert header.is_log_append_time and header.timestamp_ms_max == told.log_append_time_ms
        assert [(each.value, each.timestamp_ms) for each in decode_records(data)] == [
            (b"a", told.log_append_time_ms),
            (b"b", told.log_append_time_ms),
        ]
        assert node.partitions[group].log.segments()[-1].timestamp_ms_max == told.log_append_time_ms
    fetched = cluster.fetch(cluster.leader(other), other, 0)
    assert not any(header.is_log_append_time for header in iterate_headers(fetched.records or b""))


def test_a_batch_that_comes_again_has_the_time_that_stands_in_the_log() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", message_timestamp_type="LogAppendTime")
    first = cluster.produce(group, idempotent(b"a", 0))
    cluster.run(3_000)
    again = cluster.produce(group, idempotent(b"a", 0))
    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)
    second = cluster.produce(group, idempotent(b"b", 1))
    assert second.log_append_time_ms > first.log_append_time_ms


def test_what_its_producer_timed_keeps_that_time_when_it_comes_again() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t")
    first = cluster.produce(group, idempotent(b"a", 0))
    alter(cluster, "t", message_timestamp_type="LogAppendTime")
    again = cluster.produce(group, idempotent(b"a", 0))
    assert (again.error, again.base_offset, again.log_append_time_ms) == (ErrorCode.NONE, first.base_offset, -1)
    assert cluster.produce(group, idempotent(b"b", 1)).log_append_time_ms > 0
    alter(cluster, "t", message_timestamp_type="CreateTime")
    assert cluster.produce(group, idempotent(b"c", 2)).log_append_time_ms == -1


def test_compressed_batches_have_the_leaders_time_too() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", message_timestamp_type="LogAppendTime")
    records = [Record(offset=number, timestamp_ms=1, value=b"x" * 200) for number in range(20)]
    told = cluster.produce(group, build_batch(records, timestamp_ms=1, compression="zstd"))
    leader = cluster.leader(group).partitions[group]
    data = leader.log.read(told.base_offset, leader.log.end_offset, 1 << 20)  # type: ignore[arg-type]
    assert {each.timestamp_ms for each in decode_records(data)} == {told.log_append_time_ms}
    assert validate(data)[0].is_compressed


# --- topics that come and go, nodes that start ----------------------------------------------------------------------------


def test_a_topic_of_the_same_name_begins_with_the_nodes_settings() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", retention_ms="3000", max_message_bytes="100", message_timestamp_type="LogAppendTime")
    made = schema("delete_topics", 6)
    state = made.DeleteTopicState(name="t", topic_id=None)
    request = made.DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=5))
    cluster.ask(cluster.leader(), ApiKey.DELETE_TOPICS, request, version=6)
    (anew,) = created(cluster, "t")
    assert anew.topic_id != group.topic_id and own(cluster, "t") == {}
    told = write(cluster, anew, bytes(200), age_ms=OLD_MS)
    assert (told.error, told.log_append_time_ms) == (ErrorCode.NONE, -1)
    cluster.run(6 * ROUND_MS)
    assert starts(cluster, anew) == {0}


def test_new_partitions_have_the_topics_configs() -> None:
    cluster = new_cluster()
    created(cluster, "t", max_message_bytes="100")
    results: list[Any] = []
    cluster.leader().topics.grow("t", 3, lambda *result: results.append(result))
    cluster.run(3_000, until=lambda: bool(results))
    group = results[0][0].groups()[2]
    assert write(cluster, group, bytes(100)).error is ErrorCode.MESSAGE_TOO_LARGE


def test_configs_survive_the_restart_of_all_nodes() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", max_message_bytes="100")
    alter(cluster, "t", message_timestamp_type="LogAppendTime")
    restart(cluster)
    cluster.leader()
    settle(cluster)
    for node in cluster.nodes.values():
        assert own(cluster, "t", node) == {"max.message.bytes": "100", "message.timestamp.type": "LogAppendTime"}
    assert write(cluster, group, bytes(100)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert write(cluster, group, b"a").log_append_time_ms > 0


def test_nothing_is_appended_before_the_leader_knows_what_the_topic_asks_for() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t", max_message_bytes="100")
    partition = cluster.leader(group).partitions[group]
    known, partition.in_force = partition.in_force, None
    end = partition.log.end_offset
    refused = write(cluster, group, b"a")
    assert (refused.error, refused.error_message) == (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_KNOWN_YET)
    assert partition.log.end_offset == end
    partition.in_force = known
    assert write(cluster, group, b"a").error is ErrorCode.NONE


def test_a_node_that_was_away_obeys_what_was_changed_meanwhile() -> None:
    cluster = new_cluster()
    (group,) = created(cluster, "t")
    away = next(node_id for node_id in cluster.nodes if node_id != cluster.leader().config.node_id)
    cluster.stop(away)
    alter(cluster, "t", max_message_bytes="100")
    node = cluster.start(NodeId(away))
    cluster.run(5_000, until=lambda: group in node.partitions and node.partitions[group].in_force is not None)
    asked = node.partitions[group].in_force
    assert asked is not None and asked.message_bytes_max == 100


def test_a_node_with_a_smaller_limit_of_its_own_keeps_to_that() -> None:
    """The topic's limit was taken by a node that allows more."""
    cluster = new_cluster()
    (group,) = created(cluster, "t", max_message_bytes="5000")
    restart(cluster, message_bytes_max=2_000)
    cluster.leader(group)
    settle(cluster)
    refused = write(cluster, group, bytes(3_000))
    assert refused.error is ErrorCode.MESSAGE_TOO_LARGE and "message.max.bytes=2000" in (refused.error_message or "")
    assert write(cluster, group, bytes(1_500)).error is ErrorCode.NONE
    assert described(cluster, "t")["max.message.bytes"].value == "5000"
