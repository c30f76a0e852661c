"""Fetch requests (key 1), versions 4 to 18, both directions. Responses are in `fetch_response.py`.

One message for consumers, followers and Kafka's own Raft: a follower says who it is (the replica id is a field up to
version 14 and in a tag after that), what it holds (offset and epoch of its last record) and, from version 18, the high
watermark it knows (KIP-1166). Versions 12 and newer are flexible; version 13 and newer name topics by id. A field that a
version does not have is left at its default when decoding and left out when encoding.

Most requests of a busy quorum have one shape: version 18, a replica's, one partition, nothing forgotten. It has a fixed
layout, which one struct reads and writes in a tenth of the time; anything else takes the general way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlake.errors import WireError
from raftlake.wire.common import PARTITIONS_MAX
from raftlake.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
    SnapshotId,
    decode_response,
    encode_response,
)
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I32,
    I64,
    ZERO_ID,
    read_count,
    read_id,
    read_nullable_string,
    read_string,
    read_tags,
    read_topic,
    skip_tags,
    write_count,
    write_nullable_string,
    write_tag,
    write_topic,
)

__all__ = [
    "HIGH_WATERMARK_UNSUPPORTED",
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResult",
    "ForgottenTopic",
    "SnapshotId",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

#: The high watermark of a requester that does not know of the field; -1 says that it knows no high watermark yet.
HIGH_WATERMARK_UNSUPPORTED = (1 << 63) - 1

#: Of a request; far above any that Kafka gives out.
DISK_IS_LOW_TAG = 10_000

_HEAD = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")

#: A replica's request of version 18 for one partition: head, session, topic and partition with its two tags, nothing forgotten,
#: no rack, a cluster id of 22 characters and the replica's state.
_ONE_PARTITION = struct.Struct(">iiib ii B16s B iiqiqi BBB16sBBq BBB BBBB22sBBiqB")
_ONE_PARTITION_MARKS = (2, 2, 2, 0, 16, 1, 8, 0, 1, 1, 2, 0, 23, 23, 1, 13, 0)
_CLUSTER_ID_BYTES = 22


@dataclass(slots=True)
class FetchPartition:
    index: int
    #: The epoch that the requester believes in, or -1: do not check. From version 9.
    current_leader_epoch: int
    fetch_offset: int
    #: The epoch of the last record that the requester has, or -1: do not check for divergence. From version 12.
    last_fetched_epoch: int
    #: The requester's own first offset (followers). From version 5.
    log_start_offset: int
    bytes_max: int
    #: From version 17.
    replica_directory_id: bytes = ZERO_ID
    #: Exclusive. From version 18.
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


@dataclass(slots=True)
class FetchTopic:
    """Named by name up to version 12, by id (16 bytes) from version 13; the other one is None."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that an incremental fetch session (KIP-227) drops. From version 7."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[int]


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    wait_ms_max: int
    bytes_min: int
    topics: list[FetchTopic]
    bytes_max: int = 0x7FFFFFFF
    #: 0 read uncommitted, 1 read committed.
    isolation_level: int = 0
    #: (0, 0) opens a session, (0, -1) is a fetch without one. From version 7.
    session_id: int = 0
    session_epoch: int = -1
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    #: From version 11.
    rack_id: str = ""
    #: From version 12.
    cluster_id: str | None = None
    #: -1: a consumer.
    replica_id: int = -1
    #: The incarnation of a broker; not used by Raft. From version 15.
    replica_epoch: int = -1
    #: Our own: the replica's disk is nearly full. A tag that Kafka passes over, written only where it is so.
    disk_is_low: bool = False


