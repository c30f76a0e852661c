"""The Kafka messages of transactional clients, and what they read in the answers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.end_txn.v5.request import EndTxnRequest as RaisingEndTxnRequest
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.sim.clients.calls import Ask
from raftlake.sim.clients.messages import ask_api
from raftlake.wire.api import ApiKey

_TRANSACTION = 1


def ask_coordinator(transactional_id: str) -> Ask:
    """Who coordinates a transactional id."""
    request = FindCoordinatorRequest(key_type=i8(_TRANSACTION), coordinator_keys=(transactional_id,))
    return ask_api(ApiKey.FIND_COORDINATOR, 4, request)


def coordinator_of(answer: Any) -> NodeId | None:
    """None beside an error."""
    (found,) = answer.coordinators
    return NodeId(int(found.node_id)) if int(found.error_code) == 0 else None


def ask_init(transactional_id: str, timeout_ms: int) -> Ask:
    """A producer id and an epoch above all that the transactional id had."""
    timeout = i32Timedelta.parse(datetime.timedelta(milliseconds=timeout_ms))
    request = InitProducerIdRequest(transactional_id=TransactionalId(transactional_id), transaction_timeout=timeout)
    return ask_api(ApiKey.INIT_PRODUCER_ID, 4, request)


def granted(answer: Any) -> tuple[ErrorCode, int, int]:
    """(error, producer id, epoch)."""
    return ErrorCode(int(answer.error_code)), int(answer.producer_id), int(answer.producer_epoch)


def ask_add_partitions(transactional_id: str, producer_id: int, epoch: int, topic: str, partitions: Sequence[int]) -> Ask:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer_id),
        v3_and_below_producer_epoch=i16(epoch),
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(map(i32, partitions))),),
    )
    return ask_api(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)


def added_errors(answer: Any) -> list[ErrorCode]:
    """Of each partition."""
    return [
        ErrorCode(int(part.partition_error_code))
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]


def ask_end(transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> Ask:
    request = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=commit,
    )
    return ask_api(ApiKey.END_TXN, 3, request)


def ask_end_and_raise(transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> Ask:
    """The same of transaction.version 2: the answer is read by `granted`."""
    request = RaisingEndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=commit,
    )
    return ask_api(ApiKey.END_TXN, 5, request)


def ended_error(answer: Any) -> ErrorCode:
    return ErrorCode(int(answer.error_code))
