"""Where each leader epoch begins in a log, and Kafka's `leader-epoch-checkpoint` file of it.

Entries are (epoch, start offset), both ascending. A log that begins above 0 keeps one entry more than its records need: the
first, at exactly the log's start offset, is the epoch of the record just before it (what Kafka keeps after
`truncateFromStart`). With it a replica that holds no record knows the last epoch of its history, and claims neither more nor
less in an election. When the very first record opens a new epoch, the file has two entries with the same start offset;
then the older one is not shown in `entries`, whose start offsets ascend strictly, but it is there again
when that record is truncated.

The file is a hint for everything in the last segment: recovery reads those epochs from the batches themselves. Only
entries below the last segment are taken from the file, and it is synced before a new segment begins.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from raftlake.errors import DiskFull
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.files import read_file, replace_file

FILE_NAME = "leader-epoch-checkpoint"
VERSION = 0
#: The version of a file that was not written.
NEVER = -1

Entry = tuple[Epoch, Offset]


class LeaderEpochs:
    """The epoch history of one log and its file. `write` may be called from a flush thread, the rest only from the driver's."""

    __slots__ = (
        "_directory",
        "_durable_version",
        "_entries",
        "_lock",
        "_saved_version",
        "_version",
        "_written_version",
        "entries",
    )

    def __init__(self, directory: Path, entries: Sequence[Entry] = ()) -> None:
        self._directory = directory
        self._entries = list(entries)
        #: What the log's users see.
        self.entries = _visible(entries)
        self._version = 0
        #: The last version that was handed to a writer, and the last one that a writer began to write.
        self._saved_version = 0
        self._written_version = NEVER
        #: The last version that was written and synced.
        self._durable_version = NEVER
        self._lock = threading.Lock()

    @property
    def all_entries(self) -> Sequence[Entry]:
        """With the epoch before the log's start, as in the file."""
        return tuple(self._entries)

    @property
    def last(self) -> Epoch:
        """The last epoch, 0 when there is none."""
        return self._entries[-1][0] if self._entries else Epoch(0)

    def note(self, epoch: Epoch, offset: Offset) -> None:
        """A batch of `epoch` begins at `offset`, the end of the log."""
        if not self._entries or epoch > self._entries[-1][0]:
            self._change([*self._entries, (epoch, offset)])

    def truncate_to(self, end_offset: Offset, log_start: Offset) -> None:
        """Drop the epochs that start at or after `end_offset`; never the one before the log's first record."""
        first = self._entries[:1] if log_start > 0 else []
        self._change(first + [entry for entry in self._entries[len(first) :] if entry[1] < end_offset])

    def advance_to(self, log_start: Offset) -> None:
        """The log now begins at `log_start`: the epoch of the record before it becomes the first entry."""
        before = [entry for entry in self._entries if entry[1] < log_start]
        if before:
            self._change([(before[-1][0], log_start), *(entry for entry in self._entries if entry[1] >= log_start)])

    def reset_to(self, start: OffsetAndEpoch) -> None:
        """The log is empty and begins at `start`."""
        self._change([(start.epoch, start.offset)] if start.offset > 0 else [])

    def _change(self, entries: list[Entry]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.entries = _visible(entries)
            self._version += 1

    def encode(self) -> bytes:
        """The content of the file."""
        lines = [str(VERSION), str(len(self._entries)), *(f"{epoch} {offset}" for epoch, offset in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    def take_changes(self) -> tuple[int, bytes] | None:
        """(version, content) for `write` when the history changed since the last call or save, else None."""
        if self._saved_version == self._version:
            return None
        self._saved_version = self._version
        return self._version, self.encode()

    def write(self, version: int, content: bytes, *, sync: bool) -> None:
        """Write the file, unless a later version was written already. Raises StorageError."""
        with self._lock:
            if version > self._written_version:
                self._replace(content, version, sync=sync)

    def save(self) -> None:
        """Make the history durable before returning, where it is not yet. Raises StorageError."""
        with self._lock:
            self._saved_version = self._version
            if self._durable_version != self._version:
                self._replace(self.encode(), self._version, sync=True)

    def _replace(self, content: bytes, version: int, *, sync: bool) -> None:
        try:
            replace_file(self._directory / FILE_NAME, content, sync=sync)
        except DiskFull:
            # Not written: the next flush takes the changes again.
            self._saved_version = NEVER
            raise
        self._written_version = version
        if sync:
            self._durable_version = version


def _visible(entries: Sequence[Entry]) -> Sequence[Entry]:
    is_first_empty = len(entries) > 1 and entries[0][1] == entries[1][1]
    return tuple(entries[1:] if is_first_empty else entries)


def parse(data: bytes) -> list[Entry]:
    """The entries of a checkpoint file. Raises ValueError when it is damaged."""
    lines = data.decode("ascii").split("\n")
    if len(lines) < 3 or lines[-1] != "":
        raise ValueError("the file is cut off")
    if int(lines[0]) != VERSION:
        raise ValueError(f"version {lines[0]} is not {VERSION}")
    pairs = [line.split(" ") for line in lines[2:-1]]
    if len(pairs) != int(lines[1]) or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{lines[1]} entries are announced, {len(pairs)} follow")
    entries = [(Epoch(int(epoch)), Offset(int(offset))) for epoch, offset in pairs]
    ordered = all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(entries))
    if not ordered or any(epoch < 0 or offset < 0 for epoch, offset in entries):
        raise ValueError("entries are not in order")
    return entries


def load(directory: Path) -> list[Entry] | None:
    """The entries of the directory's checkpoint, None when it is missing or damaged (the log can rebuild it)."""
    data = read_file(directory / FILE_NAME)
    if data is None:
        return None
    try:
        return parse(data)
    except ValueError:
        return None
