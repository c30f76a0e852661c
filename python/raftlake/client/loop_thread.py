"""An event loop in a thread of its own, and the one AsyncClient that lives on it.

Owns the hand-over between the caller's thread and the loop. Knows nothing of what the work does. A thread belongs to one
process: after a fork the copy of this object is dead, and `process_id` tells.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from raftlake.client.aio import AsyncClient

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, and the AsyncClient that lives on it."""

    def __init__(self, make_client: Callable[[], AsyncClient]) -> None:
        self.process_id = os.getpid()
        self.loop = _new_event_loop()
        self._thread = threading.Thread(target=self._run, name="raftlake-client", daemon=True)
        self._thread.start()
        self.client = self.call(_made(make_client))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread: the work shall not go on behind its back.
            future.cancel()
            raise

    def stop(self) -> None:
        self.call(_wind_up(self.client))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _wind_up(client: AsyncClient) -> None:
    """Close the client, and end what still runs: a watch that its reader left half-way closes in a task of its own."""
    await client.close()
    await asyncio.get_running_loop().shutdown_asyncgens()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _made(make_client: Callable[[], AsyncClient]) -> AsyncClient:
    return make_client()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
