"""How far a streaming query is, written into the quorum beside its batches: seldom, by a thread, and never in their way.

What Spark names as the start of the next batch is finished: its commit log has the batch before. That is known sooner than by
`commit(end)`, which Spark calls only when there is something to read again. A position that changed is written once in an
interval at most, one that is the same once a minute, as long as Spark asks. The last one of a query that ends by itself
(Trigger.AvailableNow) is written as it ends. A position that cannot be written is a warning, once, and is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_raftlake.offsets import Offsets
    from pyspark_raftlake.position_writer import PositionWriter

_log = logging.getLogger(__name__)

#: What has not changed is written again so seldom: it says that Spark still asks.
REFRESH_MS = 60_000
#: A larger position is written less often: about so many bytes in an interval.
INTERVAL_BYTES = 16 << 10
#: Bytes of a partition in a position, about.
_PARTITION_BYTES = 16
#: How long the end of a query waits for its last position.
LAST_MS_MAX = 1_000

ByTopic = Mapping[str, Mapping[int, int]]


def nested(offsets: Offsets) -> dict[str, dict[int, int]]:
    """By topic and partition."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    offsets: ByTopic
    batch_ms: int
    seen_ms: int


class PositionKeeper:
    """`find` makes the writer, or returns None while the query is not known. `now_ms` is a clock that only goes forward,
    `wall_ms` ms since 1970."""

    def __init__(
        self,
        find: Callable[[], PositionWriter | None],
        interval_ms: int,
        now_ms: Callable[[], float] | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self._find = find
        self._interval_ms = interval_ms
        self._now_ms = now_ms or (lambda: time.monotonic() * 1000)
        self._wall_ms = wall_ms or (lambda: time.time_ns() // 1_000_000)
        self._writer: PositionWriter | None = None
        self._seen: _Seen | None = None
        self._written: _Seen | None = None
        self._tried_at_ms: float | None = None
        self._is_hurried = False
        self._has_warned = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is to be written at all."""
        return self._interval_ms > 0

    @property
    def is_known(self) -> bool:
        """Whether the query is."""
        return self._writer is not None

    def finished(self, offsets: Offsets) -> None:
        """The query will read nothing below these any more."""
        if not self.is_on:
            return
        found = nested(offsets)
        now_ms = self._wall_ms()
        with self._changed:
            before = self._seen
            if before is None:
                # Of a run that goes on, an earlier one knows when that batch was.
                self._seen = _Seen(found, 0, now_ms)
            elif before.offsets != found:
                self._seen = _Seen(found, now_ms, now_ms)
            else:
                self._seen = replace(before, seen_ms=now_ms)
                return
            self._changed.notify_all()

    def start(self) -> None:
        """Write from now on, in a thread."""
        if self._thread is None and self.is_on:
            self._thread = threading.Thread(target=self._run, name="raftlake-position", daemon=True)
            self._thread.start()

    def flush(self, wait_ms: float = LAST_MS_MAX) -> None:
        """Write at once what is not written, and wait for it, but no longer than this."""
        if self._thread is None:
            return
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_hurried, wait_ms / 1000)

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                due_ms = self.due_ms()
                if due_ms is None or due_ms > 0:
                    # A position that stays is refreshed without being told of.
                    self._changed.wait(self._interval_ms / 1000 if due_ms is None else due_ms / 1000)
                    continue
            self.write()

    def due_ms(self) -> float | None:
        """How long it is until something is to be written; None while there is nothing."""
        seen, written = self._seen, self._written
        has_changed = seen is not None and (written is None or written.offsets != seen.offsets)
        if self._is_hurried:
            if has_changed:
                return 0
            self._is_hurried = False
            self._changed.notify_all()
        if seen is None or (not has_changed and seen == written):
            return None
        if self._tried_at_ms is None:
            return 0
        size = _PARTITION_BYTES * sum(map(len, seen.offsets.values()))
        interval_ms = self._interval_ms * max(1, size / INTERVAL_BYTES)
        return max(0, self._tried_at_ms + (interval_ms if has_changed else max(interval_ms, REFRESH_MS)) - self._now_ms())

    def write(self) -> None:
        """Write what is seen last."""
        seen = self._seen
        if seen is None:
            return
        try:
            if self._writer is None:
                self._writer = self._find()
            if self._writer is not None:
                self._writer.write(seen.offsets, seen.batch_ms, seen.seen_ms)
                self._written = seen
        except Exception as error:  # noqa: BLE001 -- whatever it is, the query goes on
            self._warn(error)
        finally:
            with self._changed:
                self._tried_at_ms = self._now_ms()
                if self._seen is seen:
                    # Else a newer one has come meanwhile, and whoever waits, waits for that.
                    self._is_hurried = False
                    self._changed.notify_all()

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("how far the query is cannot be written down for `raftlake lag`, and is tried again: %s", error)
