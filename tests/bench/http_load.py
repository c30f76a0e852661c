"""Gets and puts over HTTP/1.1 keep-alive connections, one request in flight on each, as HTTP clients do.

Requests are prepared, only the key changes; of an answer the status and the length are looked at.
"""

from __future__ import annotations

import asyncio
import time

from etcd_client import key_of
from load import Load, LoadConnection


def get_request() -> tuple[bytes, bytes]:
    """What stands before and behind the key."""
    return b"GET /v1/kv/", b" HTTP/1.1\r\nHost: localhost\r\n\r\n"


def put_request(value: bytes) -> tuple[bytes, bytes]:
    return b"PUT /v1/kv/", b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(value), value)


class HttpConnection(LoadConnection, asyncio.Protocol):
    def __init__(self, request: tuple[bytes, bytes], keys: int, load: Load, done: asyncio.Future[None]) -> None:
        super().__init__(load, done)
        self._before, self._behind = request
        self._keys = keys
        self._buffer = b""
        self.sent_at = 0.0

    def begin(self) -> None:
        if not self.load.take():
            self.finish()
            return
        self.sent_at = time.perf_counter()
        self.transport.write(self._before + key_of(self.load.remaining % self._keys) + self._behind)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        if not is_whole(buffer):
            self._buffer = buffer
            return
        self._buffer = b""
        if not buffer.startswith(b"HTTP/1.1 200"):
            self.fail(buffer[:300].decode("latin-1"))
            return
        self.load.latencies_ms.append(1000 * (time.perf_counter() - self.sent_at))
        self.begin()


def is_whole(answer: bytes) -> bool:
    head_end = answer.find(b"\r\n\r\n")
    if head_end < 0:
        return False
    at = answer.find(b"content-length: ", 0, head_end)
    assert at >= 0, answer[:head_end]
    return len(answer) >= head_end + 4 + int(answer[at + 16 : answer.index(b"\r\n", at)])
