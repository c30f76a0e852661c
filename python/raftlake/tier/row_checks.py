"""The rules that the rows of one partition keep, whoever wrote their files last. Pure: rows in, findings out.

Rows come in pieces, in the order of their offsets. What is kept between two pieces is the row before, and the rows of the batch
that may go on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raftlake.arrow.records import KIND_ABORTED, KIND_CONTROL, LOADER, NOT_CANONICAL, KernelLoader, encode_segment
from raftlake.errors import RequestRejected, WireError
from raftlake.tier.failures import words_of
from raftlake.tier.findings import Findings, Kind
from raftlake.tier.ordered_rows import Rows
from raftlake.wire.batch_header import CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT, parse_header

#: pyarrow ships no types.
Arrow: TypeAlias = Any
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

#: What all rows of a batch have in common, beside their base offset.
_OF_THE_BATCH = (
    "timestampType",
    "kind",
    "leader_epoch",
    "batch_crc",
    "batch_attributes",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "incarnation",
)
_NUMBERS = ("offset", "batch_base_offset", *_OF_THE_BATCH)
#: What rows that are no batch make the encoder raise.
_NOT_ENCODABLE = (WireError, RequestRejected, ValueError, OverflowError, struct.error, pa.ArrowException)


@dataclass(slots=True)
class Span:
    """The offsets and epochs of one segment, as its rows tell."""

    first: int
    last: int
    #: The leader epochs, each with its first offset here.
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def go_on(self, offsets: Ints, epochs: Ints) -> None:
        """More rows of it."""
        self.last = int(offsets[-1])
        before = self.epochs[-1][0] if self.epochs else None
        news = [0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist()]
        found = [(int(epochs[row]), int(offsets[row])) for row in news]
        self.epochs += found[1:] if found[0][0] == before else found


class PartitionCheck:
    """The rules for the rows of one partition."""

    def __init__(
        self,
        topic: str,
        findings: Findings,
        wanted: Iterable[str] = (),
        loader: KernelLoader = LOADER,
        *,
        newest_incarnation: int = 0,
    ) -> None:
        self._topic = topic
        self._findings = findings
        self._newest_incarnation = newest_incarnation
        self._loader = loader
        #: Ranges of offsets whose absence is told already: their file cannot be read. Both ends belong to them.
        self.excused: list[tuple[int, int]] = []
        self.rows = self.batches = self.checked_batches = self.segments = 0
        #: Rows of aborted transactions.
        self.aborted = 0
        self.first: int | None = None
        #: The offset behind the last row.
        self.next: int | None = None
        #: The last offset of each incarnation.
        self.last_of: dict[int, int] = {}
        #: The segments of which somebody wants to know.
        self.spans: dict[str, Span] = {}
        self._wanted = frozenset(wanted)
        #: The row before, as a piece of one row.
        self._before: Rows | None = None
        #: The batch that may go on: its rows so far.
        self._open: list[Arrow] = []
        self._open_is_whole = False
        self._open_path = ""

    def add(self, rows: Rows) -> None:
        """The next rows."""
        if not rows.batch.num_rows:
            return
        piece = _Piece(rows, self._before, begins_well=not self.excused)
        self._check_order(piece)
        self._check_columns(piece)
        self._note(piece)
        self._check_batches(piece)
        self._before = Rows(rows.batch.slice(rows.batch.num_rows - 1), (rows.path_of(rows.batch.num_rows - 1),))

    def finish(self) -> None:
        """There are no more rows."""
        if self._open:
            self._check_crcs(self._open, np.array([0]), np.array([self._open_is_whole]), [self._open_path])
        self._open = []

    # --- offsets and epochs ------------------------------------------------------------------------------------------------

    def _check_order(self, piece: _Piece) -> None:
        offsets, steps = piece["offset"], piece.steps("offset")
        for row in np.flatnonzero(steps > 1).tolist():
            missing, behind = int(offsets[row] - steps[row] + 1), int(offsets[row])
            if not self.is_excused(missing, behind - 1):
                what = "the offset is missing" if behind == missing + 1 else f"the offsets up to {behind - 1} are missing"
                if piece.path_of(row) != piece.path_of(row - 1):
                    what += f", {piece.path_of(row)} goes on at {behind}"
                self._findings.add(Kind.GAP, what, offset=missing, file=piece.path_of(row - 1))
        for first, last in _runs(np.flatnonzero(steps <= 0), offsets):
            what = "the offset is" if first == last else f"the offsets up to {offsets[last]} are"
            what += f" there more than once, also in {piece.path_of(first - 1)}"
            self._findings.add(Kind.TWICE, what, offset=int(offsets[first]), file=piece.path_of(first))
        for name, what in (("leader_epoch", "leader epoch"), ("incarnation", "incarnation")):
            for row in np.flatnonzero(piece.steps(name) < 0).tolist():
                now = int(piece[name][row])
                before = now - int(piece.steps(name)[row])
                if name == "incarnation" and before < self._newest_incarnation:
                    # A later election brought back what an earlier one had superseded.
                    continue
                text = f"the {what} goes back from {before} to {now}"
                self._findings.add(Kind.EPOCH, text, offset=int(offsets[row]), file=piece.path_of(row))

    def is_excused(self, first: int, last: int) -> bool:
        """All offsets from `first` to `last` were in files that cannot be read."""
        for low, high in sorted(self.excused):
            if low <= first <= high:
                first = high + 1
        return first > last

    # --- columns -----------------------------------------------------------------------------------------------------------

    def _check_columns(self, piece: _Piece) -> None:
        offsets, bases = piece["offset"], piece["batch_base_offset"]
        wrong = np.flatnonzero(piece.follows & ~piece.continues & (offsets != bases))
        self._tell_first(piece, wrong, lambda row: f"its batch has the base offset {bases[row]}, and no row there before it")
        for name in _OF_THE_BATCH:
            wrong = np.flatnonzero(piece.continues & (piece.steps(name) != 0))
            self._tell_first(piece, wrong, lambda row, name=name: f"{name} is another one than in the row before, in one batch")
        wrong = np.flatnonzero((piece["kind"] == KIND_CONTROL) != ((piece["batch_attributes"] & CONTROL_BIT) != 0))
        self._tell_first(piece, wrong, lambda row: "kind and batch_attributes disagree whether it is a control record")
        wrong = np.flatnonzero((piece["kind"] == KIND_ABORTED) & ((piece["batch_attributes"] & TRANSACTIONAL_BIT) == 0))
        self._tell_first(piece, wrong, lambda row: "kind says that its transaction was aborted, and its batch had none")
        wrong = np.flatnonzero(~np.asarray(pc.equal(piece.batch.column("topic"), self._topic).fill_null(False)))
        self._tell_first(piece, wrong, lambda row: f"the row is of another topic than {self._topic}", Kind.FOREIGN)
        for name, row in piece.nulls.items():
            self._findings.add(Kind.FOREIGN, f"{name} is null", offset=int(offsets[row]), file=piece.path_of(row))

    def _tell_first(self, piece: _Piece, wrong: Ints, what: Any, kind: Kind = Kind.BATCH) -> None:
        """One finding for each run of rows."""
        for first, _ in _runs(wrong, piece["offset"]):
            self._findings.add(kind, what(first), offset=int(piece["offset"][first]), file=piece.path_of(first))

    # --- what is told of the rows as a whole -------------------------------------------------------------------------------

    def _note(self, piece: _Piece) -> None:
        offsets = piece["offset"]
        self.rows += len(offsets)
        self.aborted += int((piece["kind"] == KIND_ABORTED).sum())
        self.first = int(offsets[0]) if self.first is None else self.first
        self.next = int(offsets[-1]) + 1
        for incarnation in np.unique(piece["incarnation"]).tolist():
            self.last_of[incarnation] = int(offsets[piece["incarnation"] == incarnation].max())
        begins = np.flatnonzero(piece.new_segments)
        self.segments += len(begins)
        if not self._wanted:
            return
        names = piece.batch.column("segment_id")
        for first, behind in zip([0, *begins.tolist()], [*begins.tolist(), len(offsets)], strict=True):
            if first < behind and (name := names[first].as_py()) in self._wanted:
                span = self.spans.setdefault(name, Span(int(offsets[first]), int(offsets[first])))
                span.go_on(offsets[first:behind], piece["leader_epoch"][first:behind])

    # --- batches -----------------------------------------------------------------------------------------------------------

    def _check_batches(self, piece: _Piece) -> None:
        """Make the batches again that are here as a whole, but for the last one, which may go on."""
        begins = np.flatnonzero(~piece.continues)
        if not len(begins):
            self._open.append(piece.batch)
            return
        begins_well = piece["offset"][begins] == piece["batch_base_offset"][begins]
        # Where the next batch does not follow, this one may have lost its end: that is told already.
        ends_well = piece.follows[begins]
        last = int(begins[-1])
        if self._open:
            opened = sum(part.num_rows for part in self._open)
            starts = np.concatenate([[0], begins[:-1] + opened])
            is_whole = np.concatenate([[self._open_is_whole], begins_well[:-1]]) & ends_well
            paths = [self._open_path, *map(piece.path_of, begins[:-1].tolist())]
        else:
            starts, is_whole = begins[:-1] - begins[0], begins_well[:-1] & ends_well[1:]
            paths = [piece.path_of(row) for row in begins[:-1].tolist()]
        self._check_crcs([*self._open, piece.batch.slice(0, last)], starts, is_whole, paths)
        self._open = [piece.batch.slice(last)]
        self._open_is_whole, self._open_path = bool(begins_well[-1]), piece.path_of(last)

    def _check_crcs(self, parts: list[Arrow], starts: Ints, is_whole: Flags, paths: list[str]) -> None:
        """`starts`: the first row of each batch."""
        if not len(starts):
            return
        rows = pa.Table.from_batches(parts)
        self.batches += len(starts)
        is_checked = is_whole & (_numbers(rows, "batch_attributes")[starts] & (CODEC_MASK | NOT_CANONICAL) == 0)
        self.checked_batches += int(is_checked.sum())
        if not is_checked.any():
            return
        counts = np.diff(np.append(starts, rows.num_rows))
        chosen = rows if is_checked.all() else rows.filter(pa.array(np.repeat(is_checked, counts)))
        batches = starts[is_checked]
        wanted = (_numbers(rows, "batch_crc")[batches] & 0xFFFFFFFF).tolist()
        bases = _numbers(rows, "batch_base_offset")[batches].tolist()
        places = [path for path, is_one in zip(paths, is_checked.tolist(), strict=True) if is_one]
        made = self._crcs(chosen, counts[is_checked])
        for base, path, crc, found in zip(bases, places, wanted, made, strict=True):
            if found != crc:
                what = (
                    found if isinstance(found, str) else f"its batch has the CRC {crc:#010x}, and its rows make {found:#010x}"
                )
                self._findings.add(Kind.CRC, what, offset=base, file=path)

    def _crcs(self, rows: Arrow, counts: Ints) -> list[int | str]:
        """The CRC of each batch as its rows make it, or why they make none."""
        try:
            return list(_encoded(rows, self._loader))
        except _NOT_ENCODABLE:
            found: list[int | str] = []
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
            for start, count in zip(starts, counts.tolist(), strict=True):
                try:
                    found += _encoded(rows.slice(start, count), self._loader)
                except _NOT_ENCODABLE as error:
                    found.append(words_of(error))
            return found


def _encoded(rows: Arrow, loader: KernelLoader) -> Iterator[int]:
    return (parse_header(batch).crc for batch in encode_segment(rows, loader))


class _Piece:
    """Rows beside the row before each."""

    def __init__(self, rows: Rows, before: Rows | None, *, begins_well: bool) -> None:
        self.batch = rows.batch
        self._rows = rows
        self._before = before
        #: The columns that have nulls, each with the first such row.
        self.nulls: dict[str, int] = {}
        self._numbers = {name: self._filled(name) for name in _NUMBERS}
        self._steps = {name: self._differences(name) for name in _NUMBERS}
        #: The row is behind the one before it, and its offset the next one. The first row of all follows nothing.
        self.follows: Flags = self._steps["offset"] == 1
        if before is None:
            self.follows[0] = begins_well
            self._steps["offset"][0] = 1
        #: The row is of the batch of the row before it.
        self.continues: Flags = self.follows & (self._steps["batch_base_offset"] == 0)
        if before is None:
            self.continues[0] = False

    def _filled(self, name: str) -> Ints:
        column = self.batch.column(name)
        if column.null_count:
            self.nulls[name] = int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        return _numbers(self.batch, name)

    def _differences(self, name: str) -> Ints:
        numbers = self._numbers[name]
        first = numbers[:1] if self._before is None else _numbers(self._before.batch, name)
        return np.diff(numbers, prepend=first)

    def __getitem__(self, name: str) -> Ints:
        return self._numbers[name]

    def steps(self, name: str) -> Ints:
        """By how much each row is more than the one before it."""
        return self._steps[name]

    @property
    def new_segments(self) -> Flags:
        """The rows that are of another segment than the row before."""
        names = self.batch.column("segment_id")
        before = None if self._before is None else self._before.batch.column("segment_id")[0]
        first = self._before is None or names[0] != before
        rest = pc.not_equal(names.slice(1), names.slice(0, len(names) - 1)).fill_null(True)
        return np.concatenate([[first], np.asarray(rest)]).astype(bool)

    def path_of(self, row: int) -> str:
        """The file of a row; -1 is the row before the first one."""
        if row < 0:
            return self._before.paths[0] if self._before is not None else self._rows.paths[0]
        return self._rows.path_of(row)


def _numbers(rows: Arrow, name: str) -> Ints:
    """A column as numbers; what is null is 0."""
    column = rows.column(name).fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), np.int64)


def _runs(rows: Ints, offsets: Ints) -> Iterator[tuple[int, int]]:
    """The first and the last row of each run of rows whose offsets follow one another."""
    if not len(rows):
        return
    cuts = np.flatnonzero(np.diff(offsets[rows]) > 1)
    yield from zip(rows[np.append(0, cuts + 1)].tolist(), rows[np.append(cuts, len(rows) - 1)].tolist(), strict=True)
