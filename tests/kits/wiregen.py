"""Hypothesis strategies for wire messages: kio's dataclasses of any version, our hot messages as their versions hold them."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import uuid
from types import NoneType
from typing import Any, get_args, get_origin

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.static.protocol import Entity

from raftlake.errors import ErrorCode
from raftlake.wire.api import API_TABLE, ApiKey
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.durations import moment
from raftlake.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
    SnapshotId,
)
from raftlake.wire.primitives import ZERO_ID
from raftlake.wire.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)

HOT = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.READ_OFFSET,
    ApiKey.FIND_QUORUM,
    ApiKey.WRITE_MARKERS,
)
COLD_VERSIONS = [
    (api.key, version)
    for api in API_TABLE.values()
    if api.key not in HOT
    for version in range(api.version_min, api.version_max + 1)
]

i8 = st.integers(-(1 << 7), (1 << 7) - 1)
i16 = st.integers(-(1 << 15), (1 << 15) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(max_size=12)
ids = st.binary(min_size=16, max_size=16).filter(lambda raw: raw != ZERO_ID)
records = st.one_of(st.just(b""), st.binary(max_size=40), st.binary(min_size=1, max_size=1).map(lambda byte: byte * 5000))
errors = st.sampled_from(ErrorCode)
endpoints = st.lists(st.builds(NodeEndpoint, i32, text, i32), max_size=3)
leaders = st.builds(LeaderAndEpoch, st.integers(0, 99), st.integers(0, 99))

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": i8,
    "int16": i16,
    "int32": i32,
    "int64": i64,
    "uint16": st.integers(0, (1 << 16) - 1),
    "bool": st.booleans(),
    "string": text,
    "bytes": st.binary(max_size=12),
    "error_code": st.sampled_from(KioErrorCode),
    "timedelta_i32": i32.map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(-1, 253_402_300_799_999).map(moment),
    "uuid": st.one_of(st.none(), ids.map(lambda raw: uuid.UUID(bytes=raw))),
}


@functools.cache
def kio_messages(entity: type[Entity]) -> st.SearchStrategy[Any]:
    """Any value of a kio dataclass."""
    return st.builds(entity, **{field.name: _field(field, field.type) for field in dataclasses.fields(entity)})


def _field(field: dataclasses.Field[Any], type_: Any) -> st.SearchStrategy[Any]:
    arguments = get_args(type_)
    if NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return st.one_of(st.none(), _field(field, inner))
    if get_origin(type_) is tuple:
        return st.lists(_field(field, arguments[0]), max_size=3).map(tuple)
    if dataclasses.is_dataclass(type_):
        return kio_messages(type_)  # type: ignore[arg-type]
    return _PRIMITIVES[field.metadata["kafka_type"]]


def _topics(kind: Any, by_id: bool, partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    name, topic_id = (st.none(), ids) if by_id else (text, st.none())
    return st.lists(st.builds(kind, name, topic_id, st.lists(partitions, max_size=3)), max_size=3)


def produce_requests(version: int) -> st.SearchStrategy[ProduceRequest]:
    partitions = st.builds(ProducePartition, i32, st.one_of(st.none(), records))
    topics = _topics(ProduceTopic, version >= 13, partitions)
    return st.builds(ProduceRequest, i16, i32, st.one_of(st.none(), text), topics)


def produce_responses(version: int) -> st.SearchStrategy[ProduceResponse]:
    """With defaults in the fields that the version does not have."""
    partitions = st.builds(
        ProducePartitionResult,
        i32,
        errors,
        i64,
        st.integers(-1, 1 << 41),
        i64 if version >= 5 else st.just(-1),
        st.one_of(st.none(), text) if version >= 8 else st.none(),
        st.one_of(st.none(), leaders) if version >= 10 else st.none(),
    )
    topics = _topics(ProduceTopicResult, version >= 13, partitions)
    return st.builds(ProduceResponse, topics, i32, endpoints if version >= 10 else st.just([]))


def fetch_requests(version: int) -> st.SearchStrategy[FetchRequest]:
    partitions = st.builds(
        FetchPartition,
        i32,
        i32 if version >= 9 else st.just(-1),
        i64,
        i32 if version >= 12 else st.just(-1),
        i64 if version >= 5 else st.just(-1),
        i32,
        st.one_of(st.just(ZERO_ID), ids) if version >= 17 else st.just(ZERO_ID),
        st.one_of(st.just(HIGH_WATERMARK_UNSUPPORTED), i64) if version >= 18 else st.just(HIGH_WATERMARK_UNSUPPORTED),
    )
    forgotten = _topics(ForgottenTopic, version >= 13, i32).map(
        lambda topics: [dataclasses.replace(topic, partitions=tuple(topic.partitions)) for topic in topics]
    )
    return st.builds(
        FetchRequest,
        wait_ms_max=i32,
        bytes_min=i32,
        bytes_max=i32,
        topics=_topics(FetchTopic, version >= 13, partitions),
        isolation_level=i8,
        session_id=i32 if version >= 7 else st.just(0),
        session_epoch=i32 if version >= 7 else st.just(-1),
        forgotten=forgotten if version >= 7 else st.just([]),
        rack_id=text if version >= 11 else st.just(""),
        cluster_id=st.one_of(st.none(), text) if version >= 12 else st.none(),
        replica_id=i32,
        replica_epoch=i64 if version >= 15 else st.just(-1),
    )


def fetch_responses(version: int) -> st.SearchStrategy[FetchResponse]:
    tags = version >= 12
    small = st.integers(0, 99)
    partitions = st.builds(
        FetchPartitionResult,
        i32,
        errors,
        i64,
        i64,
        i64 if version >= 5 else st.just(-1),
        st.one_of(st.none(), st.lists(st.builds(AbortedTransaction, i64, i64), max_size=3)),
        i32 if version >= 11 else st.just(-1),
        st.one_of(st.none(), records),
        st.one_of(st.none(), st.builds(EpochEndOffset, small, small)) if tags else st.none(),
        st.one_of(st.none(), leaders) if tags else st.none(),
        st.one_of(st.none(), st.builds(SnapshotId, small, small)) if tags else st.none(),
    )
    return st.builds(
        FetchResponse,
        _topics(FetchTopicResult, version >= 13, partitions),
        i32,
        errors if version >= 7 else st.just(ErrorCode.NONE),
        i32 if version >= 7 else st.just(0),
        endpoints if version >= 16 else st.just([]),
    )
