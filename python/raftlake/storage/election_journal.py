"""`election-states`: the election states of data partitions, in one file that one sync makes durable.

When a node is lost, hundreds of groups elect at once; a file, a rename and two syncs for each of them would take seconds in
which nobody leads. One group alone gains as well: each of the two syncs waits for a commit of the file system's journal, 2 to
5 ms on a busy disk and now and then 90, and a vote needs three saves in a row. Kafka has no file for these groups to be
compatible with: only its metadata log elects by Raft.

Each line is one append: the CRC-32C of the rest in hex, a space and a JSON list, one object for each group. The last object
of a group counts. Behind the lines the file holds zeros, so that an append changes no size and its sync nothing but data.
Promises: `append` returns when all of it is durable; a torn last line, of which nobody was told, is cut off at the start; any
other damage is a StorageError, since a replica that forgot its vote could vote twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from crc32c import crc32c

from raftlake.errors import StorageError
from raftlake.ports import GroupId
from raftlake.raft.types import ElectionState
from raftlake.storage.files import read_file, replace_file, storage_error, sync_data, sync_directory, write_at

FILE_NAME = "election-states"
#: The file is rewritten when it is larger than this and less than a fifth of it still counts.
COMPACT_BYTES_MIN = 1 << 20
COMPACT_RATIO = 5
#: Zeros that are written behind the lines when they reach the end of the file.
RESERVE_BYTES = 64 << 10
_CRC_SIZE = 9

Encode = Callable[[GroupId, ElectionState], bytes]
#: Raises ValueError.
Decode = Callable[[object], tuple[GroupId, ElectionState]]


class ElectionJournal:
    """The file in `root`. `is_alive` says at the start which groups still exist: the others are dropped."""

    def __init__(self, root: Path, *, encode: Encode, decode: Decode, is_alive: Callable[[GroupId], bool]) -> None:
        self._root = root
        self._path = root / FILE_NAME
        self._encode = encode
        self._descriptor = -1
        #: Of the lines, and of the file.
        self._size = self._reserved = 0
        self._live_size = 0
        self.states: dict[GroupId, ElectionState] = {}
        data = read_file(self._path)
        if data is not None:
            is_torn = self._load(data, decode)
            dead = [group for group in self.states if not is_alive(group)]
            for group in dead:
                del self.states[group]
            if dead or is_torn:
                self._rewrite()

    def append(self, states: Mapping[GroupId, ElectionState]) -> None:
        """Durable when it returns. Raises StorageError."""
        line = self._line(states)
        end = self._size + len(line)
        reserve = bytes(RESERVE_BYTES) if end > self._reserved else b""
        try:
            if self._descriptor < 0:
                self._open()
            write_at(self._descriptor, [line, reserve], self._size, len(line) + len(reserve))
            sync_data(self._descriptor)
        except OSError as error:
            raise storage_error("append to", self._path, error, self._size) from error
        self._size, self._reserved = end, max(self._reserved, end + len(reserve))
        self.states.update(states)
        if self._size > COMPACT_BYTES_MIN and self._size > COMPACT_RATIO * self._live_size:
            self._live_size = len(self._line(self.states))
            if self._size > COMPACT_RATIO * self._live_size:
                self._rewrite()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        is_new = not self._path.exists()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if is_new:
            sync_directory(self._root)

    def _line(self, states: Mapping[GroupId, ElectionState]) -> bytes:
        content = b"[%s]" % b",".join(self._encode(group, state) for group, state in states.items())
        return b"%08x %s\n" % (crc32c(content), content)

    def _load(self, data: bytes, decode: Decode) -> bool:
        """Whether there is a torn line behind those that count."""
        at = 0
        for line in intact_lines(data):
            try:
                self.states.update(decode(fields) for fields in json.loads(line[_CRC_SIZE:]))
            except ValueError as error:
                raise self._damaged(at, str(error)) from error
            at += len(line) + 1
        # A torn end holds nothing that is whole.
        if any(_is_intact(line) for line in data[at:].split(b"\n")[1:]):
            raise self._damaged(at, "the checksum does not fit")
        self._size, self._reserved = at, len(data)
        return bool(data[at:].strip(b"\0"))

    def _damaged(self, at: int, why: str) -> StorageError:
        return StorageError(f"{self._path} is damaged at byte {at}: {why}. This node must not vote without it")

    def _rewrite(self) -> None:
        """Only the last state of each group."""
        self.close()
        line = self._line(self.states)
        replace_file(self._path, line)
        self._size = self._reserved = self._live_size = len(line)


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
