"""What became of the commands that were applied last, for those who ask a moment later.

Owns two generations of results; when the newer one is full, the older one goes as a whole. So noting a result costs the same
however many there are (taking the first key out of one large dict looks at all the places where earlier first keys were), and
a success is kept without an object of its own, unless some of its puts were ignored. Invariant: of the results noted, at least
the last `kept_min` are here, at most twice as many.
"""

from __future__ import annotations

from raftlake.kv.machine import TxnResult

#: The compares that failed; None for success, or the result where there is more to say.
_Kept = tuple[tuple[str, int], ...] | TxnResult | None


class RecentResults:
    __slots__ = ("_kept_min", "_newer", "_older")

    def __init__(self, kept_min: int) -> None:
        self._kept_min = kept_min
        self._newer: dict[int, _Kept] = {}
        self._older: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def note(self, result: TxnResult) -> None:
        """A command was applied."""
        if len(self._newer) >= self._kept_min:
            self._older, self._newer = self._newer, {}
        self._newer[result.offset] = (
            result if result.ignored or result.refused or result.ranges else None if result.succeeded else result.current
        )

    def get(self, offset: int) -> TxnResult | None:
        """None when it was never applied here, or too long ago."""
        for generation in (self._newer, self._older):
            if offset in generation:
                kept = generation[offset]
                if isinstance(kept, TxnResult):
                    return kept
                return TxnResult(succeeded=kept is None, offset=offset, current=kept or ())
        return None