def decode_request(view: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    if version == 18 and len(view) - position == _ONE_PARTITION.size:
        request = _read_one_partition(view, position)
        if request is not None:
            return request, len(view)
    return _decode_any(view, position, version)


def _read_one_partition(view: memoryview, position: int) -> FetchRequest | None:
    """The request of `_ONE_PARTITION`'s shape, None when it has another one of the same length."""
    # One name per field: a tuple of slices would cost as much as it saves.
    # fmt: off
    (wait_ms_max, bytes_min, bytes_max, isolation_level, session_id, session_epoch, m0, topic_id, m1,
     index, epoch, offset, last_epoch, log_start, partition_bytes_max, m2, m3, m4, directory_id, m5, m6, high_watermark,
     m7, m8, m9, m10, m11, m12, m13, cluster_id, m14, m15, replica_id, replica_epoch, m16,
     ) = _ONE_PARTITION.unpack_from(view, position)
    # fmt: on
    if (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16) != _ONE_PARTITION_MARKS:
        return None
    partition = FetchPartition(index, epoch, offset, last_epoch, log_start, partition_bytes_max, directory_id, high_watermark)
    return FetchRequest(
        wait_ms_max=wait_ms_max,
        bytes_min=bytes_min,
        bytes_max=bytes_max,
        topics=[FetchTopic(None, topic_id, [partition])],
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        cluster_id=str(cluster_id, "utf-8"),
        replica_id=replica_id,
        replica_epoch=replica_epoch,
    )


def _decode_any(view: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    flexible = version >= 12
    replica_id = -1
    if version < 15:
        (replica_id,) = I32.unpack_from(view, position)
        position += 4
    wait_ms_max, bytes_min, bytes_max, isolation_level = _HEAD.unpack_from(view, position)
    position += _HEAD.size
    request = FetchRequest(
        wait_ms_max=wait_ms_max,
        bytes_min=bytes_min,
        bytes_max=bytes_max,
        isolation_level=isolation_level,
        replica_id=replica_id,
        topics=[],
    )
    if version >= 7:
        request.session_id, request.session_epoch = _SESSION.unpack_from(view, position)
        position += _SESSION.size
    position = _read_topics(view, position, version, flexible, request.topics)
    if version >= 7:
        position = _read_forgotten(view, position, version, flexible, request.forgotten)
    if version >= 11:
        request.rack_id, position = read_string(view, position, flexible)
    if flexible:
        position = _read_request_tags(view, position, version, request)
    return request, position


def _read_topics(view: memoryview, position: int, version: int, flexible: bool, topics: list[FetchTopic]) -> int:
    by_id = version >= 13
    topic_count, position = read_count(view, position, flexible, 3)
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, by_id, flexible)
        count, position = read_count(view, position, flexible, _PARTITION_V4.size)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"request names more than {PARTITIONS_MAX} partitions")
        partitions: list[FetchPartition] = []
        for _ in range(count):
            if flexible:
                partition = FetchPartition(*_PARTITION_V12.unpack_from(view, position))
                position += _PARTITION_V12.size
                if view[position] == 0:
                    position += 1
                else:
                    position = _read_partition_tags(view, position, version, partition)
            else:
                partition, position = _read_legacy_partition(view, position, version)
            partitions.append(partition)
        if flexible:
            position = skip_tags(view, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    return position


def _read_legacy_partition(view: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    if version >= 9:
        index, epoch, offset, start, size = _PARTITION_V9.unpack_from(view, position)
        return FetchPartition(index, epoch, offset, -1, start, size), position + _PARTITION_V9.size
    if version >= 5:
        index, offset, start, size = _PARTITION_V5.unpack_from(view, position)
        return FetchPartition(index, -1, offset, -1, start, size), position + _PARTITION_V5.size
    index, offset, size = _PARTITION_V4.unpack_from(view, position)
    return FetchPartition(index, -1, offset, -1, -1, size), position + _PARTITION_V4.size


def _read_partition_tags(view: memoryview, position: int, version: int, partition: FetchPartition) -> int:
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        if tag == 0 and version >= 17:
            partition.replica_directory_id, _ = read_id(view[:end], start)
        elif tag == 1 and version >= 18:
            (partition.high_watermark,) = I64.unpack_from(view[:end], start)
    return position


def _read_forgotten(view: memoryview, position: int, version: int, flexible: bool, forgotten: list[ForgottenTopic]) -> int:
    topic_count, position = read_count(view, position, flexible, 3)
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, version >= 13, flexible)
        count, position = read_count(view, position, flexible, 4)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"request forgets more than {PARTITIONS_MAX} partitions")
        partitions = struct.unpack_from(f">{count}i", view, position)
        position += 4 * count
        if flexible:
            position = skip_tags(view, position)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return position


def _read_request_tags(view: memoryview, position: int, version: int, request: FetchRequest) -> int:
    tags, position = read_tags(view, position)
    for tag, start, end in tags:
        if tag == 0:
            request.cluster_id, _ = read_nullable_string(view[:end], start, True)
        elif tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(view[:end], start)
        elif tag == DISK_IS_LOW_TAG:
            request.disk_is_low = True
    return position


