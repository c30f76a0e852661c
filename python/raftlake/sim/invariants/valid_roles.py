"""ValidRolesAndStates / NoIllegalState / StatesMatchRoles (kraft_kip_996_properties.tla, kraft_kip_853).

Only voters campaign (and replicas whose removal is not committed by what they know), only a candidate comes to lead, and a
replica that campaigns or leads follows no other.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.sim.invariants.base import Invariant


class ValidRoles(Invariant):
    promise = "a replica is in a state that its role allows"

    def on_role(self, node_id: NodeId, group: GroupId, before: str, action: ReportRole, may_stand: bool) -> None:
        where = f"node {node_id} {group} {before} -> {action.role} epoch {action.epoch}"
        if action.role in ("Prospective", "Candidate") and not may_stand:
            raise self.fail(f"{where}: it is no voter")
        if action.role == "Leader" and (before not in ("Candidate", "Leader") or action.leader_id != node_id):
            raise self.fail(f"{where}: it was not elected, or says that {action.leader_id} leads")
        if action.role in ("Candidate", "Resigned") and action.leader_id != NO_LEADER:
            raise self.fail(f"{where}: it knows the leader {action.leader_id}")
        if action.role == "Follower" and action.leader_id in (NO_LEADER, node_id):
            raise self.fail(f"{where}: it follows {action.leader_id}")
