"""The APIs that raftlake speaks, and the way between frames and messages.

`API_TABLE` is the one list of keys, versions and handler names: ApiVersions, the dispatchers and the clients read it. Six
messages have their own codecs (Produce, Fetch, FetchSnapshot, ReadOffset, FindQuorum, WriteMarkers) and dataclasses for all
versions; every other one is the kio dataclass of its exact version, `kio.schema.<name>.v<N>`. Frames come and go without and
with their size prefix.

Invariant: whatever the bytes, decoding returns a message or raises `WireError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.static.primitive import i16
from kio.static.protocol import Entity

from raftlake.errors import InvariantViolation, WireError
from raftlake.wire import fetch, fetch_snapshot, find_quorum, produce, read_offset, schema, write_markers
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    DECODE_ERRORS,
    I32,
    BytesLike,
    require_end,
    skip_tags,
    write_nullable_string,
)

#: A message of any API: one of our dataclasses, or a kio dataclass.
Message: TypeAlias = Any

#: Frames of cold messages beyond this are refused: decoding them takes time per element, and they are never this large.
COLD_REQUEST_BYTES_MAX = 1 << 20
#: Of clients: 15,000 partitions, whose offsets take 0.15 s to be answered. The dearest is Metadata of 65,000 short names that
#: do not exist, with 0.25 s. Nodes vote for all their groups in one request.
COLD_CLIENT_REQUEST_BYTES_MAX = 1 << 18
#: As many topics of four letters take 0.25 s.
DELETE_TOPICS_BYTES_MAX = 1 << 17
#: Where an element is a few bytes long and its answer is not: 12,000 partitions of DescribeQuorum take 0.15 s.
SHORT_REQUEST_BYTES_MAX = 1 << 16
COLD_RESPONSE_BYTES_MAX = 16 << 20


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    INCREMENTAL_ALTER_CONFIGS = 44
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    WRITE_MARKERS = 10098
    FIND_QUORUM = 10595
    READ_OFFSET = 10650


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key, the versions spoken, the first flexible one, and the snake_case name of its handler."""

    key: ApiKey
    version_min: int
    version_max: int
    flexible_from: int
    handler: str
    #: Listed in ApiVersions. Private ones are for raftlake's own nodes and clients.
    public: bool = True

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


#: Versions: what kio 0.6.5 has, within what Kafka 4.3.1 speaks (unstable versions left out).
API_TABLE: Mapping[ApiKey, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            Api(ApiKey.PRODUCE, 3, 13, 9, "produce"),
            Api(ApiKey.FETCH, 4, 18, 12, "fetch"),
            Api(ApiKey.LIST_OFFSETS, 1, 11, 6, "list_offsets"),
            Api(ApiKey.METADATA, 0, 13, 9, "metadata"),
            Api(ApiKey.OFFSET_COMMIT, 5, 9, 8, "offset_commit"),
            # From version 8 on several groups at once; these are refused anyway.
            Api(ApiKey.OFFSET_FETCH, 1, 7, 6, "offset_fetch"),
            Api(ApiKey.FIND_COORDINATOR, 0, 6, 3, "find_coordinator"),
            Api(ApiKey.JOIN_GROUP, 0, 9, 6, "join_group"),
            Api(ApiKey.HEARTBEAT, 0, 4, 4, "heartbeat"),
            Api(ApiKey.LEAVE_GROUP, 0, 5, 4, "leave_group"),
            Api(ApiKey.SYNC_GROUP, 0, 5, 4, "sync_group"),
            Api(ApiKey.API_VERSIONS, 0, 4, 3, "api_versions"),
            Api(ApiKey.CREATE_TOPICS, 2, 7, 5, "create_topics"),
            Api(ApiKey.DELETE_TOPICS, 1, 6, 4, "delete_topics"),
            Api(ApiKey.DELETE_RECORDS, 0, 2, 2, "delete_records"),
            Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, "init_producer_id"),
            Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4, "offset_for_leader_epoch"),
            # From version 4 on for brokers. Later versions of TxnOffsetCommit add its groups to the transaction.
            Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, 3, "add_partitions_to_txn"),
            Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, "add_offsets_to_txn"),
            Api(ApiKey.END_TXN, 0, 5, 3, "end_txn"),
            Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1, "write_txn_markers"),
            Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, 3, "txn_offset_commit"),
            Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, "describe_configs"),
            Api(ApiKey.ALTER_CONFIGS, 0, 2, 2, "alter_configs"),
            Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, 2, "describe_log_dirs"),
            Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, "create_partitions"),
            Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, "incremental_alter_configs"),
            Api(ApiKey.VOTE, 0, 2, 0, "vote"),
            Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, "begin_quorum_epoch"),
            Api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1, "end_quorum_epoch"),
            Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, "describe_quorum"),
            Api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0, "fetch_snapshot"),
            Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, "describe_cluster"),
            Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, "describe_producers"),
            Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0, "describe_transactions"),
            # Version 2 asks for a regular expression: those of Python may take for ever.
            Api(ApiKey.LIST_TRANSACTIONS, 0, 1, 0, "list_transactions"),
            Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0, "add_raft_voter"),
            Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, "remove_raft_voter"),
            Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, "update_raft_voter"),
            Api(ApiKey.FIND_QUORUM, 0, 0, 0, "find_quorum", public=False),
            Api(ApiKey.READ_OFFSET, 0, 0, 0, "read_offset", public=False),
            Api(ApiKey.WRITE_MARKERS, 0, 0, 0, "write_markers", public=False),
        )
    }
)


