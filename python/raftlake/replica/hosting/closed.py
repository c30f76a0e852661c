"""Groups that are on this node's disk and cannot be opened for a while, for want of room.

Owns which groups these are, and tries to open each again. What is still to be done for such a group is known to its attempt
alone: damage to set aside, what clients were shown. So nobody else opens one meanwhile. The end of its topic ends the attempts.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import DiskFull
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine

#: Before a group is opened again for which there was no room.
NO_ROOM_PAUSE_MS = 1_000


class ClosedGroups:
    def __init__(self, engine: Engine, disk: DiskWatch) -> None:
        self._engine = engine
        self._disk = disk
        self._attempts: dict[GroupId, Callable[[], object]] = {}

    def __contains__(self, group: GroupId) -> bool:
        return group in self._attempts

    def open(self, group: GroupId, attempt: Callable[[], object]) -> None:
        """Call `attempt`, which opens the group: now, and each second again while there is no room. Raises what the first call
        raises, but DiskFull."""
        self._attempts[group] = attempt
        self._try(group, attempt)

    def forget(self, group: GroupId) -> None:
        """Its topic is over: its files are about to go."""
        self._attempts.pop(group, None)

    def _try(self, group: GroupId, attempt: Callable[[], object]) -> None:
        if self._attempts.get(group) is not attempt:
            return
        try:
            attempt()
        except DiskFull as full:
            self._disk.on_full(full)
            self._engine.timers.schedule(self._engine.now_ms + NO_ROOM_PAUSE_MS, lambda: self._try(group, attempt))
            return
        del self._attempts[group]
