"""Between voter sets as the core knows them and the control records that hold them in the log.

Knows no network; which addresses a node uses is `peers`' business. A log's voters are read at start by `start_points`.
"""

from __future__ import annotations

from functools import lru_cache

from raftlake.raft.actions import AppendLeaderChange, AppendVoters
from raftlake.raft.types import DirectoryId, NodeId, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.wire.batches import VoterEntry, leader_change_batch, voters_batch, voters_set_by

NO_TIMESTAMP = -1
#: Control batches whose voters are remembered.
CACHED_BATCHES = 256


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
    return _voters_of(bytes(batch))


@lru_cache(CACHED_BATCHES)
def _voters_of(batch: bytes) -> VoterSet | None:
    """Remembered: a start reads the same set from start points, snapshots and records, and of many groups alike."""
    entries = voters_set_by(batch)
    return None if entries is None else voter_set_of(entries)
