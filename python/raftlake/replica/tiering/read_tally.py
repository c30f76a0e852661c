"""What reads of the remote tier came to: counts for `/metrics`, and failures for the log and for `/v1/tier`."""

from __future__ import annotations

import logging

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.unreadable import Unreadable, UnreadableParts

logger = logging.getLogger("raftlake.tier")

#: Between two lines in the log about one partition: with another cause, and with the same.
TELL_MS = 10_000
TELL_AGAIN_MS = 600_000


class ReadTally:
    """Of a node since its start."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Calls of the tier that gave batches, and the bytes of these.
        self.reads = 0
        self.bytes = 0
        #: Reads of consumers from what was here already.
        self.hits = 0
        #: Searches by time that were answered.
        self.searches = 0
        self.failures = 0
        #: What cannot be read at the moment.
        self.unreadable = UnreadableParts()
        #: What was told last of a partition, and when.
        self._told: dict[GroupId, tuple[str, int]] = {}
        engine.closed.append(self._on_closed)

    def fail(self, group: GroupId, what: str, error: TierError, offset: int | None = None) -> Unreadable:
        """A call came to nothing. `what` stands before the reason, which names the file and what to do. `offset` is what was to
        be read; None for a search."""
        self.failures += 1
        now_ms = self._engine.now_ms
        reason, at_ms = self._told.get(group, ("", now_ms - TELL_MS))
        if now_ms >= at_ms + (TELL_AGAIN_MS if reason == error.reason else TELL_MS):
            self._told[group] = (error.reason, now_ms)
            logger.warning("%s: %s: %s", group, what, error.reason)
        return self.unreadable.note(group, error, offset, self._engine.clock.wall_ms())

    def _on_closed(self, partition: Partition) -> None:
        self._told.pop(partition.group, None)
        self.unreadable.forget(partition.group)