#: What nodes ask one another, for many groups at a time.
_OF_NODES = frozenset({ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH})
_SHORT = frozenset(
    {ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.LEAVE_GROUP, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_QUORUM}
    | {ApiKey.FIND_QUORUM, ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.WRITE_TXN_MARKERS}
    | {ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS}
    | {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
)
#: Produce, Fetch and what nodes read from one another count their partitions as they are decoded.
_COUNTED = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.READ_OFFSET, ApiKey.WRITE_MARKERS})
_REQUEST_BYTES_MAX: Mapping[int, int] = {
    **dict.fromkeys(API_TABLE.keys() - _COUNTED, COLD_CLIENT_REQUEST_BYTES_MAX),
    **dict.fromkeys(_OF_NODES, COLD_REQUEST_BYTES_MAX),
    **dict.fromkeys(_SHORT, SHORT_REQUEST_BYTES_MAX),
    ApiKey.DELETE_TOPICS: DELETE_TOPICS_BYTES_MAX,
}


@dataclass(slots=True)
class RequestHeader:
    """The header of a request. Slotted, not frozen: one is made per request (see `common`)."""

    #: A plain int when the key is not one of ours (only within `UnsupportedRequest`).
    api_key: ApiKey | int
    api_version: int
    #: i32; the answer carries it back.
    correlation_id: int
    client_id: str | None


