"""Produce and Fetch: the short ways leave every other shape of a message to the general way, and nothing follows a message."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kiomirror
from raftlake.errors import ErrorCode, WireError
from raftlake.wire import fetch, fetch_response, parts, produce
from raftlake.wire.api import ApiKey, decode_request, decode_response, encode_request, encode_response, peek_client_id
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
)
from raftlake.wire.fetch_response import SnapshotId
from raftlake.wire.fetch_snapshot import FetchSnapshotRequest
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.primitives import ZERO_ID
from raftlake.wire.produce import ProducePartitionResult, ProduceResponse, ProduceTopicResult
from raftlake.wire.read_offset import ReadOffsetRequest
from unit.wire.test_wire_hot_messages import TOPIC_ID, frame_of, header, produce_one, replica_answer, replica_fetch

ENDPOINTS = [NodeEndpoint(2, "host", 9092)]


def asking(**changes: object) -> FetchRequest:
    """A replica's request about one partition in which something is different."""
    (partition,) = replica_fetch().topics[0].partitions
    return replica_fetch(topics=[FetchTopic(None, TOPIC_ID, [replace(partition, **changes)])])


@pytest.mark.parametrize(
    ("request_", "is_short"),
    [
        (replica_fetch(), True),
        (replica_fetch(cluster_id="é" * 11), True),
        (replica_fetch(cluster_id="é" * 22), False),
        (asking(replica_directory_id=ZERO_ID), False),
        (asking(high_watermark=HIGH_WATERMARK_UNSUPPORTED), False),
        (asking(replica_directory_id=ZERO_ID, high_watermark=HIGH_WATERMARK_UNSUPPORTED), False),
    ],
    ids=["usual", "22 bytes", "22 letters of two bytes", "no directory", "no high watermark", "neither"],
)
def test_a_fetch_request_is_what_kafka_would_send(request_: FetchRequest, is_short: bool) -> None:
    """What has its default is not sent."""
    frame = frame_of(encode_request(ApiKey.FETCH, 18, 1, None, request_))
    _, decoded = decode_request(frame)
    assert decoded == request_
    assert frame.endswith(kiomirror.kio_bytes(kiomirror.fetch_request(request_, 18)))
    assert fetch._write_one_partition(bytearray(), request_) == is_short


(RESULT,) = replica_answer(b"r" * 100).topics[0].partitions


@pytest.mark.parametrize(
    "result",
    [
        replace(RESULT, diverging_epoch=EpochEndOffset(4, 99)),
        replace(RESULT, snapshot_id=SnapshotId(10, 2)),
        replace(RESULT, aborted_transactions=[]),
        replace(RESULT, aborted_transactions=[AbortedTransaction(7, 8)]),
        replace(RESULT, current_leader=None),
        replace(RESULT, records=None),
    ],
    ids=["diverging", "snapshot", "no aborted ones", "aborted", "no leader", "no records"],
)
@pytest.mark.parametrize("endpoints", [[], ENDPOINTS], ids=["", "with endpoints"])
def test_a_fetch_answer_says_all_that_it_has_to_say(result: FetchPartitionResult, endpoints: list[NodeEndpoint]) -> None:
    answer = replica_answer(b"")
    answer = replace(answer, topics=[replace(answer.topics[0], partitions=[result])], node_endpoints=endpoints)
    frame = frame_of(encode_response(header(ApiKey.FETCH, 18), answer))
    assert decode_response(ApiKey.FETCH, 18, frame) == (1, answer)
    view = memoryview(frame)
    assert fetch_response._decode_any(view, 5, 18) == (answer, len(frame))
    is_short = result.records is None and not endpoints
    assert fetch_response._write_one_partition(parts.Parts(), answer) == is_short


@pytest.mark.parametrize("version", [10, 12])
def test_a_produce_answer_that_says_where_leaders_are_takes_the_general_way(version: int) -> None:
    result = ProducePartitionResult(3, ErrorCode.NONE, 7)
    for leader in (None, LeaderAndEpoch(2, 5)):
        topic = ProduceTopicResult("t", None, [replace(result, current_leader=leader)])
        answer = ProduceResponse([topic], node_endpoints=ENDPOINTS)
        frame = frame_of(encode_response(header(ApiKey.PRODUCE, version), answer))
        assert decode_response(ApiKey.PRODUCE, version, frame) == (1, answer)


REQUESTS = [
    (ApiKey.PRODUCE, 9, produce_one()),
    (ApiKey.PRODUCE, 12, produce_one()),
    (ApiKey.PRODUCE, 3, produce_one()),
    (ApiKey.FETCH, 18, replica_fetch()),
    (ApiKey.FETCH, 17, replica_fetch(rack_id="r")),
    (ApiKey.FETCH_SNAPSHOT, 1, FetchSnapshotRequest("c", 2, 1024, [])),
    (ApiKey.READ_OFFSET, 0, ReadOffsetRequest("c", -1, [])),
    (ApiKey.FIND_QUORUM, 0, FindQuorumRequest("c", [])),
]


@pytest.mark.parametrize(("key", "version", "request_"), REQUESTS, ids=lambda value: str(getattr(value, "name", "")))
@pytest.mark.parametrize("more", [b"\0", b"\0\0\0", b"more"], ids=len)
def test_nothing_follows_a_request(key: ApiKey, version: int, request_: object, more: bytes) -> None:
    frame = frame_of(encode_request(key, version, 1, "c", request_))
    decode_request(frame)
    with pytest.raises(WireError):
        decode_request(frame + more)


def test_the_short_way_of_a_produce_request_ends_with_its_frame() -> None:
    pieces = parts.Parts()
    produce.encode_request(pieces, produce_one(), 9)
    frame = frame_of(pieces.finish())
    assert produce._read_one_partition(memoryview(frame), 0) is not None
    for other in (frame + b"\0", frame + b"\0\0\0", frame[:-1]):
        assert produce._read_one_partition(memoryview(other), 0) is None


def test_a_client_id_is_told_once_it_has_come_whole() -> None:
    """Half a name may be the whole name of another."""
    frame = frame_of(encode_request(ApiKey.PRODUCE, 9, 1, "raftlake-peer", produce_one()))
    end = 10 + len("raftlake-peer")
    assert [peek_client_id(frame[:size]) for size in (end, end + 1, len(frame))] == ["raftlake-peer"] * 3
    assert {peek_client_id(frame[:size]) for size in range(end)} == {None}
    nameless = frame_of(encode_request(ApiKey.PRODUCE, 9, 1, None, produce_one()))
    assert peek_client_id(nameless) is None
