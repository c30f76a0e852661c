"""`election-states`: the election states of data partitions, in one file for all of them, and its copy.

When a node is lost, hundreds of groups elect at once; a file, a rename and two syncs for each of them would take seconds, and
the groups have no leader meanwhile. One group alone gains as well: each of the two syncs waits for a commit of the file
system's journal, 2 to 5 ms on a busy disk and now and then 90, and a vote needs three saves in a row. Kafka has no file for
these groups to be compatible with: only its metadata log elects by Raft.

Each line is one append: the CRC-32C of the rest in hex, a space and a JSON list, one object for each group. The last object
of a group counts. Behind the lines the file holds zeros, so that an append changes no size and its sync nothing but data.

Promises: `append` returns when all of it is durable in the file and then in the copy. A crash tears
only states that were not answered yet, in one of the two. A state that was answered stands in both, so one of them may be
damaged or lost in any way. A StorageError is raised where neither is whole: a replica that forgot its vote could vote twice.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState
from raftlake.storage.descriptors import open_file
from raftlake.storage.files import (
    FILE_MODE,
    NO_ROOM,
    read_file,
    replace_file,
    storage_error,
    sync_data,
    sync_directory,
    write_at,
)

FILE_NAME = "election-states"
COPY_NAME = "election-states-copy"
#: The files are rewritten when they are larger than this and less than a fifth of them still counts.
COMPACT_BYTES_MIN = 1 << 20
COMPACT_RATIO = 5
#: Zeros that are written behind the lines when they reach the end of a file.
RESERVE_BYTES = 64 << 10
ADVICE = (
    "This node could vote twice in one epoch. Restore one of the two, or let the node begin anew with an empty data directory "
    "that `raftlake format` makes: it then is another replica, which the others add as a voter"
)
_CRC_SIZE = 9

Encode = Callable[[GroupId, ElectionState], bytes]
#: Raises ValueError.
Decode = Callable[[object], tuple[GroupId, ElectionState]]


class _File:
    """One of the two."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        #: Of the lines, and of the file.
        self.size = self._reserved = 0

    def begin_at(self, size: int, reserved: int) -> None:
        self.size, self._reserved = size, reserved

    def append(self, line: bytes) -> None:
        end = self.size + len(line)
        reserve = bytes(RESERVE_BYTES) if end > self._reserved else b""
        try:
            if self._descriptor < 0:
                self._open()
            self._write(line, reserve)
        except OSError as error:
            raise storage_error("append to", self.path, error, self.size) from error
        try:
            sync_data(self._descriptor)
        except OSError as error:
            raise storage_error("sync", self.path, error, self.size) from error
        self.size = end

    def _write(self, line: bytes, reserve: bytes) -> None:
        """Without room for the reserve the line alone."""
        size = len(line) + len(reserve)
        try:
            write_at(self._descriptor, [line, reserve], self.size, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._cut_back()
            if not reserve:
                raise
            self._write(line, b"")
            return
        self._reserved = max(self._reserved, self.size + size)

    def _cut_back(self) -> None:
        """What is appended next may be shorter, and a start would find the rest of this line behind it."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            raise StorageError(f"cannot cut {self.path} back to {self.size}: {error}") from error
        self._reserved = self.size

    def replace(self, content: bytes) -> None:
        self.close()
        replace_file(self.path, content)
        self.size = self._reserved = len(content)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        is_new = not self.path.exists()
        self._descriptor = open_file(self.path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        if is_new:
            sync_directory(self.path.parent)


@dataclass(frozen=True, slots=True)
class _Content:
    """What was found in one of the two."""

    data: bytes
    states: dict[GroupId, ElectionState]
    #: Of the lines that count, in bytes.
    size: int
    #: What is wrong with it, if anything.
    flaw: str | None


class ElectionJournal:
    """The files in `root`. `is_alive` says at the start which groups still exist: the others are dropped."""

    def __init__(self, root: Path, *, encode: Encode, decode: Decode, is_alive: Callable[[GroupId], bool]) -> None:
        self._encode = encode
        self._files = (_File(root / FILE_NAME), _File(root / COPY_NAME))
        self._live_size = 0
        self.states: dict[GroupId, ElectionState] = {}
        #: What was wrong with one of the files and is put right, None where nothing was.
        self.repaired: str | None = None
        first, second = (_read(file.path, decode) for file in self._files)
        # Without one whole line nothing was ever told: the partitions still have what their directories were made with.
        if any(content is not None and content.size for content in (first, second)):
            self._load(first, second, is_alive)

    def append(self, states: Mapping[GroupId, ElectionState]) -> None:
        """Durable when it returns. Raises StorageError."""
        line = self._line(states)
        for file in self._files:
            file.append(line)
        self.states.update(states)
        size = self._files[0].size
        if size > COMPACT_BYTES_MIN and size > COMPACT_RATIO * self._live_size:
            self._live_size = len(self._line(self.states))
            if size > COMPACT_RATIO * self._live_size:
                self._rewrite_if_room()

    def forget_past(self) -> None:
        """Keep the last state of each group alone. Raises StorageError."""
        if self.states:
            self._rewrite()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _line(self, states: Mapping[GroupId, ElectionState]) -> bytes:
        content = b"[%s]" % b",".join(self._encode(group, state) for group, state in states.items())
        return b"%08x %s\n" % (crc32c(content), content)

    def _load(self, first: _Content | None, second: _Content | None, is_alive: Callable[[GroupId], bool]) -> None:
        flaws = [
            f"{file.path} {'is missing' if content is None else content.flaw}"
            for file, content in zip(self._files, (first, second), strict=True)
            if content is None or content.flaw is not None
        ]
        if len(flaws) == 2:
            raise StorageError(f"{flaws[0]}, and {flaws[1]}. {ADVICE}")
        for content in (first, second):
            if content is not None:
                self._take_over(content.states)
        dead = [group for group in self.states if not is_alive(group)]
        for group in dead:
            del self.states[group]
        self.repaired = flaws[0] if flaws else None
        if first is None or second is None or flaws:
            self._rewrite()
        elif dead or first.data[: first.size] != second.data[: second.size]:
            for file, content in zip(self._files, (first, second), strict=True):
                file.begin_at(content.size, len(content.data))
            self._rewrite_if_room()
        else:
            for file, content in zip(self._files, (first, second), strict=True):
                file.begin_at(content.size, len(content.data))

    def _take_over(self, states: Mapping[GroupId, ElectionState]) -> None:
        """Of two states of a group the later one counts: epochs rise, and within one a vote and a leader come to be known."""
        for group, state in states.items():
            known = self.states.get(group, state)
            voted = {known.voted_key, state.voted_key} - {None}
            if known.epoch == state.epoch and len(voted) > 1:
                where = " and ".join(str(file.path) for file in self._files)
                told = f"{where} tell of two votes for {group} in epoch {known.epoch}"
                raise StorageError(f"{told}: one is of another node. {ADVICE}")
            self.states[group] = max(known, state, key=_age)

    def _rewrite_if_room(self) -> None:
        """What stands in the files is right: on a full disk it stays, until they are next found too large."""
        with contextlib.suppress(DiskFull):
            self._rewrite()

    def _rewrite(self) -> None:
        """Only the last state of each group."""
        line = self._line(self.states)
        for file in self._files:
            file.replace(line)
        self._live_size = len(line)


def _age(state: ElectionState) -> tuple[int, bool, bool]:
    return state.epoch, state.voted_key is not None, state.leader_id is not None


def _read(path: Path, decode: Decode) -> _Content | None:
    data = read_file(path)
    if data is None:
        return None
    states: dict[GroupId, ElectionState] = {}
    size = 0
    for line in intact_lines(data):
        try:
            states.update(decode(fields) for fields in json.loads(line[_CRC_SIZE:]))
        except ValueError as error:
            return _Content(data, states, size, f"is damaged at byte {size}: {error}")
        size += len(line) + 1
    is_whole = bool(size) and not data[size:].strip(b"\0")
    return _Content(data, states, size, None if is_whole else f"is damaged at byte {size}: the checksum does not fit")


def intact_lines(data: bytes) -> Iterator[bytes]:
    """The lines of a file, without their ends, up to the first that is not whole."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0 and _is_intact(data[at:end]):
        yield data[at:end]
        at = end + 1


def states_of(data: bytes, decode: Decode) -> Iterator[tuple[GroupId, ElectionState]]:
    """Every state in a file, in the order in which they were saved. Raises ValueError."""
    for line in intact_lines(data):
        yield from (decode(fields) for fields in json.loads(line[_CRC_SIZE:]))


def _is_intact(line: bytes) -> bool:
    """A line without its end."""
    return len(line) > _CRC_SIZE and line[:_CRC_SIZE] == b"%08x " % crc32c(line[_CRC_SIZE:])
