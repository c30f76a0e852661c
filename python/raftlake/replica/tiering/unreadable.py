"""What this node could not read from the remote tier for consumers, until it can: for operators. Bounded.

A reason names the file and what is wrong with it. So failures of one partition with the same reason are one entry, with the
offsets that failed. A read that gives some of these offsets ends the entry: the file can be read again. Any read of a partition
ends what its store did not answer before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError, TierFailure

#: Of one partition, and in all. What is too much goes, the oldest first, and comes back when it fails again.
ENTRIES_OF_PARTITION_MAX = 4
ENTRIES_MAX = 256


@dataclass(slots=True)
class Unreadable:
    """One entry."""

    group: GroupId
    error: TierError
    #: By the wall clock.
    since_ms: int
    #: The lowest and the highest offset that failed; None for a time that was looked for.
    first: int | None
    last: int | None
    #: Somebody will look whether it is so still.
    is_awaited: bool = False

    def is_ended_by(self, start: int, end: int) -> bool:
        """The offsets from `start` to below `end` were read."""
        if self.error.failure is TierFailure.UNKNOWN:
            return True
        return self.first is not None and self.last is not None and self.first < end and start <= self.last


class UnreadableParts:
    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[GroupId, str], Unreadable] = OrderedDict()

    def note(self, group: GroupId, error: TierError, offset: int | None, wall_ms: int) -> Unreadable:
        """A read of the batch at `offset`, or a search, has failed."""
        known = self._entries.get((group, error.reason))
        if known is None:
            known = self._entries[group, error.reason] = Unreadable(group, error, wall_ms, offset, offset)
            self._bound(group)
        elif offset is not None:
            known.first = offset if known.first is None else min(known.first, offset)
            known.last = offset if known.last is None else max(known.last, offset)
        return known

    def _bound(self, group: GroupId) -> None:
        same = [key for key in self._entries if key[0] == group]
        if len(same) > ENTRIES_OF_PARTITION_MAX:
            del self._entries[same[0]]
        elif len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)

    def read(self, group: GroupId, start: int, end: int) -> None:
        """The offsets from `start` to below `end` were read."""
        self._drop(group, lambda entry: entry.is_ended_by(start, end))

    def searched(self, group: GroupId) -> None:
        """A time was found, or was looked for in vain, in files that can be read."""
        self._drop(group, lambda entry: entry.first is None or entry.error.failure is TierFailure.UNKNOWN)

    def forget(self, group: GroupId, entry: Unreadable | None = None) -> None:
        """The partition is not here any more, or what the entry tells of is not in its table."""
        self._drop(group, lambda each: entry is None or each is entry)

    def _drop(self, group: GroupId, is_over: Callable[[Unreadable], bool]) -> None:
        for key in [key for key, entry in self._entries.items() if key[0] == group and is_over(entry)]:
            del self._entries[key]

    def __contains__(self, entry: Unreadable) -> bool:
        return self._entries.get((entry.group, entry.error.reason)) is entry

    def all(self) -> list[Unreadable]:
        """By partition."""
        return sorted(self._entries.values(), key=lambda entry: (entry.group.topic, entry.group.partition, entry.first or -1))
