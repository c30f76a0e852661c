"""What the three load generators (raw_producer, http_load, etcd_client) share: a budget of requests, latencies, an end.

All are protocols on one uvloop in the measuring process, send prepared bytes, keep a fixed number of requests in flight
and send the next one when an answer comes. `client_us` says what one request costs this side, so that nobody has to guess
how much of a result is the client's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import uvloop


@dataclass(slots=True)
class Load:
    """What all connections together did."""

    remaining: int
    latencies_ms: list[float] = field(default_factory=list)
    failure: str | None = None
    seconds: float = 0.0
    client_us: float = 0.0

    def take(self) -> bool:
        """One request of the budget; False when it is spent."""
        if self.remaining <= 0:
            return False
        self.remaining -= 1
        return True

    @property
    def rate(self) -> float:
        return len(self.latencies_ms) / self.seconds


class LoadConnection:
    """The life of one connection; a subclass sends in `begin` and calls `finish` when nothing is left to send or await."""

    transport: asyncio.Transport

    def __init__(self, load: Load, done: asyncio.Future[None]) -> None:
        self.load = load
        self.done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses of asyncio's

    def begin(self) -> None:
        raise AssertionError("a connection has to send something")

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"connection lost: {exc}")

    def fail(self, reason: str) -> None:
        if not self.done.done():
            self.load.failure = reason
            self.load.remaining = 0
            self.done.set_result(None)


NewConnection = Callable[[Load, "asyncio.Future[None]"], LoadConnection]


async def _run(address: tuple[str, int], new: NewConnection, connections: int, requests: int) -> Load:
    loop = asyncio.get_running_loop()
    load = Load(remaining=requests)
    opened: list[LoadConnection] = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = new(load, done)
        await loop.create_connection(lambda connection=connection: connection, *address)  # type: ignore[misc, arg-type]
        opened.append(connection)
    began, began_cpu = time.perf_counter(), time.process_time()
    for connection in opened:
        connection.begin()
    await asyncio.gather(*(connection.done for connection in opened))
    load.seconds = time.perf_counter() - began
    load.client_us = 1e6 * (time.process_time() - began_cpu) / requests
    for connection in opened:
        connection.transport.abort()
    assert load.failure is None, load.failure
    return load


def run_load(address: tuple[str, int], new: NewConnection, *, connections: int, requests: int) -> Load:
    """Send `requests` in all, over connections that exist before the clock starts; latencies are from send to answer."""
    return uvloop.run(_run(address, new, connections, requests))
