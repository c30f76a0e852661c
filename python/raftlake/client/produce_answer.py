"""One batch on its way to a partition, the request that carries it, and what the answers to it mean. Pure.

The distinction that matters: after which errors a batch is certainly not in the log, and after which it may be.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

from raftlake.client.deadline import Deadline
from raftlake.client.lanes import Lane
from raftlake.client.routing import RETRIABLE
from raftlake.client.types import AppendResult
from raftlake.errors import ErrorCode, RequestRejected, code_of
from raftlake.wire.produce import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceResponse, ProduceTopic

PRODUCE_VERSION = 12
_ALL = -1

#: Errors that pass, with which a node says that it has not appended the batch.
_NOT_APPENDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        # The transaction before is being ended.
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass(slots=True, eq=False)
class PendingBatch:
    """One batch on its way. Its lane and its place in it are fixed with the first send."""

    #: The order of submission within the partition.
    number: int
    batch: bytearray
    record_count: int
    deadline: Deadline
    outcome: asyncio.Future[AppendResult]
    lane: Lane | None = None
    number_in_lane: int = -1
    #: It was sent at least once, and an earlier try may have been appended.
    is_ambiguous: bool = False
    last_error: Exception | None = None


class Meaning(Enum):
    APPENDED = auto()
    #: Passes; the batch is certainly not in the log.
    RETRY_NOT_APPENDED = auto()
    #: Passes; the batch may be in the log.
    RETRY_AMBIGUOUS = auto()
    #: The node misses an earlier batch of the lane, or the whole lane.
    SEQUENCE_LOST = auto()
    REFUSED = auto()


def meaning_of(code: ErrorCode) -> Meaning:
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Meaning.APPENDED
    if code in RETRIABLE or code in _NOT_APPENDED:
        return Meaning.RETRY_NOT_APPENDED if code in _NOT_APPENDED else Meaning.RETRY_AMBIGUOUS
    return Meaning.SEQUENCE_LOST if code in _SEQUENCE_LOST else Meaning.REFUSED


def says_no_room(error: Exception) -> bool:
    """The leader refused, because disks are nearly full: it is the right node to ask again, after a while."""
    return isinstance(error, RequestRejected) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS


def produce_request(
    topic: str, partition: int, batch: bytearray, timeout_ms: float, transactional_id: str | None = None
) -> ProduceRequest:
    """A request with one batch, to be acknowledged by a majority within `timeout_ms`."""
    carried = ProducePartition(index=partition, records=memoryview(batch))
    return ProduceRequest(
        acks=_ALL,
        timeout_ms=int(timeout_ms),
        transactional_id=transactional_id,
        topics=[ProduceTopic(name=topic, topic_id=None, partitions=[carried])],
    )


def only_result(answer: ProduceResponse) -> ProducePartitionResult | None:
    """The result of the one partition that was asked for; None when the answer is about something else."""
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        return None
    return answer.topics[0].partitions[0]


def rejection(topic: str, partition: int, result: ProducePartitionResult) -> RequestRejected:
    where = f"{topic}-{partition}"
    return RequestRejected(code_of(result.error), f"{where}: {result.error_message}" if result.error_message else where)
