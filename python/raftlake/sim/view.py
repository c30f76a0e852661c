"""What the invariants of a run see of its machines, running or not: logs, elections, snapshots, directory ids, voter sets.

The machines may be added later: the view looks at them when it is asked.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, NodeId, OffsetAndEpoch
from raftlake.raft.voters import VoterHistory
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.machine import Machine


def view_of(
    machines: Mapping[NodeId, Machine],
    voters: tuple[NodeId, ...],
    *,
    disposable_topics: Container[str] = (),
    compacted_topics: Container[str] = (),
) -> ClusterView:
    """A cluster whose groups begin with `voters`, and whose clients delete `disposable_topics`."""

    def log_of(node_id: NodeId, group: GroupId) -> MemoryLog | None:
        return machines[node_id].disk.logs.get(group)

    def election_of(node_id: NodeId, group: GroupId) -> ElectionState | None:
        return machines[node_id].disk.elections.get(group)

    def snapshots_of(node_id: NodeId, group: GroupId) -> Sequence[OffsetAndEpoch]:
        return machines[node_id].disk.snapshots.ids(group)

    def directory_of(node_id: NodeId) -> DirectoryId:
        return machines[node_id].config.directory_id

    def history_of(node_id: NodeId, group: GroupId) -> VoterHistory | None:
        node = machines[node_id].node
        partition = None if node is None else node.partitions.get(group)
        return None if partition is None else partition.core.voter_history

    return ClusterView(
        voters,
        log_of,
        election_of,
        disposable_topics=disposable_topics,
        compacted_topics=compacted_topics,
        snapshots_of=snapshots_of,
        directory_of=directory_of,
        history_of=history_of,
    )
