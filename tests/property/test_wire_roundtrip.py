"""Every message in every version: decoding gives back what was encoded, and the bytes are those of kio's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import kiomirror
import wiregen
from raftlake.wire.api import (
    API_TABLE,
    ApiKey,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_type,
    response_type,
)
from raftlake.wire.control import EndMarker
from raftlake.wire.find_quorum import (
    FindQuorumPartitionResult,
    FindQuorumRequest,
    FindQuorumResponse,
    FindQuorumTopicResult,
)
from raftlake.wire.primitives import BytesLike
from raftlake.wire.read_offset import (
    ReadOffsetPartitionResult,
    ReadOffsetRequest,
    ReadOffsetResponse,
    ReadOffsetTopicResult,
)
from raftlake.wire.topic_lists import TopicPartitions
from raftlake.wire.write_markers import WriteMarkersRequest, WriteMarkersResponse, WrittenMarker

CLIENT_ID = "c"


def joined(parts: Sequence[BytesLike]) -> bytearray:
    """A frame without its size prefix, which must be right."""
    frame = bytearray(b"".join(parts))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def body_of_request(key: ApiKey, version: int, frame: bytearray) -> bytes:
    header_bytes = 8 + 2 + len(CLIENT_ID) + API_TABLE[key].is_flexible(version)
    return bytes(frame[header_bytes:])


def body_of_response(key: ApiKey, version: int, frame: bytearray) -> bytes:
    return bytes(frame[4 + (API_TABLE[key].is_flexible(version) and key is not ApiKey.API_VERSIONS) :])


def check_request(key: ApiKey, version: int, message: Any) -> bytes:
    frame = joined(encode_request(key, version, 7, CLIENT_ID, message))
    header, decoded = decode_request(frame)
    assert header == RequestHeader(key, version, 7, CLIENT_ID)
    assert decoded == message
    return body_of_request(key, version, frame)


def check_response(key: ApiKey, version: int, message: Any) -> bytes:
    frame = joined(encode_response(RequestHeader(key, version, 7, None), message))
    assert decode_response(key, version, frame) == (7, message)
    return body_of_response(key, version, frame)


@pytest.mark.parametrize(("key", "version"), wiregen.COLD_VERSIONS)
@hypothesis.settings(max_examples=5)
@hypothesis.given(data=st.data())
def test_cold_messages(key: ApiKey, version: int, data: st.DataObject) -> None:
    request = data.draw(wiregen.kio_messages(request_type(key, version)))
    assert check_request(key, version, request) == kiomirror.kio_bytes(request)
    response = data.draw(wiregen.kio_messages(response_type(key, version)))
    if key is ApiKey.API_VERSIONS and version > 0 and response.error_code == 35:
        # Not a message that this version can carry: error 35 announces version 0 (KIP-511).
        return
    assert check_response(key, version, response) == kiomirror.kio_bytes(response)


@pytest.mark.parametrize("version", range(3, 14))
@hypothesis.settings(max_examples=10)
@hypothesis.given(data=st.data())
def test_produce(version: int, data: st.DataObject) -> None:
    request = data.draw(wiregen.produce_requests(version))
    assert check_request(ApiKey.PRODUCE, version, request) == kiomirror.kio_bytes(kiomirror.produce_request(request, version))
    response = data.draw(wiregen.produce_responses(version))
    expected = kiomirror.kio_bytes(kiomirror.produce_response(response, version))
    assert check_response(ApiKey.PRODUCE, version, response) == expected


@pytest.mark.parametrize("version", range(4, 19))
@hypothesis.settings(max_examples=10)
@hypothesis.given(data=st.data())
def test_fetch(version: int, data: st.DataObject) -> None:
    request = data.draw(wiregen.fetch_requests(version))
    assert check_request(ApiKey.FETCH, version, request) == kiomirror.kio_bytes(kiomirror.fetch_request(request, version))
    response = data.draw(wiregen.fetch_responses(version))
    expected = kiomirror.kio_bytes(kiomirror.fetch_response(response, version))
    assert check_response(ApiKey.FETCH, version, response) == expected


indexes = st.lists(wiregen.i32, max_size=3)
cluster_ids = st.one_of(st.none(), wiregen.text)


@hypothesis.given(
    st.builds(
        ReadOffsetRequest, cluster_ids, wiregen.i64, st.lists(st.builds(TopicPartitions, wiregen.text, indexes), max_size=3)
    ),
    st.builds(
        ReadOffsetResponse,
        cluster_ids,
        wiregen.errors,
        st.lists(
            st.builds(
                ReadOffsetTopicResult,
                wiregen.text,
                st.lists(
                    st.builds(ReadOffsetPartitionResult, wiregen.i32, wiregen.errors, wiregen.i64, wiregen.i32, wiregen.i32),
                    max_size=3,
                ),
            ),
            max_size=3,
        ),
    ),
)
def test_read_offset(question: ReadOffsetRequest, answer: ReadOffsetResponse) -> None:
    check_request(ApiKey.READ_OFFSET, 0, question)
    check_response(ApiKey.READ_OFFSET, 0, answer)


@hypothesis.given(
    st.builds(FindQuorumRequest, cluster_ids, st.lists(st.builds(TopicPartitions, wiregen.text, indexes), max_size=3)),
    st.builds(
        FindQuorumResponse,
        wiregen.errors,
        st.lists(
            st.builds(
                FindQuorumTopicResult,
                wiregen.text,
                st.lists(
                    st.builds(
                        FindQuorumPartitionResult, wiregen.i32, wiregen.errors, wiregen.i32, wiregen.i32, wiregen.endpoints
                    ),
                    max_size=3,
                ),
            ),
            max_size=3,
        ),
    ),
)
def test_find_quorum(question: FindQuorumRequest, answer: FindQuorumResponse) -> None:
    check_request(ApiKey.FIND_QUORUM, 0, question)
    check_response(ApiKey.FIND_QUORUM, 0, answer)


@hypothesis.given(
    st.builds(
        WriteMarkersRequest,
        cluster_ids,
        st.lists(
            st.builds(
                WrittenMarker,
                wiregen.text,
                wiregen.i32,
                st.builds(
                    EndMarker,
                    producer_id=wiregen.i64,
                    epoch=wiregen.i16,
                    commit=st.booleans(),
                    coordinator_epoch=wiregen.i32,
                ),
                wiregen.i64,
            ),
            max_size=3,
        ),
    ),
    st.builds(WriteMarkersResponse, wiregen.errors, st.lists(wiregen.errors, max_size=3)),
)
def test_write_markers(question: WriteMarkersRequest, answer: WriteMarkersResponse) -> None:
    check_request(ApiKey.WRITE_MARKERS, 0, question)
    check_response(ApiKey.WRITE_MARKERS, 0, answer)
