"""Clients of the topic over Kafka's protocol: idempotent and plain appends, committed and linearizable reads at any node."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from raftlake.client import AsyncClient, NoReachableNode
from raftlake.client.connection import Connection, open_connection
from raftlake.client.errors import Disconnected
from raftlake.client.types import Address, ClientConfig
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.sim.histories.linearizability import Outcome
from raftlake.sim.histories.log import Append, End, Read
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record as WireRecord
from raftlake.wire.batches import build_batch, decode_records, iterate_headers
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from raftlake.wire.read_offset import ReadOffsetRequest
from raftlake.wire.topic_lists import TopicPartitions
from soak.record import Record

TOPIC = "soak"
CALL_MS = 5_000
PRODUCE_VERSION = 9
FETCH_VERSION = 16
FETCH_BYTES = 64 * 1024
#: A plain producer's request that was answered like this may have been appended; any other error says that it was not.
MAY_HAVE_HAPPENED = frozenset({ErrorCode.REQUEST_TIMED_OUT})


def batch_of(values: tuple[bytes, ...]) -> bytearray:
    records = [WireRecord(offset=index, timestamp_ms=-1, key=None, value=value) for index, value in enumerate(values)]
    return build_batch(records, timestamp_ms=time.time_ns() // 1_000_000)


class IdempotentProducer:
    """Batches in strict order, three at a time. After a failure it begins anew under another name."""

    def __init__(self, record: Record, name: str, seed: int, think_s: float, client: AsyncClient) -> None:
        self._record = record
        self._name = name
        self._rng = random.Random(f"{seed} {name}")
        self._think_s = think_s
        self._client = client
        self._life = 0
        self._sequence = 0

    async def run(self, stop: asyncio.Event) -> None:
        partition = self._rng.randrange(self._record.partitions)
        while not stop.is_set():
            self._life += 1
            producer = self._client.producer()
            try:
                while not stop.is_set() and await self._append(producer, partition):
                    await asyncio.sleep(self._rng.expovariate(1 / self._think_s))
            finally:
                await self._client.close_producer(producer)

    async def _append(self, producer: Any, partition: int) -> bool:
        """One to three batches at once; whether all were acknowledged."""
        sent: list[Append] = []
        for _ in range(self._rng.randrange(1, 4)):
            first = self._sequence
            self._sequence += self._rng.randrange(1, 4)
            values = tuple(f"{self._name}.{self._life}-{number}".encode() for number in range(first, self._sequence))
            sent.append(Append(values, None, f"{self._name}.{self._life}", first))
        outcomes = producer.submit_batches(TOPIC, partition, [batch_of(append.values) for append in sent], 4 * CALL_MS)
        invoked_us = self._record.now_us()
        ends = await asyncio.gather(
            *(self._end(append, partition, invoked_us, out) for append, out in zip(sent, outcomes, strict=True))
        )
        return all(ends)

    async def _end(self, append: Append, partition: int, invoked_us: int, outcome: asyncio.Future[Any]) -> bool:
        known = Outcome.OK
        try:
            result = await outcome
            append = Append(append.values, result.offset if result.offset >= 0 else None, append.producer, append.sequence)
        except UnknownOutcome:
            known = Outcome.UNKNOWN
        except (RequestRejected, NoReachableNode):
            known = Outcome.FAILED
        self._record.note_log(self._name, "idempotent append", partition, invoked_us, known, append)
        return known is Outcome.OK


class RawClient:
    """One request at a time to a node of its choice, without any help: what comes back is what the node said."""

    def __init__(self, record: Record, name: str, seed: int, think_s: float) -> None:
        self.record = record
        self.name = name
        self.rng = random.Random(f"{seed} {name}")
        self._think_s = think_s
        self._config = ClientConfig(bootstrap=(Address("127.0.0.1", 1),), client_id=name, connect_timeout_ms=1_000)
        self._open: dict[int, Connection] = {}

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self.step()
                await asyncio.sleep(self.rng.expovariate(1 / self._think_s))
        finally:
            self.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()

    async def step(self) -> None:
        raise AssertionError("each kind of client has its own step")

    def any_node(self) -> int:
        return self.rng.choice(self.record.nodes.node_ids)

    async def ask(self, node_id: int, api_key: ApiKey, version: int, message: object) -> Any:
        """The answer; raises Disconnected."""
        connection = self._open.get(node_id)
        if connection is None or not connection.is_open:
            host, port, _ = self.record.nodes.links.addresses[node_id]
            connection = self._open[node_id] = await open_connection(Address(host, port), self._config)
        return await connection.request(api_key, version, message, CALL_MS)


class PlainProducer(RawClient):
    """Each batch once, whatever becomes of it."""

    _leader: int | None = None
    _counter = 0

    async def step(self) -> None:
        partition = self.rng.randrange(self.record.partitions)
        self._counter += 1
        values = tuple(f"{self.name}-{self._counter}-{index}".encode() for index in range(self.rng.randrange(1, 4)))
        parts = [ProducePartition(partition, memoryview(batch_of(values)))]
        request = ProduceRequest(
            acks=-1, timeout_ms=CALL_MS - 1_000, transactional_id=None, topics=[ProduceTopic(TOPIC, None, parts)]
        )
        node_id = self._leader or self.any_node()
        invoked_us = self.record.now_us()
        base_offset = None
        try:
            answer = await self.ask(node_id, ApiKey.PRODUCE, PRODUCE_VERSION, request)
        except Disconnected as error:
            outcome, self._leader = Outcome.UNKNOWN if error.sent else Outcome.FAILED, None
        else:
            result = answer.topics[0].partitions[0]
            outcome, self._leader = Outcome.OK, node_id
            if result.error is ErrorCode.NONE:
                base_offset = result.base_offset
            else:
                outcome, self._leader = Outcome.UNKNOWN if result.error in MAY_HAVE_HAPPENED else Outcome.FAILED, None
        self.record.note_log(self.name, "plain append", partition, invoked_us, outcome, Append(values, base_offset))


class Consumer(RawClient):
    """Reads at any node: what is committed there, or all that was acknowledged before it asked."""

    def __init__(self, record: Record, name: str, seed: int, think_s: float, topic_id: bytes) -> None:
        super().__init__(record, name, seed, think_s)
        self._topic_id = topic_id
        self._positions = [0] * record.partitions

    async def step(self) -> None:
        node_id, partition = self.any_node(), self.rng.randrange(self.record.partitions)
        view = self.record.view(node_id)
        try:
            if self.rng.randrange(2):
                await self._read_end(node_id, partition, view)
            await self.read(node_id, partition, view)
        except Disconnected:
            self.record.counts["read disconnected"] += 1

    async def _read_end(self, node_id: int, partition: int, view: str) -> None:
        request = ReadOffsetRequest(None, time.time_ns() // 1_000_000, [TopicPartitions(TOPIC, [partition])])
        invoked_us = self.record.now_us()
        answer = await self.ask(node_id, ApiKey.READ_OFFSET, 0, request)
        result = answer.topics[0].partitions[0] if answer.topics else None
        if result is None or result.error is not ErrorCode.NONE:
            self.record.counts["linearizable read failed"] += 1
            return
        shown = view if view == self.record.view(node_id) else ""
        self.record.note_log(
            self.name, "linearizable read", partition, invoked_us, Outcome.OK, End(result.applied_offset, shown)
        )

    async def read(self, node_id: int, partition: int, view: str = "") -> bool:
        """One fetch from where this client stands; whether it brought it to the node's high watermark."""
        start = self._positions[partition]
        parts = FetchPartition(
            index=partition, current_leader_epoch=-1, fetch_offset=start, last_fetched_epoch=-1, log_start_offset=-1,
            bytes_max=FETCH_BYTES,
        )  # fmt: skip
        topics = [FetchTopic(name=None, topic_id=self._topic_id, partitions=[parts])]
        request = FetchRequest(wait_ms_max=0, bytes_min=1, bytes_max=FETCH_BYTES, isolation_level=0, topics=topics)
        invoked_us = self.record.now_us()
        answer = await self.ask(node_id, ApiKey.FETCH, FETCH_VERSION, request)
        result = answer.topics[0].partitions[0] if answer.topics else None
        if result is None or result.error is not ErrorCode.NONE:
            self.record.counts["read failed"] += 1
            return False
        data = memoryview(result.records or b"")
        records = tuple((record.offset, record.value or b"") for record in decode_records(data) if record.offset >= start)
        shown = view if view == self.record.view(node_id) else ""
        read = Read(start, records, result.high_watermark, shown)
        self.record.note_log(self.name, "read", partition, invoked_us, Outcome.OK, read)
        for header in iterate_headers(data):
            self.saw(partition, header.base_offset, header.end_offset, header.record_count == 0)
            self._positions[partition] = max(self._positions[partition], header.end_offset)
        return self._positions[partition] >= result.high_watermark

    def saw(self, partition: int, base_offset: int, end_offset: int, is_empty: bool) -> None:
        """A batch was read."""


class FinalReader(Consumer):
    """Reads everything from one node. Batches without records are what consumers see of control records."""

    def __init__(self, record: Record, name: str, topic_id: bytes) -> None:
        super().__init__(record, name, 0, 1.0, topic_id)
        self.control: list[dict[int, bytes | None]] = [{} for _ in range(record.partitions)]

    def saw(self, partition: int, base_offset: int, end_offset: int, is_empty: bool) -> None:
        if is_empty:
            self.control[partition].update(dict.fromkeys(range(base_offset, end_offset)))

    async def read_all(self, node_id: int, partition: int, end: int) -> dict[int, bytes | None]:
        """The value at each offset up to `end` (exclusive) and perhaps beyond; None for a control record."""
        before = len(self.record.logs[partition])
        while self._positions[partition] < end:
            try:
                has_all = await self.read(node_id, partition)
            except Disconnected:
                # No answer in time: the caller says when it is too late.
                has_all = True
            if has_all:
                await asyncio.sleep(0.02)
        found = dict(self.control[partition])
        for operation in self.record.logs[partition][before:]:
            if isinstance(operation.action, Read) and operation.client == self.name:
                found.update(operation.action.records)
        return found
