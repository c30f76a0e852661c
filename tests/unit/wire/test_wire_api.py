"""The API table, headers, and the rules around ApiVersions (KIP-511)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponse0
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.metadata.v1.request import MetadataRequest as MetadataRequest1
from kio.schema.metadata.v12.request import MetadataRequest

import wiregen
from raftlake.errors import InvariantViolation, WireError
from raftlake.wire.api import (
    API_TABLE,
    COLD_CLIENT_REQUEST_BYTES_MAX,
    COLD_REQUEST_BYTES_MAX,
    DELETE_TOPICS_BYTES_MAX,
    SHORT_REQUEST_BYTES_MAX,
    ApiKey,
    RequestHeader,
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_unsupported_version,
    request_type,
    response_type,
)
from raftlake.wire.durations import milliseconds
from raftlake.wire.primitives import BytesLike


def frame_of(parts: list[BytesLike]) -> bytearray:
    return bytearray(b"".join(parts))[4:]


METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


@pytest.mark.parametrize(("key", "version"), wiregen.COLD_VERSIONS)
def test_the_table_agrees_with_kafkas_schemas(key: ApiKey, version: int) -> None:
    for entity in (request_type(key, version), response_type(key, version)):
        assert entity.__flexible__ == API_TABLE[key].is_flexible(version)
        assert (entity.__api_key__, entity.__version__) == (key, version)  # type: ignore[attr-defined]


def test_the_table_is_whole() -> None:
    assert set(API_TABLE) == set(ApiKey)
    assert len({api.handler for api in API_TABLE.values()}) == len(API_TABLE)
    private = {api.key for api in API_TABLE.values() if not api.public}
    assert private == {ApiKey.READ_OFFSET, ApiKey.FIND_QUORUM, ApiKey.WRITE_MARKERS}
    for api in API_TABLE.values():
        assert 0 <= api.version_min <= api.version_max
        assert api.handler == api.key.name.lower()


def test_a_header_is_read_in_both_forms() -> None:
    legacy = frame_of(encode_request(ApiKey.METADATA, 1, -5, None, MetadataRequest1(topics=None)))
    assert legacy == bytes.fromhex("0003 0001 fffffffb ffff ffffffff")
    assert decode_request(legacy)[0] == RequestHeader(ApiKey.METADATA, 1, -5, None)
    flexible = frame_of(encode_request(ApiKey.METADATA, 12, 9, "é", METADATA))
    assert flexible[:13] == bytes.fromhex("0003 000c 00000009 0002 c3a9 00")
    assert decode_request(flexible) == (RequestHeader(ApiKey.METADATA, 12, 9, "é"), METADATA)


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer client may add fields: in the header and in the message."""
    body = b"\x02g\x00"
    for header_tags, body_tags in ((b"\x00", b"\x00"), (b"\x01\x63\x02ab", b"\x02\x05\x01x\x09\x00")):
        frame = bytes.fromhex("000a 0003 00000001 ffff") + header_tags + body + body_tags
        assert decode_request(frame)[1] == FindCoordinatorRequest(key="g", key_type=0)


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x05\x00", b"\x02\x05\x00\x04\x00", b"\x01\x05\x02x", b"\xff\xff\x03", b"\x01"])
def test_broken_tagged_fields_are_refused(tags: bytes) -> None:
    with pytest.raises(WireError):
        decode_request(bytes.fromhex("000a 0003 00000001 ffff 00") + b"\x02g\x00" + tags)


@pytest.mark.parametrize(
    "frame", [b"", b"\x00\x12", bytes.fromhex("0003 0001 00000001 0005"), bytes.fromhex("000300010000000100ff")]
)
def test_a_short_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode_request(frame)


def test_bytes_that_are_left_over_are_refused() -> None:
    frame = frame_of(encode_request(ApiKey.FIND_COORDINATOR, 3, 9, "c", FindCoordinatorRequest(key="g", key_type=0)))
    with pytest.raises(WireError, match="left over"):
        decode_request(frame + b"\0")
    response = frame_of(encode_response(RequestHeader(ApiKey.API_VERSIONS, 0, 1, None), api_versions(0)))
    with pytest.raises(WireError, match="left over"):
        decode_response(ApiKey.API_VERSIONS, 0, response + b"\0")


