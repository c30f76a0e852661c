"""What a simulated disk needs of its machine: the moments at which power may be lost, and the time that a sync takes.

And what it answers to a process that uses a log which it has closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raftlake.errors import StorageError


class SimulatedCrash(BaseException):
    """The machine lost power at this very port call. Not an `Exception`: no handler of the driver may survive it."""


class ClosedLog(StorageError):
    """The log is closed or deleted. No disk fails so: the driver has used a log that it had let go of."""


class Machine(Protocol):
    """What the disk needs from the machine that it belongs to."""

    def port_call(self, name: str) -> None:
        """Called before every effect; raises `SimulatedCrash` when the plan says that this is the moment."""

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        """Run one of the two after the drawn time of a sync, unless the machine crashes before."""