class UnsupportedRequest(WireError):
    """A request whose key or version is not spoken here. An ApiVersions request may be answered (`encode_unsupported_version`),
    any other one ends the connection, because its body cannot be skipped in a meaningful way."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"api key {int(header.api_key)} version {header.api_version} is not supported")
        self.header = header


class _HotCodec(NamedTuple):
    decode_request: Callable[[memoryview, int, int], tuple[Message, int]]
    encode_request: Callable[[Parts, Message, int], None]
    decode_response: Callable[[memoryview, int, int], tuple[Message, int]]
    encode_response: Callable[[Parts, Message, int], None]


_HOT: Mapping[int, _HotCodec] = {
    ApiKey.PRODUCE: _HotCodec(produce.decode_request, produce.encode_request, produce.decode_response, produce.encode_response),
    ApiKey.FETCH: _HotCodec(fetch.decode_request, fetch.encode_request, fetch.decode_response, fetch.encode_response),
    ApiKey.FETCH_SNAPSHOT: _HotCodec(
        fetch_snapshot.decode_request,
        fetch_snapshot.encode_request,
        fetch_snapshot.decode_response,
        fetch_snapshot.encode_response,
    ),
    ApiKey.READ_OFFSET: _HotCodec(
        read_offset.decode_request, read_offset.encode_request, read_offset.decode_response, read_offset.encode_response
    ),
    ApiKey.WRITE_MARKERS: _HotCodec(
        write_markers.decode_request,
        write_markers.encode_request,
        write_markers.decode_response,
        write_markers.encode_response,
    ),
    ApiKey.FIND_QUORUM: _HotCodec(
        find_quorum.decode_request, find_quorum.encode_request, find_quorum.decode_response, find_quorum.encode_response
    ),
}

#: Key, version, correlation id, and the length of the client id, which is a legacy string in every version of the header.
_REQUEST_HEAD = struct.Struct(">hhih")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")


def decode_request(frame: BytesLike) -> tuple[RequestHeader, Message]:
    """A request frame (without its size) -> its header and message. Record bytes are slices of the frame.

    Raises UnsupportedRequest for a key or version that is not in `API_TABLE`, WireError for anything that is not a request.
    """
    view = memoryview(frame)
    try:
        key, version, correlation_id, client_id_bytes = _REQUEST_HEAD.unpack_from(view, 0)
        position = _REQUEST_HEAD.size
        client_id: str | None = None
        if client_id_bytes != -1:
            position += client_id_bytes
            if not _REQUEST_HEAD.size <= position <= len(view):
                raise WireError(f"client id of {client_id_bytes} bytes in a frame of {len(view)} bytes")
            client_id = str(view[_REQUEST_HEAD.size : position], "utf-8")
        api = _APIS.get(key)
        if api is None or not api.version_min <= version <= api.version_max:
            raise UnsupportedRequest(RequestHeader(key if api is None else api.key, version, correlation_id, client_id))
        if version >= api.flexible_from:
            position = skip_tags(view, position)
        hot = _HOT.get(key)
        allowed = _REQUEST_BYTES_MAX.get(key)
        if allowed is not None and len(view) > allowed:
            raise WireError(f"{api.handler} request of {len(view)} bytes, allowed are {allowed}")
        if hot is not None:
            message, position = hot.decode_request(view, position, version)
        else:
            message, position = schema.decode(request_type(api.key, version), view, position)
        # librdkafka asks for the metadata of all topics with an array count of four bytes where a flexible version has one;
        # its first zero says "all topics", and Kafka reads the rest as false flags and ignores three bytes at the end.
        if api.key is not ApiKey.METADATA:
            require_end(view, position, api.handler)
    except DECODE_ERRORS as error:
        raise WireError(f"request: {error}") from error
    return RequestHeader(api.key, version, correlation_id, client_id), message


def peek_api_key(frame: BytesLike) -> int:
    """The API key of a request frame that has not been decoded; -1 for what is no request."""
    return -1 if len(frame) < _REQUEST_HEAD.size else int(_REQUEST_HEAD.unpack_from(frame, 0)[0])


def peek_client_id(beginning: BytesLike) -> str | None:
    """The client id of a request that has only begun to arrive; None also when the beginning does not hold it."""
    if len(beginning) < _REQUEST_HEAD.size:
        return None
    size = _REQUEST_HEAD.unpack_from(beginning, 0)[3]
    client_id = bytes(beginning[_REQUEST_HEAD.size : _REQUEST_HEAD.size + max(size, 0)])
    return client_id.decode("utf-8", "replace") if len(client_id) == size else None


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[BytesLike]:
    """A request as parts to send one after the other, the size prefix first. Large records are not copied."""
    _, is_flexible, hot = _require_spoken(api_key, version)
    parts = Parts()
    out = parts.tail
    out += _KEY_VERSION_CORRELATION.pack(api_key, version, correlation_id)
    write_nullable_string(out, client_id, False)
    if is_flexible:
        out.append(0)
    if hot is not None:
        hot.encode_request(parts, message, version)
    else:
        _require_cold(api_key, version, message)
        schema.encode(out, message)
    return parts.finish()


def encode_response(header: RequestHeader, message: Message) -> list[BytesLike]:
    """The answer to the request with `header`, as parts to send one after the other, the size prefix first. Large records
    are not copied."""
    version = header.api_version
    api, is_flexible, hot = _require_spoken(header.api_key, version)
    parts = Parts()
    parts.tail += I32.pack(header.correlation_id)
    # An ApiVersions answer never has tagged fields in its header: the client does not know yet what is spoken (KIP-511).
    if is_flexible and api.key is not ApiKey.API_VERSIONS:
        parts.tail.append(0)
    if hot is not None:
        hot.encode_response(parts, message, version)
    else:
        _require_cold(api.key, version, message)
        schema.encode(parts.tail, message)
    return parts.finish()


def decode_response(api_key: ApiKey, version: int, frame: BytesLike) -> tuple[int, Message]:
    """A response frame (without its size) to a request of `api_key` and `version` -> (correlation id, message).

    An ApiVersions answer with UNSUPPORTED_VERSION is of version 0 whatever was asked (KIP-511), and so is its message.
    """
    api, is_flexible, hot = _require_spoken(api_key, version)
    view = memoryview(frame)
    try:
        (correlation_id,) = I32.unpack_from(view, 0)
        position = 4
        if api_key is ApiKey.API_VERSIONS:
            if version > 0 and bytes(view[4:6]) == _UNSUPPORTED_VERSION:
                version = 0
        elif is_flexible:
            position = skip_tags(view, position)
        if hot is not None:
            message, position = hot.decode_response(view, position, version)
        else:
            if len(view) > COLD_RESPONSE_BYTES_MAX:
                raise WireError(f"{api.handler} response of {len(view)} bytes, allowed are {COLD_RESPONSE_BYTES_MAX}")
            message, position = schema.decode(response_type(api_key, version), view, position)
        require_end(view, position, api.handler)
    except DECODE_ERRORS as error:
        raise WireError(f"response: {error}") from error
    return correlation_id, message


_UNSUPPORTED_VERSION = struct.pack(">h", KioErrorCode.unsupported_version)


def encode_unsupported_version(header: RequestHeader, listed: Iterable[Api]) -> list[BytesLike]:
    """The answer to an ApiVersions request of a version that is not spoken: version 0, error 35 and the list (KIP-511)."""
    answer = ApiVersionsResponse(
        error_code=KioErrorCode.unsupported_version,
        api_keys=tuple(
            ApiVersion(api_key=i16(api.key), min_version=i16(api.version_min), max_version=i16(api.version_max))
            for api in listed
        ),
    )
    return encode_response(RequestHeader(ApiKey.API_VERSIONS, 0, header.correlation_id, None), answer)


@cache
def request_type(api_key: ApiKey, version: int) -> type[Entity]:
    """The kio class of a cold request."""
    return load_request_schema(api_key, version)


@cache
def response_type(api_key: ApiKey, version: int) -> type[Entity]:
    """The kio class of a cold response."""
    return load_response_schema(api_key, version)


def cold_versions() -> Iterator[tuple[ApiKey, int]]:
    """The versions of APIs whose messages are kio's: modules that are imported when the version is first spoken."""
    for (_, version), spoken in _SPOKEN.items():
        if spoken.hot is None:
            yield spoken.api.key, version


_APIS: dict[int, Api] = {int(key): api for key, api in API_TABLE.items()}


class _Spoken(NamedTuple):
    """One version of one API."""

    api: Api
    is_flexible: bool
    hot: _HotCodec | None


_SPOKEN: Mapping[tuple[int, int], _Spoken] = {
    (int(api.key), version): _Spoken(api, api.is_flexible(version), _HOT.get(api.key))
    for api in API_TABLE.values()
    for version in range(api.version_min, api.version_max + 1)
}


def _require_spoken(api_key: ApiKey | int, version: int) -> _Spoken:
    spoken = _SPOKEN.get((api_key, version))
    if spoken is None:
        raise InvariantViolation(f"api key {int(api_key)} version {version} is not spoken here")
    return spoken


def _require_cold(api_key: ApiKey, version: int, message: Message) -> None:
    """The class of a kio message is its version: another one would put other bytes on the wire than the header says."""
    if getattr(message, "__api_key__", None) != api_key or message.__version__ != version:
        raise InvariantViolation(f"{type(message).__module__} is not the message of {api_key.name} version {version}")
