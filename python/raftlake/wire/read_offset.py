"""ReadOffset (private key 10650, version 0; KIP-650 "Non-leader Linearizable Read"), both directions.

A node asks a group's leader up to which offset it must have applied the log to serve a linearizable read. The fields are the
KIP's (ClusterId, ReadTimestamp, Topics/Partitions, AppliedOffset), and each partition of the answer also says why not and
who leads. All flexible. ReadTimestamp is carried for tracing; nothing safe depends on a clock.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raftlake.errors import ErrorCode, WireError
from raftlake.wire.common import PARTITIONS_MAX
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I16,
    I32,
    I64,
    error_code,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_nullable_string,
    write_uvarint,
)

#: Partition, error, applied offset, leader, leader epoch.
_RESULT = struct.Struct(">ihqii")


@dataclass(slots=True)
class ReadOffsetTopic:
    name: str
    partitions: list[int]


@dataclass(slots=True)
class ReadOffsetRequest:
    cluster_id: str | None
    #: Milliseconds since 1970 at the asking node.
    read_timestamp_ms: int
    topics: list[ReadOffsetTopic]


@dataclass(slots=True)
class ReadOffsetPartitionResult:
    index: int
    error: ErrorCode
    #: Exclusive: the asking node has applied enough when its own applied offset has reached this. -1 beside an error.
    applied_offset: int = -1
    #: -1: not known.
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ReadOffsetTopicResult:
    name: str
    partitions: list[ReadOffsetPartitionResult]


@dataclass(slots=True)
class ReadOffsetResponse:
    cluster_id: str | None
    #: INCONSISTENT_CLUSTER_ID or INVALID_REQUEST: then there are no topics.
    error: ErrorCode
    topics: list[ReadOffsetTopicResult]


def encode_request(parts: Parts, request: ReadOffsetRequest, version: int) -> None:
    assert version == 0
    out = parts.tail
    write_nullable_string(out, request.cluster_id, True)
    out += I64.pack(request.read_timestamp_ms)
    write_uvarint(out, len(request.topics) + 1)
    for topic in request.topics:
        write_nullable_string(out, topic.name, True)
        write_uvarint(out, len(topic.partitions) + 1)
        for index in topic.partitions:
            out += I32.pack(index)
            out.append(0)
        out.append(0)
    out.append(0)


def decode_request(view: memoryview, position: int, version: int) -> tuple[ReadOffsetRequest, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    (read_timestamp_ms,) = I64.unpack_from(view, position)
    topics, position = read_partition_lists(view, position + 8)
    request = ReadOffsetRequest(
        cluster_id, read_timestamp_ms, [ReadOffsetTopic(name, partitions) for name, partitions in topics]
    )
    return request, skip_tags(view, position)


def read_partition_lists(view: memoryview, position: int) -> tuple[list[tuple[str, list[int]]], int]:
    """The topics and partition indexes of a private request."""
    topic_count, position = read_count(view, position, True, 3)
    topics: list[tuple[str, list[int]]] = []
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, position = read_string(view, position, True)
        count, position = read_count(view, position, True, 5)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"request names more than {PARTITIONS_MAX} partitions")
        partitions: list[int] = []
        for _ in range(count):
            (index,) = I32.unpack_from(view, position)
            partitions.append(index)
            position = skip_tags(view, position + 4)
        position = skip_tags(view, position)
        topics.append((name, partitions))
    return topics, position


def encode_response(parts: Parts, response: ReadOffsetResponse, version: int) -> None:
    assert version == 0
    out = parts.tail
    write_nullable_string(out, response.cluster_id, True)
    out += I16.pack(response.error)
    write_uvarint(out, len(response.topics) + 1)
    for topic in response.topics:
        write_nullable_string(out, topic.name, True)
        write_uvarint(out, len(topic.partitions) + 1)
        for result in topic.partitions:
            out += _RESULT.pack(result.index, result.error, result.applied_offset, result.leader_id, result.leader_epoch)
            out.append(0)
        out.append(0)
    out.append(0)


def decode_response(view: memoryview, position: int, version: int) -> tuple[ReadOffsetResponse, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    (top_code,) = I16.unpack_from(view, position)
    topic_count, position = read_count(view, position + 2, True, 3)
    topics: list[ReadOffsetTopicResult] = []
    for _ in range(topic_count):
        name, position = read_string(view, position, True)
        count, position = read_count(view, position, True, _RESULT.size + 1)
        results: list[ReadOffsetPartitionResult] = []
        for _ in range(count):
            index, code, applied_offset, leader_id, leader_epoch = _RESULT.unpack_from(view, position)
            results.append(ReadOffsetPartitionResult(index, error_code(code), applied_offset, leader_id, leader_epoch))
            position = skip_tags(view, position + _RESULT.size)
        position = skip_tags(view, position)
        topics.append(ReadOffsetTopicResult(name, results))
    return ReadOffsetResponse(cluster_id, error_code(top_code), topics), skip_tags(view, position)
