"""Groups that are started anew while the node runs, as after a crash: their log is damaged, or an append found no room.

The group's core hands over, says what it still has to say to others, and is forgotten with all that is not synced. What is
damaged is set aside (`disk.damage`), and the group is opened again from its files. Invariant: a damaged group performs no
further action on its log before it has been started anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from raftlake.errors import DamagedData, DiskFull, UnfitBeginning
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import (
    AnswerFetch,
    AnswerRead,
    AnswerVoterChange,
    ReleaseFetchRounds,
    ReportRole,
    Respond,
    SaveElectionState,
    SendRequest,
)
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import ElectionState
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.partition.partition import Partition
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.turn.actions import Actions

#: What a core says to others, which does not touch its log.
SAYING = (AnswerFetch, AnswerRead, AnswerVoterChange, ReleaseFetchRounds, ReportRole, Respond, SendRequest)


@dataclass(slots=True)
class _Closed:
    """A group that is to be opened anew, and what is still to be done for it."""

    partition: Partition
    #: What is to be set aside first.
    damage: DamagedData | None
    #: It campaigns only when somebody else had the time to.
    election_delay_ms: int
    is_prepared: bool = False


class Restarts:
    def __init__(
        self,
        engine: Engine,
        *,
        findings: Findings,
        damage: DamageControl,
        fetch_server: FetchServer,
        hosting: Hosting,
        actions: Actions,
    ) -> None:
        self._engine = engine
        self._findings = findings
        self._damage = damage
        self._fetch_server = fetch_server
        self._hosting = hosting
        self._actions = actions

    def repair_found(self) -> None:
        """Start of a turn: start the damaged groups anew. Raises StorageError where one cannot be repaired."""
        if not self._findings.has_found:
            return
        for group, damage in self._findings.take().items():
            partition = self._engine.partitions.get(group)
            if partition is not None:
                self._restart(partition, damage)

    def without_room(self, partition: Partition) -> None:
        """An append found no room, and the group's core takes it for done: as after a crash, with the log as it is. A leader
        hands over. It campaigns again when somebody else had the time to."""
        self._restart(partition, None)

    def from_nothing(self, partition: Partition, unfit: UnfitBeginning) -> None:
        """What was kept of a damaged log is of no use. The core takes for appended what was not written."""
        self._restart(partition, unfit)

    def _restart(self, partition: Partition, damage: DamagedData | None) -> None:
        """As after a crash, for one group: hand over, forget what is not synced, cut, open."""
        self._engine.step(partition, ResignRequested())
        actions, partition.outbox = partition.outbox, []
        saves = [action.state for action in actions if isinstance(action, SaveElectionState)]
        for action in actions if self._saved(partition.group, saves) else ():
            if isinstance(action, SAYING):
                self._actions.perform(partition, action)
        self._hosting.let_go(partition)
        self._fetch_server.begun_anew(partition.group)
        closed = _Closed(
            partition, damage, election_delay_ms=self._engine.config.raft.election_timeout_ms if damage is None else 0
        )
        self._hosting.closed.open(partition.group, partial(self._reopen, closed))
        partition.on_deleted()

    def _reopen(self, closed: _Closed) -> None:
        """Raises DiskFull: what was done is not done again with the next call."""
        before, group = closed.partition, closed.partition.group
        self._prepare(closed)
        if self._hosting.open_found(group, election_delay_ms=closed.election_delay_ms):
            after = self._engine.partitions[group]
            after.shown_before = max(before.shown_before, before.high_watermark)

    def _prepare(self, closed: _Closed) -> None:
        """Once: its log becomes what a crash would leave of it, without what is damaged."""
        group, damage = closed.partition.group, closed.damage
        if damage is not None:
            self._damage.set_aside(group, damage, closed.partition.core.voters)
        elif not closed.is_prepared:
            self._engine.logs.settle(group)
        closed.damage, closed.is_prepared = None, True

    def _saved(self, group: GroupId, states: list[ElectionState]) -> bool:
        """False without room: then nothing may be said, as if the node had crashed before."""
        try:
            if states:
                self._engine.elections.save({group: states[-1]})
        except DiskFull:
            return False
        return True
