"""Requests that show a fault of the front, or of its node: one answer, few lines in the log, and clients of HTTP/1.0."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from raftlake.errors import TooManyFiles
from raftlake.kv.commands import put
from raftlake.runtime.http.front import PATH_TOLD_MAX
from raftlake.runtime.http.watch_cursor import Cursor
from runtime_fakes import run, settle, until
from runtime_http_fakes import Front, http_front

HOST = b"host: h\r\n"
DIGITS = b"0" * 5_000 + b"1"
TXN = b"POST /v1/txn HTTP/1.1\r\ncontent-type: application/json\r\n"


async def answers(on: Front, data: bytes) -> bytes:
    """All that comes until the front ends the connection, or the client stops sending."""
    reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
    writer.write(data)
    writer.write_eof()
    try:
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST + b"content-length: " + DIGITS + b"\r\n\r\nx", b"400"),
        (TXN + HOST + b"content-length: " + DIGITS + b"\r\n\r\nx", b"400"),
        (b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST + b"content-length: " + b"0" * 18 + b"1\r\n\r\nx", b"200"),
        (b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST + b"content-length: " + b"0" * 19 + b"1\r\n\r\nx", b"400"),
        (b"PUT /v1/kv/a HTTP/1.1\r\n" + HOST + b'if-match: "' + DIGITS + b'"\r\ncontent-length: 1\r\n\r\nx', b"4"),
        (b"GET /v1/watch HTTP/1.1\r\n" + HOST + b"last-event-id: " + DIGITS + b"\r\n\r\n", b"400"),
        (b"GET /v1/kv?limit=" + DIGITS + b" HTTP/1.1\r\n" + HOST + b"\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nhost: h:" + DIGITS + b"\r\n\r\n", b"400"),
    ],
    ids=["put", "txn", "19 digits", "20 digits", "if-match", "last-event-id", "limit", "port"],
)
def test_numbers_of_thousands_of_digits(request_bytes: bytes, status: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with http_front() as on:
            assert (await answers(on, request_bytes)).startswith(b"HTTP/1.1 " + status)

    with caplog.at_level(logging.INFO):
        run(main())
    assert "Traceback" not in caplog.text and not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_request_that_shows_a_bug_fills_no_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with http_front() as on:

            def broken(*_: Any) -> None:
                raise KeyError("a bug")

            monkeypatch.setattr(on.node.kv.machine, "get", broken)
            path = b"/v1/kv/" + b"k" * 900
            for _ in range(20):
                assert (await answers(on, b"GET " + path + b"?consistency=stale HTTP/1.1\r\n" + HOST + b"\r\n")).startswith(
                    b"HTTP/1.1 500"
                )
            (record,) = caplog.records
            assert record.exc_info is not None and "failed to serve GET /v1/kv/k" in record.message
            assert len(record.message) < PATH_TOLD_MAX + 100

            # A watch shows bugs of its own. Its stream has no last chunk, so its reader resumes.
            monkeypatch.setattr(Cursor, "take", broken)
            for _ in range(20):
                told = await answers(on, b"GET /v1/watch?from=0 HTTP/1.1\r\n" + HOST + b"\r\n")
                assert not told.endswith(b"0\r\n\r\n")
            assert len(caplog.records) == 1

    with caplog.at_level(logging.ERROR):
        run(main())


def test_a_node_that_cannot_open_a_file_refuses_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with http_front() as on:

            def refuse(*_: Any) -> None:
                raise TooManyFiles("cannot open /data/x.log: Too many open files")

            with monkeypatch.context() as barred:
                barred.setattr(on.node.kv.machine, "get", refuse)
                for _ in range(5):
                    answer = await on.client.get("/v1/kv/k?consistency=stale")
                    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                    assert answer.json() == {"error": "this node has too many files open"}
            assert on.fatal == []
            assert (await on.client.get("/v1/kv/k?consistency=stale")).status_code == 404

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len([line for line in caplog.messages if "Too many open files" in line]) == 1


def test_a_watch_of_http_1_0_has_no_chunks_and_ends_with_the_connection() -> None:
    async def main() -> None:
        async with http_front() as on:
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(b"GET /v1/watch?from=0 HTTP/1.0\r\n" + HOST + b"\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b"transfer-encoding" not in head and b"connection: close" in head
            assert (await reader.readuntil(b"\n\n")).startswith(b": watch\nid: ")
            on.node.kv.apply(put("a", b"1"))
            event = await reader.readuntil(b"\n\n")
            assert event.startswith(b"event: put\nid: ") and b'"key":"a"' in event
            await settle()
            on.front.close()
            assert await reader.read() == b"", "no last chunk"
            writer.close()
            await until(lambda: on.front.connection_count == 0)

    run(main())


def test_a_watch_of_http_1_1_has_chunks_and_a_last_one() -> None:
    async def main() -> None:
        async with http_front() as on:
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(b"GET /v1/watch?from=0 HTTP/1.1\r\n" + HOST + b"\r\n")
            assert b"transfer-encoding: chunked\r\n" in await reader.readuntil(b"\r\n\r\n")
            size = int(await reader.readline(), 16)
            assert (await reader.readexactly(size + 2)).startswith(b": watch\nid: ")
            on.front.close()
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()

    run(main())
