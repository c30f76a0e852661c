"""Fetch responses (key 1), versions 4 to 18, both directions. Requests are in `fetch.py`, which exports all of it.

A decoded partition holds its records as a slice of the frame; an encoded response sends large records from where they lie.
DivergingEpoch, CurrentLeader and SnapshotId are tagged fields: None here means that the field is not sent.

As with requests, the commonest answer to a replica (version 18, one partition, only the leader's tag) has a fixed layout around
its records and is read and written by two structs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlake.errors import ErrorCode
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint, read_node_endpoints, write_node_endpoints
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I32,
    I64,
    BytesLike,
    error_code,
    read_count,
    read_nullable_bytes,
    read_nullable_count,
    read_tags,
    read_topic,
    skip_tags,
    write_count,
    write_tag,
    write_topic,
)
from raftlake.wire.sync_report import SyncReport, decode_sync_report, encode_sync_report

_ERROR_AND_SESSION = struct.Struct(">hi")
_RESULT_HEAD = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_SNAPSHOT = struct.Struct(">qi")
#: An answer of version 18 with one partition: what stands before the length of its records, and what behind them.
_ONE_HEAD = struct.Struct(">ihi B16sB ihqqq Bi")
_ONE_TAIL = struct.Struct(">BBB ii BBB")
_ONE_TAIL_MARKS = (1, 1, 9, 0, 0, 0)
#: Far behind those of Kafka.
SYNC_REPORT_TAG = 10_000


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the one asked for, and its exclusive end offset: the requester cuts its log there."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """The snapshot to fetch instead (KIP-630): it holds everything below `end_offset`."""

    end_offset: int
    epoch: int


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchPartitionResult:
    index: int
    error: ErrorCode
    #: Exclusive; -1 when not known.
    high_watermark: int = -1
    #: To a consumer how far it may read. Kafka's Raft tells its replicas -1; to one of ours it is where the leader's log ends.
    last_stable_offset: int = -1
    #: From version 5.
    log_start_offset: int = -1
    #: None: a null array, as with read uncommitted.
    aborted_transactions: list[AbortedTransaction] | None = None
    #: From version 11.
    preferred_read_replica: int = -1
    #: Whole batches, perhaps none; None: a null field.
    records: BytesLike | None = b""
    #: These three from version 12.
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(slots=True)
class FetchTopicResult:
    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartitionResult]


@dataclass(slots=True)
class FetchResponse:
    topics: list[FetchTopicResult]
    throttle_ms: int = 0
    #: The top-level error and the session id: from version 7.
    error: ErrorCode = ErrorCode.NONE
    session_id: int = 0
    #: From version 16.
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
    #: Our own, from version 16. A tag that Kafka passes over; None: it is not written.
    sync_report: SyncReport | None = None


def encode_response(parts: Parts, response: FetchResponse, version: int) -> None:
    if version == 18 and _write_one_partition(parts, response):
        return
    flexible = version >= 12
    out = parts.tail
    out += I32.pack(response.throttle_ms)
    if version >= 7:
        out += _ERROR_AND_SESSION.pack(response.error, response.session_id)
    write_count(out, len(response.topics), flexible)
    for topic in response.topics:
        write_topic(parts.tail, topic.name, topic.topic_id, version >= 13, flexible)
        write_count(parts.tail, len(topic.partitions), flexible)
        for result in topic.partitions:
            _write_result(parts, result, version, flexible)
        if flexible:
            parts.tail.append(0)
    if version >= 16:
        report = response.sync_report
        write_node_endpoints(parts.tail, response.node_endpoints, report is not None)
        if report is not None:
            write_tag(parts.tail, SYNC_REPORT_TAG, encode_sync_report(report))
    elif flexible:
        parts.tail.append(0)


def _write_one_partition(parts: Parts, response: FetchResponse) -> bool:
    """Append an answer of `_ONE_HEAD`'s shape; False when it has another one."""
    topics = response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or response.node_endpoints or response.sync_report is not None:
        return False
    (result,), topic_id = topics[0].partitions, topics[0].topic_id
    if (
        topic_id is None
        or result.aborted_transactions is not None
        or result.current_leader is None
        or result.diverging_epoch is not None
        or result.snapshot_id is not None
    ):
        return False
    # fmt: off
    parts.tail += _ONE_HEAD.pack(
        response.throttle_ms, response.error, response.session_id, 2, topic_id, 2, result.index, result.error,
        result.high_watermark, result.last_stable_offset, result.log_start_offset, 0, result.preferred_read_replica,
    )
    # fmt: on
    parts.add_records(result.records, True)
    parts.tail += _ONE_TAIL.pack(1, 1, 9, *result.current_leader, 0, 0, 0)
    return True


def _write_result(parts: Parts, result: FetchPartitionResult, version: int, flexible: bool) -> None:
    out = parts.tail
    out += _RESULT_HEAD.pack(result.index, result.error, result.high_watermark, result.last_stable_offset)
    if version >= 5:
        out += I64.pack(result.log_start_offset)
    aborted = result.aborted_transactions
    write_count(out, -1 if aborted is None else len(aborted), flexible)
    for transaction in aborted or ():
        out += _ABORTED.pack(*transaction)
        if flexible:
            out.append(0)
    if version >= 11:
        out += I32.pack(result.preferred_read_replica)
    parts.add_records(result.records, flexible)
    if flexible:
        _write_result_tags(parts.tail, result)


