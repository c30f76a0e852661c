"""FindQuorum (private key 10595, version 0; KIP-595 "FindQuorum"), both directions.

Any node may be asked who leads a group, in which epoch, and who its voters are and where they listen. Kafka never shipped
this RPC (it learns the same from Fetch); here clients and tools use it to find a leader with one question. All flexible.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raftlake.errors import ErrorCode
from raftlake.wire.common import NodeEndpoint
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I16,
    I32,
    error_code,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_nullable_string,
    write_uvarint,
)
from raftlake.wire.topic_lists import TopicPartitions, read_asked, read_topics, write_asked, write_topics

#: Partition, error, leader, leader epoch.
_RESULT = struct.Struct(">ihii")


@dataclass(slots=True)
class FindQuorumRequest:
    cluster_id: str | None
    topics: list[TopicPartitions]


@dataclass(slots=True)
class FindQuorumPartitionResult:
    index: int
    error: ErrorCode
    #: -1: not known.
    leader_id: int
    leader_epoch: int
    voters: list[NodeEndpoint]


@dataclass(slots=True)
class FindQuorumTopicResult:
    name: str
    partitions: list[FindQuorumPartitionResult]


@dataclass(slots=True)
class FindQuorumResponse:
    #: INCONSISTENT_CLUSTER_ID or INVALID_REQUEST: then there are no topics.
    error: ErrorCode
    topics: list[FindQuorumTopicResult]


def encode_request(parts: Parts, request: FindQuorumRequest, version: int) -> None:
    assert version == 0
    out = parts.tail
    write_nullable_string(out, request.cluster_id, True)
    write_asked(out, request.topics)
    out.append(0)


def decode_request(view: memoryview, position: int, version: int) -> tuple[FindQuorumRequest, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    topics, position = read_asked(view, position)
    return FindQuorumRequest(cluster_id, topics), skip_tags(view, position)


def encode_response(parts: Parts, response: FindQuorumResponse, version: int) -> None:
    assert version == 0
    out = parts.tail
    out += I16.pack(response.error)
    write_topics(out, response.topics, _write_result)
    out.append(0)


def decode_response(view: memoryview, position: int, version: int) -> tuple[FindQuorumResponse, int]:
    assert version == 0
    (top_code,) = I16.unpack_from(view, position)
    topics, position = read_topics(view, position + 2, _RESULT.size + 1, _read_result, FindQuorumTopicResult)
    return FindQuorumResponse(error_code(top_code), topics), skip_tags(view, position)


def _write_result(out: bytearray, result: FindQuorumPartitionResult) -> None:
    out += _RESULT.pack(result.index, result.error, result.leader_id, result.leader_epoch)
    write_uvarint(out, len(result.voters) + 1)
    for voter_id, host, port in result.voters:
        out += I32.pack(voter_id)
        write_nullable_string(out, host, True)
        out += I32.pack(port)
        out.append(0)


def _read_result(view: memoryview, position: int) -> tuple[FindQuorumPartitionResult, int]:
    index, code, leader_id, leader_epoch = _RESULT.unpack_from(view, position)
    voters, position = _read_voters(view, position + _RESULT.size)
    return FindQuorumPartitionResult(index, error_code(code), leader_id, leader_epoch, voters), position


def _read_voters(view: memoryview, position: int) -> tuple[list[NodeEndpoint], int]:
    count, position = read_count(view, position, True, 10)
    voters: list[NodeEndpoint] = []
    for _ in range(count):
        (voter_id,) = I32.unpack_from(view, position)
        host, position = read_string(view, position + 4, True)
        (port,) = I32.unpack_from(view, position)
        position = skip_tags(view, position + 4)
        voters.append(NodeEndpoint(voter_id, host, port))
    return voters, position
