"""What `raftlake tier verify` may find: which rule is broken, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from raftlake.tier.foreign_commits import UNDO, undo_advice

#: Findings of one kind in one partition that are told one by one.
TOLD_MAX = 20


class Kind(Enum):
    """A rule, and what to do where it is broken."""

    GAP = "gap", f"another program has removed rows: {UNDO}"
    TWICE = "twice", f"another program has added rows, or put back an old file: {UNDO}"
    EPOCH = "epoch", f"another program has changed rows: {UNDO}"
    BATCH = "batch", f"another program has changed rows: {UNDO}"
    CRC = "crc", "the rows are not what was produced: put back the file from a copy of the store, or copy the table anew"
    FILE = "file", "put it back from a copy of the store"
    OVERLAP = "overlap", f"one of them is no file of this table: {UNDO}"
    FOREIGN = "foreign", f"another program has added rows: {UNDO}"
    END = "end", f"another program has added or removed rows: {UNDO}"
    CHANGED = "changed", UNDO
    PLACE = "place", "put back the table that was here: its topic goes on copying only there"
    TABLE = "table", "nothing of it can be read: move away what is no table of raftlake, restore what was one"
    KEYS = "keys", "`raftlake tier rebuild-metadata` makes the quorum's keys anew from the table"

    def __init__(self, word: str, advice: str) -> None:
        self.word = word
        self.advice = advice

    @property
    def is_to_be_undone(self) -> bool:
        """What others have done is to be taken back."""
        return UNDO in self.advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: Kind
    table: str
    #: None where the table is concerned as a whole.
    partition: int | None
    #: The first offset concerned; None where a file or a partition is concerned as a whole.
    offset: int | None = None
    #: Relative to the table.
    file: str | None = None
    what: str

    @property
    def advice(self) -> str:
        """What to do."""
        return undo_advice(self.table, self.kind.advice)

    def line(self) -> str:
        """All of it in one line."""
        at = "" if self.offset is None else f" offset {self.offset}"
        file = "" if self.file is None else f" {self.file}"
        partition = "" if self.partition is None else f" partition {self.partition}"
        where = partition + at + file
        return f"{self.table}:{where}{':' * bool(where)} {self.what}: {self.advice}"


class Findings:
    """Those of one partition. A table may be wrong in a million places: of each kind some are told, and the others counted."""

    def __init__(self, table: str, partition: int) -> None:
        self._table = table
        self._partition = partition
        self._found: dict[Kind, list[Finding]] = {}
        self._counts: dict[Kind, int] = {}

    def add(self, kind: Kind, what: str, *, offset: int | None = None, file: str | None = None) -> None:
        """One more."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= TOLD_MAX:
            found = Finding(kind=kind, table=self._table, partition=self._partition, offset=offset, file=file, what=what)
            self._found.setdefault(kind, []).append(found)

    def __iter__(self) -> Iterator[Finding]:
        for kind, found in self._found.items():
            yield from found
            if (more := self._counts[kind] - len(found)) > 0:
                what = f"{more} more findings of this kind ({kind.word})"
                yield Finding(kind=kind, table=self._table, partition=self._partition, what=what)