def test_librdkafka_asks_for_all_topics_with_three_bytes_too_many() -> None:
    """An array count of four bytes where one is right: all topics, three false flags, and three bytes that are ignored."""
    header, request = decode_request(bytes.fromhex("0003 000c 00000001 ffff 00") + bytes(4) + b"\0\0\0")
    assert header.correlation_id == 1
    assert request == METADATA


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.API_VERSIONS, 5), (ApiKey.FETCH, 3), (ApiKey.FETCH, 19), (ApiKey.VOTE, -1), (17, 0), (-1, 0)]
)
def test_what_is_not_spoken_is_named(key: int, version: int) -> None:
    frame = (
        key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x2a" + b"\0\2me" + b"\xff" * 9
    )
    with pytest.raises(UnsupportedRequest) as caught:
        decode_request(frame)
    assert caught.value.header == RequestHeader(key, version, 42, "me")
    assert f"api key {key} version {version}" in str(caught.value)
    assert isinstance(caught.value, WireError)


def api_versions(version: int) -> Any:
    fields: dict[str, Any] = {"error_code": KioErrorCode.none, "api_keys": ()}
    return response_type(ApiKey.API_VERSIONS, version)(**fields, **({"throttle_time": milliseconds(0)} if version else {}))


def test_an_api_versions_answer_never_has_a_flexible_header() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    header, _ = decode_request(frame_of(encode_request(ApiKey.API_VERSIONS, 4, 3, None, request)))
    frame = frame_of(encode_response(header, api_versions(4)))
    assert frame == bytes.fromhex("00000003 0000 01 00000000 00")
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 4, frame)
    assert (correlation_id, type(answer)) == (3, ApiVersionsResponse)


def test_an_unsupported_api_versions_request_gets_version_0_and_the_list() -> None:
    frame = frame_of(encode_unsupported_version(RequestHeader(ApiKey.API_VERSIONS, 77, 3, None), list(API_TABLE.values())[3:]))
    for asked in (0, 3, 4):
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, asked, frame)
        assert (correlation_id, type(answer), answer.error_code) == (3, ApiVersionsResponse0, KioErrorCode.unsupported_version)
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert listed[8] == (5, 9)
    assert list(listed) == [api.key for api in API_TABLE.values()][3:]


def test_an_unknown_error_code_is_not_the_end() -> None:
    """A newer peer may know more errors: they read as UNKNOWN_SERVER_ERROR, as in Kafka's own client."""
    _, answer = decode_response(ApiKey.API_VERSIONS, 0, bytes.fromhex("00000001 7777 00000000"))
    assert answer.error_code is KioErrorCode.unknown_server_error


def test_a_message_of_another_version_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation, match=r"metadata\.v12"):
        encode_request(ApiKey.METADATA, 13, 1, None, METADATA)
    with pytest.raises(InvariantViolation, match="not the message"):
        encode_response(RequestHeader(ApiKey.VOTE, 2, 1, None), METADATA)
    with pytest.raises(InvariantViolation, match="not spoken"):
        encode_request(ApiKey.METADATA, 14, 1, None, METADATA)


@pytest.mark.parametrize(
    ("head", "most"),
    [
        ("0013 0005 00000001 ffff 00", COLD_CLIENT_REQUEST_BYTES_MAX),
        ("0034 0002 00000001 ffff 00", COLD_REQUEST_BYTES_MAX),
        ("0014 0004 00000001 ffff 00", DELETE_TOPICS_BYTES_MAX),
        # DescribeQuorum has been asked by nodes for clients: a client's could be as large as a vote for all groups.
        ("0037 0001 00000001 ffff 00", SHORT_REQUEST_BYTES_MAX),
        ("000a 0004 00000001 ffff 00", SHORT_REQUEST_BYTES_MAX),
        # FindQuorum is decoded by hand, and had no bound.
        ("2963 0000 00000001 ffff 00", SHORT_REQUEST_BYTES_MAX),
    ],
    ids=["of a client", "of a node", "of names", "DescribeQuorum", "FindCoordinator", "FindQuorum"],
)
def test_a_cold_request_may_not_be_huge(head: str, most: int) -> None:
    """Elements cost far more time than bytes: a legal message of this size does not exist."""
    frame = bytes.fromhex(head) + b"\x81\x80\x40" + b"\x02t" * most
    with pytest.raises(WireError, match=f"allowed are {most}$"):
        decode_request(frame)
    with pytest.raises(WireError) as refused:
        decode_request(frame[:most])
    assert "allowed are" not in str(refused.value)


def test_a_node_loads_neither_arrow_nor_numba() -> None:
    """Importing them costs a second and tens of megabytes; only those who move rows need them."""
    code = (
        "import raftlake.wire.api, raftlake.wire.batches, sys; sys.exit(bool({'pyarrow', 'numba', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
