"""The Kafka messages that simulated clients send, and what they read out of the answers.

Requests are made fresh for every attempt: the leader stamps offsets into a producer's bytes in place, as it does with a frame.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest, Listener
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64, u16

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId, ReplicaKey
from raftlake.replica.config import ClientContext, Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.replica.quorum import LISTENER_NAME
from raftlake.sim.clients.calls import Ask
from raftlake.sim.invariants.base import Violation
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.batches import Record, decode_records, iterate_headers
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.ids import id_to_kio
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

CLIENT = ClientContext("sim", "client")
FETCH_BYTES_MAX = 4_096
#: Errors of Produce that promise that nothing was appended.
REFUSALS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)

#: In the place of an offset: the topic's policy does not allow it.
REFUSED = -1

Reply = Callable[[Any], None]


def ask_api(key: ApiKey, version: int, message: object) -> Ask:
    """Any request."""

    def ask(node: ReplicaNode, reply: Reply) -> None:
        node.handle(RequestHeader(key, version, 1, CLIENT.client_id), message, CLIENT, reply)

    return ask


# --- topics and producer ids ---


def ask_create_topic(name: str, partitions: int, configs: Mapping[str, str]) -> Ask:
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(-1),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    timeout = i32Timedelta.parse(datetime.timedelta(seconds=5))
    return ask_api(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,), timeout=timeout))


def created_topic_id(answer: Any) -> bytes | None:
    """The id of the new topic; None when it was not created by this request, for whatever reason."""
    result = answer.topics[0]
    return result.topic_id.bytes if int(result.error_code) == 0 and result.topic_id is not None else None


def ask_alter_configs(topic: str, configs: Mapping[str, str | None]) -> Ask:
    """Set configs of a topic; None deletes one."""
    changes = tuple(
        AlterableConfig(name=name, config_operation=i8(1 if value is None else 0), value=value)
        for name, value in configs.items()
    )
    resource = AlterConfigsResource(resource_type=i8(2), resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return ask_api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


def alteration_error(answer: Any) -> ErrorCode:
    """What the answer to `ask_alter_configs` says."""
    return ErrorCode(int(answer.responses[0].error_code))


def ask_delete_topic(name: str) -> Ask:
    state = DeleteTopicState(name=TopicName(name), topic_id=None)
    timeout = i32Timedelta.parse(datetime.timedelta(seconds=5))
    return ask_api(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=(state,), timeout=timeout))


def deletion_error(answer: Any) -> int:
    """The Kafka error code of a DeleteTopics answer for one topic, 0 for none."""
    return int(answer.responses[0].error_code)


def ask_delete_records(topic: str, partition: int, offset: int) -> Ask:
    """Of one partition, below the offset."""
    asked = DeleteRecordsPartition(partition_index=i32(partition), offset=i64(offset))
    timeout = i32Timedelta.parse(datetime.timedelta(seconds=3))
    topics = (DeleteRecordsTopic(name=TopicName(topic), partitions=(asked,)),)
    return ask_api(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=topics, timeout=timeout))


def deleted_below(answer: Any) -> int | None:
    """Where the partition begins by a DeleteRecords answer, None beside an error, REFUSED where its policy forbids it."""
    result = answer.topics[0].partitions[0]
    if int(result.error_code) == ErrorCode.POLICY_VIOLATION:
        return REFUSED
    return int(result.low_watermark) if int(result.error_code) == 0 else None


def ask_producer_id() -> Ask:
    """A new producer id."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout=i32Timedelta.parse(datetime.timedelta(seconds=5))
    )
    return ask_api(ApiKey.INIT_PRODUCER_ID, 4, request)


def granted_producer(answer: Any) -> tuple[int, int] | None:
    """(producer id, epoch) of an answer, None beside an error."""
    return (int(answer.producer_id), int(answer.producer_epoch)) if int(answer.error_code) == 0 else None


# --- voters ---


def ask_add_voter(voter: ReplicaKey, address: Endpoint) -> Ask:
    listener = Listener(name=LISTENER_NAME, host=address.host, port=u16(address.port))
    timeout = i32Timedelta.parse(datetime.timedelta(seconds=5))
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout=timeout,
        voter_id=i32(voter.id),
        voter_directory_id=id_to_kio(voter.directory_id),
        listeners=(listener,),
    )
    return ask_api(ApiKey.ADD_RAFT_VOTER, 1, request)


