"""ConsistentCommittedData, snapshots included (RaftEventSimulationTest): a snapshot is the state of the committed prefix.

Its epoch is that of the last record it covers, it covers committed records only, and the key space in it is what those
records make, byte for byte, on every node and at every moment. The records are replayed once, and the state after each batch
is kept: the key spaces of a run are small.
"""

from __future__ import annotations

from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.sim.invariants.base import ClusterView, Invariant
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.wire.batches import decode_records
from raftlake.wire.snapshots import SnapshotScanner

State = tuple[tuple[str, int, bytes], ...]


def state_of(machine: StateMachine) -> State:
    """Every entry, by key."""
    return tuple((key, entry.version, entry.value) for key, entry in machine.list("", None, 1 << 30)[0])


class SnapshotData(Invariant):
    promise = "a snapshot is the state of what was committed"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        self._machine = StateMachine(rules=ReservedRules)
        #: Batches that were replayed, and the state at the end of each.
        self._replayed = 0
        self._states: dict[int, State] = {}

    def on_snapshot(self, node_id: NodeId, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        epoch = self._committed.of(group).epoch_before(snapshot_id.offset)
        where = f"node {node_id} {group} snapshot {snapshot_id.offset}@{snapshot_id.epoch}"
        if epoch is None:
            raise self.fail(f"{where}: committed is only what lies below {self._committed.of(group).end}")
        if epoch != snapshot_id.epoch:
            raise self.fail(f"{where}: the last committed record before it has epoch {epoch}")
        if group == METADATA_GROUP:
            self._replay()
            found = self._read(snapshot_id, data)
            if found != self._states[snapshot_id.offset]:
                raise self.fail(f"{where} holds {found}, the committed records make {self._states[snapshot_id.offset]}")

    def _replay(self) -> None:
        batches = self._committed.of(METADATA_GROUP).batches
        for batch in batches[self._replayed :]:
            for record in decode_records(batch.data):
                self._machine.apply(record.offset, record.value or b"")
            self._machine.advance_to(batch.end)
            self._states[batch.end] = state_of(self._machine)
        self._replayed = len(batches)

    def _read(self, snapshot_id: OffsetAndEpoch, data: bytes) -> State:
        scanner = SnapshotScanner(lambda position, size: data[position : position + size], len(data), snapshot_id.epoch)
        values: list[bytes] = []
        while (batch := scanner.next()) is not None:
            values += [record.value or b"" for record in decode_records(batch.data)]
        machine = StateMachine(rules=ReservedRules)
        machine.restore(values)
        return state_of(machine)