def _write_result_tags(out: bytearray, result: FetchPartitionResult) -> None:
    diverging, leader, snapshot = result.diverging_epoch, result.current_leader, result.snapshot_id
    out.append((diverging is not None) + (leader is not None) + (snapshot is not None))
    if diverging is not None:
        write_tag(out, 0, _DIVERGING.pack(*diverging) + b"\x00")
    if leader is not None:
        write_tag(out, 1, _LEADER.pack(*leader) + b"\x00")
    if snapshot is not None:
        write_tag(out, 2, _SNAPSHOT.pack(*snapshot) + b"\x00")


def decode_response(view: memoryview, position: int, version: int) -> tuple[FetchResponse, int]:
    if version == 18 and len(view) - position > _ONE_HEAD.size + _ONE_TAIL.size:
        response = _read_one_partition(view, position)
        if response is not None:
            return response, len(view)
    return _decode_any(view, position, version)


def _read_one_partition(view: memoryview, position: int) -> FetchResponse | None:
    """The answer of `_ONE_HEAD`'s shape, None when it has another one."""
    # fmt: off
    (throttle_ms, code, session_id, topics, topic_id, partitions, index, result_code, high_watermark, last_stable_offset,
     log_start, aborted, preferred) = _ONE_HEAD.unpack_from(view, position)
    # fmt: on
    if topics != 2 or partitions != 2 or aborted != 0:
        return None
    records, end = read_nullable_bytes(view, position + _ONE_HEAD.size, True)
    if len(view) - end != _ONE_TAIL.size:
        return None
    m0, m1, m2, leader_id, leader_epoch, m3, m4, m5 = _ONE_TAIL.unpack_from(view, end)
    if (m0, m1, m2, m3, m4, m5) != _ONE_TAIL_MARKS:
        return None
    result = FetchPartitionResult(
        index, error_code(result_code), high_watermark, last_stable_offset, log_start, None, preferred
    )
    result.records = records
    result.current_leader = LeaderAndEpoch(leader_id, leader_epoch)
    return FetchResponse([FetchTopicResult(None, topic_id, [result])], throttle_ms, error_code(code), session_id)


def _decode_any(view: memoryview, position: int, version: int) -> tuple[FetchResponse, int]:
    flexible = version >= 12
    (throttle_ms,) = I32.unpack_from(view, position)
    response = FetchResponse([], throttle_ms)
    position += 4
    if version >= 7:
        code, response.session_id = _ERROR_AND_SESSION.unpack_from(view, position)
        response.error = error_code(code)
        position += _ERROR_AND_SESSION.size
    topic_count, position = read_count(view, position, flexible, 3)
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, version >= 13, flexible)
        count, position = read_count(view, position, flexible, _RESULT_HEAD.size)
        results: list[FetchPartitionResult] = []
        for _ in range(count):
            result, position = _read_result(view, position, version, flexible)
            results.append(result)
        if flexible:
            position = skip_tags(view, position)
        response.topics.append(FetchTopicResult(name, topic_id, results))
    if flexible:
        tags, position = read_tags(view, position)
        for tag, start, end in tags:
            if tag == 0 and version >= 16:
                response.node_endpoints = read_node_endpoints(view[:end], start)
            elif tag == SYNC_REPORT_TAG and version >= 16:
                response.sync_report = decode_sync_report(view[start:end])
    return response, position


def _read_result(view: memoryview, position: int, version: int, flexible: bool) -> tuple[FetchPartitionResult, int]:
    index, code, high_watermark, last_stable_offset = _RESULT_HEAD.unpack_from(view, position)
    result = FetchPartitionResult(index, error_code(code), high_watermark, last_stable_offset)
    position += _RESULT_HEAD.size
    if version >= 5:
        (result.log_start_offset,) = I64.unpack_from(view, position)
        position += 8
    result.aborted_transactions, position = _read_aborted(view, position, flexible)
    if version >= 11:
        (result.preferred_read_replica,) = I32.unpack_from(view, position)
        position += 4
    result.records, position = read_nullable_bytes(view, position, flexible)
    if flexible:
        if view[position] == 0:
            position += 1
        else:
            position = _read_result_tags(view, position, result)
    return result, position


def _read_aborted(view: memoryview, position: int, flexible: bool) -> tuple[list[AbortedTransaction] | None, int]:
    count, position = read_nullable_count(view, position, flexible, _ABORTED.size)
    if count is None:
        return None, position
    aborted: list[AbortedTransaction] = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(view, position)))
        position += _ABORTED.size
        if flexible:
            position = skip_tags(view, position)
    return aborted, position


def _read_result_tags(view: memoryview, position: int, result: FetchPartitionResult) -> int:
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        content = view[:end]
        if tag == 0:
            result.diverging_epoch = EpochEndOffset(*_DIVERGING.unpack_from(content, start))
        elif tag == 1:
            result.current_leader = LeaderAndEpoch(*_LEADER.unpack_from(content, start))
        elif tag == 2:
            result.snapshot_id = SnapshotId(*_SNAPSHOT.unpack_from(content, start))
    return position
