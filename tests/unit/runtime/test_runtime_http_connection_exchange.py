"""HTTP/1.1 framing of the front: bodies in pieces, pipelines, early answers, upgrades, idle connections, slow readers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.runtime.http.connection import BODY_SECONDS, KEEP_ALIVE_SECONDS, split_target
from raftlake.runtime.http.exchange import Exchange, Waiter
from runtime_fakes import run, settle, until
from runtime_http_fakes import FakeKv, Front, http_front

LIVE = b"GET /health/live HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = b"GET /health/live HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))


@contextlib.asynccontextmanager
async def wire_to(on: Front) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def statuses(on: Front, data: bytes) -> list[int]:
    """Of all answers until the front closes the connection."""
    async with wire_to(on) as wire:
        wire.writer.write(data)
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append((await wire.answer())[0])
        return found


def test_a_body_in_pieces_is_put_together() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            for piece in (b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-", b"length: 6\r\n\r\na", b"bc", b"def"):
                wire.writer.write(piece)
                await asyncio.sleep(0)
                await wire.writer.drain()
            assert (await wire.answer())[0] == 200
            assert on.node.kv.machine.get("a").value == b"abcdef"  # type: ignore[union-attr]

    run(main())


def test_a_chunked_body_is_put_together() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            head = b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
            wire.writer.write(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            assert (await wire.answer())[0] == 200
            assert on.node.kv.machine.get("a").value == b"abcde"  # type: ignore[union-attr]

    run(main())


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n", b"3\r\nabcdef\r\n0\r\n\r\n", b"-1\r\n"])
def test_a_malformed_body_is_answered_at_once_and_ends_the_connection(body: bytes, apart: bool) -> None:
    """Together with its head or after it. The request before is answered first, nothing behind it counts."""

    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            wire.writer.write(LIVE + b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
            if apart:
                assert (await wire.answer())[0] == 200
                await settle()
            wire.writer.write(body + LIVE)
            if not apart:
                assert (await wire.answer())[0] == 200
            status, headers, text = await wire.answer()
            assert (status, headers["connection"]) == (400, "close") and b"malformed" in text
            assert await wire.reader.read() == b""
            assert on.node.kv.machine.get("a") is None

    run(main())


@pytest.mark.parametrize("before", [1, 2, 3])
def test_what_was_asked_before_garbage_is_answered_to_the_last(before: int) -> None:
    """The first waits for the quorum, so the others wait behind it when the garbage comes."""

    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            reads: list[Callable[[ReadOffsetResult], None]] = []
            on.node.kv.read = lambda linearizable, done: reads.append(done)  # type: ignore[method-assign]
            wire.writer.write(b"GET /v1/kv/k HTTP/1.1\r\nhost: h\r\n\r\n" + LIVE * (before - 1) + b"\x00garbage\r\n\r\n")
            await until(lambda: len(reads) == 1)
            await settle()
            FakeKv.read(on.node.kv, True, reads[0])
            assert [(await wire.answer())[0] for _ in range(before)] == [404, 200, 200][:before]
            assert await wire.reader.read() == b""

    run(main())


def test_a_refused_request_whose_body_turns_out_malformed_ends_the_connection() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            wire.writer.write(b"PUT /v1/nothing HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
            assert (await wire.answer())[0] == 404
            wire.writer.write(b"zz\r\n")
            assert await wire.reader.read() == b""

    run(main())


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            wire.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n")
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            wire.writer.write(b"x")
            assert (await wire.answer())[0] == 200

    run(main())


def test_a_client_that_asks_first_with_too_much_is_refused_at_once() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            size = 100 << 20
            wire.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % size)
            assert (await wire.answer())[0] == 413

    run(main())


def test_what_is_left_of_a_refused_body_is_dropped() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            size = 3 << 20
            wire.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % size + b"x" * 10)
            assert (await wire.answer())[0] == 413
            wire.writer.write(b"x" * (size - 10) + LIVE)
            assert (await wire.answer())[0] == 200

    run(main())


def test_a_thousand_requests_in_one_packet_are_answered_in_order() -> None:
    async def main() -> None:
        async with http_front() as on:
            puts = b"".join(b"PUT /v1/kv/k HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n%d" % (i % 10) for i in range(500))
            misses = b"GET /v1/kv/none HTTP/1.1\r\nhost: h\r\n\r\n" * 500
            assert await statuses(on, puts + misses + LAST) == [200] * 500 + [404] * 500 + [200]
            assert on.node.kv.machine.get("k").value == b"9"  # type: ignore[union-attr]

    run(main())


def test_a_head_request_gets_the_length_and_no_body() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            on.node.kv.apply(put("a", b"value", None))
            wire.writer.write(b"HEAD /v1/kv/a HTTP/1.1\r\nhost: h\r\n\r\n" + LAST)
            head = await wire.reader.readuntil(b"\r\n\r\n")
            assert b"content-length: 5\r\n" in head
            assert (await wire.answer())[0] == 200

    run(main())


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_connection_is_closed_when_the_client_wants_it(version: bytes) -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            close = b"" if version == b"1.0" else b"connection: close\r\n"
            wire.writer.write(b"GET /health/live HTTP/%s\r\nhost: h\r\n%s\r\n" % (version, close))
            status, headers, _ = await wire.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await wire.reader.read() == b""

    run(main())


def test_an_upgrade_is_served_without_it() -> None:
    async def main() -> None:
        async with http_front() as on:
            head = b"GET /health/live HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
            assert await statuses(on, head) == [200]

    run(main())


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
ASKED = b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\n" + UPGRADE
BODIES = {
    "length": (b"content-length: 6\r\n", b"abcdef"),
    "length of nothing": (b"content-length: 0\r\n", b""),
    "nothing": (b"", b""),
    "chunks": (b"transfer-encoding: chunked\r\n", b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"),
    "waits": (b"content-length: 6\r\nexpect: 100-continue\r\n", b"abcdef"),
}


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize("name", BODIES)
def test_the_body_of_a_request_that_asks_for_an_upgrade_counts(name: str, pieces: int) -> None:
    """Java's HttpClient and `curl --http2` ask for one with every first request. What follows the body is not read."""
    framing, body = BODIES[name]

    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            sent = ASKED + framing + b"\r\n" + body + (LIVE if pieces == 1 else b"")
            size = -(-len(sent) // pieces)
            for start in range(0, len(sent), size):
                wire.writer.write(sent[start : start + size])
                await wire.writer.drain()
                await asyncio.sleep(0)
            if name == "waits" and pieces == 1000:
                assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            status, headers, _ = await wire.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await wire.reader.read() == b""
            entry = on.node.kv.machine.get("a")
            assert entry is not None
            assert entry.value == (b"abcdef" if body else b"")

    run(main())


@pytest.mark.parametrize("ending", [b"3\r\nabcxx", b"zz\r\n"])
def test_a_malformed_body_behind_an_upgrade_writes_nothing(ending: bytes) -> None:
    async def main() -> None:
        async with http_front() as on:
            assert await statuses(on, ASKED + b"transfer-encoding: chunked\r\n\r\n" + ending) == [400]
            assert on.node.kv.machine.get("a") is None

    run(main())


def test_a_client_that_leaves_amid_a_body_behind_an_upgrade_writes_nothing() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with wire_to(on) as wire:
                wire.writer.write(ASKED + b"content-length: 6\r\n\r\nabc")
                await settle()
            await until(lambda: not on.front.connections)
            assert on.node.kv.machine.get("a") is None

    run(main())


def test_garbage_behind_a_request_ends_the_connection_after_its_answer() -> None:
    async def main() -> None:
        async with http_front() as on:
            waiting: list[object] = []
            on.node.kv.read = lambda linearizable, done: waiting.append(done)  # type: ignore[method-assign, assignment]
            async with wire_to(on) as wire:
                wire.writer.write(b"GET /v1/kv/a HTTP/1.1\r\nhost: h\r\n\r\n\x00garbage\r\n\r\n")
                await until(lambda: bool(waiting))
                del on.node.kv.read
                on.node.kv.read(True, waiting[0])  # type: ignore[arg-type]
                assert (await wire.answer())[0] == 404
                assert await wire.reader.read() == b""

    run(main())


def test_a_client_that_leaves_before_its_body_came_leaves_nothing() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with wire_to(on) as wire:
                wire.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc")
                await until(lambda: len(on.front.exchanges) == 1)
            await until(lambda: not on.front.exchanges and on.front.connection_count == 0)
            assert on.node.kv.proposed == []

    run(main())


def test_a_client_that_leaves_while_its_write_is_under_way_does_not_undo_it() -> None:
    async def main() -> None:
        async with http_front() as on:
            waiting: list[object] = []
            on.node.kv.propose = lambda txn, done: waiting.append((txn, done))  # type: ignore[method-assign, assignment]
            async with wire_to(on) as wire:
                wire.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx")
                await until(lambda: bool(waiting))
            await until(lambda: on.front.connection_count == 0)
            del on.node.kv.propose
            on.node.kv.propose(*waiting[0])  # type: ignore[misc]
            assert on.node.kv.machine.get("a").value == b"x"  # type: ignore[union-attr]
            assert (await on.client.get("/health/live")).status_code == 200

    run(main())


def test_a_reader_that_does_not_read_holds_back_its_next_requests() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            on.node.kv.apply(put("a", bytes(1 << 20), None))
            request = b"GET /v1/kv/a HTTP/1.1\r\nhost: h\r\n\r\n"
            wire.writer.write(request * 64 + LAST)
            await until(lambda: on.node.kv.reads > 0)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert on.node.kv.reads < 64
            for _ in range(64):
                assert (await wire.answer())[0] == 200
            assert (await wire.answer())[0] == 200

    run(main())


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.kv.read = lambda *_: None  # type: ignore[method-assign, assignment]
            began = asyncio.get_running_loop().time()
            async with wire_to(on) as busy, wire_to(on) as idle:
                busy.writer.write(b"GET /v1/kv/a HTTP/1.1\r\nhost: h\r\n\r\n")
                idle.writer.write(LIVE)
                await idle.answer()
                await until(lambda: len(on.front.exchanges) == 1)
                on.front.end_overdue(began + KEEP_ALIVE_SECONDS - 1)
                assert on.front.connection_count == 2
                on.front.end_overdue(asyncio.get_running_loop().time() + KEEP_ALIVE_SECONDS + 1)
                assert await idle.reader.read() == b""
                assert on.front.connection_count == 1

    run(main())


def test_a_body_that_comes_a_byte_now_and_then_is_not_waited_for_for_ever() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as slow:
            slow.writer.write(b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\n")
            await until(lambda: any(each._arriving is not None for each in on.front.connections))
            (connection,) = on.front.connections
            now = asyncio.get_running_loop().time()
            for _ in range(0, int(BODY_SECONDS), 20):
                on.front.end_overdue(now)
                assert on.front.connection_count == 1
                now += 20
                connection._heard_at = now
            on.front.end_overdue(now + 1)
            await until(lambda: on.front.connection_count == 0)

    run(main())


def test_an_error_of_a_read_is_an_answer() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.kv.read_error = ErrorCode.LEADER_NOT_AVAILABLE
            assert (await on.client.get("/v1/kv/a")).status_code == 503

    run(main())


def test_a_waiter_keeps_its_first_value() -> None:
    waiter: Waiter[int] = Waiter()
    resumed: list[None] = []

    async def take() -> int:
        return await waiter

    coroutine = take()
    assert coroutine.send(None) is waiter
    waiter.resume = lambda: resumed.append(None)
    waiter.set(1)
    waiter.set(2)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert (stop.value.value, len(resumed)) == (1, 1)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (b"/a/b?c=d&e", (b"/a/b", b"c=d&e")),
        (b"/", (b"/", b"")),
        (b"/a?", (b"/a", b"")),
        (b"http://h:1/a?b", (b"/a", b"b")),
        (b"/a#f", (b"/a", b"")),
    ],
)
def test_targets(url: bytes, expected: tuple[bytes, bytes]) -> None:
    assert split_target(url) == expected


