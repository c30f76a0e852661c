"""The aborted transactions of one simulated log: `ports.AbortedIndex` in memory.

Owns which entries are durable: what `sync` returned from. A crash takes a random part of the others (`MemoryLog.crash`). The
entries lie in the images of the log, since a truncation that a crash takes back brings them back with the old log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from raftlake.errors import InvariantViolation
from raftlake.raft.types import Offset
from raftlake.sim.disk.log_image import LogImage
from raftlake.sim.disk.power import ClosedLog
from raftlake.sim.disk.space import Space
from raftlake.wire.aborted_index import ENTRY, AbortedTransaction, marker_offset_of, overlapping


class Log(Protocol):
    """The log that the transactions belong to."""

    @property
    def image(self) -> LogImage: ...

    @property
    def segment_bases(self) -> Sequence[Offset]: ...

    @property
    def compacted_until(self) -> Offset | None: ...


class Machine(Protocol):
    """See `disk.Machine`."""

    def port_call(self, name: str) -> None: ...


class SimulatedAbortedIndex:
    """Kept, with its log, over restarts of the node."""

    def __init__(self, log: Log, machine: Machine, space: Space | None = None) -> None:
        self._log = log
        self._machine = machine
        self._space = space or Space()
        #: With the log.
        self.is_deleted = False

    def append(self, entries: Sequence[AbortedTransaction]) -> None:
        self._require_there()
        self._machine.port_call("append to aborted index")
        self._space.take(len(entries) * ENTRY.size, "append to the index of aborted transactions", is_needed=False)
        image = self._log.image
        for entry in entries:
            if entry.last_offset >= image.end or (image.aborted and entry.last_offset <= image.aborted[-1].last_offset):
                raise InvariantViolation(f"{entry} in a log up to {image.end} behind {image.aborted[-1:]}")
            image.aborted.append(entry)

    def sync(self) -> None:
        image = self._log.image
        if image.aborted_synced < len(image.aborted):
            self._require_there()
            self._machine.port_call("sync aborted index")
            image.aborted_synced = len(image.aborted)

    def find(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        aborted = self._log.image.aborted
        if aborted:
            self._require_there()
        return overlapping(iter(aborted[bisect_left(aborted, int(start), key=marker_offset_of) :]), end)[0]

    def counts(self, end_offset: Offset) -> Sequence[tuple[Offset, int]]:
        aborted = self._log.image.aborted
        if not aborted:
            return ()
        self._require_there()
        bases = self._log.segment_bases
        below = aborted[: bisect_left(aborted, int(end_offset), key=marker_offset_of)]
        return sorted(Counter(bases[bisect_right(bases, entry.last_offset) - 1] for entry in below).items())

    def agrees(self, end_offset: Offset, counts: Sequence[tuple[Offset, int]]) -> bool:
        bases, clean_until = self._log.segment_bases, self._log.compacted_until or 0
        found, told = dict(self.counts(end_offset)), {base: count for base, count in counts if base in bases}
        # Of what is compacted, entries that were told may have been dropped.
        return all(
            found.get(base, 0) == told.get(base, 0) or (base < clean_until and found.get(base, 0) < told.get(base, 0))
            for base in found.keys() | told.keys()
        )

    def truncate_to(self, end_offset: Offset) -> None:
        image = self._log.image
        if image.aborted:
            self._require_there()
        keep = bisect_left(image.aborted, int(end_offset), key=marker_offset_of)
        if keep < len(image.aborted):
            self._machine.port_call("truncate aborted index")
            del image.aborted[keep:]
            image.aborted_synced = min(image.aborted_synced, keep)

    def _require_there(self) -> None:
        if self.is_deleted:
            raise ClosedLog("simulated: the directory of the index is gone")
