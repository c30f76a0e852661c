"""Opens the groups of new topics and deletes the data of deleted ones, some at a time.

Each group costs the disk several waits, so that a thousand partitions at once, of one topic or of many, would keep their node
from everything else for seconds. Owns what is still to be done; between two slices the node reads, answers and votes. A pause
is as long as the slice took: a slow disk takes half of the node's time at most. A pause is longer where the node is behind with
its timers: groups that are opened elect leaders, and the node has to keep up with that.

Deletions go first: a directory must be rid of the old incarnation before a topic of the same name is opened in it. A crash
loses what was still to be done and nothing else: the next start finds the directories, and the topics' keys say which groups
there are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from raftlake.errors import DiskFull, PathOutside
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.names import Names

logger = logging.getLogger("raftlake.hosting")

#: Groups that are opened in one turn, groups that are deleted in one turn, and the time for everything else in between. Opening
#: 64 at once took 100 to 300 ms of a turn.
OPENED_AT_ONCE = 8
DELETED_AT_ONCE = 8
PAUSE_MS = 5
PAUSE_MS_MAX = 250
#: By so much at most a pause is longer because timers are late: a machine that is busy with other work makes them late too.
LATE_MS_MAX = 50
#: Before groups are opened or deleted again for which there was no room.
NO_ROOM_PAUSE_MS = 1_000


class HostingQueue:
    """`is_wanted` tells whether a group's topic still exists; `open_group` hosts one whose directory is there."""

    def __init__(
        self,
        engine: Engine,
        disk: DiskWatch,
        hosting: Hosting,
        *,
        names: Names,
        is_wanted: Callable[[GroupId], bool],
        open_group: Callable[[GroupId], None],
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._hosting = hosting
        self._names = names
        self._is_wanted = is_wanted
        self._open_group = open_group
        #: The groups of one topic each, made as they are opened.
        self._to_open: deque[Iterator[GroupId]] = deque()
        self._to_delete: deque[GroupId] = deque()
        #: A slice was done, and the next one is not due.
        self._is_waiting = False
        self._due_ms = 0
        self._has_room = True

    def open(self, groups: Iterable[GroupId]) -> None:
        """Host those of the groups that are not hosted yet, the first of them now."""
        self._to_open.append(iter(groups))
        self._begin()

    def delete(self, groups: Iterable[GroupId]) -> None:
        """The groups are hosted no longer: delete what the disk has of them, of the first ones now."""
        self._to_delete.extend(groups)
        self._begin()

    def _begin(self) -> None:
        if not self._is_waiting:
            self._work()

    def _go_on(self) -> None:
        self._is_waiting = False
        if self._to_delete or self._to_open:
            self._work(late_ms=self._engine.clock.now_ms() - self._due_ms)

    def _work(self, late_ms: int = 0) -> None:
        """One slice. What is added while it is done, or in the pause behind it, waits for the next one."""
        clock = self._engine.clock
        began_ms = clock.now_ms()
        self._is_waiting = self._has_room = True
        if self._to_delete:
            self._delete_some()
        else:
            self._open_some()
        ended_ms = clock.now_ms()
        late_ms = min(late_ms, LATE_MS_MAX)
        pause_ms = min(max(PAUSE_MS, ended_ms - began_ms, late_ms), PAUSE_MS_MAX) if self._has_room else NO_ROOM_PAUSE_MS
        self._due_ms = ended_ms + pause_ms
        self._engine.timers.schedule(self._due_ms, self._go_on)

    def _delete_some(self) -> None:
        doomed = [self._to_delete.popleft() for _ in range(min(DELETED_AT_ONCE, len(self._to_delete)))]
        try:
            _each_inside(doomed, self._hosting.delete)
        except DiskFull as full:
            # A deletion moves a directory first, and that may take a block. A disk without any block left is not changed.
            self._disk.on_full(full)
            self._to_delete.extendleft(reversed(doomed))
            self._has_room = False

    def _wanted(self) -> Iterator[GroupId]:
        """What is to be opened, in order; what is taken waits no longer."""
        while self._to_open:
            for group in self._to_open[0]:
                # Its topic may have been deleted while it waited.
                if self._is_wanted(group) and not self._hosting.has(group):
                    yield group
            self._to_open.popleft()

    def _open_some(self) -> None:
        left = chosen = list(dict.fromkeys(islice(self._wanted(), OPENED_AT_ONCE)))
        try:
            left = _each_inside(chosen, self._prepare)
            while left:
                self._open_group(left[0])
                left.pop(0)
        except DiskFull as full:
            # The topics exist, and so do their groups on nodes with room.
            self._disk.on_full(full)
            self._to_open.appendleft(iter(left))
            self._has_room = False

    def _prepare(self, groups: list[GroupId]) -> None:
        """Make directories. The names know of them from now on: a topic may be deleted before its logs can be opened."""
        try:
            self._engine.logs.prepare(groups)
        except DiskFull:
            # Some may have been made.
            self._names.prepared(groups)
            raise
        self._names.prepared(groups)


def _each_inside(groups: list[GroupId], act: Callable[[list[GroupId]], None]) -> list[GroupId]:
    """Do it with all groups whose names stay in the data directory, and return those: one name stops neither the node nor the
    others' groups."""
    try:
        act(groups)
    except PathOutside as error:
        if len(groups) > 1:
            return [found for group in groups for found in _each_inside([group], act)]
        logger.error("left alone: %s", error)
        return []
    return groups
