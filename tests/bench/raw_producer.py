"""A producer of one prepared request, to measure the node and not a client.

The request is encoded once; only its correlation id changes. Each connection keeps a fixed number of requests in flight and
sends the next one when an answer comes, checking the error code of each. What it costs per request is a few microseconds.
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass, field
from typing import cast

from raftlake.wire.api import ApiKey, decode_response, encode_request
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.framing import FrameDecoder
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic

VERSION = 9
#: Where the correlation id stands in a request frame: behind size, API key and version.
CORRELATION_ID_AT = 8


def produce_request(topic: str, partition: int, value: bytes) -> bytearray:
    """A whole frame that appends one record, acknowledged by a majority."""
    record = Record(offset=0, timestamp_ms=-1, key=None, value=value, headers=())
    batch = build_batch([record], timestamp_ms=1_700_000_000_000)
    topics = [ProduceTopic(topic, None, [ProducePartition(partition, memoryview(batch))])]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, transactional_id=None, topics=topics)
    return bytearray(b"".join(encode_request(ApiKey.PRODUCE, VERSION, 0, None, request)))


@dataclass(slots=True)
class Load:
    """What all connections together did."""

    remaining: int
    latencies_ms: list[float] = field(default_factory=list)
    failure: str | None = None


class Connection(asyncio.BufferedProtocol):
    def __init__(self, frame: bytearray, in_flight: int, load: Load, done: asyncio.Future[None]) -> None:
        self.frame = bytearray(frame)
        self.in_flight = in_flight
        self.load = load
        self.done = done
        self.decoder = FrameDecoder(1 << 20)
        self.sent_at: dict[int, float] = {}
        self.next_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of asyncio's
        for _ in range(self.in_flight):
            self.send()

    def send(self) -> None:
        if self.load.remaining <= 0:
            if not self.sent_at and not self.done.done():
                self.done.set_result(None)
            return
        self.load.remaining -= 1
        struct.pack_into(">i", self.frame, CORRELATION_ID_AT, self.next_id)
        self.sent_at[self.next_id] = time.perf_counter()
        self.next_id += 1
        self.transport.write(bytes(self.frame))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.decoder.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        now = time.perf_counter()
        for frame in self.decoder.buffer_updated(nbytes):
            correlation_id, answer = decode_response(ApiKey.PRODUCE, VERSION, frame)
            assert isinstance(answer, ProduceResponse)
            error = answer.topics[0].partitions[0].error
            if error != 0:
                self.fail(f"produce was answered with {error.name}")
                return
            self.load.latencies_ms.append(1000 * (now - self.sent_at.pop(correlation_id)))
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"connection lost: {exc}")

    def fail(self, reason: str) -> None:
        if not self.done.done():
            self.load.failure = reason
            self.load.remaining = 0
            self.done.set_result(None)


async def run_load(address: tuple[str, int], frame: bytearray, *, connections: int, in_flight: int, requests: int) -> Load:
    """Send `requests` in all, `connections` x `in_flight` at a time; latencies are from send to answer."""
    loop = asyncio.get_running_loop()
    load = Load(remaining=requests)
    opened = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = Connection(frame, in_flight, load, done)
        transport, _protocol = await loop.create_connection(lambda connection=connection: connection, *address)
        opened.append((transport, done))
    await asyncio.gather(*(done for _transport, done in opened))
    for transport, _done in opened:
        transport.abort()
    assert load.failure is None, load.failure
    return load
