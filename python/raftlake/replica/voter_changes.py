"""Changes of voters on their way through a node: whom to answer, and what the node wants changed by itself (KIP-853).

An operator changes the voters of the metadata group. From there the change spreads: the leader of every other group brings
its group to the metadata group's committed set, one voter at a time, each by the same rules. A voter whose address is not the
one in the log tells the leader; a node that may join by itself asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.events import VoterChangeRequested
from raftlake.raft.messages import VoterChange
from raftlake.replica.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

Answered = Callable[[AnswerVoterChange], None]


class VoterChanges:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._counter = 0
        self._waiting: dict[int, Answered] = {}

    def request(self, partition: Partition, change: VoterChange, done: Answered) -> None:
        """Ask the group's core; `done` is called once, now or when the change is committed."""
        self._counter += 1
        self._waiting[self._counter] = done
        # Replicas that are idle are confirmed lazily; the core is about to judge who is awake.
        if partition.core.is_leader:
            self._node.fetch_server.confirm(partition.group)
        self._node.step(partition, VoterChangeRequested(request_id=self._counter, change=change))

    def answered(self, action: AnswerVoterChange) -> None:
        self._waiting.pop(action.request_id)(action)
