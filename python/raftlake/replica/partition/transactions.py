"""Transactions of one partition that are open, or whose outcome is not committed yet: what the last stable offset depends on.

Pure bookkeeping of offsets, derived from the log: a transactional batch opens a transaction, a marker ends it. The rows of the
producers carry the open ones (`producer_state`), so they are not saved from here. The ended ones are: a start point holds those
whose marker was not known to be committed. Invariants: offsets only ascend, since the log does. A transaction is decided once
this node knows its marker to be committed, and then stays so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

#: Entries of `Transactions._order` that are of no use, beside as many as are.
ENDED_MAX = 1024


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    marker_offset: int
    first_offset: int


class Transactions:
    """The open and the undecided transactions of one log."""

    __slots__ = ("_ended", "_minima", "_open", "_order", "is_used")

    def __init__(self) -> None:
        #: First offsets by producer id.
        self._open: dict[int, int] = {}
        #: (first offset, producer id), ascending; some of them are not open any more.
        self._order: deque[tuple[int, int]] = deque()
        #: By their markers, ascending.
        self._ended: deque[EndedTransaction] = deque()
        #: Those of `_ended` that begin before all that were ended later: the first one begins before all.
        self._minima: deque[EndedTransaction] = deque()
        #: Some batch here was transactional.
        self.is_used = False

    @property
    def open(self) -> dict[int, int]:
        """The first offset of each open transaction by producer id, the earliest first."""
        return {producer_id: first for first, producer_id in self._order if self._open.get(producer_id) == first}

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def first_offset_of(self, producer_id: int) -> int | None:
        """Where the open transaction of a producer begins; None where there is none."""
        return self._open.get(producer_id)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._open

    def begin(self, producer_id: int, offset: int) -> None:
        """A producer without an open transaction opens one at `offset`, behind all others."""
        self.is_used = True
        self._open[producer_id] = offset
        self._order.append((offset, producer_id))
        if len(self._order) > 2 * len(self._open) + ENDED_MAX:
            # Behind one that stays open others come and go.
            self._order = deque(each for each in self._order if self._open.get(each[1]) == each[0])

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """A marker stands at `marker_offset`. Returns where the transaction begins that it ends, None where none was open."""
        self.is_used = True
        first = self._open.pop(producer_id, None)
        if first is not None:
            self._note_ended(EndedTransaction(marker_offset, first))
        return first

    def decide(self, producer_id: int) -> None:
        """The open transaction of a producer is known to be decided for good."""
        self._open.pop(producer_id, None)

    def _note_ended(self, ended: EndedTransaction) -> None:
        self._ended.append(ended)
        minima = self._minima
        while minima and minima[-1].first_offset > ended.first_offset:
            minima.pop()
        minima.append(ended)

    def restore(self, found: Iterable[tuple[int, int]], ended: Iterable[EndedTransaction] = ()) -> None:
        """Begin with the open transactions, as (first offset, producer id) in any order, and with the ended ones in the order
        of their markers."""
        for first, producer_id in sorted(found):
            self.begin(producer_id, first)
        for each in ended:
            self.is_used = True
            self._note_ended(each)

    def commit(self, high_watermark: int) -> None:
        """The log is committed below `high_watermark`: what was ended there is decided."""
        for queue in (self._ended, self._minima):
            while queue and queue[0].marker_offset < high_watermark:
                queue.popleft()

    @property
    def earliest_open(self) -> int | None:
        """The first offset of the earliest open transaction."""
        order = self._order
        while order and self._open.get(order[0][1]) != order[0][0]:
            order.popleft()
        return order[0][0] if order else None

    @property
    def earliest_undecided(self) -> int | None:
        """The first offset of the earliest transaction that is open, or was ended and not committed yet."""
        earliest = self.earliest_open
        if not self._minima:
            return earliest
        first = self._minima[0].first_offset
        return first if earliest is None or first < earliest else earliest

    def ended_below(self, offset: int) -> tuple[EndedTransaction, ...]:
        """Those with a marker below `offset` that is not committed, in the order of their markers."""
        return tuple(each for each in self._ended if each.marker_offset < offset)
