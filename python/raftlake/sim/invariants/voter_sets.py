"""OneVoterAtATime (KIP-853; kraft_kip_853 reconfiguration TLA+) and one set of voters for all groups in the end.

Two committed sets that follow each other differ by one voter at most, so that their majorities share one; the step from static
voters to the log changes no voter. When the faults are over every group comes to the committed voters of the metadata group, on
every node.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs


def voter_disagreements(replicas: Sequence[ReplicaState], view: ClusterView, committed: CommittedLogs) -> list[str]:
    """Which replicas do not have the metadata group's committed voters yet, one line each."""
    expected = committed.of(METADATA_GROUP).voters
    if expected is None:
        return []
    found: list[str] = []
    for replica in replicas:
        history = view.history_of(replica.node_id, replica.group)
        voters = None if history is None else history.at(replica.log.end_offset)
        if voters is None or voters.voters != expected.voters:
            ids = "static ones" if voters is None else list(voters.voters.values())
            found.append(
                f"node {replica.node_id} {replica.group} has the voters {ids}, committed are {list(expected.voters.values())}"
            )
    return found


class VoterSets(Invariant):
    promise = "voters change one at a time, and all groups come to the same ones"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        #: How many sets of a group have been looked at.
        self._seen: dict[GroupId, int] = {}

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        sets = self._committed.of(replica.group).voter_sets
        seen = self._seen.get(replica.group, 0)
        if len(sets) == seen:
            return
        self._seen[replica.group] = len(sets)
        for index in range(seen, len(sets)):
            (_, old), (offset, new) = sets[max(index - 1, 0)], sets[index]
            nodes = {**old.voters, **new.voters}
            changed = [node_id for node_id in nodes if old.voters.get(node_id) != new.voters.get(node_id)]
            if len(changed) > 1:
                raise self.fail(f"{replica.group}: at {offset} the voters {old.ids} became {new.ids}")

    def on_end(self, replicas: Sequence[ReplicaState]) -> None:
        found = voter_disagreements(replicas, self.view, self._committed)
        if found:
            raise self.fail("; ".join(found))
