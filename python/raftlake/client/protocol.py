"""The requests of the cold APIs, built and taken apart: one version of each, the one that every node of ours offers.

Pure functions between our values and the Kafka messages. Nothing else in the client touches kio's classes, except the version
negotiation in `connection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_offsets.v9.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v9.response import ListOffsetsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from raftlake.client.types import Address, ClusterDescription, IsolationLevel
from raftlake.errors import ErrorCode, RequestRejected, WireError, code_of

METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 9
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
DESCRIBE_CONFIGS_VERSION = 4
INIT_PRODUCER_ID_VERSION = 4
DESCRIBE_CLUSTER_VERSION = 1
METADATA_TOPIC = "__cluster_metadata"

#: DescribeConfigs resource types (org.apache.kafka.common.config.ConfigResource).
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


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


def delete_topic_request(name: str, topic_id: bytes | None, timeout_ms: int) -> DeleteTopicsRequest:
    """By the id, or, without one, by the name: a request has one of the two."""
    if topic_id is None:
        topic = DeleteTopicState(name=TopicName(name), topic_id=None)
    else:
        topic = DeleteTopicState(name=None, topic_id=UUID(bytes=topic_id))
    return DeleteTopicsRequest(topics=(topic,), timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)))


def delete_topic_result(answer: DeleteTopicsResponse) -> tuple[ErrorCode, str]:
    if len(answer.responses) != 1:
        raise WireError(f"DeleteTopics answered for {len(answer.responses)} topics instead of one")
    return code_of(answer.responses[0].error_code), answer.responses[0].error_message or ""


def node_configs_request(node_id: int) -> DescribeConfigsRequest:
    return _configs_request(BROKER_RESOURCE, str(node_id))


def topic_configs_request(*topics: str) -> DescribeConfigsRequest:
    return _configs_request(TOPIC_RESOURCE, *topics)


def _configs_request(kind: int, *names: str) -> DescribeConfigsRequest:
    resources = (DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None) for name in names)
    return DescribeConfigsRequest(resources=tuple(resources))


def configs_of(answer: DescribeConfigsResponse) -> dict[str, str]:
    """The settings of the node or the topic that was asked for."""
    configs: dict[str, str] = {}
    for result in answer.results:
        kind = "node" if int(result.resource_type) == BROKER_RESOURCE else "topic"
        require_no_error(result.error_code, result.error_message, f"settings of {kind} {result.resource_name}")
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
