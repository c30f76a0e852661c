"""Work that several callers wait for, each in its own time: one request serves all who ask for the same at the same time.

Knows nothing of what the work does. Whoever comes first begins it, in its own time. The invariant: nobody waits longer than its
own deadline for work that another caller began, and nobody ends with the end of another caller's time. All who wait share any
other failure: else they would fail one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from raftlake.client.deadline import Deadline
from raftlake.client.errors import closed_error
from raftlake.errors import RaftlakeError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedWork(Generic[K, T]):
    """Work by key; what is done is forgotten."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Each with the deadline of the caller that began it.
        self._running: dict[K, tuple[asyncio.Task[T], Deadline]] = {}
        self._is_closed = False

    async def result(self, key: K, begin: Callable[[], Coroutine[Any, Any, T]], deadline: Deadline) -> T:
        """What the work under this key gives. The coroutine of `begin` has to end by `deadline`. TimeoutError where the time is
        over before work ends that another caller began."""
        while (found := self._running.get(key)) is not None:
            running, its_deadline = found
            while not running.done():
                if deadline.is_over():
                    raise TimeoutError
                # Waiting so ends neither the work, nor this caller where the work fails.
                await asyncio.wait([running], timeout=deadline.remaining_ms() / 1000)
            if running.cancelled() or not isinstance(running.exception(), RaftlakeError):
                return self._outcome(running)
            if deadline.is_over() or not its_deadline.is_over():
                return self._outcome(running)
            # It may have failed for want of time, of which this caller has more.
        return self._outcome(await self._begun(key, begin, deadline))

    async def _begun(self, key: K, begin: Callable[[], Coroutine[Any, Any, T]], deadline: Deadline) -> asyncio.Task[T]:
        """New work, when it has ended. It goes on where its caller is cancelled: others may wait for it."""
        if self._is_closed:
            raise closed_error()
        task = asyncio.get_running_loop().create_task(begin(), name=self._name)
        self._running[key] = (task, deadline)
        task.add_done_callback(lambda ended: self._forget(key, ended))
        await asyncio.wait([task])
        return task

    def _outcome(self, ended: asyncio.Task[T]) -> T:
        if ended.cancelled():
            raise closed_error()
        return ended.result()

    def _forget(self, key: K, ended: asyncio.Task[T]) -> None:
        del self._running[key]
        if not ended.cancelled():
            # Marks it as seen: when every caller was cancelled meanwhile, it is looked at here alone.
            ended.exception()

    async def close(self) -> None:
        """End what runs, and begin nothing more."""
        self._is_closed = True
        tasks = [task for task, _ in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
