"""What the snapshot of a data partition tells of voters and producers: what the committed records before it say.

It is made by retention from what a node knows, or of the remote tier's auxiliary state by a follower that never had the records
(KIP-405). A snapshot may tell nothing of producers where a full disk kept a node from writing their state down. Of a topic
that is compacted it tells the newest batch of each producer, unless it comes later, and no transactions: their markers may be
gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, OffsetAndEpoch, VoterSet
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.producer_state import NO_PRODUCER, ProducerStates
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.replica.partition.voter_log import read_batch_voters
from raftlake.sim.invariants.base import ClusterView, Invariant
from raftlake.sim.invariants.committed_log import CommittedLog, CommittedLogs
from raftlake.wire.batches import decode_records, parse_header, read_end_marker
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow
from raftlake.wire.snapshots import SnapshotScanner


@dataclass(slots=True)
class _Replayed:
    """The producers of the first batches of a committed log, so many."""

    producers: ProducerStates = field(default_factory=ProducerStates)
    batches: int = 0


class PartitionSnapshot(Invariant):
    promise = "a snapshot of a partition tells its voters and its producers"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        self._replayed: dict[GroupId, _Replayed] = {}

    def on_snapshot(self, node_id: NodeId, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        if group == METADATA_GROUP:
            return
        where = f"node {node_id} {group} snapshot {snapshot_id.offset}@{snapshot_id.epoch}"
        log, (voters, producers) = self._committed.of(group), _read(snapshot_id, data)
        expected = next((found for offset, found in reversed(log.voter_sets) if offset < snapshot_id.offset), None)
        if voters != expected:
            raise self.fail(f"{where} names the voters {voters}, the records name {expected}")
        if producers is None or producers.has_forgotten:
            return
        replayed = self._replay(group, log)
        told, said = _rows(bytes(producers.packed)), _rows(replayed.packed(snapshot_id.offset))
        if group.topic in self.view.compacted_topics:
            # What has a newer batch behind the snapshot may be gone from before it.
            newest = _newest(_rows(replayed.packed(log.end)))
            told, said = ([row for row in _newest(rows) if row in newest] for rows in (told, said))
        if told != said:
            raise self.fail(f"{where} tells of {told}, the records of {said}")

    def _replay(self, group: GroupId, log: CommittedLog) -> ProducerStates:
        replayed = self._replayed.setdefault(group, _Replayed())
        for batch in log.batches[replayed.batches :]:
            header = parse_header(batch.data)
            marker = read_end_marker(batch.data) if header.is_control else None
            if marker is not None:
                replayed.producers.end_transaction(marker, batch.base, 0)
            elif header.producer_id != NO_PRODUCER and not header.is_control:
                replayed.producers.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.record_count,
                    batch.base,
                    0,
                    header.is_transactional,
                )
        replayed.batches = len(log.batches)
        return replayed.producers


def _read(snapshot_id: OffsetAndEpoch, data: bytes) -> tuple[VoterSet | None, KnownProducers | None]:
    scanner = SnapshotScanner(lambda position, size: data[position : position + size], len(data), snapshot_id.epoch)
    voters: VoterSet | None = None
    producers: list[KnownProducers] = []
    is_first = True
    while (batch := scanner.next()) is not None:
        if is_first:
            voters = read_batch_voters(batch.data)
        elif not batch.header.is_control:
            found = [KnownProducers.decode(record.value or b"") for record in decode_records(batch.data)]
            producers += [each for each in found if each is not None]
        is_first = False
    return voters, KnownProducers.join(producers)


def _rows(packed: bytes) -> list[ProducerRow]:
    """By producer and offset; when its batches were seen is each node's own."""
    return sorted(ProducerRow(*fields)._replace(timestamp_ms=0) for fields in ENTRY.iter_unpack(packed))


def _newest(rows: list[ProducerRow]) -> list[ProducerRow]:
    """The last row of each producer."""
    last = {row.producer_id: row for row in sorted(rows, key=lambda row: row.last_offset)}
    return [row._replace(coordinator_epoch=-1, transaction_first_offset=-1) for _, row in sorted(last.items())]
