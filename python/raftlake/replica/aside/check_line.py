"""The checks of records that wait to be done aside: the connections take turns, one check each.

Appends keep their order within a connection, which is all that a producer can count on, so no connection waits for the bombs of
another. What is past its deadline is not looked at any more, and neither is what came by a connection that is gone.
A connection starts no further request while CHECKS_ASIDE_MAX of its checks are aside (`ports.ClientConnection`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.ports.driver import Aside, ClientConnection
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import ClientContext
from raftlake.replica.engine import Engine
from raftlake.wire.batches import BatchHeader

Checked = list[BatchHeader] | RequestRejected
#: Told the headers of the batches, or why they are refused.
Done = Callable[[Checked], None]

#: As many are given to the `Aside` together, so that its thread need not wait for the loop between them.
AT_ONCE = 2
#: What all connections together may let wait. Those that are open hold no more than their requests do.
WAITING_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a check is done."""

    connection: ClientConnection
    deadline_ms: int
    #: It is told the outcome: acks are not 0.
    waits: bool
    client: ClientContext | None = None


@dataclass(frozen=True, slots=True)
class _Check:
    asker: Asker
    group: GroupId
    size: int
    job: Callable[[], Checked]
    done: Done


class CheckLine:
    def __init__(self, engine: Engine, aside: Aside) -> None:
        self._engine = engine
        self.aside = aside
        #: In the order of their next turns; each has a check that waits.
        self._lines: dict[ClientConnection, deque[_Check]] = {}
        #: Checks that are not done, by whose appends keep their order.
        self._under_way: dict[tuple[ClientConnection, GroupId], int] = {}
        self._submitted = 0
        self._bytes = 0
        self._is_moving = False

    def __len__(self) -> int:
        """Checks that are not done."""
        return sum(self._under_way.values())

    def is_under_way(self, asker: Asker, group: GroupId) -> bool:
        """Whether appends of this connection to the group have to wait for one before them."""
        return bool(self._under_way) and (asker.connection, group) in self._under_way

    def add(self, asker: Asker, group: GroupId, size: int, job: Callable[[], Checked], done: Done) -> None:
        """Do `job` aside when the turn of its connection comes, then call `done`."""
        if self._submitted and self._bytes + size > WAITING_BYTES_MAX:
            # After this code clients try again.
            why = "too much waits to be checked at this node; nothing was appended"
            done(RequestRejected(ErrorCode.NOT_ENOUGH_REPLICAS, why))
            return
        connection, key = asker.connection, (asker.connection, group)
        connection.checks_aside += 1
        self._bytes += size
        self._under_way[key] = self._under_way.get(key, 0) + 1
        self._lines.setdefault(connection, deque()).append(_Check(asker, group, size, job, done))
        self._move()

    def _move(self) -> None:
        """Give the `Aside` what it may have now. What is answered meanwhile comes back in here."""
        if self._is_moving:
            return
        self._is_moving = True
        try:
            while self._lines and self._submitted < AT_ONCE:
                check = self._next()
                asker = check.asker
                if self._engine.now_ms > asker.deadline_ms or (asker.waits and asker.connection.is_gone):
                    self._finish(check, RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "it was too late to check the records"))
                else:
                    self._submitted += 1
                    self._submit(check)
        finally:
            self._is_moving = False

    def _next(self) -> _Check:
        connection = next(iter(self._lines))
        line = self._lines.pop(connection)
        check = line.popleft()
        if line:
            # Behind the others.
            self._lines[connection] = line
        return check

    def _submit(self, check: _Check) -> None:
        def on_done(checked: Checked | None) -> None:
            self._engine.begin_input()
            self._submitted -= 1
            if checked is None:
                checked = RequestRejected(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be checked")
            try:
                self._finish(check, checked)
            finally:
                self._move()

        self.aside.submit(check.job, on_done)

    def _finish(self, check: _Check, checked: Checked) -> None:
        connection, key = check.asker.connection, (check.asker.connection, check.group)
        connection.checks_aside -= 1
        self._bytes -= check.size
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
        check.done(checked)
        connection.on_check_done()
