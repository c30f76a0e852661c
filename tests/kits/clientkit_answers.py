"""The answers of the scripted quorum to cold requests: versions, metadata, offsets, topics, descriptions.

Part of `clientkit`, which holds the nodes and their state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clientkit import FakeNode, FakePartition, FakeQuorum

import uuid
from datetime import timedelta
from typing import Any

from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.describe_cluster.v1.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode as KioError
from kio.schema.list_offsets.v9.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from raftlake.wire.api import API_TABLE

NO_THROTTLE = i32Timedelta.parse(timedelta(0))


def api_versions(quorum: FakeQuorum, node: FakeNode, message: Any) -> ApiVersionsResponse:
    keys = tuple(
        ApiVersion(api_key=i16(api.key), min_version=i16(api.version_min), max_version=i16(api.version_max))
        for api in API_TABLE.values()
        if api.public
    )
    return ApiVersionsResponse(error_code=KioError.none, api_keys=keys, throttle_time=NO_THROTTLE)


def metadata(quorum: FakeQuorum, node: FakeNode, message: Any) -> MetadataResponse:
    names = list(quorum.topics) if message.topics is None else [topic.name for topic in message.topics]
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(n.node_id), host="127.0.0.1", port=i32(n.port))
            for n in quorum.nodes.values()
        ),
        cluster_id="fake",
        controller_id=BrokerId(1),
        topics=tuple(describe_topic(quorum, name) for name in names),
    )


def describe_topic(quorum: FakeQuorum, name: str) -> MetadataResponseTopic:
    topic = quorum.topics.get(name)
    if topic is None:
        return MetadataResponseTopic(
            error_code=KioError.unknown_topic_or_partition, name=TopicName(name), topic_id=None, partitions=()
        )
    replicas = tuple(BrokerId(node_id) for node_id in quorum.nodes)
    return MetadataResponseTopic(
        error_code=KioError.none,
        name=TopicName(name),
        topic_id=uuid.UUID(bytes=topic.topic_id),
        partitions=tuple(
            MetadataResponsePartition(
                error_code=KioError.none,
                partition_index=i32(index),
                leader_id=BrokerId(partition.leader_id),
                leader_epoch=i32(partition.epoch),
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
            for index, partition in enumerate(topic.partitions)
        ),
    )


def _listed(partition: FakePartition, timestamp: int, isolation_level: int) -> int:
    if timestamp == -2:
        return 0
    is_open = isolation_level and partition.stable_offset is not None
    return (partition.stable_offset if is_open else partition.end_offset) or 0


def list_offsets(quorum: FakeQuorum, node: FakeNode, message: Any) -> ListOffsetsResponse:
    (topic,) = message.topics
    partitions = quorum.topics[topic.name].partitions
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=KioError.none
                        if partitions[asked.partition_index].leader_id == node.node_id
                        else KioError.not_leader_or_follower,
                        offset=i64(_listed(partitions[asked.partition_index], asked.timestamp, message.isolation_level)),
                    )
                    for asked in topic.partitions
                ),
            ),
        ),
    )


def create_topics(quorum: FakeQuorum, node: FakeNode, message: Any) -> CreateTopicsResponse:
    (topic,) = message.topics
    code = KioError.topic_already_exists if topic.name in quorum.topics else KioError.none
    if code == KioError.none:
        quorum.add_topic(topic.name, topic.num_partitions)
    result = CreatableTopicResult(name=topic.name, topic_id=None, error_code=code, error_message=None, configs=None)
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(result,))


def describe_cluster(quorum: FakeQuorum, node: FakeNode, message: Any) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=KioError.none,
        cluster_id="fake",
        controller_id=BrokerId(1),
        brokers=tuple(
            DescribeClusterBroker(broker_id=BrokerId(n.node_id), host="127.0.0.1", port=i32(n.port))
            for n in quorum.nodes.values()
        ),
    )


def describe_configs(quorum: FakeQuorum, node: FakeNode, message: Any) -> DescribeConfigsResponse:
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    node = quorum.nodes[int(message.resources[0].resource_name)]
    if node.http_listener is not None:
        configs = (
            DescribeConfigsResourceResult(
                name="http.listener",
                value=node.http_listener,
                read_only=True,
                is_sensitive=False,
                synonyms=(),
                documentation=None,
            ),
        )
    result = DescribeConfigsResult(
        error_code=KioError.none,
        error_message=None,
        resource_type=i8(4),
        resource_name=str(node.node_id),
        configs=configs,
    )
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=(result,))
