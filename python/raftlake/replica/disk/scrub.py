"""The scrub: closed segments are read on and on, so that damage is found while other voters still have the records.

Owns how far it came. It reads one log after the other, as much at a time as the disk can spare, and in slices: whoever appends
meanwhile waits for a slice, and not for all of it.
"""

from __future__ import annotations

from collections import deque

from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine

#: What the scrub reads of closed segments.
SCRUB_BYTES_PER_SECOND = 4 * 1024 * 1024
#: What it reads at once: about 0.2 ms. All of a second at once took 2 to 4 ms.
SLICE_BYTES = 256 * 1024


class Scrub:
    def __init__(self, engine: Engine, findings: Findings) -> None:
        self._engine = engine
        self._findings = findings
        self._scrubbed: GroupId | None = None
        #: The logs that are still to be read on in, and how many bytes of them.
        self._line: deque[GroupId] = deque()
        self._budget = 0
        self._pause_ms = 0
        self._is_waiting = False

    def read_on(self, elapsed_ms: int) -> None:
        """Read on in the closed segments, one log after the other, as much as the time since the last call allows. Slices are
        spread over as much time again."""
        self._budget = SCRUB_BYTES_PER_SECOND * elapsed_ms // 1000
        self._pause_ms = elapsed_ms * SLICE_BYTES // max(self._budget, SLICE_BYTES)
        groups = sorted(self._engine.partitions)
        after = [group for group in groups if self._scrubbed is not None and group > self._scrubbed]
        self._line = deque(after + groups[: len(groups) - len(after)])
        if not self._is_waiting:
            self._read_slice()

    def _read_slice(self) -> None:
        self._is_waiting = False
        left = size = min(self._budget, SLICE_BYTES)
        while left > 0 and self._line:
            left -= self._read(self._line[0], left)
        self._budget -= size
        if self._budget > 0 and self._line:
            self._is_waiting = True
            self._engine.timers.schedule(self._engine.now_ms + self._pause_ms, self._read_slice)

    def _read(self, group: GroupId, size: int) -> int:
        """How many of `size` bytes were read. Where fewer were, all of this log was seen."""
        partition = self._engine.partitions.get(group)
        read = None if partition is None else self._findings.guarded(group, lambda: partition.log.scrub(size))
        if read is None or read < size:
            self._scrubbed = self._line.popleft()
        return read or 0
