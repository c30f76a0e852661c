"""Changes of voters on their way through a node: whom to answer, and what the node wants changed by itself (KIP-853).

An operator changes the voters of the metadata group. From there the change spreads: the leader of every other group brings
its group to the metadata group's committed set, one voter at a time, each by the same rules, and never back to an older set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raftlake.errors import ErrorCode
from raftlake.ports.driver import KraftVersions
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetResult
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.core import RaftGroup
from raftlake.raft.events import FailureReason, VoterChangeRequested
from raftlake.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raftlake.raft.roles import Leader
from raftlake.raft.types import Epoch, NodeId, ReplicaKey, VoterSet
from raftlake.replica.config import Endpoint
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import Quorum, address_in, endpoint_of
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.reads import ReadService

Answered = Callable[[AnswerVoterChange], None]

#: All that who names an endpoint is told of what is there: the leader would else look at any address for anybody.
NOT_CONFIRMED = (
    "the voter's endpoint is not confirmed, and the leader's log says why: give the address at which the other voters reach it"
)


class VoterChanges:
    def __init__(self, engine: Engine, quorum: Quorum, fetch_server: FetchServer, reads: ReadService) -> None:
        self._engine = engine
        self._quorum = quorum
        self._fetch_server = fetch_server
        self._reads = reads
        self._counter = 0
        self._waiting: dict[int, tuple[GroupId, Answered]] = {}
        #: The voters whose addresses the network has been told.
        self._met: VoterSet | None = None
        #: Groups with a change under way, and how many attempts each has had.
        self._under_way: dict[GroupId, None] = {}
        self._attempts: dict[GroupId, int] = {}
        #: Groups and the epoch of leading them in which this node knows of the quorum's voters what leaders before it knew.
        self._proven: dict[GroupId, Epoch] = {}
        self._is_proving = False
        #: The new voter whose endpoint is being asked.
        self._probed: NodeId | None = None

    def request(self, partition: Partition, change: VoterChange, done: Answered) -> None:
        """Ask the group's core; `done` is called once, now or when the change is committed."""
        self._counter += 1
        self._waiting[self._counter] = (partition.group, done)
        # Replicas that are idle are confirmed lazily; the core is about to judge who is awake.
        if partition.core.is_leader:
            self._fetch_server.confirm(partition.group)
        self._engine.step(partition, VoterChangeRequested(request_id=self._counter, change=change))

    def admit(self, partition: Partition, change: AddVoter | UpdateVoter, done: Answered) -> None:
        """As `request`, behind a question to the new endpoint, as Kafka's leaders do for AddRaftVoter: a voter that its
        peers cannot reach counts for the majority and helps no candidate to one. The core checks the versions that it tells."""
        core, voter_id = partition.core, change.voter.id
        address = endpoint_of(change.endpoints)
        is_new = _is_observer(core, change.voter) if isinstance(change, AddVoter) else _moves(core, change.voter, address)
        if address is None or not is_new:
            # Nothing is to be found out, or it is refused for another reason, which the core knows.
            self.request(partition, change, done)
            return
        owner = next((node_id for node_id, known in self._quorum.addresses().items() if known == address), voter_id)
        if owner != voter_id:
            message = f"{address} is the address of node {owner}, not of node {voter_id}"
            done(_refusal(core, ErrorCode.INVALID_REQUEST, message))
            return
        if self._probed is not None:
            done(_not_now(core, f"the endpoint of node {self._probed} is being asked"))
            return
        self._probed = voter_id
        # An observer that has nothing to fetch is silent for as long as its round is held: hear of it meanwhile.
        self._fetch_server.release_replica(voter_id)
        group = partition.group

        def answered(answer: KraftVersions | FailureReason) -> None:
            self._engine.begin_input()
            self._probed = None
            asked = self._engine.partitions.get(group)
            if isinstance(answer, FailureReason):
                done(_not_now(core, NOT_CONFIRMED))
            elif asked is None:
                done(_not_now(core, "the quorum's log is being repaired"))
            else:
                self.request(asked, replace(change, kraft_versions=answer), done)

        self._engine.network.probe(address.host, address.port, answered)

    def answered(self, action: AnswerVoterChange) -> None:
        _, done = self._waiting.pop(action.request_id)
        done(action)

    def drop(self, partition: Partition) -> None:
        """The group was closed, because its topic was deleted or its log is being repaired: its core answers no more."""
        group = partition.group
        for request_id in [number for number, (of, _) in self._waiting.items() if of == group]:
            _, done = self._waiting.pop(request_id)
            # Without a reason: whether the change is committed is open.
            done(_not_now(partition.core, ""))
        self._attempts.pop(group, None)
        self._proven.pop(group, None)

    # --- what happens by itself ---

    def meet_voters(self) -> None:
        """Tell the network where the voters are, where that has changed. Called before anything is sent: the first groups of a
        node that joins ask a voter at once, and would ask again half a second later."""
        latest = self._quorum.latest
        if latest is not self._met:
            self._met = latest
            for voter, address in self._quorum.addresses().items():
                self._engine.network.meet(voter, address.host, address.port)

    def tick(self) -> None:
        """Called a few times a second: bring the groups led here after the quorum's."""
        engine = self._engine
        target = self._quorum.committed
        if target is None:
            return
        unproven: dict[GroupId, Epoch] = {}
        for group, partition in list(engine.partitions.items()):
            core = partition.core
            if not core.is_leader or core.voters == target or group in self._under_way or group == engine.config.quorum_group:
                continue
            if self._proven.get(group) == core.epoch:
                self._follow(partition, target)
            else:
                unproven[group] = core.epoch
        if unproven and not self._is_proving:
            self._prove(unproven)

    def _prove(self, groups: dict[GroupId, Epoch]) -> None:
        """A new leader may know less of the quorum's voters than those before it, and would steer its group back to what they
        left. All that they knew was committed before it led: it knows that too when it has read up to an end that the quorum's
        leader has proven since."""
        engine = self._engine
        self._is_proving = True

        def read(result: ReadOffsetResult) -> None:
            self._is_proving = False
            if result.error is ErrorCode.NONE:
                self._proven.update(groups)

        self._reads.read(engine.config.quorum_group, read)

    def _follow(self, partition: Partition, target: VoterSet) -> None:
        """One step of a group towards the quorum's voters; the next tick takes the next one."""
        core = partition.core
        if core.voter_history.kraft_version == 0 or not core.is_serving_leader:
            return
        steps = next_steps(core.voters, target, core.local.id, core.epoch, silent_voters(core, self._engine.now_ms))
        if not steps:
            return
        for step in steps:
            if isinstance(step, AddVoter):
                # As in `admit`: what is refused now, since nothing was heard of it, is heard of before the next tick.
                self._fetch_server.release_replica(step.voter.id)
        group = partition.group
        # Where a step is refused, for a new voter lags, another one may be possible.
        attempt = self._attempts.get(group, 0)

        def done(answer: AnswerVoterChange) -> None:
            self._under_way.pop(group, None)
            self._attempts[group] = 0 if answer.error is ErrorCode.NONE else attempt + 1

        self._under_way[group] = None
        self.request(partition, steps[attempt % len(steps)], done)


