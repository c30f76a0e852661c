"""A steady writer of the quickstart, which makes an election visible as a pause.

The writer makes one small append and one key-value change in turn. Each waits until a majority has acknowledged it. The longest
time between two acknowledgements is the time without writes.

The writer runs in a thread of its own beside the Spark query. Each append carries a number. Afterwards the topic shows whether
every acknowledged number is there exactly once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from raftlake.client import Client
from raftlake.errors import UnknownOutcome

#: The pause between two writes: short enough to time an election, long enough to leave the processor to Spark.
PAUSE_S = 0.01


class Pulse:
    """The writer. `start` and `stop` may be called once each."""

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
        """End the writer. Raises the error that ended the writer before, if there was one."""
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
        """The longest time between two successive acknowledgements, in ms. The first is the last one before `since_s`, a value
        of `time.perf_counter()`."""
        times = list(self._acknowledged_at)
        first = max((index for index, at in enumerate(times) if at <= since_s), default=0)
        gaps = [later - earlier for earlier, later in zip(times[first:], times[first + 1 :], strict=False)]
        return 1000 * max(gaps, default=0.0)

    def missing_and_doubled(self, values: list[bytes]) -> tuple[list[int], list[int]]:
        """Compare the records of the topic with the acknowledged numbers: the missing ones, and the doubled ones. A number with
        an unknown outcome may be there or not."""
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
