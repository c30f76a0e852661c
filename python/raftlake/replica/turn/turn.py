"""The turn: everything that the inputs since the last turn asked for is performed together.

Election states come first, in one batched save. Then each group's actions are performed in order, so that everything appended
in the turn is one write for each log. Then what the turn says leaves the node: Fetch answers, requests, replies. Last, one sync
of all logs that were written is started. So followers write and sync in parallel with the leader.

A turn never waits (but see `LogSyncer.start`), and reads no clock but the engine's.
"""

from __future__ import annotations

from raftlake.errors import DamagedData, DiskFull, InvariantViolation, StorageError, UnfitBeginning
from raftlake.raft import actions as do
from raftlake.raft.events import AppendRequested
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.syncer import LogSyncer
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine, Marked
from raftlake.replica.handover import Handover
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Gate
from raftlake.replica.replication.control import ControlPlane
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.turn.actions import Actions
from raftlake.replica.turn.restart import Restarts
from raftlake.replica.voters.changes import VoterChanges

#: Turns that breed turns without end are a bug, not load.
PASSES_MAX = 10_000


class Turn:
    def __init__(
        self,
        engine: Engine,
        *,
        actions: Actions,
        allowance: Allowance,
        control: ControlPlane,
        disk: DiskWatch,
        fetch_server: FetchServer,
        fetchers: Fetchers,
        gate: Gate,
        findings: Findings,
        handover: Handover,
        kv: KvService,
        reads: ReadService,
        restarts: Restarts,
        syncer: LogSyncer,
        voter_changes: VoterChanges,
    ) -> None:
        self._engine = engine
        self._actions = actions
        self._allowance = allowance
        self._control = control
        self._disk = disk
        self._fetch_server = fetch_server
        self._fetchers = fetchers
        self._findings = findings
        self._gate = gate
        self._handover = handover
        self._kv = kv
        self._reads = reads
        self._restarts = restarts
        self._syncer = syncer
        self._voter_changes = voter_changes

    def run(self) -> None:
        """Perform everything that the inputs since the last turn asked for."""
        engine = self._engine
        if engine.fatal is not None:
            return
        engine.begin_turn()
        self._allowance.renew()
        try:
            self._restarts.repair_found()
            is_synced = True
            while is_synced:
                self._perform_all()
                self._voter_changes.meet_voters()
                self._fetch_server.send_answers()
                self._control.send_all()
                self._fetchers.send_rounds()
                is_synced = self._syncer.start() and engine.fatal is None
        except (StorageError, InvariantViolation) as error:
            engine.fail(error)
        finally:
            engine.end_turn()
        if engine.has_marked or self._fetchers.has_rounds or self._fetch_server.has_answers or self._findings.has_found:
            engine.request_turn()

    def _perform_all(self) -> None:
        engine = self._engine
        for _ in range(PASSES_MAX):
            if engine.to_append:
                self.step_appends()
            if not engine.dirty:
                return
            self._perform(engine.take_dirty())
        raise InvariantViolation(f"a turn did not end after {PASSES_MAX} passes")

    def step_appends(self) -> None:
        """What was queued for each log becomes one event of its core."""
        self._kv.batch_collected()
        for partition in self._engine.take_appending().values():
            if self._handover.holds(partition) or self._findings.holds(partition.group):
                continue
            if not partition.core.is_leader:
                partition.refuse_appends()
                continue
            admitted = partition.admit(self._reads.prove, self._disk.refusal(partition), self._gate)
            if admitted:
                counts = tuple(header.last_offset_delta + 1 for pending in admitted for header in pending.headers)
                self._engine.step(partition, AppendRequested(record_counts=counts, payload=admitted))

    def _perform(self, dirty: Marked) -> None:
        states = {
            partition.group: action.state
            for partition in dirty.values()
            for action in partition.outbox
            if isinstance(action, do.SaveElectionState)
        }
        if states:
            dirty = self._disk.save(dirty, states)
        for partition in dirty.values():
            if self._findings.holds(partition.group):
                # What it still has to say it says when it is started anew.
                continue
            actions, partition.outbox = partition.outbox, []
            try:
                for action in actions:
                    if not partition.deleted:
                        self._actions.perform(partition, action)
            except UnfitBeginning as unfit:
                self._restarts.from_nothing(partition, unfit)
            except DamagedData as damage:
                self._findings.found(partition.group, damage)
            except DiskFull as full:
                self._disk.on_full(full)
                self._restarts.without_room(partition)
            if partition.needs_flush:
                self._syncer.mark(partition)
