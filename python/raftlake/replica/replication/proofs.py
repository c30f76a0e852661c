"""The groups whose cores have reads that wait for a proof of leadership.

`ReadService` notes them, and `FetchServer` looks at them: a Fetch round that comes in may be the proof.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId


class AwaitedProofs:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[GroupId, int] = {}

    def groups(self) -> list[GroupId]:
        """Each once, the one that has waited longest first."""
        return list(self._counts)

    def add(self, group: GroupId) -> None:
        """One more read of the group waits."""
        self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, group: GroupId) -> None:
        """One read of the group is answered."""
        self._counts[group] -= 1
        if self._counts[group] == 0:
            del self._counts[group]

    def drop(self, group: GroupId) -> None:
        """No read of the group waits any more."""
        self._counts.pop(group, None)
