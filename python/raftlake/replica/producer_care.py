"""What is done with all producer ids of a node: they are counted, looked through for idle ones, and written beside their logs.

One look may be at a million of them. So the work waits in one line, and a slice of it is done at a time, with a pause in which
the node serves everything else. Owns the bound on what the node remembers: at it a leader refuses batches of new ids, while
known ones go on. The replicas of a partition remember what stands in its log, so that their leaders' counts agree but for what
is under way; nothing is forgotten for want of room, since a retry of what is forgotten would be appended twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.producer_state import SLICE_PRODUCERS, ProducerTally
from raftlake.replica.partition.start_points import Slices

#: A quarter of a core at most: all nodes write at about the same time.
PAUSE_MS = 3
#: Between two words to the operator.
TELL_INTERVAL_MS = 60_000
NEARLY_FULL_PERCENT = 95

logger = logging.getLogger("raftlake.producers")


class ProducerCare:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tally = ProducerTally(engine.config.producer_ids_max)
        self._waiting: deque[Slices] = deque()
        self._is_expiring = False
        self._tell_from_ms = engine.now_ms

    def in_slices(self, work: Slices) -> None:
        """The first slice is done at once where nothing else waits. Raises what the work raises, now or in a timer. Such work
        is over then, and what waits behind it goes on."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            self._go_on()

    def _go_on(self) -> None:
        waiting, is_over = self._waiting, True
        try:
            next(waiting[0])
            is_over = False
        except StopIteration:
            pass
        finally:
            if is_over:
                waiting.popleft()
            if waiting:
                self._engine.timers.schedule(self._engine.now_ms + PAUSE_MS, self._go_on)

    def expire(self, partitions: Sequence[Partition], seen_before_ms: int) -> None:
        """Forget the ids that have not written since."""
        if not self._is_expiring:
            self._is_expiring = True
            self.in_slices(self._expiring(partitions, seen_before_ms))

    def _expiring(self, partitions: Sequence[Partition], seen_before_ms: int) -> Slices:
        looked_at = 0
        try:
            for partition in partitions:
                size = min(len(partition.producers), SLICE_PRODUCERS)
                if partition.deleted or not size:
                    continue
                for _ in partition.producers.expiring(seen_before_ms):
                    looked_at += size
                    if looked_at >= SLICE_PRODUCERS:
                        looked_at = 0
                        yield
        finally:
            self._is_expiring = False

    def tick(self) -> None:
        """Called a few times a second: say when there is hardly any room."""
        tally = self.tally
        if (
            100 * tally.count < NEARLY_FULL_PERCENT * self._engine.config.producer_ids_max
            or self._engine.now_ms < self._tell_from_ms
        ):
            return
        self._tell_from_ms = self._engine.now_ms + TELL_INTERVAL_MS
        logger.warning(
            "%d producer ids are remembered, producer.ids.max=%d; %s",
            tally.count,
            self._engine.config.producer_ids_max,
            "new ones are refused until some are forgotten" if tally.is_full else "beyond it new ones are refused",
        )
