"""Kafka's `recovery-point-offset-checkpoint`: up to which offset each log is known to be durable.

What lies below a recovery point was synced, so there nothing can be a torn write: it is damage when it cannot be read. What
lies above it may have been written and not synced. Written about once a second while logs grow, and at a clean stop. One
file for the data directory: `0`, the number of lines, then `<topic> <partition> <offset>`.
Invariant: a recorded offset never exceeds what is durable. It is lowered, durably, before a log is cut below it.
A file that is missing or damaged records nothing. `log_compaction` keeps a second file of the same kind.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from raftlake.errors import DiskFull
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.files import delete_file, read_file, replace_file

FILE_NAME = "recovery-point-offset-checkpoint"
VERSION = 0

Key = tuple[str, int]


class RecoveryPoints:
    """The recovery points of one data directory. `save` may be called from another thread, the rest only from the driver's.
    Raises StorageError when its file cannot be read or written."""

    def __init__(self, root: Path, name: str = FILE_NAME) -> None:
        self._path = root / name
        self._points = parse(read_file(self._path) or b"")
        self._lock = threading.Lock()
        #: The file says what `save` last was to write.
        self._is_saved = True
        #: The file may still say more of a log than is so.
        self._is_file_ahead = False

    def of(self, group: GroupId) -> Offset | None:
        """The log of `group` was durable up to this offset (exclusive); None when nothing is known."""
        return self._points.get(_key(group))

    def lower(self, group: GroupId, offset: Offset) -> None:
        """The log is about to be cut to `offset`."""
        if self._points.get(_key(group), offset) > offset:
            with self._lock:
                self._points[_key(group)] = offset
            self._is_file_ahead = True
        self._save_lowered()

    def forget(self, groups: Sequence[GroupId]) -> None:
        """The logs are about to be deleted."""
        known = [_key(group) for group in groups if _key(group) in self._points]
        if known:
            with self._lock:
                for key in known:
                    del self._points[key]
            self._is_file_ahead = True
        self._save_lowered()

    def _save_lowered(self) -> None:
        """What the file says may no longer be so. Without room for another one it goes: a file that is missing records nothing.
        Raises StorageError. After that the next call tries again, whatever log it is about."""
        if not self._is_file_ahead:
            return
        try:
            self.save()
        except DiskFull:
            delete_file(self._path)
        self._is_file_ahead = False

    def note(self, ends: Mapping[GroupId, Offset]) -> bool:
        """These logs are durable up to these offsets; True when that is news to be saved."""
        news = {_key(group): end for group, end in ends.items() if self.of(group) != end}
        with self._lock:
            self._points.update(news)
        return bool(news) or not self._is_saved

    def save(self) -> None:
        """Write the file durably."""
        with self._lock:
            points = sorted(self._points.items())
            lines = [str(VERSION), str(len(points))]
            lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in points]
            self._is_saved = False
            replace_file(self._path, ("\n".join(lines) + "\n").encode())
            self._is_saved = True


def _key(group: GroupId) -> Key:
    return (group.topic, group.partition)


def parse(data: bytes) -> dict[Key, Offset]:
    """The points in the file; none at all when it is not whole."""
    try:
        version, count, *lines = data.decode("ascii").split("\n")
        entries = [line.split(" ") for line in lines[:-1]]
        points = {(topic, int(partition)): Offset(int(offset)) for topic, partition, offset in entries}
        is_whole = int(version) == VERSION and len(points) == int(count) and lines[-1:] == [""]
    except ValueError:
        return {}
    return points if is_whole else {}
