"""A scripted quorum for client tests: asyncio servers on loopback that speak the wire, in the test's own event loop.

Just enough of a node to check a client against: one leader per partition, a log of batches, the duplicate check of
idempotent producers (the last five batches of each), and per-node scripts that answer, drop or stall single requests.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from zlib import crc32

import uvloop
from kio.schema.errors import ErrorCode as KioError
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

import clientkit_answers as answers
from clientkit_answers import NO_THROTTLE
from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, encode_response
from raftlake.wire.batches import Record, decode_records, iterate_headers, stamp, validate
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.fetch import AbortedTransaction, FetchPartitionResult, FetchRequest, FetchResponse, FetchTopicResult
from raftlake.wire.framing import FrameDecoder
from raftlake.wire.produce import ProducePartitionResult, ProduceRequest, ProduceResponse, ProduceTopicResult
from raftlake.wire.read_offset import (
    ReadOffsetPartitionResult,
    ReadOffsetRequest,
    ReadOffsetResponse,
    ReadOffsetTopicResult,
)


def drawn_loop() -> asyncio.AbstractEventLoop:
    """uvloop's or asyncio's, by the test's name and the run's seed: `Client` runs on the former, `AsyncClient` on either."""
    drawn = crc32(os.environ.get("PYTEST_CURRENT_TEST", "").encode()) ^ random.getrandbits(1)
    return uvloop.new_event_loop() if drawn & 1 else asyncio.new_event_loop()


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; a client that hangs fails the test instead of stopping the run."""
    with asyncio.Runner(loop_factory=drawn_loop) as runner:
        runner.run(asyncio.wait_for(test, 30))


@dataclass
class FakePartition:
    leader_id: int = 1
    epoch: int = 1
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    #: Where the first open transaction begins; None: there is none.
    stable_offset: int | None = None
    aborted: list[AbortedTransaction] = field(default_factory=list)
    #: One batch in each answer.
    answers_one: bool = False
    #: producer id -> the last five (base sequence, record count, base offset)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def append(self, batch: bytearray) -> tuple[ErrorCode, int]:
        (header,) = validate(batch)
        recent = self.producers.get(header.producer_id, [])
        for sequence, count, offset in recent:
            if (sequence, count) == (header.base_sequence, header.record_count):
                return ErrorCode.NONE, offset
        expected = recent[-1][0] + recent[-1][1] if recent else 0
        if header.base_sequence != expected:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if recent else ErrorCode.UNKNOWN_PRODUCER_ID), -1
        offset = self.end_offset
        stamp(batch, 0, offset, self.epoch)
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count
        self.producers[header.producer_id] = [*recent, (header.base_sequence, header.record_count, offset)][-5:]
        return ErrorCode.NONE, offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch)]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


@dataclass
class FakeTopic:
    topic_id: bytes
    partitions: list[FakePartition]


#: A script sees one request and returns its answer, or None to let the node answer as usual, or DROP or HANG.
Script = Callable[[RequestHeader, Any], Any]
DROP = object()
HANG = object()


