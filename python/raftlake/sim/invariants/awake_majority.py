"""LeaderHasMajority (promise 5; KIP-595 "Leader Progress Timeout", KAFKA-15489): a leader without a majority gives up.

Judged by what arrived: a node that still leads although too few of its voters have sent it any Fetch in 1.5 fetch timeouts,
by its own clock, has forgotten to look. A voter counts as heard of when the leader takes office and when its set changes,
and whatever it fetches counts, so this never asks for more than the promise. A process that does not run is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.quorum import largest_reached_by
from raftlake.raft.types import NodeId, VoterSet
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.invariants.base import ClusterView, Invariant, ReplicaState

#: Clocks run slow by at most 5 %, and the turn that a deadline asks for comes a moment later.
SLACK_PERCENT = 10
SLACK_MS = 100


@dataclass(slots=True)
class Office:
    """One leader's term with one set of voters."""

    incarnation: int
    epoch: int
    voters: VoterSet
    since_us: int


class AwakeMajority(Invariant):
    promise = "a leader without a majority resigns"

    def __init__(self, view: ClusterView, fetch_timeout_ms: int) -> None:
        super().__init__(view)
        self._limit_us = fetch_timeout_ms * 3 // 2 * (100 + SLACK_PERCENT) // 100 * US_PER_MS + SLACK_MS * US_PER_MS
        self._fetched_us: dict[tuple[NodeId, NodeId], int] = {}
        self._offices: dict[tuple[NodeId, GroupId], Office] = {}

    def on_fetch(self, node_id: NodeId, source: NodeId, now_us: int) -> None:
        self._fetched_us[node_id, source] = now_us

    def on_leading(self, replica: ReplicaState, now_us: int) -> None:
        history = self.view.history_of(replica.node_id, replica.group)
        if history is None:
            return
        place, voters = (replica.node_id, replica.group), history.latest
        office = self._offices.get(place)
        if (
            office is None
            or (office.incarnation, office.epoch) != (replica.incarnation, replica.epoch)
            or office.voters != voters
        ):
            self._offices[place] = Office(replica.incarnation, replica.epoch, voters, now_us)
            return
        others = [voter for voter in voters.ids if voter != replica.node_id]
        needed = voters.majority - (len(others) < len(voters))
        if not 0 < needed <= len(others):
            return
        heard_us = largest_reached_by(
            [max(self._fetched_us.get((replica.node_id, voter), 0), office.since_us) for voter in others], needed
        )
        if now_us - heard_us > self._limit_us:
            raise self.fail(
                f"node {replica.node_id} leads {replica.group} in epoch {replica.epoch}, and {needed} of {others} have not "
                f"fetched for {(now_us - heard_us) // US_PER_MS} ms"
            )
