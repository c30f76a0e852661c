"""ListOffsets (2) and OffsetForLeaderEpoch (23): where a partition begins and ends, and where an epoch ended.

Only the leader answers, and only once its own epoch has committed an entry: before that its high watermark may lie
below the one that clients have already seen (the seam where Spark once read "data loss" after a hand-off). Replicas that ask
where an epoch ended need no high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raftlake.errors import ErrorCode, WireError
from raftlake.ports import GroupId
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.replica.partition import Partition
from raftlake.wire.batches import decode_records

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
TIMESTAMP_SCAN_BYTES = 1 << 20


def fence(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Check the epoch a client believes in (-1: it does not say) against ours (KIP-320)."""
    if current_leader_epoch < 0:
        return ErrorCode.NONE
    if current_leader_epoch < partition.core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > partition.core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def list_offsets(node: ReplicaNode, request: Any, reply: Callable[[object], None]) -> None:
    answers = Answers(request)
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            group = node.resolve_group(topic.name, asked.partition_index)
            error, timestamp, offset, epoch = _list_offset(node, group, asked)
            partitions.append(
                answers.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=asked.partition_index,
                    error_code=kafka_error(error),
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(answers.make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions)))
    reply(answers.make("ListOffsetsResponse", topics=tuple(topics)))


def _list_offset(node: ReplicaNode, group: GroupId, asked: Any) -> tuple[ErrorCode, int, int, int]:
    partition = node.partitions.get(group)
    if partition is None:
        return node.hosting.why_unknown(group), -1, -1, -1
    core = partition.core
    if not core.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1
    error = fence(partition, getattr(asked, "current_leader_epoch", -1))
    if error is not ErrorCode.NONE:
        return error, -1, -1, -1
    if not partition.is_serving:
        return ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1
    found = node.damage.guarded(partition.group, lambda: find_offset(partition, asked.timestamp))
    return (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1) if found is None else found


def find_offset(partition: Partition, timestamp: int) -> tuple[ErrorCode, int, int, int]:
    """(error, timestamp, offset, leader epoch) for one of Kafka's special timestamps or a time in milliseconds since 1970."""
    high_watermark = partition.high_watermark
    match timestamp:
        case -1:
            return ErrorCode.NONE, -1, high_watermark, partition.core.epoch
        case -2 | -4:
            start = partition.log.start_offset
            return ErrorCode.NONE, -1, start, _epoch_at(partition, start)
        case -3:
            found = partition.log.latest_timestamp()
        case -5 | -6:
            # Nothing has been moved to a remote tier.
            return ErrorCode.NONE, -1, -1, -1
        case _ if timestamp < 0:
            return ErrorCode.INVALID_REQUEST, -1, -1, -1
        case _:
            found = partition.log.find_timestamp(timestamp)
    if found is None or found.offset >= high_watermark:
        return ErrorCode.NONE, -1, -1, -1
    at_least = found.timestamp_ms if timestamp == MAX_TIMESTAMP else timestamp
    chunk = partition.log.read(found.offset, Offset(high_watermark), TIMESTAMP_SCAN_BYTES)
    try:
        for record in decode_records(chunk):
            if record.timestamp_ms >= at_least:
                return ErrorCode.NONE, record.timestamp_ms, record.offset, _epoch_at(partition, record.offset)
    except WireError:
        # A producer wrote records that nobody can read: the batch is the finest answer.
        return ErrorCode.NONE, found.timestamp_ms, found.offset, found.epoch
    return ErrorCode.NONE, -1, -1, -1


def _epoch_at(partition: Partition, offset: int) -> int:
    epoch = -1
    for candidate, start in partition.log.epochs:
        if start > offset:
            break
        epoch = candidate
    return epoch


def offset_for_leader_epoch(node: ReplicaNode, request: Any, reply: Callable[[object], None]) -> None:
    answers = Answers(request)
    # From version 3 on a request says who asks; an id below 0 is a consumer's.
    is_replica = getattr(request, "replica_id", -1) >= 0
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            group = node.resolve_group(topic.topic, asked.partition)
            error, epoch, end_offset = _epoch_end(node, group, asked, is_replica=is_replica)
            partitions.append(
                answers.make(
                    "EpochEndOffset",
                    error_code=kafka_error(error),
                    partition=asked.partition,
                    leader_epoch=epoch,
                    end_offset=end_offset,
                )
            )
        topics.append(answers.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(partitions)))
    reply(answers.make("OffsetForLeaderEpochResponse", topics=tuple(topics)))


def _epoch_end(node: ReplicaNode, group: GroupId, asked: Any, *, is_replica: bool) -> tuple[ErrorCode, int, int]:
    partition = node.partitions.get(group)
    if partition is None:
        return node.hosting.why_unknown(group), -1, -1
    if not partition.core.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1
    error = fence(partition, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error, -1, -1
    if not is_replica and not partition.is_serving:
        # Cut off at the high watermark that is known so far, the end would look like a truncation of what was read before.
        return ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1
    if asked.leader_epoch > partition.core.epoch or asked.leader_epoch < 0:
        return ErrorCode.NONE, -1, -1
    end = partition.core.epoch_end(Epoch(asked.leader_epoch))
    # Consumers may not learn of offsets above the high watermark: they could vanish. A replica cuts its log where it is told
    # to, and its leader may have counted what it holds behind the high watermark.
    return ErrorCode.NONE, end.epoch, end.offset if is_replica else min(end.offset, partition.high_watermark)
