"""Requests that are small to send and long to serve: no node's loop is held for long, whatever they hold."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from crc32c import crc32c
from forgekit import Forger, forgers
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64
from pulsekit import require_a_free_loop
from siegekit import Siege

from raftlake import Client
from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.compression import Compression
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

pytestmark = pytest.mark.process

MIB = 1 << 20
PARTITIONS = 12
#: Just below message.max.bytes.
LARGE = 8 * MIB - 1000


def packed(codec: Compression, payload: bytes) -> bytes:
    """A batch of one record whose payload is this, whatever it holds."""
    data = bytearray(build_batch([Record(value=b"x")], timestamp_ms=1))
    data[21:23] = int(codec).to_bytes(2, "big")
    del data[61:]
    data += payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def _empty_snappy_blocks() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(b""))
    unit = struct.pack(">i", len(block)) + block
    return packed(Compression.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + unit * (LARGE // len(unit)))


def _empty_zstd_frames() -> bytes:
    frame = bytes(cramjam.zstd.compress(b"", level=3))
    return packed(Compression.ZSTD, frame * (LARGE // len(frame)))


def _empty_gzip_blocks() -> bytes:
    """Each with tables of its own: 90 bits that are read slowly and hold nothing."""
    block, length = 0, 0

    def put(value: int, count: int) -> None:
        nonlocal block, length
        block |= value << length
        length += count

    # A block with tables (RFC 1951, 3.2.7) of 257 and 1 codes, whose lengths are coded by 18 codes.
    for value, count in ((0, 1), (2, 2), (0, 5), (0, 5), (14, 4)):
        put(value, count)
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        put(int(symbol in (18, 1)), 3)
    # 256 codes without a length, one for the end of the block, one for a distance; then the end.
    for value, count in ((1, 1), (138 - 11, 7), (1, 1), (118 - 11, 7), (0, 3)):
        put(value, count)
    unit = sum(block << length * number for number in range(8)).to_bytes(length, "little")
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return packed(Compression.GZIP, head + unit * (LARGE // len(unit)) + b"\x03\x00" + bytes(8))


def _tiny_batches() -> bytes:
    tiny = bytes(build_batch([Record(value=b"")], timestamp_ms=1))
    return tiny * (LARGE // len(tiny))


@pytest.fixture(scope="module")
def topic(siege: Siege) -> str:
    """One for all attacks: the files of each partition count among what a node holds."""
    with Client(siege.quorum.bootstrap_servers) as client:
        client.create_topic("work", partitions=PARTITIONS)
    return "work"


def _produced(siege: Siege, topic: str, records: bytes) -> Callable[[], None]:
    parts = [ProducePartition(index, bytearray(records)) for index in range(PARTITIONS)]
    request = ProduceRequest(-1, 5_000, None, [ProduceTopic(topic, None, parts)])

    def attack() -> None:
        with forgers(siege, 77) as found:
            for forger in found:
                answer = _patient(forger).ask(ApiKey.PRODUCE, 12, request)
                errors = {part.error for each in answer.topics for part in each.partitions}
                assert ErrorCode.NONE not in errors

    return attack


@pytest.mark.parametrize(
    "records",
    [_empty_snappy_blocks, _empty_zstd_frames, _empty_gzip_blocks, _tiny_batches],
    ids=["snappy blocks", "zstd frames", "gzip blocks", "batches"],
)
def test_a_request_of_a_hundred_megabytes_that_hold_nothing(siege: Siege, topic: str, records: Callable[[], bytes]) -> None:
    attack = _produced(siege, topic, records())
    with siege.attack("a request of many small things"):
        require_a_free_loop(siege, attack)


def test_many_questions_for_a_time_in_batches_that_hold_much(siege: Siege, topic: str) -> None:
    with Client(siege.quorum.bootstrap_servers, compression="zstd") as client:
        client.append(topic, bytes(7 * MIB), partition=0)
    asked = tuple(
        ListOffsetsPartition(partition_index=i32(0), current_leader_epoch=i32(-1), timestamp=i64(number))
        for number in range(500)
    )
    named = ListOffsetsTopic(name=TopicName(topic), partitions=asked)
    request = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=(named,))

    told: list[list[int]] = []

    def attack() -> None:
        with forgers(siege, 77) as found:
            answers = [_patient(forger).ask(ApiKey.LIST_OFFSETS, 7, request) for forger in found]
        told.extend([int(part.error_code) for part in answer.topics[0].partitions] for answer in answers)

    with siege.attack("five hundred questions for a time"):
        require_a_free_loop(siege, attack)
        by_leader = next(errors for errors in told if ErrorCode.NONE in errors)
        # A busy machine does not get through all of them in the time that questions wait.
        assert set(by_leader) <= {ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE} and len(by_leader) == len(asked)


def test_a_fetch_that_names_one_partition_many_times_is_refused(siege: Siege) -> None:
    topic = siege.honest.topic
    asked = [FetchPartition(0, -1, 0, -1, -1, 1)] * 10_000
    request = FetchRequest(wait_ms_max=3_000, bytes_min=2**31 - 1, bytes_max=100, topics=[FetchTopic(topic, None, asked)])

    def attack() -> None:
        with forgers(siege, 77) as found:
            for forger in found:
                assert _patient(forger).ask(ApiKey.FETCH, 12, request).error is ErrorCode.INVALID_REQUEST

    with siege.attack("a Fetch of one partition ten thousand times"):
        require_a_free_loop(siege, attack)


def _patient(forger: Forger) -> Any:
    forger.patience(60)
    return forger
