"""Many watches that do not read: no bytes for them beyond a piece each, one piece of work at a time, a budget for all."""

from __future__ import annotations

import asyncio
import socket

from test_runtime_http_in_line import Turns

from raftlake.kv.commands import Put, Txn
from raftlake.runtime.http.watch_cursor import PIECE_BYTES_MAX
from runtime_fakes import run, settle, until
from runtime_http_fakes import Front, http_front


async def watch_and_read_nothing(on: Front, query: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect((on.address.host, on.address.port))
    narrow.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=narrow)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"GET /v1/watch%s HTTP/1.1\r\nhost: h\r\n\r\n" % query.encode())
    return reader, writer


def bomb(on: Front) -> None:
    """7 MiB in one transaction."""
    on.node.kv.apply(Txn((), tuple(Put(f"bomb{number}", bytes(1 << 20)) for number in range(7))))


def unsent(on: Front) -> int:
    return sum(connection.transport.get_write_buffer_size() for connection in on.front.connections)


def test_watches_that_do_not_read_hold_a_piece_each_and_not_what_happened() -> None:
    """100 of them took 1.9 GiB for a transaction of 7 MiB, and the loop for 10 s."""

    async def main() -> None:
        async with http_front() as on:
            writers = [await watch_and_read_nothing(on) for _ in range(10)]
            await until(lambda: len(on.front._watchers._at_end) == 10)
            # What the kernel takes is not counted: several transactions.
            for _ in range(2):
                bomb(on)
            try:
                for _ in range(40):
                    await settle()
                    assert unsent(on) <= 10 * PIECE_BYTES_MAX and 0 <= on.front._answers.held <= 10 * PIECE_BYTES_MAX
                await until(lambda: unsent(on) > 0)
                assert on.front._answers.held > 0
            finally:
                for connection in list(on.front.connections):
                    connection.transport.abort()
                for _, writer in writers:
                    writer.transport.abort()
            await until(lambda: not on.front._watchers._all)
            assert on.front._answers.held == 0

    run(main())


def test_a_watch_for_which_there_is_no_room_goes_on_when_there_is() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with on.client.stream("GET", "/v1/watch") as response:
                lines = response.aiter_lines()
                assert (await anext(lines)) == ": watch"
                with on.front._answers.hold(128 << 20):
                    bomb(on)
                    await until(lambda: len(on.front._watchers._without_room) == 1)
                async for line in lines:
                    if line.startswith("data: "):
                        assert len(line) > 1 << 20
                        break

    run(main())


def test_the_cursors_of_all_watches_take_turns_in_their_line() -> None:
    async def main() -> None:
        turns = Turns()
        async with http_front(watch_line=turns.line) as on:
            for start in range(3):
                on.node.kv.apply(Txn((), tuple(Put(f"s/{start}-{number}", b"") for number in range(20))))
            writers = [await watch_and_read_nothing(on, "?prefix=z&from=1") for _ in range(5)]
            await until(lambda: len(on.front._watchers._pending) == 5)
            for left in (4, 3, 2, 1, 0):
                turns.calls.pop(0)()
                assert len(on.front._watchers._pending) == left
            assert len(on.front._watchers._at_end) == 5
            for _, writer in writers:
                writer.transport.abort()
            await until(lambda: not on.front._watchers._all)

    run(main())


def test_nothing_is_said_amid_an_event() -> None:
    """A heartbeat that is due while a reader takes its time with a large value waits for the end of it."""

    async def main() -> None:
        async with http_front(heartbeat_seconds=0.0) as on:
            async with on.client.stream("GET", "/v1/watch") as response:
                lines = response.aiter_lines()
                await anext(lines)
                with on.front._answers.hold(128 << 20):
                    bomb(on)
                    await until(lambda: len(on.front._watchers._without_room) == 1)
                    await settle()
                seen = 0
                async for line in lines:
                    assert not line.startswith("data: ") or (line.endswith('"}') and ":" not in line[80:-10])
                    seen += line.startswith("data: ")
                    if seen == 7:
                        break

    run(main())


def test_a_change_that_comes_as_a_heartbeat_is_on_its_way_is_told() -> None:
    async def main() -> None:
        async with http_front(heartbeat_seconds=0.0) as on:
            reader, writer = await watch_and_read_nothing(on)
            await until(lambda: len(on.front._watchers._all) == 1)
            (connection,) = on.front.connections
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
            paused = 0
            while paused < 3:
                await settle()
                paused = paused + 1 if connection._is_writing_paused else 0
            on.node.kv.apply(Txn((), (Put("k", b"v"),)))
            for _ in range(5):
                await settle()
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            told = b""
            while b"event: put" not in told:
                told += await reader.read(1 << 16)
            writer.transport.abort()

    run(main())
