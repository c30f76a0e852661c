"""What became of the commands that were applied last, for those who ask a moment later.

Owns two generations of results; when the newer one is full, the older one goes as a whole. So noting a result costs the same
however many there are (taking the first key out of one large dict looks at all the places where earlier first keys were).
Invariant: of the results noted, at least the last `kept_min` are here, at most twice as many.
"""

from __future__ import annotations

from raftlake.kv.machine import TxnResult


class RecentResults:
    __slots__ = ("_kept_min", "_newer", "_older")

    def __init__(self, kept_min: int) -> None:
        self._kept_min = kept_min
        self._newer: dict[int, TxnResult] = {}
        self._older: dict[int, TxnResult] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def note(self, offset: int, result: TxnResult) -> None:
        """The command at `offset` was applied."""
        if len(self._newer) >= self._kept_min:
            self._older, self._newer = self._newer, {}
        self._newer[offset] = result

    def get(self, offset: int) -> TxnResult | None:
        """None when it was never applied here, or too long ago."""
        return self._newer.get(offset) or self._older.get(offset)