def _not_now(core: RaftGroup, message: str) -> AnswerVoterChange:
    return _refusal(core, ErrorCode.REQUEST_TIMED_OUT, message)


def _refusal(core: RaftGroup, error: ErrorCode, message: str) -> AnswerVoterChange:
    return AnswerVoterChange(request_id=-1, error=error, message=message, leader_id=core.leader_id, leader_epoch=core.epoch)


def _moves(core: RaftGroup, voter: ReplicaKey, address: Endpoint | None) -> bool:
    """Another node of those that vote by this leader's log says that it is reached elsewhere now."""
    if not core.is_leader or core.voter_history.kraft_version == 0 or voter.id == core.local.id:
        return False
    return core.voters.has(voter) and address_in(core.voters, voter.id) != address


def _is_observer(core: RaftGroup, replica: ReplicaKey) -> bool:
    """It has fetched from this leader and may be made a voter as far as that goes."""
    if not isinstance(core.role, Leader) or core.voter_history.kraft_version == 0 or replica.id in core.voters:
        return False
    seen = core.role.observers.get(replica.id)
    return seen is not None and seen.key == replica


def silent_voters(core: RaftGroup, now_ms: int) -> frozenset[NodeId]:
    """The voters that a leader has not heard of for a fetch timeout."""
    leader = core.role
    if not isinstance(leader, Leader):
        return frozenset()
    timeout_ms = core.config.fetch_timeout_ms
    return frozenset(voter for voter, seen in leader.voters.items() if now_ms - seen.fetched_at_ms > timeout_ms)


def next_steps(
    current: VoterSet, target: VoterSet, me: NodeId, epoch: Epoch, silent: frozenset[NodeId] = frozenset()
) -> list[VoterChange]:
    """Single changes that lead from one set to the other. Each of them may come next: a disk that was replaced goes before
    the new one comes, every other voter goes when all who come are there (or no longer answers), the leader last."""
    shared = [node_id for node_id in current.ids if node_id in target]
    steps: list[VoterChange] = [
        RemoveVoter(voter=current.voters[node_id]) for node_id in shared if current.voters[node_id] != target.voters[node_id]
    ]
    coming = [node_id for node_id in target.ids if node_id not in current]
    steps += [AddVoter(voter=target.voters[node_id], endpoints=target.endpoints.get(node_id, ())) for node_id in coming]
    going = sorted((node_id for node_id in current.ids if node_id not in target), key=lambda node_id: (node_id == me, node_id))
    steps += [RemoveVoter(voter=current.voters[node_id]) for node_id in going if not coming or node_id in silent]
    if steps:
        return steps
    return [
        UpdateVoter(voter=target.voters[node_id], endpoints=target.endpoints.get(node_id, ()), leader_epoch=epoch)
        for node_id in shared
        if current.endpoints.get(node_id, ()) != target.endpoints.get(node_id, ())
    ]
