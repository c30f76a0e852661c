"""A server at the port of a node that is no node, and answers that never end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from clientkit_kv import Box, Front, Prepared, answer_all, kv_test
from raftlake.client import AsyncClient
from raftlake.errors import RaftlakeError, UnknownOutcome

ENTRY = (200, {"etag": '"5"'}, b"value")
STRANGERS = [
    Box(404, {}, b"<html>Not Found</html>"),
    Box(404, {}, b'{"error": "no such path"}'),
    Box(200, {"etag": '"3"'}, b"another value"),
    Box(403, {}, b"<html>Forbidden</html>"),
    Box(307, {"location": "http://127.0.0.1:1/"}),
]


@pytest.mark.parametrize("stranger", STRANGERS, ids=str)
def test_who_is_no_node_says_nothing_of_a_key(stranger: Prepared) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, stranger, stranger, ENTRY)
        entry = await client.kv.get("k")
        assert entry is not None and (entry.value, entry.version) == (b"value", 5)

    kv_test(test)


def test_a_node_says_that_a_key_does_not_exist() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, Box(404), (404, {"x-raftlake-offset": "0"}, b'{"error": "no such key"}'), ENTRY)
        assert await client.kv.get("k") is None
        assert len(one.requests + two.requests) == 2

    kv_test(test)


def test_a_list_of_keys_is_that_of_a_node() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, Box(200, {}, b'{"entries":[],"more":false}'), Box(404), (200, {}, b'{"entries":[],"more":true}'))
        assert (await client.kv.list("")).more

    kv_test(test)


def test_where_only_strangers_answer_there_is_no_answer() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, *[Box(404)] * 1000)
        with pytest.raises(RaftlakeError):
            await client.kv.get("k", timeout_ms=300)
        assert one.requests + two.requests

    kv_test(test)


def test_a_watch_passes_a_stranger_over() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        event = b'event: put\nid: 9\ndata: {"key":"k","version":9,"value":"eA=="}\n\n'
        answer_all(one, two, Box(200, {}, b"<html>Welcome</html>"), Box(403, {}, b"no"), event)
        watch = client.kv.watch("")
        assert (await anext(watch)).version == 9
        await watch.aclose()  # type: ignore[attr-defined]

    kv_test(test)


# --- byte by byte ----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def dripping(status: str) -> AsyncIterator[str]:
    """The address of a server whose answer goes on for ever, a byte at a time."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            head = f'HTTP/1.1 {status}\r\nx-raftlake-offset: 8\r\netag: "5"\r\ncontent-length: 100000000\r\n\r\n'
            writer.write(head.encode())
            while True:
                writer.write(b"x")
                await writer.drain()
                # The next byte comes a little later, unless the client hangs up.
                await asyncio.wait([ended], timeout=0.02)
                if ended.done():
                    writer.close()
                    return

    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    ended.set_result(None)
    await asyncio.sleep(0)


@pytest.mark.parametrize("timeout_ms", [200, 20_000])
def test_a_read_gives_up_an_answer_that_never_ends(timeout_ms: int) -> None:
    """In the time of a try; then another node is asked, where there is time left."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, ENTRY, ENTRY)
        async with dripping("200 OK") as address, asyncio.timeout(10):
            client.kv._fronts = [address]
            if timeout_ms == 200:
                with pytest.raises(RaftlakeError, match="not accepted in time"):
                    await client.kv.get("k", timeout_ms=timeout_ms)
            else:
                entry = await client.kv.get("k", timeout_ms=timeout_ms)
                assert entry is not None and entry.value == b"value"

    kv_test(test, attempt_timeout_ms=500)


def test_a_write_whose_answer_never_ends_is_unknown() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, ENTRY)
        async with dripping("200 OK") as address, asyncio.timeout(10):
            client.kv._fronts = [address]
            with pytest.raises(UnknownOutcome, match="had no answer"):
                await client.kv.put("k", b"v", timeout_ms=20_000)
        assert not one.requests + two.requests

    kv_test(test, attempt_timeout_ms=300)


def test_a_watch_gives_up_a_refusal_that_never_ends() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        event = b'event: put\nid: 9\ndata: {"key":"k","version":9,"value":"eA=="}\n\n'
        answer_all(one, two, event)
        async with dripping("410 Gone") as address, asyncio.timeout(10):
            client.kv._fronts = [address]
            watch = client.kv.watch("")
            assert (await anext(watch)).version == 9
            await watch.aclose()  # type: ignore[attr-defined]

    kv_test(test, attempt_timeout_ms=300)


# --- large bodies ----------------------------------------------------------------------------------------------------


async def pause(seconds: float) -> None:
    """As a slow link makes it."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


def test_a_large_answer_has_the_time_that_it_takes_on_a_slow_link() -> None:
    """It came within the limits of each piece, and was given up as a whole, again and again."""
    value = bytes(range(256)) * 4096

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nx-raftlake-offset: 8\r\netag: "5"\r\ncontent-length: %d\r\n\r\n' % len(value))
        with contextlib.suppress(ConnectionError):
            for begin in range(0, len(value), 1 << 16):
                writer.write(value[begin : begin + (1 << 16)])
                await writer.drain()
                await pause(0.05)

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        one._answer = two._answer = slowly  # type: ignore[method-assign]
        entry = await client.kv.get("k", timeout_ms=15_000)
        assert entry is not None and (entry.value, entry.version) == (value, 5)

    kv_test(test, attempt_timeout_ms=150)


@pytest.mark.parametrize("is_buffered", [False, True])
def test_a_large_write_has_the_time_that_it_takes_on_a_slow_link(*, is_buffered: bool) -> None:
    """Where the system's buffers take all of it, it is on its way for long; else it is written for long."""

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if is_buffered:
            await reader.readexactly(left)
            await pause(0.3)
        while left and not is_buffered:
            left -= len(await reader.readexactly(min(left, 1 << 19)))
            await pause(0.03)
        writer.write(b'HTTP/1.1 200 OK\r\nx-raftlake-offset: 8\r\netag: "5"\r\ncontent-length: 2\r\n\r\n{}')

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        for front in (one, two):
            front._answer = slowly  # type: ignore[method-assign]
            front._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        assert await client.kv.put("k", bytes(1 << 20 if is_buffered else 8 << 20), timeout_ms=20_000) == 5
        if is_buffered:
            with pytest.raises(UnknownOutcome):
                await client.kv.put("k", b"small", timeout_ms=20_000)

    kv_test(test, attempt_timeout_ms=100)
