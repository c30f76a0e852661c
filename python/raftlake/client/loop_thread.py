"""An event loop in a thread of its own, and the one AsyncClient that lives on it.

Owns the hand-over between the caller's thread and the loop. Knows nothing of what the work does. A thread belongs to one
process: after a fork the copy of this object is dead, and `process_id` tells. The invariant: work that is taken ends, and work
that comes after `stop` or after a fork is refused.
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

#: An outcome that a closed client has set takes a few turns of the loop to its caller.
_LAST_TURNS = 20


class LoopThread:
    """An event loop in a daemon thread, and the AsyncClient that lives on it."""

    def __init__(self, make_client: Callable[[], AsyncClient]) -> None:
        self.process_id = os.getpid()
        self.loop = _new_event_loop()
        # The collector may run a finalizer of the program, which submits work, while this thread holds the lock.
        self._lock = threading.RLock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="raftlake-client", daemon=True)
        self._thread.start()
        self.client = self.call(_made(make_client))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, which must not wait for itself. The child of a fork has no such thread."""
        return threading.current_thread() is self._thread and self.process_id == os.getpid()

    def require_other_thread(self) -> None:
        """RuntimeError where the caller runs in this thread."""
        if self.is_current:
            raise RuntimeError("a call in the client's own thread, as in a callback of a Future, would wait for itself")

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Hand work over. RuntimeError where nothing would ever do it."""
        if self.process_id != os.getpid():
            work.close()
            raise RuntimeError("this was made before a fork, in another process: make a new one in this process")
        with self._lock:
            if not self._is_stopped:
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise _closed_error()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Hand work over, and wait for what it ends with."""
        try:
            self.require_other_thread()
        except RuntimeError:
            work.close()
            raise
        return self._wait(self.submit(work))

    def stop(self) -> None:
        """End the work that is under way, and the thread. A second time nothing happens."""
        self.require_other_thread()
        with self._lock:
            if self._is_stopped:
                return
            # In one step: what was submitted before is seen by `_wind_up`, and nothing is submitted behind it.
            self._is_stopped = True
            ending = asyncio.run_coroutine_threadsafe(_wind_up(self.client), self.loop)
        self._wait(ending)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _wait(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._is_stopped:
                raise _closed_error() from None
            raise
        except BaseException:
            # Ctrl-C in the waiting thread: the work shall not go on behind its back.
            future.cancel()
            raise


async def _wind_up(client: AsyncClient) -> None:
    """Close the client, and end what still runs. What was sent has its outcome then, which has to reach its caller first."""
    await client.close()
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)
    await _end_others()
    await asyncio.get_running_loop().shutdown_asyncgens()
    # A watch that its reader left half-way closes in a task of its own.
    await _end_others()


async def _end_others() -> None:
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _made(make_client: Callable[[], AsyncClient]) -> AsyncClient:
    return make_client()


def _closed_error() -> RuntimeError:
    return RuntimeError("this client is closed")


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
