"""ReadOffset (private key 10650, version 0; KIP-650 "Non-leader Linearizable Read"), both directions.

A node asks a group's leader up to which offset it must have applied the log to serve a linearizable read. The fields are the
KIP's (ClusterId, ReadTimestamp, Topics/Partitions, AppliedOffset), and each partition of the answer also says why not and
who leads. All flexible. ReadTimestamp is carried for tracing; nothing safe depends on a clock.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raftlake.errors import ErrorCode
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import I16, I64, error_code, read_nullable_string, skip_tags, write_nullable_string
from raftlake.wire.topic_lists import TopicPartitions, read_asked, read_topics, write_asked, write_topics

#: Partition, error, applied offset, leader, leader epoch.
_RESULT = struct.Struct(">ihqii")


@dataclass(slots=True)
class ReadOffsetRequest:
    cluster_id: str | None
    #: Milliseconds since 1970 at the asking node.
    read_timestamp_ms: int
    topics: list[TopicPartitions]


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
    write_asked(out, request.topics)
    out.append(0)


def decode_request(view: memoryview, position: int, version: int) -> tuple[ReadOffsetRequest, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    (read_timestamp_ms,) = I64.unpack_from(view, position)
    topics, position = read_asked(view, position + 8)
    return ReadOffsetRequest(cluster_id, read_timestamp_ms, topics), skip_tags(view, position)


def encode_response(parts: Parts, response: ReadOffsetResponse, version: int) -> None:
    assert version == 0
    out = parts.tail
    write_nullable_string(out, response.cluster_id, True)
    out += I16.pack(response.error)
    write_topics(out, response.topics, _write_result)
    out.append(0)


def decode_response(view: memoryview, position: int, version: int) -> tuple[ReadOffsetResponse, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    (top_code,) = I16.unpack_from(view, position)
    topics, position = read_topics(view, position + 2, _RESULT.size, _read_result, ReadOffsetTopicResult)
    return ReadOffsetResponse(cluster_id, error_code(top_code), topics), skip_tags(view, position)


def _write_result(out: bytearray, result: ReadOffsetPartitionResult) -> None:
    out += _RESULT.pack(result.index, result.error, result.applied_offset, result.leader_id, result.leader_epoch)


def _read_result(view: memoryview, position: int) -> tuple[ReadOffsetPartitionResult, int]:
    index, code, applied_offset, leader_id, leader_epoch = _RESULT.unpack_from(view, position)
    result = ReadOffsetPartitionResult(index, error_code(code), applied_offset, leader_id, leader_epoch)
    return result, position + _RESULT.size