@pytest.mark.parametrize("url", [b"h:1", b"/\xff", b""])
def test_what_is_no_target_is_refused(url: bytes) -> None:
    with pytest.raises(ValueError):
        split_target(url)


def test_a_large_answer_under_way_when_the_node_stops_is_dropped() -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            for number in range(12):
                on.node.kv.apply(put(f"k{number}", bytes(1 << 20), None))
            wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
            wire.writer.write(b"GET /v1/kv?values=true HTTP/1.1\r\nhost: h\r\n\r\n")
            await until(lambda: on.front._answers.held > 0)
            on.front.close()
            await on.front.abandon()
            await until(lambda: on.front.connection_count == 0 and on.front._answers.held == 0)

    run(main())


def test_answered_requests_leave_nothing_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with http_front() as on, wire_to(on) as wire:
            exchanges = weakref.WeakSet[Exchange]()
            begin = Exchange.start

            def start(exchange: Exchange) -> None:
                exchanges.add(exchange)
                begin(exchange)

            monkeypatch.setattr(Exchange, "start", start)
            gc.disable()
            try:
                for request in (b"GET /v1/kv/a HTTP/1.1\r\nhost: h\r\n\r\n", LIVE, LIVE):
                    wire.writer.write(request)
                    await wire.answer()
            finally:
                gc.enable()
            # The connection remembers no exchange but its current one.
            assert not exchanges

    run(main())