def ask_remove_voter(voter: ReplicaKey) -> Ask:
    directory_id = id_to_kio(voter.directory_id)
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=i32(voter.id), voter_directory_id=directory_id)
    return ask_api(ApiKey.REMOVE_RAFT_VOTER, 0, request)


def change_error(answer: Any) -> ErrorCode:
    """What the answer to a change of voters says."""
    return ErrorCode(int(answer.error_code))


# --- appends ---


@dataclass(frozen=True, slots=True)
class Produced:
    error: ErrorCode
    base_offset: int
    #: Who leads, as far as the answer says.
    leader_id: NodeId | None

    @property
    def is_refusal(self) -> bool:
        return self.error in REFUSALS


#: From version 12 on a batch adds its partition to the transaction by itself (KIP-890, part 2).
PRODUCE_VERSION, ADDING_PRODUCE_VERSION = 11, 12


def ask_produce(
    topic: str,
    partition: int,
    batch: bytearray,
    timeout_ms: int,
    *,
    transactional_id: str | None = None,
    version: int = PRODUCE_VERSION,
) -> Ask:
    """One batch for one partition, acknowledged by all; `batch` belongs to the node from here on. `version` is that of a
    transactional one."""
    parts = [ProducePartition(partition, memoryview(batch))]
    topics = [ProduceTopic(topic, None, parts)]
    version = ADDING_PRODUCE_VERSION if transactional_id is None else version
    return ask_api(ApiKey.PRODUCE, version, ProduceRequest(-1, timeout_ms, transactional_id, topics))


def produced(answer: Any, node_id: NodeId) -> Produced:
    """What a Produce answer of `node_id` says of its one partition."""
    result = answer.topics[0].partitions[0]
    leader_id: NodeId | None = None
    if result.error is ErrorCode.NONE:
        leader_id = node_id
    elif result.current_leader is not None and result.current_leader.leader_id >= 0:
        leader_id = NodeId(result.current_leader.leader_id)
    return Produced(ErrorCode(result.error), result.base_offset, leader_id)


# --- consuming ---

READ_COMMITTED = 1
NO_CONTROL = "no consumer is shown a control record of Raft"


@dataclass(frozen=True, slots=True)
class Consumed:
    error: ErrorCode
    high_watermark: int
    log_start: int
    records: tuple[Record, ...]
    next_offset: int


def ask_fetch(topic: str, partition: int, offset: int, wait_ms: int = 0, *, isolation: int = 0) -> Ask:
    asked = FetchPartition(
        index=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        bytes_max=FETCH_BYTES_MAX,
    )
    request = FetchRequest(
        wait_ms_max=wait_ms,
        bytes_min=min(wait_ms, 1),
        bytes_max=FETCH_BYTES_MAX,
        isolation_level=isolation,
        topics=[FetchTopic(topic, None, [asked])],
    )
    return ask_api(ApiKey.FETCH, 12, request)


def consumed(answer: Any, position: int) -> Consumed | None:
    """The records from `position` on in a Fetch answer for one partition; None where the answer names none. Raises Violation
    for a control batch that is no marker of a transaction."""
    if answer.error is not ErrorCode.NONE or not answer.topics:
        return None
    result = answer.topics[0].partitions[0]
    data = result.records or b""
    next_offset = position
    for header in iterate_headers(data):
        if header.is_control and not header.is_transactional:
            raise Violation(NO_CONTROL, f"the batch at {header.base_offset}, in an answer from {position} on")
        next_offset = header.base_offset + header.last_offset_delta + 1
    records = tuple(record for record in decode_records(data) if record.offset >= position)
    return Consumed(ErrorCode(result.error), result.high_watermark, result.log_start_offset, records, next_offset)


# --- offsets ---


def ask_latest_offset(topic: str, partition: int) -> Ask:
    return _ask_offset(topic, partition, -1)


def ask_first_offset_since(topic: str, partition: int, time_ms: int) -> Ask:
    """Of records of this time or later."""
    return _ask_offset(topic, partition, time_ms)


def _ask_offset(topic: str, partition: int, timestamp: int) -> Ask:
    asked = ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),),
    )
    return ask_api(ApiKey.LIST_OFFSETS, 7, request)


def latest_offset(answer: Any) -> tuple[int, int] | None:
    """(offset, leader epoch) of a ListOffsets answer, None beside an error."""
    result = answer.topics[0].partitions[0]
    return (int(result.offset), int(result.leader_epoch)) if int(result.error_code) == 0 else None
