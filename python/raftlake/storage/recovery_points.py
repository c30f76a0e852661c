"""Kafka's `recovery-point-offset-checkpoint`: up to which offset each log was durable when the node stopped cleanly.

Damage of the very last batches looks like a torn write, which recovery cuts; what lies below the recovery point was synced, so
there it cannot be one. One file for the data directory, `0`, the number of lines, then `<topic> <partition> <offset>`.
Invariant: a recorded offset never exceeds what is durable. It is lowered, durably, before a log is cut below it.
A file that is missing or damaged records nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raftlake.ports import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.files import read_file, replace_file

FILE_NAME = "recovery-point-offset-checkpoint"
VERSION = 0

Key = tuple[str, int]


class RecoveryPoints:
    """The recovery points of one data directory. Raises StorageError when its file cannot be read or written."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        self._points = parse(read_file(self._path) or b"")

    def of(self, group: GroupId) -> Offset:
        """The log of `group` was durable up to this offset (exclusive); 0 when nothing is known."""
        return self._points.get((group.topic, group.partition), Offset(0))

    def lower(self, group: GroupId, offset: Offset) -> None:
        """The log is about to be cut to `offset`."""
        if self.of(group) > offset:
            self._points[group.topic, group.partition] = offset
            self._save()

    def record(self, ends: Mapping[GroupId, Offset]) -> None:
        """These logs are durable up to these offsets."""
        self._points.update({(group.topic, group.partition): end for group, end in ends.items()})
        self._save()

    def _save(self) -> None:
        known = {key: offset for key, offset in sorted(self._points.items()) if offset > 0}
        lines = [
            str(VERSION),
            str(len(known)),
            *(f"{topic} {partition} {known[topic, partition]}" for topic, partition in known),
        ]
        replace_file(self._path, ("\n".join(lines) + "\n").encode())


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
