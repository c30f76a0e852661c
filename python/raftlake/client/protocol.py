"""The requests of the cold APIs, built and taken apart: one version of each, the one that every node of ours offers.

Pure functions between our values and the Kafka messages. Nothing else in the client touches kio's classes, except the version
negotiation in `connection`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v2.request import TopicData as QuorumTopic
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.describe_quorum.v2.response import ReplicaState as QuorumReplica
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_offsets.v9.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v9.response import ListOffsetsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from raftlake.client.types import Address, ClusterDescription, IsolationLevel, QuorumDescription, ReplicaDescription
from raftlake.errors import ErrorCode, RequestRejected, WireError

METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 9
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
DESCRIBE_CONFIGS_VERSION = 4
INIT_PRODUCER_ID_VERSION = 4
DESCRIBE_CLUSTER_VERSION = 1
DESCRIBE_QUORUM_VERSION = 2

METADATA_TOPIC = "__cluster_metadata"

#: DescribeConfigs resource types (org.apache.kafka.common.config.ConfigResource).
BROKER_RESOURCE = 4


def code_of(code: int) -> ErrorCode:
    """Our name of an error code; one that we do not know is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(int(code))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def require_no_error(code: int, message: str | None, what: str) -> None:
    """RequestRejected unless the code is 0."""
    if code != 0:
        raise RequestRejected(code_of(code), f"{what}: {message}" if message else what)


def metadata_request(topics: Iterable[str] | None) -> MetadataRequest:
    """For these topics, or for all of them (None). Topics are never created by asking."""
    names = None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
    return MetadataRequest(topics=names, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def list_offsets_request(topic: str, timestamps: Mapping[int, int], isolation: IsolationLevel) -> ListOffsetsRequest:
    """`timestamps` by partition: milliseconds, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    partitions = tuple(
        ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
        for partition, timestamp in timestamps.items()
    )
    return ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=partitions),),
    )


def list_offsets_results(answer: ListOffsetsResponse) -> dict[int, int | ErrorCode]:
    """The offset of each partition (-1: no record at or after the timestamp), or why there is none."""
    return {
        int(partition.partition_index): int(partition.offset) if partition.error_code == 0 else code_of(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    }


def init_producer_id_request() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)))


def create_topic_request(
    name: str, partitions: int, replication: int, configs: Mapping[str, str], timeout_ms: int
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replication),
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    return CreateTopicsRequest(topics=(topic,), timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)))


def create_topic_result(answer: CreateTopicsResponse) -> tuple[ErrorCode, str]:
    if len(answer.topics) != 1:
        raise WireError(f"CreateTopics answered for {len(answer.topics)} topics instead of one")
    return code_of(answer.topics[0].error_code), answer.topics[0].error_message or ""


def delete_topic_request(name: str, timeout_ms: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=(DeleteTopicState(name=TopicName(name), topic_id=None),),
        timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
    )


def delete_topic_result(answer: DeleteTopicsResponse) -> tuple[ErrorCode, str]:
    if len(answer.responses) != 1:
        raise WireError(f"DeleteTopics answered for {len(answer.responses)} topics instead of one")
    return code_of(answer.responses[0].error_code), answer.responses[0].error_message or ""


def node_configs_request(node_id: int) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=i8(BROKER_RESOURCE), resource_name=str(node_id), configuration_keys=None)
    return DescribeConfigsRequest(resources=(resource,))


def node_configs(answer: DescribeConfigsResponse) -> dict[str, str]:
    """The settings of the node that was asked for."""
    configs: dict[str, str] = {}
    for result in answer.results:
        require_no_error(result.error_code, result.error_message, f"settings of node {result.resource_name}")
        configs.update({config.name: config.value for config in result.configs if config.value is not None})
    return configs


def describe_cluster_request() -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


def cluster_description(answer: DescribeClusterResponse) -> ClusterDescription:
    require_no_error(answer.error_code, answer.error_message, "describe cluster")
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        controller_id=int(answer.controller_id),
        nodes={int(broker.broker_id): Address(broker.host, int(broker.port)) for broker in answer.brokers},
    )


def describe_quorum_request(topic: str, partition: int) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=(QuorumTopic(topic_name=TopicName(topic), partitions=(QuorumPartition(partition_index=i32(partition)),)),)
    )


def quorum_description(answer: DescribeQuorumResponse, cluster_id: str) -> QuorumDescription | ErrorCode:
    """The description, or the partition's error (NOT_LEADER_OR_FOLLOWER when a follower was asked)."""
    require_no_error(answer.error_code, answer.error_message, "describe quorum")
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise WireError("DescribeQuorum did not answer for exactly one partition")
    partition = answer.topics[0].partitions[0]
    if partition.error_code != 0:
        return code_of(partition.error_code)
    return QuorumDescription(
        cluster_id=cluster_id,
        leader_id=int(partition.leader_id),
        leader_epoch=int(partition.leader_epoch),
        high_watermark=int(partition.high_watermark),
        voters=tuple(_replica(replica) for replica in partition.current_voters),
        observers=tuple(_replica(replica) for replica in partition.observers),
        listeners={
            int(node.node_id): tuple(
                f"{listener.name}://{Address(listener.host, int(listener.port))}" for listener in node.listeners
            )
            for node in answer.nodes
        },
    )


def _replica(replica: QuorumReplica) -> ReplicaDescription:
    directory = replica.replica_directory_id or uuid.UUID(int=0)
    return ReplicaDescription(
        replica_id=int(replica.replica_id),
        directory_id=directory.bytes,
        log_end_offset=int(replica.log_end_offset),
        last_fetch_timestamp_ms=int(replica.last_fetch_timestamp),
        last_caught_up_timestamp_ms=int(replica.last_caught_up_timestamp),
    )
