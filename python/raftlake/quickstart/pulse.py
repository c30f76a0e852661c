"""The writer that makes an election visible: one small append and one key-value change after the other, each acknowledged
by a majority before the next begins. The longest pause between two acknowledgements is the time without writes.

Runs in a thread of its own beside the Spark query. Each append carries a number, so that afterwards the topic itself shows
that every acknowledged number is there exactly once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from raftlake.client import Client
from raftlake.errors import UnknownOutcome

#: Between two writes: often enough to time an election, seldom enough to leave the two cores to Spark.
PAUSE_S = 0.01


class Pulse:
    """Start with `start()`, end with `stop()`; both may be called once."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._client = Client(bootstrap_servers)
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quickstart-pulse", daemon=True)
        self._acknowledged: list[int] = []
        self._acknowledged_at: list[float] = []
        self._unknown: list[int] = []
        self._failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the writer; raises what made it give up, if anything did."""
        self._stopping.set()
        self._thread.join()
        self._client.close()
        if self._failure is not None:
            raise self._failure

    @property
    def acknowledged(self) -> int:
        return len(self._acknowledged)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def longest_gap_ms(self, since_s: float) -> float:
        """The longest time between two acknowledgements that follow each other, from the last one before `since_s`
        (`time.perf_counter()`) on."""
        times = list(self._acknowledged_at)
        first = max((index for index, at in enumerate(times) if at <= since_s), default=0)
        gaps = [later - earlier for earlier, later in zip(times[first:], times[first + 1 :], strict=False)]
        return 1000 * max(gaps, default=0.0)

    def missing_and_doubled(self, values: list[bytes]) -> tuple[list[int], list[int]]:
        """Compare the topic's records with what was acknowledged. A number whose outcome was unknown may be there or not."""
        counts = Counter(int(value) for value in values)
        missing = [number for number in self._acknowledged if counts[number] == 0]
        doubled = sorted(number for number, count in counts.items() if count > 1)
        return missing, doubled

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(PAUSE_S):
            try:
                self._client.append(self._topic, b"%d" % number)
                self._client.kv.put("quickstart/pulse", b"%d" % number)
            except UnknownOutcome:
                self._unknown.append(number)
            except Exception as error:  # noqa: BLE001 - handed to the thread that calls stop()
                self._failure = error
                return
            else:
                self._acknowledged.append(number)
                self._acknowledged_at.append(time.perf_counter())
            number += 1
