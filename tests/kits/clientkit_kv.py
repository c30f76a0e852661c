"""HTTP fronts with prepared answers, for tests of the key-value client. Part of `clientkit`, which holds the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from clientkit import FakeQuorum, run
from raftlake.client import AsyncClient

Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Raw:
    """Bytes of an answer as they are; the connection ends behind them."""

    data: bytes


@dataclass(frozen=True)
class Box:
    """The answer of something between client and node: without the offset that every answer of a node carries."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Silence:
    """No answer, until the client has hung up."""


Prepared = Answer | Box | bytes | Raw | Silence | None


@dataclass
class Front:
    """An HTTP server that gives out prepared answers in order. Bytes are a watch; None: hang up, as behind the last answer."""

    answers: list[Prepared] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Front:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def stop(self) -> None:
        """Refuse connections from now on."""
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client may hang up before it has asked, and the test may end before it is answered."""
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        try:
            await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._serving.discard(serving)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((head[0].removesuffix(" HTTP/1.1"), headers, body))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, bytes):
            writer.write(b"HTTP/1.1 200 OK\r\nx-raftlake-offset: 8\r\nconnection: close\r\n\r\n" + answer)
        elif isinstance(answer, Raw):
            writer.write(answer.data)
        elif isinstance(answer, Silence):
            await reader.read()
        elif answer is not None:
            if isinstance(answer, Box):
                status, extra, content = answer.status, answer.headers, answer.body
            else:
                status, extra, content = answer[0], {"x-raftlake-offset": "8", **answer[1]}, answer[2]
            lines = [
                f"HTTP/1.1 {status} X",
                f"content-length: {len(content)}",
                "connection: close",
                *(f"{k}: {v}" for k, v in extra.items()),
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()


def kv_test(test: Callable[[AsyncClient, Front, Front], Awaitable[None]], **settings: int) -> None:
    """Two nodes with a front each; the client knows both."""

    async def body() -> None:
        async with FakeQuorum(2) as quorum, Front() as one, Front() as two:
            quorum.nodes[1].http_listener = f"127.0.0.1:{one.port}"
            quorum.nodes[2].http_listener = f"127.0.0.1:{two.port}"
            async with AsyncClient(quorum.bootstrap, **{"request_timeout_ms": 2000, **settings}) as client:
                await test(client, one, two)

    run(body())


def answer_all(one: Front, two: Front, *answers: Prepared) -> None:
    """Whichever front is asked gives the same answers."""
    shared = list(answers)
    one.answers = two.answers = shared