def encode_request(parts: Parts, request: FetchRequest, version: int) -> None:
    out = parts.tail
    if version == 18 and _write_one_partition(out, request):
        return
    flexible = version >= 12
    if version < 15:
        out += I32.pack(request.replica_id)
    out += _HEAD.pack(request.wait_ms_max, request.bytes_min, request.bytes_max, request.isolation_level)
    if version >= 7:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    write_count(out, len(request.topics), flexible)
    for topic in request.topics:
        write_topic(out, topic.name, topic.topic_id, version >= 13, flexible)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_partition(out, partition, version)
        if flexible:
            out.append(0)
    if version >= 7:
        _write_forgotten(out, request.forgotten, version, flexible)
    if version >= 11:
        write_nullable_string(out, request.rack_id, flexible)
    if flexible:
        _write_request_tags(out, request, version)


def _write_one_partition(out: bytearray, request: FetchRequest) -> bool:
    """Append a request that has `_ONE_PARTITION`'s shape; False when it has another one."""
    topics, cluster_id = request.topics, request.cluster_id
    if len(topics) != 1 or len(topics[0].partitions) != 1 or request.forgotten or request.rack_id or cluster_id is None:
        return False
    if request.disk_is_low:
        return False
    (part,), topic_id, encoded = topics[0].partitions, topics[0].topic_id, cluster_id.encode()
    if (
        topic_id is None
        or len(encoded) != _CLUSTER_ID_BYTES
        or part.replica_directory_id == ZERO_ID
        or part.high_watermark == HIGH_WATERMARK_UNSUPPORTED
        or (request.replica_id == -1 and request.replica_epoch == -1)
    ):
        return False
    # fmt: off
    out += _ONE_PARTITION.pack(
        request.wait_ms_max, request.bytes_min, request.bytes_max, request.isolation_level,
        request.session_id, request.session_epoch, 2, topic_id, 2, part.index, part.current_leader_epoch, part.fetch_offset,
        part.last_fetched_epoch, part.log_start_offset, part.bytes_max, 2, 0, 16, part.replica_directory_id,
        1, 8, part.high_watermark, 0, 1, 1, 2, 0, 23, 23, encoded, 1, 13, request.replica_id, request.replica_epoch, 0,
    )
    # fmt: on
    return True


def _write_partition(out: bytearray, partition: FetchPartition, version: int) -> None:
    if version < 5:
        out += _PARTITION_V4.pack(partition.index, partition.fetch_offset, partition.bytes_max)
    elif version < 9:
        out += _PARTITION_V5.pack(partition.index, partition.fetch_offset, partition.log_start_offset, partition.bytes_max)
    elif version < 12:
        out += _PARTITION_V9.pack(
            partition.index,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.log_start_offset,
            partition.bytes_max,
        )
    else:
        out += _PARTITION_V12.pack(
            partition.index,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.bytes_max,
        )
        _write_partition_tags(out, partition, version)


def _write_partition_tags(out: bytearray, partition: FetchPartition, version: int) -> None:
    has_directory = version >= 17 and partition.replica_directory_id != ZERO_ID
    has_high_watermark = version >= 18 and partition.high_watermark != HIGH_WATERMARK_UNSUPPORTED
    out.append(has_directory + has_high_watermark)
    if has_directory:
        write_tag(out, 0, partition.replica_directory_id)
    if has_high_watermark:
        write_tag(out, 1, I64.pack(partition.high_watermark))


def _write_forgotten(out: bytearray, forgotten: list[ForgottenTopic], version: int, flexible: bool) -> None:
    write_count(out, len(forgotten), flexible)
    for topic in forgotten:
        write_topic(out, topic.name, topic.topic_id, version >= 13, flexible)
        write_count(out, len(topic.partitions), flexible)
        out += struct.pack(f">{len(topic.partitions)}i", *topic.partitions)
        if flexible:
            out.append(0)


def _write_request_tags(out: bytearray, request: FetchRequest, version: int) -> None:
    has_cluster = request.cluster_id is not None
    has_state = version >= 15 and (request.replica_id != -1 or request.replica_epoch != -1)
    out.append(has_cluster + has_state + request.disk_is_low)
    if has_cluster:
        content = bytearray()
        write_nullable_string(content, request.cluster_id, True)
        write_tag(out, 0, content)
    if has_state:
        write_tag(out, 1, _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\x00")
    if request.disk_is_low:
        write_tag(out, DISK_IS_LOW_TAG, b"")
