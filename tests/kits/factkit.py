"""`LogFacts` that tell how much of their log a start reads."""

from __future__ import annotations

from collections.abc import Iterator

from raftlake.raft.types import Offset
from raftlake.replica.partition.start_points import LogFacts
from raftlake.wire.batches import BatchHeader


class HeadersRead:
    """How many headers of batches `facts` have read since this was made."""

    def __init__(self, facts: LogFacts) -> None:
        self.count = 0
        self._read = facts._read
        facts._read = self._counted  # type: ignore[method-assign]

    def _counted(self, offset: Offset) -> Iterator[tuple[bytes, BatchHeader]]:
        for each in self._read(offset):
            self.count += 1
            yield each
