"""Compaction as one log has it: at most one pass under way, how far the last one came, and when a pass is of no use any more.

How far a log is compacted is kept over restarts in `cleaner-offset-checkpoint`, Kafka's name and format. It is a hint: a value
that is too low costs the next pass time. It is lowered, durably, before a log is cut below it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raftlake.errors import DiskFull, InvariantViolation, StorageError
from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.cleaned import CleanedGroup, discard_cleaned
from raftlake.storage.compaction_pass import CompactionJob, Source
from raftlake.storage.compactor import Compactor, Pass
from raftlake.storage.disposal import Disposal
from raftlake.storage.recovery_points import RecoveryPoints

FILE_NAME = "cleaner-offset-checkpoint"
SALT_BYTES = 16

Done = Callable[[Compacted | StorageError | None], None]


class RunAside(Protocol):
    """Runs a call beside the driver's thread, and hands its StorageError or None to `done` on the driver's thread."""

    def __call__(self, call: Callable[[], None], done: Callable[[StorageError | None], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Compactions:
    """What the logs of one data directory share."""

    compactor: Compactor
    points: RecoveryPoints
    run_aside: RunAside
    disposal: Disposal


class LogCompaction:
    """Of one log. Used from the driver's thread only."""

    def __init__(self, group: GroupId, path: Path, shared: Compactions) -> None:
        self._group = group
        self._path = path
        self._shared = shared
        self._pass: Pass | None = None
        self._is_under_way = False
        self._until = Offset(0)
        #: A new segment could not be put into place.
        self._failure: StorageError | None = None

    @property
    def compacted_until(self) -> Offset | None:
        return self._shared.points.of(self._group)

    def begin(
        self,
        sources: Sequence[Source],
        request: Compaction,
        install: Callable[[CleanedGroup], None],
        drop_aborted: Callable[[Offset], None],
        done: Done,
    ) -> None:
        """`sources` are the closed segments that end at or below `request.until`. `install` puts a new segment into place, and
        `drop_aborted` forgets the aborted transactions that have ended below an offset. Both may raise StorageError. Raises
        InvariantViolation, StorageError."""
        if self._is_under_way:
            raise InvariantViolation(f"{self._group}: two passes of compaction at a time")
        if sources and sources[-1].end_offset != request.until:
            raise InvariantViolation(f"{self._group}: no closed segment ends at {request.until}")
        known = self.compacted_until
        # Durable before the first segment changes: from now on the log is one that was compacted, whatever happens to it. A
        # save that found no room is repeated.
        if self._shared.points.note({self._group: request.dirty_from if known is None else known}):
            self._shared.points.save()
        self._is_under_way, self._until, self._failure = True, request.until, None
        job = CompactionJob(directory=str(self._path), sources=tuple(sources), request=request, salt=os.urandom(SALT_BYTES))
        begun = self._shared.compactor.begin(
            job, lambda group: self._install(group, install), lambda end: self._end(end, drop_aborted, done)
        )
        if self._is_under_way:
            self._pass = begun

    def _install(self, group: CleanedGroup, install: Callable[[CleanedGroup], None]) -> None:
        if self._failure is None:
            try:
                install(group)
            except StorageError as error:
                self._failure = error
                self.give_up()

    def _end(self, result: Compacted | StorageError | None, drop_aborted: Callable[[Offset], None], done: Done) -> None:
        self._is_under_way, self._pass = False, None
        result = self._failure or result
        if isinstance(result, Compacted):
            try:
                drop_aborted(result.clean_until)
            except StorageError as error:
                result = error
        if not isinstance(result, Compacted):
            # The next pass, or the next start, tries again. The log may be gone.
            with contextlib.suppress(StorageError):
                discard_cleaned(self._path, self._shared.disposal.unlink)
            done(result)
            return
        compacted = result
        self._shared.points.note({self._group: compacted.clean_until})
        self._shared.run_aside(
            self._shared.points.save,
            lambda error: done(compacted if error is None or isinstance(error, DiskFull) else error),
        )

    def give_up(self) -> None:
        """The segments are not what they were when the pass began, or are not there any more."""
        if self._pass is not None:
            self._pass.give_up()

    def cut(self, end_offset: Offset) -> None:
        """The log is about to be cut to `end_offset`. Raises StorageError."""
        if end_offset < self._until:
            self.give_up()
        self._shared.points.lower(self._group, end_offset)
