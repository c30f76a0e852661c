"""A producer of one prepared request, to measure the node and not a client.

The request is encoded once; only its correlation id changes. Each connection keeps a fixed number of requests in flight and
sends the next one when an answer comes, checking the error code of each. What it costs per request is a few microseconds.
"""

from __future__ import annotations

import asyncio
import struct
import time

from load import Load, LoadConnection
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


class ProduceConnection(LoadConnection, asyncio.BufferedProtocol):
    def __init__(self, frame: bytearray, in_flight: int, load: Load, done: asyncio.Future[None]) -> None:
        super().__init__(load, done)
        self.frame = bytearray(frame)
        self.in_flight = in_flight
        self.decoder = FrameDecoder(1 << 20)
        self.sent_at: dict[int, float] = {}
        self.next_id = 0

    def begin(self) -> None:
        for _ in range(self.in_flight):
            self.send()

    def send(self) -> None:
        if not self.load.take():
            if not self.sent_at:
                self.finish()
            return
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
