"""The hand-written part of a Metadata answer is, byte for byte, what kio's dataclasses make of the same values."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.wire.api import ApiKey, RequestHeader, decode_response, encode_response
from raftlake.wire.ids import id_to_kio
from raftlake.wire.metadata import PartitionLeadership, TopicMetadata

VERSIONS = range(14)
TOPIC_ID = bytes(range(16))
PARTITIONS = [
    PartitionLeadership(ErrorCode.NONE, 0, 2, 7),
    PartitionLeadership(ErrorCode.LEADER_NOT_AVAILABLE, 1, -1, -1),
    PartitionLeadership(ErrorCode.NONE, 2, 3, 2_000_000_000, lagging=(1,)),
    PartitionLeadership(ErrorCode.NONE, 3, 3, 1, lagging=(1, 2, 9)),
] + [PartitionLeadership(ErrorCode.NONE, index, 1, 1) for index in range(4, 200)]


def topics(version: int) -> list[TopicMetadata]:
    return [
        TopicMetadata(version, ErrorCode.NONE, "wide", TOPIC_ID, False, (1, 2, 3), PARTITIONS),
        TopicMetadata(version, ErrorCode.NONE, "without node 2", TOPIC_ID, False, (1, 2, 3), PARTITIONS[:4], offline=(2,)),
        TopicMetadata(version, ErrorCode.NONE, "__internal", TOPIC_ID, True, (), []),
        TopicMetadata(version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "né", bytes(16), False, (), []),
    ]


def by_kio(answers: Answers, topic: TopicMetadata) -> Any:
    return answers.make(
        "MetadataResponseTopic",
        error_code=kafka_error(ErrorCode(topic.error_code)),
        name=topic.name,
        topic_id=id_to_kio(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            answers.make(
                "MetadataResponsePartition",
                error_code=kafka_error(ErrorCode(partition.error_code)),
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=topic.replicas,
                isr_nodes=tuple(node_id for node_id in topic.replicas if node_id not in partition.lagging),
                offline_replicas=topic.offline,
            )
            for partition in topic.partitions
        ),
    )


def answer(version: int, made: list[Any]) -> bytes:
    message = _answers(version).make(
        "MetadataResponse",
        throttle_time=timedelta(0),
        brokers=(),
        cluster_id="c",
        controller_id=1,
        error_code=kafka_error(ErrorCode.NONE),
        topics=tuple(made),
    )
    return b"".join(encode_response(RequestHeader(ApiKey.METADATA, version, 5, "t"), message))


def _answers(version: int) -> Answers:
    schema = importlib.import_module(f"kio.schema.metadata.v{version}.request")
    known = schema.MetadataRequest.__slots__
    flags = ("include_topic_authorized_operations", "include_cluster_authorized_operations")
    return Answers(schema.MetadataRequest(topics=(), **{flag: False for flag in flags if flag in known}))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_those_of_kio(version: int) -> None:
    made = topics(version)
    assert answer(version, list(made)) == answer(version, [by_kio(_answers(version), topic) for topic in made])


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_asked_for_by_id_may_have_no_name(version: int) -> None:
    made = TopicMetadata(version, ErrorCode.UNKNOWN_TOPIC_ID, None, TOPIC_ID, False, (), [])
    assert answer(version, [made]) == answer(version, [by_kio(_answers(version), made)])


@pytest.mark.parametrize("version", VERSIONS)
def test_where_a_name_may_not_be_null_it_is_empty(version: int) -> None:
    frame = answer(version, [TopicMetadata(version, ErrorCode.UNKNOWN_TOPIC_ID, None, TOPIC_ID, False, (), [])])
    _, message = decode_response(ApiKey.METADATA, version, bytearray(frame[4:]))
    assert message.topics[0].name == (None if version >= 12 else "")