class FakeNode:
    def __init__(self, quorum: FakeQuorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.port = 0
        self.requests: list[tuple[ApiKey, Any]] = []
        self.scripts: list[tuple[ApiKey, Script]] = []
        #: Scripts that are not used up, for requests that no other one answers.
        self.standing: dict[ApiKey, Script] = {}
        self.http_listener: str | None = None
        self._server: asyncio.Server | None = None
        self._transports: list[asyncio.BaseTransport] = []

    def once(self, api_key: ApiKey, script: Script) -> None:
        """Answer the next request of this API by a script; several are used up in order."""
        self.scripts.append((api_key, script))

    def count(self, api_key: ApiKey) -> int:
        return sum(key == api_key for key, _ in self.requests)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined]
        self._transports = []
        await asyncio.sleep(0)

    def answer(self, header: RequestHeader, message: Any) -> Any:
        self.requests.append((ApiKey(header.api_key), message))
        for index, (api_key, script) in enumerate(self.scripts):
            if api_key == header.api_key:
                del self.scripts[index]
                scripted = script(header, message)
                if scripted is not None:
                    return scripted
                return self.quorum.answer(self, header, message)
        if (standing := self.standing.get(ApiKey(header.api_key))) is not None:
            return standing(header, message)
        return self.quorum.answer(self, header, message)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._decoder = FrameDecoder(64 << 20)
        self._transport: asyncio.Transport | None = None
        self._hangs = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._node._transports.append(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        for frame in self._decoder.buffer_updated(nbytes):
            if self._hangs or self._transport.is_closing():
                return
            header, message = decode_request(frame)
            answer = self._node.answer(header, message)
            if answer is DROP:
                self._transport.abort()
            elif answer is HANG:
                self._hangs = True
            else:
                self._transport.write(b"".join(bytes(part) for part in encode_response(header, answer)))


class FakeQuorum:
    """Nodes 1..n. `async with FakeQuorum(3) as quorum`."""

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = {node_id: FakeNode(self, node_id) for node_id in range(1, nodes + 1)}
        self.topics: dict[str, FakeTopic] = {}
        self.next_producer_id = 1000
        self.topics_created = 0

    async def __aenter__(self) -> FakeQuorum:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    def add_topic(self, name: str, partitions: int = 1, leader_id: int = 1) -> FakeTopic:
        """A new topic, also where there was one of that name."""
        self.topics_created += 1
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name} {self.topics_created}").bytes
        self.topics[name] = FakeTopic(topic_id, [FakePartition(leader_id) for _ in range(partitions)])
        return self.topics[name]

    def move_leader(self, topic: str, partition: int, leader_id: int) -> None:
        moved = self.topics[topic].partitions[partition]
        moved.leader_id = leader_id
        moved.epoch += 1

    def answer(self, node: FakeNode, header: RequestHeader, message: Any) -> Any:
        handlers: dict[ApiKey, Callable[[FakeNode, Any], Any]] = {
            ApiKey.API_VERSIONS: partial(answers.api_versions, self),
            ApiKey.METADATA: partial(answers.metadata, self),
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: partial(answers.list_offsets, self),
            ApiKey.READ_OFFSET: self._read_offset,
            ApiKey.CREATE_TOPICS: partial(answers.create_topics, self),
            ApiKey.DESCRIBE_CLUSTER: partial(answers.describe_cluster, self),
            ApiKey.DESCRIBE_CONFIGS: partial(answers.describe_configs, self),
        }
        return handlers[ApiKey(header.api_key)](node, message)

    def _init_producer_id(self, node: FakeNode, message: Any) -> InitProducerIdResponse:
        self.next_producer_id += 1
        return InitProducerIdResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            producer_id=ProducerId(self.next_producer_id),
            producer_epoch=i16(0),
        )

    def _produce(self, node: FakeNode, message: ProduceRequest) -> ProduceResponse:
        (topic,) = message.topics
        (asked,) = topic.partitions
        assert topic.name is not None and asked.records is not None
        known = self.topics.get(topic.name)
        if known is None or asked.index >= len(known.partitions):
            return produced(topic.name, asked.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = known.partitions[asked.index]
        if partition.leader_id != node.node_id:
            return produced(topic.name, asked.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code, offset = partition.append(bytearray(asked.records))
        return produced(topic.name, asked.index, code, offset)

    def not_leader_naming(self, topic: str, partition: int, leader_id: int) -> ProduceResponse:
        """A refusal that says who leads now and where (KIP-951)."""
        answer = produced(topic, partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = self.topics[topic].partitions[partition].epoch
        answer.topics[0].partitions[0].current_leader = LeaderAndEpoch(leader_id, epoch)
        answer.node_endpoints = [NodeEndpoint(leader_id, "127.0.0.1", self.nodes[leader_id].port)]
        return answer

    def _fetch(self, node: FakeNode, message: FetchRequest) -> FetchResponse:
        (asked_topic,) = message.topics
        (asked,) = asked_topic.partitions
        topic = next((topic for topic in self.topics.values() if topic.topic_id == asked_topic.topic_id), None)
        if topic is None:
            return fetched(asked_topic.topic_id, asked.index, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partitions[asked.index]
        if asked.fetch_offset > partition.end_offset:
            return fetched(asked_topic.topic_id, asked.index, ErrorCode.OFFSET_OUT_OF_RANGE, partition.end_offset)
        chosen: list[bytes] = []
        offset = 0
        stable = partition.end_offset if partition.stable_offset is None else partition.stable_offset
        end = stable if message.isolation_level else partition.end_offset
        for batch in partition.batches:
            (header,) = iterate_headers(batch)
            offset = header.end_offset
            if asked.fetch_offset < offset <= end and not (partition.answers_one and chosen):
                chosen.append(batch)
        answer = fetched(asked_topic.topic_id, asked.index, ErrorCode.NONE, partition.end_offset, b"".join(chosen))
        (result,) = answer.topics[0].partitions
        result.last_stable_offset = stable
        result.aborted_transactions = partition.aborted if message.isolation_level else None
        return answer

    def _read_offset(self, node: FakeNode, message: ReadOffsetRequest) -> ReadOffsetResponse:
        (topic,) = message.topics
        results = []
        for index in topic.partitions:
            partition = self.topics[topic.name].partitions[index]
            is_leader = partition.leader_id == node.node_id
            results.append(
                ReadOffsetPartitionResult(index, ErrorCode.NONE, partition.end_offset)
                if is_leader
                else ReadOffsetPartitionResult(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            )
        return ReadOffsetResponse("fake", ErrorCode.NONE, [ReadOffsetTopicResult(topic.name, results)])


def produced(topic: str, partition: int, code: ErrorCode, offset: int = -1) -> ProduceResponse:
    return ProduceResponse([ProduceTopicResult(topic, None, [ProducePartitionResult(partition, code, offset)])])


def fetched(
    topic_id: bytes | None, partition: int, code: ErrorCode, high_watermark: int = -1, records: bytes = b""
) -> FetchResponse:
    result = FetchPartitionResult(partition, code, high_watermark, high_watermark, log_start_offset=0, records=records)
    return FetchResponse([FetchTopicResult(None, topic_id, [result])])
