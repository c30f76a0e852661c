"""Produce (key 0), versions 3 to 13, both directions.

Records stay where the frame has them: a decoded partition holds a slice of the frame, which may be stamped in place, and an
encoded request sends large records from where they lie. Versions 9 and newer are flexible; version 13 names topics by id.

Most requests and answers are about one partition; for versions 9 to 12 these have a short way of their own, half as long as the
general one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from raftlake.errors import ErrorCode, WireError
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint, read_node_endpoints, write_node_endpoints
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I32,
    BytesLike,
    error_code,
    read_count,
    read_nullable_bytes,
    read_nullable_string,
    read_tags,
    read_topic,
    skip_tags,
    write_count,
    write_nullable_string,
    write_tag,
    write_topic,
)

#: Partitions of one request: each is answered, known or not, and that is 4 µs of work.
PARTITIONS_MAX = 1 << 14

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_LEADER = struct.Struct(">ii")
#: Partition, error, base offset, log append time; then from version 5 the log start offset.
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")

#: A flexible request by name: no transactional id, acks, timeout, one topic, the length of its name (plus one).
_ONE_HEAD = struct.Struct(">BhiBB")
#: One partition, its index.
_ONE_PARTITION = struct.Struct(">Bi")
_ONE_END = b"\x00\x00\x00"
#: A flexible answer behind the topic's name: one partition, its result, no record errors, no message, no tags, throttle time.
_ONE_RESULT = struct.Struct(">BihqqqBBBBiB")
_ONE_RESULT_MARKS = (2, 1, 0, 0, 0, 0)


@dataclass(slots=True)
class ProducePartition:
    index: int
    #: None: a null field, which no producer should send.
    records: BytesLike | None


@dataclass(slots=True)
class ProduceTopic:
    """Named by name up to version 12, by id (16 bytes) from version 13; the other one is None."""

    name: str | None
    topic_id: bytes | None
    partitions: list[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    #: -1: all (a majority has it on disk), 1: the leader has it, 0: no answer is sent.
    acks: int
    timeout_ms: int
    transactional_id: str | None
    topics: list[ProduceTopic]


@dataclass(slots=True)
class ProducePartitionResult:
    index: int
    error: ErrorCode
    base_offset: int = -1
    #: -1 unless the topic's timestamps are the log's.
    log_append_time_ms: int = -1
    #: Sent from version 5.
    log_start_offset: int = -1
    #: Sent from version 8.
    error_message: str | None = None
    #: Sent from version 10, beside NOT_LEADER_OR_FOLLOWER.
    current_leader: LeaderAndEpoch | None = None


@dataclass(slots=True)
class ProduceTopicResult:
    name: str | None
    topic_id: bytes | None
    partitions: list[ProducePartitionResult]


@dataclass(slots=True)
class ProduceResponse:
    topics: list[ProduceTopicResult]
    throttle_ms: int = 0
    #: Sent from version 10: where the leaders named above are.
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)


def decode_request(view: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    if 9 <= version <= 12:
        request = _read_one_partition(view, position)
        if request is not None:
            return request, len(view)
    return _decode_any(view, position, version)


def _read_one_partition(view: memoryview, position: int) -> ProduceRequest | None:
    """A request for one partition, None when it is of another shape."""
    no_id, acks, timeout_ms, topics, name_length = _ONE_HEAD.unpack_from(view, position)
    name_start = position + _ONE_HEAD.size
    name_end = name_start + name_length - 1
    if no_id != 0 or topics != 2 or not 1 <= name_length < 0x80 or name_end + _ONE_PARTITION.size > len(view):
        return None
    partitions, index = _ONE_PARTITION.unpack_from(view, name_end)
    if partitions != 2:
        return None
    records, end = read_nullable_bytes(view, name_end + _ONE_PARTITION.size, True)
    if view[end:] != _ONE_END:
        return None
    topic = ProduceTopic(str(view[name_start:name_end], "utf-8"), None, [ProducePartition(index, records)])
    return ProduceRequest(acks, timeout_ms, None, [topic])


def _decode_any(view: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    flexible = version >= 9
    transactional_id, position = read_nullable_string(view, position, flexible)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_count(view, position + 6, flexible, 3)
    topics: list[ProduceTopic] = []
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, version >= 13, flexible)
        count, position = read_count(view, position, flexible, 6)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"request names more than {PARTITIONS_MAX} partitions")
        partitions: list[ProducePartition] = []
        for _ in range(count):
            (index,) = I32.unpack_from(view, position)
            records, position = read_nullable_bytes(view, position + 4, flexible)
            if flexible:
                position = position + 1 if view[position] == 0 else skip_tags(view, position)
            partitions.append(ProducePartition(index, records))
        if flexible:
            position = skip_tags(view, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    if flexible:
        position = skip_tags(view, position)
    return ProduceRequest(acks, timeout_ms, transactional_id, topics), position


def encode_request(parts: Parts, request: ProduceRequest, version: int) -> None:
    flexible = version >= 9
    write_nullable_string(parts.tail, request.transactional_id, flexible)
    parts.tail += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    write_count(parts.tail, len(request.topics), flexible)
    for topic in request.topics:
        write_topic(parts.tail, topic.name, topic.topic_id, version >= 13, flexible)
        write_count(parts.tail, len(topic.partitions), flexible)
        for partition in topic.partitions:
            parts.tail += I32.pack(partition.index)
            parts.add_records(partition.records, flexible)
            if flexible:
                parts.tail.append(0)
        if flexible:
            parts.tail.append(0)
    if flexible:
        parts.tail.append(0)


def encode_response(parts: Parts, response: ProduceResponse, version: int) -> None:
    out = parts.tail
    if 9 <= version <= 12 and _write_one_partition(out, response):
        return
    flexible = version >= 9
    write_count(out, len(response.topics), flexible)
    for topic in response.topics:
        write_topic(out, topic.name, topic.topic_id, version >= 13, flexible)
        write_count(out, len(topic.partitions), flexible)
        for result in topic.partitions:
            _write_result(out, result, version, flexible)
        if flexible:
            out.append(0)
    out += I32.pack(response.throttle_ms)
    if version >= 10:
        write_node_endpoints(out, response.node_endpoints)
    elif flexible:
        out.append(0)


def _write_one_partition(out: bytearray, response: ProduceResponse) -> bool:
    """Append the answer about one partition that has nothing to add to its offset; False when it is of another shape."""
    topics = response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or response.node_endpoints or topics[0].name is None:
        return False
    (result,), name = topics[0].partitions, topics[0].name.encode()
    if result.error_message is not None or result.current_leader is not None or len(name) >= 0x7F:
        return False
    out += b"\x02"
    out.append(len(name) + 1)
    out += name
    # fmt: off
    out += _ONE_RESULT.pack(
        2, result.index, result.error, result.base_offset, result.log_append_time_ms, result.log_start_offset, 1, 0, 0, 0,
        response.throttle_ms, 0,
    )
    # fmt: on
    return True


def _write_result(out: bytearray, result: ProducePartitionResult, version: int, flexible: bool) -> None:
    if version < 5:
        out += _RESULT_V3.pack(result.index, result.error, result.base_offset, result.log_append_time_ms)
        return
    out += _RESULT_V5.pack(result.index, result.error, result.base_offset, result.log_append_time_ms, result.log_start_offset)
    if version < 8:
        return
    # No per-record errors: a batch is refused as a whole.
    write_count(out, 0, flexible)
    write_nullable_string(out, result.error_message, flexible)
    if not flexible:
        return
    if version >= 10 and result.current_leader is not None:
        out.append(1)
        write_tag(out, 0, _LEADER.pack(*result.current_leader) + b"\x00")
    else:
        out.append(0)


def decode_response(view: memoryview, position: int, version: int) -> tuple[ProduceResponse, int]:
    if 9 <= version <= 12:
        response = _read_one_result(view, position)
        if response is not None:
            return response, len(view)
    return _decode_any_response(view, position, version)


def _read_one_result(view: memoryview, position: int) -> ProduceResponse | None:
    """The answer that `_write_one_partition` writes, None when it is of another shape."""
    topics, name_length = view[position], view[position + 1]
    name_end = position + 1 + name_length
    if topics != 2 or not 1 <= name_length < 0x80 or name_end + _ONE_RESULT.size != len(view):
        return None
    # fmt: off
    m0, index, code, base_offset, time_ms, log_start, m1, m2, m3, m4, throttle_ms, m5 = _ONE_RESULT.unpack_from(view, name_end)
    # fmt: on
    if (m0, m1, m2, m3, m4, m5) != _ONE_RESULT_MARKS:
        return None
    result = ProducePartitionResult(index, error_code(code), base_offset, time_ms, log_start)
    return ProduceResponse([ProduceTopicResult(str(view[position + 2 : name_end], "utf-8"), None, [result])], throttle_ms)


def _decode_any_response(view: memoryview, position: int, version: int) -> tuple[ProduceResponse, int]:
    flexible = version >= 9
    topic_count, position = read_count(view, position, flexible, 3)
    topics: list[ProduceTopicResult] = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, version >= 13, flexible)
        count, position = read_count(view, position, flexible, _RESULT_V3.size)
        results: list[ProducePartitionResult] = []
        for _ in range(count):
            result, position = _read_result(view, position, version, flexible)
            results.append(result)
        if flexible:
            position = skip_tags(view, position)
        topics.append(ProduceTopicResult(name, topic_id, results))
    (throttle_ms,) = I32.unpack_from(view, position)
    position += 4
    endpoints: list[NodeEndpoint] = []
    if flexible:
        tags, position = read_tags(view, position)
        for tag, start, end in tags:
            if tag == 0 and version >= 10:
                endpoints = read_node_endpoints(view[:end], start)
    return ProduceResponse(topics, throttle_ms, endpoints), position


def _read_result(view: memoryview, position: int, version: int, flexible: bool) -> tuple[ProducePartitionResult, int]:
    index, code, base_offset, time_ms = _RESULT_V3.unpack_from(view, position)
    result = ProducePartitionResult(index, error_code(code), base_offset, time_ms)
    position += _RESULT_V3.size
    if version < 5:
        return result, position
    result.log_start_offset = _RESULT_V5.unpack_from(view, position - _RESULT_V3.size)[4]
    position += _RESULT_V5.size - _RESULT_V3.size
    if version < 8:
        return result, position
    position = _skip_record_errors(view, position, flexible)
    result.error_message, position = read_nullable_string(view, position, flexible)
    if flexible:
        tags, position = read_tags(view, position)
        for tag, start, end in tags:
            if tag == 0 and version >= 10:
                result.current_leader = LeaderAndEpoch(*_LEADER.unpack_from(view[:end], start))
    return result, position


def _skip_record_errors(view: memoryview, position: int, flexible: bool) -> int:
    """Which records of a refused batch were at fault: the error message says it in words."""
    count, position = read_count(view, position, flexible, 5)
    for _ in range(count):
        _, position = read_nullable_string(view, position + 4, flexible)
        if flexible:
            position = skip_tags(view, position)
    return position
