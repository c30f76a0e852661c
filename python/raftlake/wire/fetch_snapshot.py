"""FetchSnapshot (59, versions 0 and 1; KIP-630), both directions. All flexible; version 1 adds directory ids and endpoints.

Written by hand, because kio's message holds the piece of the snapshot as records, which it is not: a piece begins and ends
anywhere. Its bytes are sent and received without copying them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from raftlake.errors import ErrorCode, WireError
from raftlake.wire.common import PARTITIONS_MAX, LeaderAndEpoch, NodeEndpoint
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I32,
    U16,
    ZERO_ID,
    BytesLike,
    error_code,
    read_count,
    read_id,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_tags,
    skip_tags,
    write_nullable_string,
    write_tag,
    write_uvarint,
)

_REQUEST_HEAD = struct.Struct(">ii")
#: Partition and leader epoch, then the snapshot id.
_ASKED_HEAD = struct.Struct(">iiqi")
_POSITION = struct.Struct(">q")
_RESPONSE_HEAD = struct.Struct(">ih")
#: Partition and error, then the snapshot id.
_RESULT_HEAD = struct.Struct(">ihqi")
_SIZE_AND_POSITION = struct.Struct(">qq")
_LEADER = struct.Struct(">ii")


@dataclass(slots=True)
class SnapshotPartition:
    """What is asked of one partition."""

    index: int
    current_leader_epoch: int
    end_offset: int
    epoch: int
    position: int
    #: From version 1; zero where it is not known.
    directory_id: bytes = ZERO_ID


@dataclass(slots=True)
class SnapshotTopic:
    name: str
    partitions: list[SnapshotPartition]


@dataclass(slots=True)
class FetchSnapshotRequest:
    cluster_id: str | None
    replica_id: int
    bytes_max: int
    topics: list[SnapshotTopic]


@dataclass(slots=True)
class SnapshotPartitionResult:
    index: int
    error: ErrorCode
    end_offset: int
    epoch: int
    current_leader: LeaderAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: BytesLike = b""


@dataclass(slots=True)
class SnapshotTopicResult:
    name: str
    partitions: list[SnapshotPartitionResult]


@dataclass(slots=True)
class FetchSnapshotResponse:
    error: ErrorCode
    topics: list[SnapshotTopicResult]
    throttle_ms: int = 0
    #: From version 1.
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


def encode_request(parts: Parts, request: FetchSnapshotRequest, version: int) -> None:
    out = parts.tail
    out += _REQUEST_HEAD.pack(request.replica_id, request.bytes_max)
    write_uvarint(out, len(request.topics) + 1)
    for topic in request.topics:
        write_nullable_string(out, topic.name, True)
        write_uvarint(out, len(topic.partitions) + 1)
        for part in topic.partitions:
            out += _ASKED_HEAD.pack(part.index, part.current_leader_epoch, part.end_offset, part.epoch)
            out.append(0)
            out += _POSITION.pack(part.position)
            if version >= 1 and part.directory_id != ZERO_ID:
                out.append(1)
                write_tag(out, 0, part.directory_id)
            else:
                out.append(0)
        out.append(0)
    if request.cluster_id is None:
        out.append(0)
        return
    content = bytearray()
    write_nullable_string(content, request.cluster_id, True)
    out.append(1)
    write_tag(out, 0, content)


def decode_request(view: memoryview, position: int, version: int) -> tuple[FetchSnapshotRequest, int]:
    replica_id, bytes_max = _REQUEST_HEAD.unpack_from(view, position)
    topic_count, position = read_count(view, position + _REQUEST_HEAD.size, True, 3)
    topics: list[SnapshotTopic] = []
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, position = read_string(view, position, True)
        count, position = read_count(view, position, True, _ASKED_HEAD.size + 10)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"request names more than {PARTITIONS_MAX} partitions")
        partitions: list[SnapshotPartition] = []
        for _ in range(count):
            index, leader_epoch, end_offset, epoch = _ASKED_HEAD.unpack_from(view, position)
            position = skip_tags(view, position + _ASKED_HEAD.size)
            (byte_position,) = _POSITION.unpack_from(view, position)
            tags, position = read_tags(view, position + _POSITION.size)
            part = SnapshotPartition(index, leader_epoch, end_offset, epoch, byte_position)
            for tag, start, end in tags:
                if tag == 0 and version >= 1:
                    part.directory_id, stop = read_id(view[:end], start)
                    _require_whole(tag, stop, end)
            partitions.append(part)
        position = skip_tags(view, position)
        topics.append(SnapshotTopic(name, partitions))
    request = FetchSnapshotRequest(None, replica_id, bytes_max, topics)
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        if tag == 0:
            request.cluster_id, stop = read_nullable_string(view[:end], start, True)
            _require_whole(tag, stop, end)
    return request, position


def _require_whole(tag: int, stop: int, end: int) -> None:
    if stop != end:
        raise WireError(f"tagged field {tag} ends {end - stop} bytes behind its value")


def encode_response(parts: Parts, response: FetchSnapshotResponse, version: int) -> None:
    parts.tail += _RESPONSE_HEAD.pack(response.throttle_ms, response.error)
    write_uvarint(parts.tail, len(response.topics) + 1)
    for topic in response.topics:
        write_nullable_string(parts.tail, topic.name, True)
        write_uvarint(parts.tail, len(topic.partitions) + 1)
        for result in topic.partitions:
            out = parts.tail
            out += _RESULT_HEAD.pack(result.index, result.error, result.end_offset, result.epoch)
            out.append(0)
            out += _SIZE_AND_POSITION.pack(result.size, result.position)
            parts.add_records(result.data, True)
            if result.current_leader is None:
                parts.tail.append(0)
            else:
                parts.tail.append(1)
                write_tag(parts.tail, 0, _LEADER.pack(*result.current_leader) + b"\x00")
        parts.tail.append(0)
    if version < 1 or not response.node_endpoints:
        parts.tail.append(0)
        return
    content = bytearray()
    write_uvarint(content, len(response.node_endpoints) + 1)
    for node_id, host, port in response.node_endpoints:
        content += I32.pack(node_id)
        write_nullable_string(content, host, True)
        content += U16.pack(port)
        content.append(0)
    parts.tail.append(1)
    write_tag(parts.tail, 0, content)


def decode_response(view: memoryview, position: int, version: int) -> tuple[FetchSnapshotResponse, int]:
    throttle_ms, code = _RESPONSE_HEAD.unpack_from(view, position)
    topic_count, position = read_count(view, position + _RESPONSE_HEAD.size, True, 3)
    topics: list[SnapshotTopicResult] = []
    for _ in range(topic_count):
        name, position = read_string(view, position, True)
        count, position = read_count(view, position, True, _RESULT_HEAD.size + _SIZE_AND_POSITION.size + 3)
        results: list[SnapshotPartitionResult] = []
        for _ in range(count):
            result, position = _read_result(view, position)
            results.append(result)
        position = skip_tags(view, position)
        topics.append(SnapshotTopicResult(name, results))
    response = FetchSnapshotResponse(error_code(code), topics, throttle_ms)
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        if tag == 0 and version >= 1:
            response.node_endpoints = _read_endpoints(view[:end], start)
    return response, position


def _read_result(view: memoryview, position: int) -> tuple[SnapshotPartitionResult, int]:
    index, code, end_offset, epoch = _RESULT_HEAD.unpack_from(view, position)
    position = skip_tags(view, position + _RESULT_HEAD.size)
    size, byte_position = _SIZE_AND_POSITION.unpack_from(view, position)
    data, position = read_nullable_bytes(view, position + _SIZE_AND_POSITION.size, True)
    if data is None:
        raise WireError("a piece of a snapshot is null")
    result = SnapshotPartitionResult(index, error_code(code), end_offset, epoch, None, size, byte_position, data)
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        if tag == 0:
            result.current_leader = LeaderAndEpoch(*_LEADER.unpack_from(view, start))
            _require_whole(tag, skip_tags(view, start + _LEADER.size), end)
    return result, position


def _read_endpoints(view: memoryview, position: int) -> list[NodeEndpoint]:
    count, position = read_count(view, position, True, 8)
    endpoints: list[NodeEndpoint] = []
    for _ in range(count):
        (node_id,) = I32.unpack_from(view, position)
        host, position = read_string(view, position + 4, True)
        (port,) = U16.unpack_from(view, position)
        position = skip_tags(view, position + 2)
        endpoints.append(NodeEndpoint(node_id, host, port))
    _require_whole(0, position, len(view))
    return endpoints
