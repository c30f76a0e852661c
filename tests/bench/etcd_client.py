"""etcd's native API (gRPC over HTTP/2) spoken by hand, so that the peer is measured and not a client library.

Like raw_producer and http_load: requests are encoded once, only the stream id (and the key) changes, and an answer is cut
into frames and checked by whether it brought a message (a call that failed ends with trailers alone). grpcio's Python
client needs about 100 us for a call, several times what this costs, and would make etcd look slower than it is. Headers go
into the connection's compression table with the first request, as any gRPC client does, so that later ones are six bytes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time

from load import Load, LoadConnection

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: Room for all answers of a run: this side never has to hand out more.
SETTINGS_FRAME = struct.pack(">I BI HI", 6 << 8 | SETTINGS, 0, 0, 4, 1 << 24)
WINDOW_FRAME = struct.pack(">I BI I", 4 << 8 | 8, 0, 0, (1 << 31) - 65536)
SETTINGS_ACK = struct.pack(">I BI", SETTINGS, ACK, 0)
#: After the first request the table holds, newest first: te, content-type, :authority, :path.
INDEXED_HEADERS = bytes([0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62])
KEY_BYTES = 8
PUT, RANGE = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range"


def key_of(number: int) -> bytes:
    return b"%0*d" % (KEY_BYTES, number)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def put_message(value: bytes) -> bytes:
    """PutRequest{key=1, value=2}; the key is patched in."""
    return _field(1, key_of(0)) + _field(2, value)


def range_message() -> bytes:
    """RangeRequest{key=1}: linearizable unless `serializable` is set."""
    return _field(1, key_of(0))


#: Where the key stands in a message: behind its tag and its length.
KEY_AT = 2


class Calls:
    """The frames of one call, over and over: `request(stream)` after `opening`."""

    def __init__(self, path: str, message: bytes) -> None:
        body = struct.pack(">BI", 0, len(message)) + message
        self._body = body
        literals = b"\x44" + _text(path) + b"\x41" + _text("bench") + b"\x5f" + _text("application/grpc")
        self._first = b"\x83\x86" + literals + b"\x40" + _text("te") + _text("trailers")
        self._frame = bytearray(self._frames(INDEXED_HEADERS))
        self._data_at = 9 + len(INDEXED_HEADERS)
        self._key_at = self._data_at + 9 + 5 + KEY_AT

    def _frames(self, block: bytes) -> bytes:
        headers = struct.pack(">I BI", len(block) << 8 | HEADERS, END_HEADERS, 1) + block
        return headers + struct.pack(">I BI", len(self._body) << 8 | DATA, END_STREAM, 1) + self._body

    def opening(self) -> bytes:
        """The connection's preface and the first request (stream 1, key 0)."""
        return PREFACE + SETTINGS_FRAME + WINDOW_FRAME + self._frames(self._first)

    def request(self, stream: int, key: int) -> bytes:
        struct.pack_into(">I", self._frame, 5, stream)
        struct.pack_into(">I", self._frame, self._data_at + 5, stream)
        self._frame[self._key_at : self._key_at + KEY_BYTES] = key_of(key)
        return bytes(self._frame)


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode("ascii")


class Answers:
    """Cuts what comes into frames; says which calls have ended and what has to be sent back."""

    def __init__(self) -> None:
        self._buffer = b""
        self._with_message: set[int] = set()

    def feed(self, data: bytes) -> tuple[list[int], bytes]:
        """(streams whose call succeeded, bytes to send). Raises ConnectionError for a call that failed."""
        buffer = self._buffer + data if self._buffer else data
        at, size = 0, len(buffer)
        done: list[int] = []
        reply = b""
        while size - at >= 9:
            head, flags, stream = struct.unpack_from(">IBI", buffer, at)
            end = at + 9 + (head >> 8)
            if end > size:
                break
            kind = head & 0xFF
            if kind == DATA:
                self._with_message.add(stream)
            elif kind == HEADERS:
                if flags & END_STREAM:
                    if stream not in self._with_message:
                        raise ConnectionError("etcd answered a call with an error")
                    self._with_message.discard(stream)
                    done.append(stream)
            elif kind == SETTINGS and not flags & ACK:
                reply += SETTINGS_ACK
            elif kind == PING and not flags & ACK:
                reply += struct.pack(">I BI", 8 << 8 | PING, ACK, 0) + buffer[at + 9 : end]
            elif kind in (RST_STREAM, GOAWAY):
                raise ConnectionError("etcd closed the stream or the connection")
            at = end
        self._buffer = buffer[at:]
        return done, reply


class EtcdConnection(LoadConnection, asyncio.Protocol):
    """One connection with up to `in_flight` calls."""

    def __init__(self, calls: Calls, keys: int, in_flight: int, load: Load, done: asyncio.Future[None]) -> None:
        super().__init__(load, done)
        self._calls = calls
        self._keys = keys
        self._in_flight = in_flight
        self._answers = Answers()
        self._stream = 1
        self._sent_at: dict[int, float] = {}

    def begin(self) -> None:
        if not self.load.take():
            self.finish()
            return
        self._sent_at[1] = time.perf_counter()
        self.transport.write(self._calls.opening())
        for _ in range(self._in_flight - 1):
            self._send()

    def _send(self) -> None:
        if not self.load.take():
            if not self._sent_at:
                self.finish()
            return
        self._stream += 2
        self._sent_at[self._stream] = time.perf_counter()
        self.transport.write(self._calls.request(self._stream, self.load.remaining % self._keys))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        try:
            done, reply = self._answers.feed(data)
        except ConnectionError as error:
            self.fail(str(error))
            return
        if reply:
            self.transport.write(reply)
        for stream in done:
            self.load.latencies_ms.append(1000 * (now - self._sent_at.pop(stream)))
            self._send()


class EtcdCaller:
    """Puts one after the other over a blocking socket: what a retrying writer needs."""

    def __init__(self, port: int, value: bytes, timeout_s: float) -> None:
        self._calls = Calls(PUT, put_message(value))
        self._answers = Answers()
        self._stream = -1
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, key: int) -> None:
        """Returns when the put is acknowledged; raises OSError (TimeoutError, ConnectionError) otherwise."""
        self._stream += 2
        self._socket.sendall(self._calls.opening() if self._stream == 1 else self._calls.request(self._stream, key))
        while True:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("etcd closed the connection")
            done, reply = self._answers.feed(data)
            if reply:
                self._socket.sendall(reply)
            if self._stream in done:
                return

    def close(self) -> None:
        self._socket.close()
