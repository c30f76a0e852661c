"""Between voter sets as the core knows them and the control records that hold them in the log.

Owns the reading of a log's voters at start: every control batch behind its beginning is looked at, once. Only headers are
parsed on the way. Knows no network; which addresses a node uses is `peers`' business.
"""

from __future__ import annotations

from raftlake.errors import CorruptBatch, DamagedData
from raftlake.ports import LogStore
from raftlake.raft.actions import AppendLeaderChange, AppendVoters
from raftlake.raft.types import DirectoryId, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.intact import headers_from
from raftlake.wire.batches import VoterEntry, leader_change_batch, voters_batch, voters_set_by

NO_TIMESTAMP = -1
READ_BYTES = 1024 * 1024


def voter_set_of(entries: tuple[VoterEntry, ...]) -> VoterSet:
    """The set that a KRaftVoters record describes."""
    by_id = sorted(entries, key=lambda entry: entry.node_id)
    return VoterSet(
        {NodeId(entry.node_id): ReplicaKey(NodeId(entry.node_id), DirectoryId(entry.directory_id)) for entry in by_id},
        {NodeId(entry.node_id): tuple(VoterEndpoint(*endpoint) for endpoint in entry.endpoints) for entry in by_id},
    )


def entries_of(voters: VoterSet) -> tuple[VoterEntry, ...]:
    """What a KRaftVoters record says of a set, by ascending id."""
    return tuple(
        VoterEntry(
            node_id=node_id,
            directory_id=voters.voters[node_id].directory_id,
            endpoints=tuple((place.name, place.host, place.port) for place in voters.endpoints.get(node_id, ())),
        )
        for node_id in voters.ids
    )


def control_batch(action: AppendLeaderChange | AppendVoters) -> bytes:
    """The control batch that the core wants written."""
    if isinstance(action, AppendVoters):
        voters = entries_of(action.voters)
        return voters_batch(action.offset, action.epoch, NO_TIMESTAMP, voters, kraft_version=action.kraft_version)
    initial = () if action.initial_voters is None else entries_of(action.initial_voters)
    return leader_change_batch(
        action.offset, action.epoch, NO_TIMESTAMP, action.leader_id, action.voters, action.granting_voters, initial
    )


def read_batch_voters(batch: bytes | memoryview) -> VoterSet | None:
    """The voters that a control batch sets. Raises CorruptBatch."""
    entries = voters_set_by(batch)
    return None if entries is None else voter_set_of(entries)


def read_voters(log: LogStore, history: VoterHistory, start: Offset | None = None) -> None:
    """Record every voter set of the log from `start` (default: its first offset) on."""
    offset = log.start_offset if start is None else start
    end = log.end_offset
    while offset < end:
        chunk = log.read(offset, end, READ_BYTES)
        if not chunk:
            return
        for header in headers_from("its log", chunk, offset):
            if header.is_control:
                batch = memoryview(chunk)[header.position : header.end_position]
                try:
                    voters = read_batch_voters(batch)
                except CorruptBatch as error:
                    raise DamagedData(f"damaged at offset {header.base_offset}: {error}", offset=header.base_offset) from error
                if voters is not None:
                    history.record(Offset(header.base_offset), voters)
            offset = Offset(header.base_offset + header.last_offset_delta + 1)
