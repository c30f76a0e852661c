"""Damage that reads come upon while the node runs, until the next turn opens the damaged groups anew (`turn.restart`).

Owns what was found and is not looked after yet. Everything that reads a log reads it under `guarded`, or reports what it found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from raftlake.errors import DamagedData, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition

Read = TypeVar("Read")


def _ignore(error: TooManyFiles) -> None:
    """A function, since mypyc compiles no lambda for a default."""
    del error


class Findings:
    def __init__(self, engine: Engine, on_too_many: Callable[[TooManyFiles], None] = _ignore) -> None:
        """`on_too_many` is told of reads that could open no file."""
        self._engine = engine
        self.on_too_many = on_too_many
        self._found: dict[GroupId, DamagedData] = {}
        engine.closed.append(self._forget)

    def found(self, group: GroupId, damage: DamagedData) -> None:
        """A read of the group's log failed: it is started anew before the next turn performs anything."""
        if group in self._engine.partitions:
            self._found.setdefault(group, damage)
            self._engine.request_turn()

    def guarded(self, group: GroupId, read: Callable[[], Read]) -> Read | None:
        """The result of `read`; None when it came upon damage, which is noted, or could open no file: it may be tried again."""
        try:
            return read()
        except DamagedData as damage:
            self.found(group, damage)
        except TooManyFiles as error:
            self.on_too_many(error)
        return None

    def holds(self, group: GroupId) -> bool:
        """The group's log is damaged, and the next turn starts it anew."""
        return group in self._found

    def _forget(self, partition: Partition) -> None:
        """What is opened in its place reads the log itself, and finds what is still damaged."""
        self._found.pop(partition.group, None)

    @property
    def has_found(self) -> bool:
        return bool(self._found)

    def take(self) -> dict[GroupId, DamagedData]:
        """What was found since the last time."""
        found, self._found = self._found, {}
        return found
