"""One heap of future calls for everything in a node that waits: group deadlines, parked fetches, timeouts.

Owns no clock: `run_due` is told the time. Equal times run in the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

#: A heap smaller than this is not worth clearing of cancelled calls.
SWEEP_AT_MIN = 1024


class Timer:
    """A scheduled call; `cancel` makes it never happen."""

    __slots__ = ("at_ms", "call")

    def __init__(self, at_ms: int, call: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class TimerQueue:
    """`on_earlier` is told when the next call is due earlier than before, except by a call of `run_due`, whose caller
    looks at `next_ms` anyway."""

    __slots__ = ("_heap", "_is_running", "_on_earlier", "_sequence", "_sweep_at")

    def __init__(self, on_earlier: Callable[[], None] | None = None) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._is_running = False
        self._on_earlier = on_earlier
        #: The size at which cancelled calls are thrown out: most time limits are cancelled long before they are due.
        self._sweep_at = SWEEP_AT_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, at_ms: int, call: Callable[[], None]) -> Timer:
        timer = Timer(at_ms, call)
        self._sequence += 1
        heap = self._heap
        if len(heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(heap, (at_ms, self._sequence, timer))
        if heap[0][2] is timer and not self._is_running and self._on_earlier is not None:
            self._on_earlier()
        return timer

    def _sweep(self) -> None:
        heap = self._heap
        heap[:] = [entry for entry in heap if entry[2].call is not None]
        heapq.heapify(heap)
        self._sweep_at = max(SWEEP_AT_MIN, 2 * len(heap))

    def next_ms(self) -> int | None:
        """When the next call is due; cancelled ones are dropped on the way."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def run_due(self, now_ms: int) -> None:
        """Run every call that is due now. What these calls schedule is left for the next time, however early it is due: a call
        that schedules itself anew for the same moment must not keep its node from everything else."""
        heap = self._heap
        due: list[tuple[int, int, Timer]] = []
        while heap and heap[0][0] <= now_ms:
            due.append(heapq.heappop(heap))
        due.reverse()
        self._is_running = True
        try:
            while due:
                timer = due.pop()[2]
                call, timer.call = timer.call, None
                if call is not None:
                    call()
        finally:
            self._is_running = False
            for entry in due:
                # A call before it raised.
                heapq.heappush(heap, entry)
