"""Groups that are started anew while the node runs, as after a crash: their log is damaged, or an append found no room.

The group's core hands over, says what it still has to say to others, and is forgotten with all that is not synced. What is
damaged is set aside (`disk.damage`), and the group is opened again from its files. Invariant: a damaged group performs no
further action on its log before it has been started anew.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.turn.actions import Actions

#: What a core says to others, which does not touch its log.
SAYING = (AnswerFetch, AnswerRead, AnswerVoterChange, ReleaseFetchRounds, ReportRole, Respond, SendRequest)
#: Before a group is opened again for which there was no room.
NO_ROOM_PAUSE_MS = 1_000


@dataclass(slots=True)
class _Closed:
    """A group that is to be opened anew, and what is still to be done for it."""

    partition: Partition
    #: What is to be set aside first.
    damage: DamagedData | None
    has_damage: bool
    is_prepared: bool = False


class Restarts:
    def __init__(
        self,
        engine: Engine,
        *,
        names: Names,
        disk: DiskWatch,
        findings: Findings,
        damage: DamageControl,
        fetch_server: FetchServer,
        hosting: Hosting,
        actions: Actions,
    ) -> None:
        self._engine = engine
        self._names = names
        self._disk = disk
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
        self._reopen(_Closed(partition, damage, has_damage=damage is not None))
        partition.on_deleted()

    def _reopen(self, closed: _Closed) -> None:
        """Without room for that the group stays closed, and this is tried again: its files are as they were."""
        engine, group = self._engine, closed.partition.group
        try:
            self._prepare(closed)
            is_open = self._open(closed)
        except DiskFull as full:
            self._disk.on_full(full)
            engine.timers.schedule(engine.now_ms + NO_ROOM_PAUSE_MS, lambda: self._reopen_later(closed))
            return
        if is_open:
            before, after = closed.partition, engine.partitions[group]
            after.shown_before = max(before.shown_before, before.high_watermark)

    def _reopen_later(self, closed: _Closed) -> None:
        """Its topic may be over by now, or have opened it."""
        group = closed.partition.group
        if group not in self._engine.partitions and self._names.has_directory(group):
            self._reopen(closed)

    def _prepare(self, closed: _Closed) -> None:
        """Once: its log becomes what a crash would leave of it, without what is damaged."""
        group, damage = closed.partition.group, closed.damage
        if damage is not None:
            self._damage.set_aside(group, damage, closed.partition.core.voters)
        elif not closed.is_prepared:
            self._engine.logs.settle(group)
        closed.damage, closed.is_prepared = None, True

    def _open(self, closed: _Closed) -> bool:
        group, config = closed.partition.group, self._engine.config
        # Should the log be empty, those vote in it who stand in its topic's key.
        topic = self._names.by_id(group.topic_id)
        initial = None if topic is None else topic.voters_of(group.partition)
        delay_ms, waits = 0, False
        if not closed.has_damage:
            # Until that key is read it stays closed.
            waits = topic is None and group != config.quorum_group
            delay_ms = config.raft.election_timeout_ms
        return self._hosting.open(group, election_delay_ms=delay_ms, initial=initial, is_found=waits)

    def _saved(self, group: GroupId, states: list[ElectionState]) -> bool:
        """False without room: then nothing may be said, as if the node had crashed before."""
        try:
            if states:
                self._engine.elections.save({group: states[-1]})
        except DiskFull:
            return False
        return True
