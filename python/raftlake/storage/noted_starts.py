"""Kafka's `log-start-offset-checkpoint`: where the logs of a data directory begin for clients, as their leaders told.

A log's first segment may begin below: segments go as wholes, and their borders differ from node to node. The file has the form
of `recovery_points`. It is written beside the driver's thread as soon as there is news, and nobody waits for it.
Invariant: a noted start never exceeds the log's end. It is lowered, durably, before a log is cut below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import FIRST_OFFSET, Offset
from raftlake.storage.log_compaction import RunAside
from raftlake.storage.recovery_points import RecoveryPoints

FILE_NAME = "log-start-offset-checkpoint"


class NotedStarts:
    """`points` is of the file. Used from the driver's thread only. Raises StorageError when the file cannot be written.
    `on_failure` is told of an error beside the driver's thread; a full disk is none."""

    def __init__(self, points: RecoveryPoints, run_aside: RunAside, on_failure: Callable[[StorageError], None]) -> None:
        self._points = points
        self._run_aside = run_aside
        self._on_failure = on_failure
        self._is_saving = False
        #: What came while the file was being written.
        self._later: dict[GroupId, Offset] = {}

    def of(self, group: GroupId) -> Offset:
        """What was noted last; 0 where nothing was."""
        return self._later.get(group) or self._points.of(group) or FIRST_OFFSET

    def note(self, group: GroupId, start: Offset) -> None:
        """Remember a start for the next open of the log."""
        self._later[group] = start
        self.save()

    def save(self) -> None:
        """Have written what the file does not say yet. Called now and then: a full disk may have come between."""
        if self._is_saving:
            return
        later, self._later = self._later, {}
        if self._points.note(later):
            self._is_saving = True
            self._run_aside(self._points.save, self._on_saved)

    def _on_saved(self, error: StorageError | None) -> None:
        self._is_saving = False
        if error is None:
            self.save()
        elif not isinstance(error, DiskFull):
            self._on_failure(error)

    def lower(self, group: GroupId, offset: Offset) -> None:
        """The log is about to be cut to `offset`."""
        if self._later.get(group, offset) > offset:
            self._later[group] = offset
        self._points.lower(group, offset)

    def forget(self, groups: Sequence[GroupId]) -> None:
        """The logs are about to be deleted."""
        for group in groups:
            self._later.pop(group, None)
        self._points.forget(groups)

    def close(self) -> None:
        """Write what is not written yet. Nothing of it is under way any more. Raises StorageError."""
        if self._points.note(self._later):
            self._points.save()
