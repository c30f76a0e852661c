"""The scrub: closed segments are read on and on, so that damage is found while other voters still have the records.

Owns how far it came. It reads one log after the other, as much at a time as the disk can spare.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine

#: What the scrub reads of closed segments.
SCRUB_BYTES_PER_SECOND = 4 * 1024 * 1024


class Scrub:
    def __init__(self, engine: Engine, findings: Findings) -> None:
        self._engine = engine
        self._findings = findings
        self._scrubbed: GroupId | None = None

    def read_on(self, elapsed_ms: int) -> None:
        """Read on in the closed segments, one log after the other, as much as the time since the last call allows."""
        budget = SCRUB_BYTES_PER_SECOND * elapsed_ms // 1000
        groups = sorted(self._engine.partitions)
        after = [group for group in groups if self._scrubbed is not None and group > self._scrubbed]
        for group in after + groups[: len(groups) - len(after)]:
            if budget <= 0:
                return
            log = self._engine.partitions[group].log
            read = self._findings.guarded(group, lambda log=log, size=budget: log.scrub(size))  # type: ignore[misc]
            budget -= read or 0
            if read is None or budget > 0:
                # All of this log was seen.
                self._scrubbed = group
