"""HTTP for the soak's clients: a request and its answer over a connection that is kept, and nothing that hides what happened.

Costs a fraction of a whole HTTP library, and tells the three ends apart that a history needs: answered, certainly not sent, and
sent without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


class NotSent(Exception):
    """The node could not be reached: nothing was asked."""


class NoAnswer(Exception):
    """Sent, at least in part, and not answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def offset(self) -> int:
        """The log offset that the answer reflects."""
        return int(self.headers["x-raftlake-offset"])


class HttpCalls:
    """One client's connections, one for each node."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def call(
        self, address: tuple[str, int], method: str, path: str, *, body: bytes = b"", headers: str = "", timeout_s: float
    ) -> Answer:
        """Raises NotSent or NoAnswer; the connection is given up then."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connection(address)
                try:
                    return await _exchange(reader, writer, method, path, body, headers)
                except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                    raise NoAnswer(str(error)) from error
        except BaseException as error:
            self._drop(address)
            if isinstance(error, TimeoutError):
                raise NoAnswer(f"nothing came within {timeout_s} s") from error
            raise

    async def _connection(self, address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        kept = self._open.get(address)
        if kept is not None and not kept[0].at_eof() and not kept[1].is_closing():
            return kept
        try:
            async with asyncio.timeout(1):
                opened = await asyncio.open_connection(*address)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error)) from error
        self._open[address] = opened
        return opened

    def _drop(self, address: tuple[str, int]) -> None:
        kept = self._open.pop(address, None)
        if kept is not None:
            kept[1].transport.abort()

    def close(self) -> None:
        for address in list(self._open):
            self._drop(address)


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: bytes, headers: str
) -> Answer:
    length = f"content-length: {len(body)}\r\n" if body else ""
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{length}{headers}\r\n".encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    answer_body = await reader.readexactly(int(found.get("content-length", "0")))
    return Answer(int(head[0].split()[1]), found, answer_body)
