"""What a leader appended last, kept in memory for the replicas that are about to fetch it.

A follower that keeps up asks for exactly what was appended a moment ago. Its bytes were checked when they came and need not
be read back and checked again. Owns a bounded number of bytes over all groups;
what is older is read from the log. An entry is of one epoch, in which its leader cuts nothing, so it is never stale. What is
about to be compacted leaves: a replica must not get records from here between those that compaction has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raftlake.ports.peer_rpcs import GroupId

BYTES_MAX = 4 << 20

Chunk = bytes | bytearray | memoryview


class _Entry(NamedTuple):
    end_offset: int
    epoch: int
    size: int
    chunks: Sequence[Chunk]


class RecentAppends:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: By where the append begins; oldest first.
        self._entries: dict[tuple[GroupId, int], _Entry] = {}

    def add(self, group: GroupId, base_offset: int, end_offset: int, epoch: int, chunks: Sequence[Chunk]) -> None:
        """The leader of `epoch` appended these whole batches."""
        size = sum(map(len, chunks))
        old = self._entries.pop((group, base_offset), None)
        if old is not None:
            self._bytes -= old.size
        self._entries[group, base_offset] = _Entry(end_offset, epoch, size, chunks)
        self._bytes += size
        while self._bytes > self._bytes_max:
            oldest = next(iter(self._entries))
            self._bytes -= self._entries.pop(oldest).size

    def forget(self, group: GroupId, end_offset: int) -> None:
        """What begins below `end_offset` in a group is read from its log from now on."""
        for key in [key for key in self._entries if key[0] == group and key[1] < end_offset]:
            self._bytes -= self._entries.pop(key).size

    def find(self, group: GroupId, offset: int, epoch: int, size_max: int) -> bytes | None:
        """All that was appended in `epoch` from `offset` on, as far as `size_max` bytes reach; None when that is not here."""
        chunks: list[Chunk] = []
        while (entry := self._entries.get((group, offset))) is not None and entry.epoch == epoch and entry.size <= size_max:
            chunks += entry.chunks
            size_max -= entry.size
            offset = entry.end_offset
        return b"".join(chunks) if chunks else None
