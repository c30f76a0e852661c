"""Open connections, by node address and use.

One shared connection per address serves requests that are answered at once (metadata, produce); fetches that may be parked
at the node each borrow one of their own, so that they hold up nothing else. The invariant: a borrowed connection is used
by one request at a time and comes back only while it is open and idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from raftlake.client.connection import Connection, open_connection
from raftlake.client.types import Address, ClientConfig

#: Idle borrowed connections that are kept per address.
_IDLE_MAX = 8


class ConnectionPool:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._shared: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[Connection]] = {}
        self._idle: dict[Address, list[Connection]] = {}
        self._borrowed: set[Connection] = set()
        self._is_closed = False

    def get_open(self, address: Address, use: str = "") -> Connection | None:
        """The shared connection if it is open."""
        connection = self._shared.get((address, use))
        return connection if connection is not None and connection.is_open else None

    async def get(self, address: Address, use: str = "") -> Connection:
        """The shared connection of an address for one use, opened when needed; raises Disconnected."""
        connection = self.get_open(address, use)
        if connection is not None:
            return connection
        key = (address, use)
        opening = self._opening.get(key)
        if opening is None:
            self._require_open()
            opening = asyncio.get_running_loop().create_task(self._open_shared(key), name=f"connect {address}")
            opening.add_done_callback(_mark_seen)
            self._opening[key] = opening
        # Others may wait for the same connection: one caller's cancellation must not end it for them.
        return await asyncio.shield(opening)

    async def _open_shared(self, key: tuple[Address, str]) -> Connection:
        try:
            connection = await open_connection(key[0], self._config)
            self._shared[key] = connection
            return connection
        finally:
            del self._opening[key]

    @asynccontextmanager
    async def borrow(self, address: Address) -> AsyncIterator[Connection]:
        """A connection for this caller alone; raises Disconnected."""
        self._require_open()
        idle = self._idle.setdefault(address, [])
        connection: Connection | None = None
        while idle and connection is None:
            candidate = idle.pop()
            connection = candidate if candidate.is_open else None
        if connection is None:
            connection = await open_connection(address, self._config)
        self._borrowed.add(connection)
        try:
            yield connection
        finally:
            self._borrowed.discard(connection)
            if self._is_closed or connection.in_flight or len(idle) >= _IDLE_MAX:
                connection.close()
            elif connection.is_open:
                idle.append(connection)

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this client is closed")

    async def close(self) -> None:
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections: Mapping[Connection, None] = dict.fromkeys(
            [*self._shared.values(), *(c for idle in self._idle.values() for c in idle), *self._borrowed]
        )
        for connection in connections:
            connection.close()
        self._shared.clear()
        self._idle.clear()
        # Aborted transports close their sockets in the next turn of the loop.
        await asyncio.sleep(0)


def _mark_seen(task: asyncio.Task[Connection]) -> None:
    """When every caller was cancelled meanwhile, the error is looked at here alone."""
    if not task.cancelled():
        task.exception()
