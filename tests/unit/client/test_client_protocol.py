"""Cold requests: every one encodes in a version that our nodes offer, and answers become our values."""

from __future__ import annotations

import pytest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i8

from clientkit_answers import NO_THROTTLE
from raftlake.client import protocol
from raftlake.client.reader import FETCH_VERSION, READ_OFFSET_VERSION
from raftlake.client.sender import PRODUCE_VERSION
from raftlake.client.types import IsolationLevel
from raftlake.errors import ErrorCode, RequestRejected, WireError, code_of
from raftlake.wire.api import API_TABLE, ApiKey, decode_request, encode_request
from raftlake.wire.quorum import DESCRIBE_QUORUM_VERSION, describe_quorum_request

REQUESTS = [
    (ApiKey.METADATA, protocol.METADATA_VERSION, protocol.metadata_request(["t"])),
    (ApiKey.METADATA, protocol.METADATA_VERSION, protocol.metadata_request(None)),
    (
        ApiKey.LIST_OFFSETS,
        protocol.LIST_OFFSETS_VERSION,
        protocol.list_offsets_request("t", {0: -1, 5: 123}, IsolationLevel.READ_COMMITTED),
    ),
    (ApiKey.INIT_PRODUCER_ID, protocol.INIT_PRODUCER_ID_VERSION, protocol.init_producer_id_request()),
    (ApiKey.CREATE_TOPICS, protocol.CREATE_TOPICS_VERSION, protocol.create_topic_request("t", 3, -1, {"a": "b"}, 1000)),
    (ApiKey.DELETE_TOPICS, protocol.DELETE_TOPICS_VERSION, protocol.delete_topic_request("t", None, 1000)),
    (ApiKey.DELETE_TOPICS, protocol.DELETE_TOPICS_VERSION, protocol.delete_topic_request("t", b"i" * 16, 1000)),
    (ApiKey.DESCRIBE_CONFIGS, protocol.DESCRIBE_CONFIGS_VERSION, protocol.node_configs_request(3)),
    (ApiKey.DESCRIBE_CLUSTER, protocol.DESCRIBE_CLUSTER_VERSION, protocol.describe_cluster_request()),
    (ApiKey.DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, describe_quorum_request("t", 1)),
]


@pytest.mark.parametrize(("api_key", "version", "request_"), REQUESTS, ids=lambda value: str(value)[:30])
def test_requests_survive_the_wire(api_key: ApiKey, version: int, request_: object) -> None:
    frame = b"".join(bytes(part) for part in encode_request(api_key, version, 7, "me", request_))
    header, decoded = decode_request(bytearray(frame[4:]))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (api_key, version, 7, "me")
    assert decoded == request_


def test_hot_versions_are_offered() -> None:
    for key, version in (
        (ApiKey.PRODUCE, PRODUCE_VERSION),
        (ApiKey.FETCH, FETCH_VERSION),
        (ApiKey.READ_OFFSET, READ_OFFSET_VERSION),
    ):
        assert API_TABLE[key].version_min <= version <= API_TABLE[key].version_max


def test_settings_of_a_node_or_why_not() -> None:
    def answer(code: KioError) -> DescribeConfigsResponse:
        result = DescribeConfigsResult(
            error_code=code, error_message="no such node", resource_type=i8(4), resource_name="9", configs=()
        )
        return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=(result,))

    assert protocol.configs_of(answer(KioError.none)) == {}
    with pytest.raises(RequestRejected, match="node 9: no such node"):
        protocol.configs_of(answer(KioError.invalid_request))


def test_an_answer_about_something_else_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        protocol.create_topic_result(CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=()))


def test_unknown_codes_are_still_errors() -> None:
    assert code_of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(RequestRejected):
        protocol.require_no_error(12345, None, "something")
