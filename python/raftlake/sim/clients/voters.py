"""An operator: adds voters, removes them (leaders too), replaces disks, by the requests that Kafka's tools send (KIP-853).

One change at a time, and before the next one a look at the committed voters, as an operator has it from DescribeQuorum. A disk
that was replaced is repaired before anything else: its old voter goes, then the node comes back as the new one that it is.
Everything else is drawn; most requests reach the node that leads, others find out that they did not.
"""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId, ReplicaKey, VoterSet
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.messages import ask_add_voter, ask_remove_voter, change_error
from raftlake.sim.clock import US_PER_MS

#: About so many changes are asked for before a disk is replaced, and so often the operator looks whether it may be.
CHANGES_PER_DISK = 6
PATIENCE = 10


class Operator(Client):
    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._operations = shared.operations
        self._voters_min = max(1, shared.settings.voters - 1)
        self._voters_max = shared.settings.voters + 1
        #: As often the operator looks whether a disk may be replaced.
        self._patience = 0
        #: The node that is to become a voter, until that is done or something else is asked for.
        self._adds: NodeId | None = None
        #: Voters whose disk was replaced, as they were; the first who is no voter yet comes next.
        self._replaced: list[NodeId] = []

    @property
    def awaited(self) -> tuple[int, int, int] | None:
        """How far the node has fetched that is to become a voter; None where none is to."""
        return None if self._adds is None else self._operations.fetched(self._adds)

    def step(self) -> None:
        voters = self._operations.voters
        if voters is None:
            self.give_up()
            return
        lost = self._operations.lost()
        self._replaced = [node_id for node_id in self._replaced if not voters.has(self._operations.key(node_id))]
        if lost:
            self._remove(lost[0])
        elif self._replaced:
            self._add(self._replaced[0])
        elif self._patience and not self._is_over():
            self._await_calm(voters)
        else:
            if self.rng.randrange(CHANGES_PER_DISK) == 0:
                self._patience = PATIENCE
            self._change(voters)

    def _await_calm(self, voters: VoterSet) -> None:
        """A disk is to be replaced, and nothing else is changed until it may be, or takes too long to."""
        self._patience -= 1
        if self._may_replace_a_disk():
            self._patience = 0
            self._replace_disk(voters)
        else:
            self.give_up()

    def _may_replace_a_disk(self) -> bool:
        return self._operations.may_lose_a_disk(self.shared.scheduler.now_us)

    def _is_over(self) -> bool:
        """No disk is lost any more. A client that waited for one goes on with something else."""
        return self.shared.scheduler.now_us >= self.shared.settings.safety_ms * US_PER_MS

    def _replace_disk(self, voters: VoterSet) -> None:
        node_id = self._draw_voter(voters)
        self.say(f"replaces the disk of node {node_id}")
        self._replaced.append(node_id)
        self._operations.replace_disk(node_id)
        self.succeed()

    def _change(self, voters: VoterSet) -> None:
        outside = [node_id for node_id in self.shared.node_ids if node_id not in voters]
        may_add = bool(outside) and len(voters) < self._voters_max
        if may_add and (len(voters) <= self._voters_min or self.rng.randrange(2)):
            self._add(outside[self.rng.randrange(len(outside))])
        else:
            self._remove(voters.voters[self._draw_voter(voters)])

    def _draw_voter(self, voters: VoterSet) -> NodeId:
        """A voter; often the one that leads."""
        leader_id = self._operations.leader_id()
        if leader_id is not None and leader_id in voters and self.rng.randrange(3) == 0:
            return leader_id
        return voters.ids[self.rng.randrange(len(voters))]

    # --- requests ---

    def _add(self, node_id: NodeId) -> None:
        voter = self._operations.key(node_id)
        self.say(f"adds {voter.id}")
        self._adds = node_id
        self._ask(ask_add_voter(voter, self._operations.address(node_id)), "voter added")

    def _remove(self, voter: ReplicaKey) -> None:
        if not self._operations.may_remove(voter):
            self.give_up()
            return
        self.say(f"removes {voter.id}")
        self._adds = None
        is_leader = voter.id == self._operations.leader_id()
        self._ask(ask_remove_voter(voter), "voter removed (leader)" if is_leader else "voter removed")

    def _ask(self, ask: Any, what: str) -> None:
        leader_id = self._operations.leader_id()
        node_id = self.any_node() if leader_id is None or self.rng.randrange(5) == 0 else leader_id
        self._operations.asked(self.name, self.shared.scheduler.now_us + CALL_TIMEOUT_MS * US_PER_MS)
        self.shared.calls.call(node_id, ask, lambda answer: self._on_answer(what, answer), CALL_TIMEOUT_MS)

    def _on_answer(self, what: str, answer: Any) -> None:
        error = None if isinstance(answer, CallFailure) else change_error(answer)
        now_us = self.shared.scheduler.now_us
        self._operations.answered(self.name, now_us, is_known=answer is not CallFailure.TIMED_OUT)
        if error is ErrorCode.NONE:
            self.say(what)
            self._operations.coverage.note(what)
            self._adds = None
            self.succeed()
            return
        self._operations.coverage.note(f"voter change {answer.value if error is None else error.name}")
        self.give_up()
