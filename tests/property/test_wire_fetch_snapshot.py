"""FetchSnapshot: both versions survive the way to bytes and back, as kio writes them, and damaged bytes raise nothing else."""

from __future__ import annotations

import datetime
import uuid
from importlib import import_module
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import kiomirror
import wiregen
from property.test_wire_roundtrip import CLIENT_ID, check_request, check_response, joined
from raftlake.errors import WireError
from raftlake.wire.api import ApiKey, decode_request, decode_response, encode_request
from raftlake.wire.common import NodeEndpoint
from raftlake.wire.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotPartition,
    SnapshotPartitionResult,
    SnapshotTopic,
    SnapshotTopicResult,
)
from raftlake.wire.ids import id_to_kio
from raftlake.wire.primitives import ZERO_ID

i32, i64, text = wiregen.i32, wiregen.i64, wiregen.text


def requests(version: int) -> st.SearchStrategy[FetchSnapshotRequest]:
    directories = st.one_of(st.just(ZERO_ID), wiregen.ids) if version else st.just(ZERO_ID)
    parts = st.builds(SnapshotPartition, i32, i32, i64, i32, i64, directories)
    topics = st.builds(SnapshotTopic, text, st.lists(parts, max_size=3))
    return st.builds(FetchSnapshotRequest, st.one_of(st.none(), text), i32, i32, st.lists(topics, max_size=3))


def responses(version: int) -> st.SearchStrategy[FetchSnapshotResponse]:
    endpoints = st.lists(st.builds(NodeEndpoint, i32, text, st.integers(0, 65535)), max_size=3)
    parts = st.builds(
        SnapshotPartitionResult, i32, wiregen.errors, i64, i32, st.one_of(st.none(), wiregen.leaders), i64, i64, wiregen.records
    )
    topics = st.builds(SnapshotTopicResult, text, st.lists(parts, max_size=3))
    return st.builds(
        FetchSnapshotResponse, wiregen.errors, st.lists(topics, max_size=3), i32, endpoints if version else st.just([])
    )


def kio_request(request: FetchSnapshotRequest, version: int) -> Any:
    kio = import_module(f"kio.schema.fetch_snapshot.v{version}.request")

    def part(each: SnapshotPartition) -> Any:
        more = {"replica_directory_id": id_to_kio(each.directory_id)} if version else {}
        return kio.PartitionSnapshot(
            partition=each.index,
            current_leader_epoch=each.current_leader_epoch,
            snapshot_id=kio.SnapshotId(end_offset=each.end_offset, epoch=each.epoch),
            position=each.position,
            **more,
        )

    return kio.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica_id,
        max_bytes=request.bytes_max,
        topics=tuple(
            kio.TopicSnapshot(name=topic.name, partitions=tuple(map(part, topic.partitions))) for topic in request.topics
        ),
    )


@pytest.mark.parametrize("version", [0, 1])
@hypothesis.settings(max_examples=20)
@hypothesis.given(data=st.data())
def test_fetch_snapshot(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    body = check_request(ApiKey.FETCH_SNAPSHOT, version, request)
    assert body == kiomirror.kio_bytes(kio_request(request, version))
    check_response(ApiKey.FETCH_SNAPSHOT, version, data.draw(responses(version)))


def test_a_response_is_kafkas() -> None:
    """As kio writes it, with everything in it."""
    kio = import_module("kio.schema.fetch_snapshot.v1.response")
    theirs = kio.FetchSnapshotResponse(
        throttle_time=datetime.timedelta(milliseconds=7),
        error_code=KioErrorCode(0),
        topics=(
            kio.TopicSnapshot(
                name="__cluster_metadata",
                partitions=(
                    kio.PartitionSnapshot(
                        index=0,
                        error_code=KioErrorCode(0),
                        snapshot_id=kio.SnapshotId(end_offset=50, epoch=3),
                        current_leader=kio.LeaderIdAndEpoch(leader_id=1, leader_epoch=4),
                        size=1000,
                        position=7,
                        unaligned_records=b"piece",
                    ),
                ),
            ),
        ),
        node_endpoints=(kio.NodeEndpoint(node_id=1, host="one", port=9092),),
    )
    result = SnapshotPartitionResult(0, wiregen.ErrorCode.NONE, 50, 3, (1, 4), 1000, 7, b"piece")  # type: ignore[arg-type]
    ours = FetchSnapshotResponse(
        wiregen.ErrorCode.NONE, [SnapshotTopicResult("__cluster_metadata", [result])], 7, [NodeEndpoint(1, "one", 9092)]
    )
    assert check_response(ApiKey.FETCH_SNAPSHOT, 1, ours) == kiomirror.kio_bytes(theirs)


def answer_with(data: bytes, tags: bytes) -> bytearray:
    """An answer about one partition; `data` and `tags` as they stand on the wire."""
    head = bytes.fromhex("00000007 00 00000000 0000 02 0274 02".replace(" ", ""))
    result = bytes.fromhex("00000000 0000 0000000000000032 00000003 00".replace(" ", ""))
    return bytearray(head + result + (1000).to_bytes(8, "big") + (7).to_bytes(8, "big") + data + tags + b"\0\0")


LEADER = bytes.fromhex("0000000100000004")


def test_the_leader_in_an_answer_fills_its_tag_exactly() -> None:
    _, answer = decode_response(ApiKey.FETCH_SNAPSHOT, 1, answer_with(b"\x06piece", b"\x01\x00\x09" + LEADER + b"\0"))
    (result,) = answer.topics[0].partitions
    assert (result.current_leader, result.data) == ((1, 4), b"piece")
    more = b"\x01\x00\x0c" + LEADER + b"\x01\x05\x01x"
    assert decode_response(ApiKey.FETCH_SNAPSHOT, 1, answer_with(b"\x06piece", more))[1] == answer, (
        "it may have tags of its own"
    )
    for tags in (b"\x01\x00\x0a" + LEADER + b"\0\0", b"\x01\x00\x03" + LEADER[:3], b"\x01\x00\x08" + LEADER):
        with pytest.raises(WireError):
            decode_response(ApiKey.FETCH_SNAPSHOT, 1, answer_with(b"\x06piece", tags))


def test_a_piece_may_be_empty_and_not_null() -> None:
    _, answer = decode_response(ApiKey.FETCH_SNAPSHOT, 1, answer_with(b"\x01", b"\0"))
    assert answer.topics[0].partitions[0].data == b""
    with pytest.raises(WireError, match="a piece of a snapshot is null"):
        decode_response(ApiKey.FETCH_SNAPSHOT, 1, answer_with(b"\0", b"\0"))


def test_the_directory_id_is_a_tag_of_version_1() -> None:
    part = SnapshotPartition(0, 4, 50, 3, 7, uuid.UUID(int=9).bytes)
    request = FetchSnapshotRequest("cluster", 2, 1024, [SnapshotTopic("t", [part])])
    _, old = decode_request(joined(encode_request(ApiKey.FETCH_SNAPSHOT, 0, 7, CLIENT_ID, request)))
    assert old.topics[0].partitions[0].directory_id == ZERO_ID
    assert old.cluster_id == "cluster"


@hypothesis.given(st.sampled_from([0, 1]), st.data())
def test_damaged_bytes_are_refused_or_read_as_something_else(version: int, data: st.DataObject) -> None:
    frame = joined(encode_request(ApiKey.FETCH_SNAPSHOT, version, 7, CLIENT_ID, data.draw(requests(version))))
    position = data.draw(st.integers(12, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    try:
        decode_request(frame[: data.draw(st.integers(position, len(frame)))])
    except WireError:
        return
