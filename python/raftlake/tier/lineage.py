"""Which copies belong to the history of a leader that an unclean election made (KIP-405: scenarios 3 to 5). Pure.

Two records with the same offset and the same leader epoch are the same record: one leader has written it. So the leader epochs
tell which rows of a file are in the leader's history, and which another history put in the same place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from raftlake.raft.types import Epoch, Offset
from raftlake.tier.plan import Range

#: Leader epochs, each with its first offset, ascending.
Epochs = Sequence[tuple[Epoch, Offset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file with rows of one partition: each offset from `base_offset` to below `end_offset` once."""

    name: str
    base_offset: Offset
    end_offset: Offset
    #: Of its rows; the first one begins at `base_offset`.
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: The table shows it now. Others were superseded by an earlier election.
    is_live: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What the table shall show of a piece."""

    piece: Piece
    base_offset: Offset
    end_offset: Offset

    @property
    def is_whole(self) -> bool:
        return (self.base_offset, self.end_offset) == (self.piece.base_offset, self.piece.end_offset)


def adopt(pieces: Iterable[Piece], epochs: Epochs, log_start: Offset, end: Offset) -> list[Part]:
    """What a table shows after the election, in the order of offsets: the longest gapless run of the leader's history that its
    log goes on from. The log begins at `log_start`; `epochs` are those of its whole history, and `end` is where its committed
    records end. Rows from before the first known epoch are not known to be of this history.

    A file that is cut at its end has no auxiliary state there. So it is left out at the end of the run where the log has its
    records anyway, and they are copied again.
    """
    known = [(piece, each) for piece in pieces for each in agreed(piece, epochs, end)]
    run = _run_at(log_start, [each for _, each in known])
    parts: list[Part] = []
    choice, offset = _Choice(known), run.base_offset
    while offset < run.end_offset:
        parts.append(choice.part_at(offset))
        offset = parts[-1].end_offset
    while parts and parts[-1].end_offset < parts[-1].piece.end_offset and parts[-1].base_offset >= log_start:
        parts.pop()
    return parts


def cut_off(pieces: Iterable[Piece], epochs: Epochs, log_start: Offset, parts: Sequence[Part]) -> Range | None:
    """Rows of the leader's history from before its log that the table shows now, and does not show as `parts`: a hole lies
    between them and the log. Nobody else has them. None where there are none."""
    start = parts[0].base_offset if parts else log_start
    live = (piece for piece in pieces if piece.is_live)
    runs = _runs(each for piece in live for each in agreed(piece, epochs, log_start))
    return next((run for run in runs if run.base_offset < start), None)


def hole_words(cut: Range, log_start: Offset) -> str:
    """What keeps a table from being taken over."""
    return (
        f"it shows the offsets {cut.base_offset} to {cut.end_offset - 1} of this history, the log begins at {log_start}, and "
        "records between them are in neither: to take it over would take those rows out, so nothing was changed"
    )


def agreed(piece: Piece, epochs: Epochs, end: Offset) -> list[Range]:
    """The ranges of a piece whose leader epochs are those of a history that ends at `end`, in the order of offsets."""
    found: list[Range] = []
    # A long history has thousands of epochs, and a file rows of a few.
    first, behind = (bisect_right(epochs, offset, key=_start) for offset in (piece.base_offset, piece.end_offset))
    starts = {offset for _, offset in (*piece.epochs, *epochs[first:behind])}
    bounds = sorted(starts | {piece.base_offset, end, piece.end_offset})
    for base, limit in pairwise(bounds):
        is_inside = piece.base_offset <= base < min(piece.end_offset, end)
        if not is_inside or _epoch_at(epochs, base) != _epoch_at(piece.epochs, base):
            continue
        if found and found[-1].end_offset == base:
            found[-1] = Range(found[-1].base_offset, Offset(limit))
        else:
            found.append(Range(Offset(base), Offset(limit)))
    return found


def _epoch_at(epochs: Epochs, offset: int) -> Epoch | None:
    """The epoch of the record at `offset`; None before the first one."""
    index = bisect_right(epochs, offset, key=_start)
    return epochs[index - 1][0] if index else None


def _start(entry: tuple[Epoch, Offset]) -> Offset:
    return entry[1]


def _run_at(offset: Offset, ranges: Iterable[Range]) -> Range:
    """The union of all ranges that hold `offset`, or end or begin there, with what lies around them without a gap. It is empty
    where there are none."""
    return next((run for run in _runs(ranges) if run.base_offset <= offset <= run.end_offset), Range(offset, offset))


def _runs(ranges: Iterable[Range]) -> list[Range]:
    """The unions of ranges without a gap, in the order of offsets."""
    runs: list[Range] = []
    for each in sorted(ranges, key=lambda found: found.base_offset):
        if runs and each.base_offset <= runs[-1].end_offset:
            runs[-1] = Range(runs[-1].base_offset, max(runs[-1].end_offset, each.end_offset))
        else:
            runs.append(each)
    return runs


class _Choice:
    """What shows which record. A table may have a hundred thousand files, so each is looked at once: `part_at` is asked in the
    order of offsets."""

    def __init__(self, known: Iterable[tuple[Piece, Range]]) -> None:
        #: What reaches farthest comes last.
        self._ranked = sorted(known, key=lambda pair: (pair[1].end_offset, pair[0].is_live, pair[0].name))
        #: By where they begin.
        self._staying = {piece.base_offset: piece for piece, within in self._ranked if _stays(piece, within)}
        self._bases = sorted(self._staying)
        #: The ranks of those that begin behind what was asked, the next one last.
        self._coming = sorted(range(len(self._ranked)), key=lambda rank: self._ranked[rank][1].base_offset, reverse=True)
        self._farthest = -1

    def part_at(self, offset: Offset) -> Part:
        """What shows the record at `offset`, which is in some range: a live file that stays as it is, where there is one, else
        what reaches farthest."""
        while self._coming and self._ranked[self._coming[-1]][1].base_offset <= offset:
            self._farthest = max(self._farthest, self._coming.pop())
        staying = self._staying.get(offset)
        if staying is not None:
            return Part(staying, staying.base_offset, staying.end_offset)
        piece, within = self._ranked[self._farthest]
        at = bisect_right(self._bases, offset)
        return Part(piece, offset, min([within.end_offset, *self._bases[at : at + 1]]))


def _stays(piece: Piece, within: Range) -> bool:
    """The table shows the file now, and may go on to show all of it."""
    return piece.is_live and (within.base_offset, within.end_offset) == (piece.base_offset, piece.end_offset)
