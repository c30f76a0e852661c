"""ListOffsets (2) and OffsetForLeaderEpoch (23): where a partition begins and ends, and where an epoch ended.

Whoever reads what is committed is told the last stable offset as the end, and of no time at or above it.

Only the leader answers, and only once its own epoch has committed an entry: before that its high watermark may lie
below the one that clients have already seen (the seam where Spark once read "data loss" after a hand-off). Replicas that ask
where an epoch ended need no high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.replica.aside.time_searches import MAX_TIMESTAMP, NOTHING, AskedTogether, FoundOffset, Question, committed_end
from raftlake.replica.config import ClientContext
from raftlake.replica.partition.partition import Partition
from raftlake.replica.refused_for_good import OFFSETS
from raftlake.replica.services import Services
from raftlake.replica.tiering.remote_log import NOWHERE, RemoteLog

READ_COMMITTED = 1
UNKNOWN_PLACE = "timestamp {} of partition {} stands for no place: accepted are times from 0 on, and -1 to -6"


class Special(IntEnum):
    """Timestamps that stand for a place. MAX_TIMESTAMP, which stands for a record, is `time_searches`' own."""

    #: The high watermark; to those who read what is committed the last stable offset.
    LATEST = -1
    EARLIEST = -2
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


#: They depend on what the table has.
_OVER_THE_TABLE = (Special.EARLIEST, Special.LATEST_TIERED, Special.EARLIEST_PENDING_UPLOAD)


def fence(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Check the epoch a client believes in (-1: it does not say) against ours (KIP-320)."""
    if current_leader_epoch < 0:
        return ErrorCode.NONE
    if current_leader_epoch < partition.core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > partition.core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def list_offsets(node: Services, request: Any, client: ClientContext, reply: Callable[[object], None]) -> None:
    found = [[NOTHING] * len(topic.partitions) for topic in request.topics]
    missing = sum(map(len, found)) + 1
    together = node.time_searches.begin()
    # From version 2 on.
    is_committed = getattr(request, "isolation_level", 0) == READ_COMMITTED

    def put(topic: str, asked: Any, row: list[FoundOffset], index: int, answer: FoundOffset) -> None:
        row[index] = answer
        if answer.error is ErrorCode.UNSUPPORTED_VERSION:
            # The answer has no room for a reason.
            why = UNKNOWN_PLACE.format(asked.timestamp, asked.partition_index)
            node.refused_for_good.note_error(OFFSETS, topic, answer.error, why, client)
        decided()

    def decided() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            reply(_listed(request, found))

    for topic, row in zip(request.topics, found, strict=True):
        for index, asked in enumerate(topic.partitions):
            group = node.names.resolve_group(topic.name, asked.partition_index)
            _ask(node, together, group, asked, is_committed, partial(put, topic.name, asked, row, index))
    # Only now: an answer that came at once must not end a request that is not read to its end.
    decided()


def _listed(request: Any, found: list[list[FoundOffset]]) -> object:
    answers = Answers(request)
    topics = []
    for topic, row in zip(request.topics, found, strict=True):
        partitions = tuple(
            answers.make(
                "ListOffsetsPartitionResponse",
                partition_index=asked.partition_index,
                error_code=kafka_error(each.error),
                timestamp=each.timestamp_ms,
                offset=each.offset,
                leader_epoch=each.epoch,
            )
            for asked, each in zip(topic.partitions, row, strict=True)
        )
        topics.append(answers.make("ListOffsetsTopicResponse", name=topic.name, partitions=partitions))
    return answers.make("ListOffsetsResponse", topics=tuple(topics))


def _ask(
    node: Services,
    together: AskedTogether,
    group: GroupId,
    asked: Any,
    is_committed: bool,
    done: Callable[[FoundOffset], None],
) -> None:
    serving = partial(_serving, node, group, getattr(asked, "current_leader_epoch", -1))
    end_of = partial(stable_end, node.remote_log) if is_committed else committed_end
    if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
        node.time_searches.ask(together, Question(group, asked.timestamp, serving, done, end_of))
        return
    partition = serving()
    if not isinstance(partition, Partition):
        done(FoundOffset(partition))
    else:
        done(_find_end(node.remote_log, partition, asked.timestamp, end_of(partition)))


def stable_end(remote_log: RemoteLog, partition: Partition) -> Offset:
    """Where what transactions have committed ends here, for consumers. It is not before the first record that is not deleted,
    though a transaction that is still open may have begun there."""
    begun = max(partition.last_stable_offset, remote_log.deleted_below(partition))
    return min(partition.high_watermark, begun)


def _serving(node: Services, group: GroupId, current_leader_epoch: int) -> Partition | ErrorCode:
    """The partition, or why its offsets are not told."""
    partition = node.engine.partitions.get(group)
    if partition is None:
        return node.names.why_unknown(group)
    if not partition.core.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = fence(partition, current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    return partition if partition.is_serving else ErrorCode.OFFSET_NOT_AVAILABLE


def _find_end(remote_log: RemoteLog, partition: Partition, which: int, end: Offset) -> FoundOffset:
    """One of Kafka's special timestamps that need no look into the log. `end`: of what whoever asks may read."""
    if which in _OVER_THE_TABLE and not remote_log.knows_start(partition):
        # KAFKA-15351: the local start is not the first offset. Who is told so skips what the table has.
        return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    if which == Special.EARLIEST_LOCAL and not remote_log.knows_deletions:
        return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    match which:
        case Special.LATEST:
            return FoundOffset(ErrorCode.NONE, -1, end, partition.core.epoch)
        case Special.EARLIEST:
            place = remote_log.start_offset(partition)
        case Special.EARLIEST_LOCAL:
            place = remote_log.local_start(partition)
        case Special.LATEST_TIERED:
            # The last offset itself, as in Kafka.
            copied_end = remote_log.copied_end(partition)
            if copied_end is None:
                return NOTHING
            place = Offset(copied_end - 1)
        case Special.EARLIEST_PENDING_UPLOAD:
            if not remote_log.is_on:
                return NOTHING
            copied_end = remote_log.copied_end(partition)
            place = max(remote_log.start_offset(partition), copied_end or Offset(0))
        case _:
            # As Kafka says it of a place that it does not know.
            return FoundOffset(ErrorCode.UNSUPPORTED_VERSION)
    return FoundOffset(ErrorCode.NONE, -1, place, remote_log.epoch_at(partition, place))


def offset_for_leader_epoch(node: Services, request: Any, reply: Callable[[object], None]) -> None:
    answers = Answers(request)
    # From version 3 on a request says who asks; an id below 0 is a consumer's.
    is_replica = getattr(request, "replica_id", -1) >= 0
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            group = node.names.resolve_group(topic.topic, asked.partition)
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


def _epoch_end(node: Services, group: GroupId, asked: Any, *, is_replica: bool) -> tuple[ErrorCode, int, int]:
    partition = node.engine.partitions.get(group)
    if partition is None:
        return node.names.why_unknown(group), -1, -1
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
    end = node.remote_log.epoch_end(partition, Epoch(asked.leader_epoch))
    if end == NOWHERE:
        if not is_replica and not node.remote_log.knows_start(partition):
            return ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1
        end = node.remote_log.before_first(partition, Epoch(asked.leader_epoch))
    # Consumers may not learn of offsets above the high watermark: they could vanish. A replica cuts its log where it is told
    # to, and its leader may have counted what it holds behind the high watermark.
    return ErrorCode.NONE, end.epoch, end.offset if is_replica else min(end.offset, partition.high_watermark)
