"""Every role takes every event: whatever peers, clocks and disks report, `step` neither raises nor stays due for ever.

The events are drawn around the replica's own position, so that most of them are nearly right, which is where bugs live. What is
excluded is only what the driver promises never to do (appending where nobody leads, syncs beyond the log) and a leader
that asks to cut committed records, for which a node stops on purpose.
"""

from __future__ import annotations

import typing
from dataclasses import replace
from random import Random

import pytest

from raftkit.replica import Replica, batch, key, position
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import (
    AddVoter,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoter,
    Request,
    UpdateVoter,
    VoterChange,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.roles import Follower
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet

ROLES = ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"]
LOG = (((1, 0), (3, 5)), 9)
ERRORS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.BROKER_NOT_AVAILABLE,
]


class AnyEvent:
    """Draws events for one replica."""

    def __init__(self, replica: Replica, random: Random, *, directories: bool = False) -> None:
        """With `directories` replicas have disks with ids, so that voters come into the log and change there."""
        self.directories = directories
        self.replica = replica
        self.random = random
        self.request_id = 0
        #: Requests that the replica sent and that nobody has answered yet.
        self.open: list[tuple[NodeId, Request]] = []

    def draw(self) -> on.Event:
        kinds = [
            self.request,
            self.request,
            self.fetch,
            self.fetch,
            self.response,
            self.response,
            self.response,
            self.failure,
            *[self.sync, self.small] * 2,
            self.change,
        ]
        return self.random.choice(kinds)()

    def node(self) -> NodeId:
        return NodeId(self.random.choice([-1, 1, 2, 2, 3, 3, 9]))

    def key(self) -> ReplicaKey:
        return self.key_of(self.node())

    def key_of(self, node: int) -> ReplicaKey:
        return key(node, self.random.choice([b"disk", b"disk", b"disk", b"new"]) if self.directories else None)

    def voters(self) -> VoterSet | None:
        if not self.directories or self.random.random() < 0.8:
            return None
        ids = [node for node in (1, 2, 3, 9) if self.random.random() < 0.7] or [1]
        return VoterSet({NodeId(node): key(node, b"disk") for node in ids})

    def change(self) -> on.Event:
        self.request_id += 1
        place = (VoterEndpoint("P", "h", 1),) * self.random.choice([0, 1, 1, 1])
        body: VoterChange
        match self.random.randrange(3):
            case 0:
                body = AddVoter(voter=self.key(), endpoints=place, ack_when_committed=self.random.random() < 0.7)
            case 1:
                known = list(self.replica.core.voters.voters.values()) or [self.key()]
                body = RemoveVoter(voter=self.random.choice([self.key(), *known]))
            case _:
                body = UpdateVoter(voter=self.key(), endpoints=place, leader_epoch=self.epoch())
        return on.VoterChangeRequested(request_id=self.request_id, change=body)

    def epoch(self) -> Epoch:
        return Epoch(max(0, self.replica.core.epoch + self.random.choice([-2, -1, 0, 0, 0, 0, 1, 3])))

    def offset(self) -> Offset:
        return Offset(self.replica.core.log_end + self.random.choice([-20, -3, -1, 0, 0, 0, 1, 5]))

    def last_epoch(self) -> Epoch:
        return Epoch(self.replica.core.history.last_epoch + self.random.choice([-4, -1, 0, 0, 1]))

    def error(self) -> ErrorCode:
        return self.random.choice(ERRORS)

    def request(self) -> on.Event:
        self.request_id += 1
        body: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchSnapshotRequest
        match self.random.randrange(5):
            case 0 | 1:
                body = VoteRequest(
                    candidate=self.key(),
                    epoch=self.epoch(),
                    log_end=position(self.offset(), self.last_epoch()),
                    pre_vote=self.random.random() < 0.5,
                    voter_id=self.node(),
                )
            case 4:
                body = FetchSnapshotRequest(
                    replica=key(self.node()),
                    leader_epoch=self.epoch(),
                    snapshot_id=position(self.offset(), self.last_epoch()),
                    position=self.random.randrange(5),
                )
            case 2:
                body = BeginQuorumEpochRequest(leader_id=self.node(), leader_epoch=self.epoch(), voter_id=self.node())
            case _:
                body = EndQuorumEpochRequest(
                    leader_id=self.node(),
                    leader_epoch=self.epoch(),
                    preferred_candidates=tuple(self.key() for _ in range(self.random.randrange(3))),
                )
        return on.RequestReceived(request_id=self.request_id, request=body)

    def fetch(self) -> on.Event:
        if self.random.random() < 0.2:
            at_ms = self.replica.now_ms - self.random.randrange(100)
            follows, epoch = self.random.randrange(50), self.epoch()
            return on.ReplicaConfirmed(replica_id=self.node(), at_ms=at_ms, follows=follows, leader_epoch=epoch)
        request = FetchRequest(
            replica=self.key(),
            leader_epoch=self.epoch(),
            fetch_offset=self.offset(),
            last_fetched_epoch=self.last_epoch(),
            high_watermark=Offset(self.random.choice([-1, 0, 5, 10, 2**62])),
        )
        return on.FetchRequestReceived(request=request, follows=self.random.randrange(50))

    def response(self) -> on.Event:
        if not self.open:
            return self.small()
        source, request = self.random.choice(self.open)
        if self.random.random() < 0.7:
            self.open.remove((source, request))
        error, leader, epoch = self.error(), self.node(), self.epoch()
        if self.random.random() < 0.5:
            error, leader, epoch = ErrorCode.NONE, self.replica.core.leader_id, self.replica.core.epoch
            if isinstance(request, FetchRequest) and self.random.random() < 0.2:
                error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        body: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
        match request:
            case VoteRequest():
                body = VoteResponse(error=error, leader_id=leader, leader_epoch=epoch, vote_granted=self.random.random() < 0.6)
            case BeginQuorumEpochRequest():
                body = BeginQuorumEpochResponse(error=error, leader_id=leader, leader_epoch=epoch)
            case EndQuorumEpochRequest():
                body = EndQuorumEpochResponse(error=error, leader_id=leader, leader_epoch=epoch)
            case FetchRequest():
                body = self.fetch_response(error, leader, epoch)
            case FetchSnapshotRequest():
                body = FetchSnapshotResponse(
                    error=error,
                    leader_id=leader,
                    leader_epoch=epoch,
                    snapshot_id=request.snapshot_id if self.random.random() < 0.9 else position(3, 1),
                    size=4,
                    position=request.position,
                    data=b"...."[: self.random.randrange(1, 5)],
                )
        if self.random.random() < 0.1:
            source = self.node()
        return on.ResponseReceived(source=source, request=request, response=body)

    def fetch_response(self, error: ErrorCode, leader: NodeId, epoch: Epoch) -> FetchResponse:
        core = self.replica.core
        diverging = snapshot_id = None
        batches = []
        match self.random.randrange(6):
            case 0:
                diverging = position(max(core.high_watermark, self.offset()), max(0, self.last_epoch()))
            case 1 if self.random.random() < 0.3:
                snapshot_id = position(max(core.high_watermark, self.offset()), self.last_epoch())
            case _:
                base = core.log_end
                for _ in range(self.random.randrange(3)):
                    end = base + self.random.choice([0, 1, 1, 2, 2])
                    made = batch(base + self.random.choice([0, 0, 0, 0, 1]), end, max(0, self.epoch()))
                    batches.append(replace(made, voters=self.voters()))
                    base = Offset(end)
        return FetchResponse(
            error=error,
            leader_id=leader,
            leader_epoch=epoch,
            high_watermark=self.offset(),
            diverging=diverging,
            snapshot_id=snapshot_id,
            batches=tuple(batches),
        )

    def failure(self) -> on.Event:
        if not self.open:
            return on.PeerUnreachable(peer=self.node())
        source, request = self.random.choice(self.open)
        self.open.remove((source, request))
        return on.RequestFailed(peer=source, request=request, reason=self.random.choice(list(on.FailureReason)))

    def sync(self) -> on.Event:
        core = self.replica.core
        if core.is_leader and self.random.random() < 0.5:
            return on.AppendRequested(record_counts=(self.random.randrange(1, 4),), payload=None)
        generation = core.log_generation - self.random.choice([0, 0, 0, 1])
        end = core.log_end if self.random.random() < 0.7 else Offset(self.random.randint(core.log_start, core.log_end))
        return on.RecordsFlushed(end_offset=end, generation=generation)

    def small(self) -> on.Event:
        core = self.replica.core
        match self.random.randrange(17):
            case 14:
                shown = sorted(self.random.choices(range(-1, core.high_watermark + 1), k=2))
                return on.HistoryTiered(start_offset=Offset(shown[0]), end_offset=Offset(shown[1]))
            case 15:
                epoch = min(self.epoch(), core.epoch)
                built = position(core.high_watermark + self.random.randrange(4), min(core.history.last_epoch, epoch))
                return on.RemoteLogAuxBuilt(leader_epoch=epoch, snapshot_id=built, voters=self.voters())
            case 16:
                return on.RemoteLogAuxFailed(leader_epoch=self.epoch(), is_refused=self.random.random() < 0.5)
            case 0:
                return on.PeerUnreachable(peer=self.node())
            case 1:
                return on.CampaignRequested()
            case 2 if self.random.random() < 0.1:
                return on.ResignRequested()
            case 3:
                start = Offset(self.random.randint(core.log_start, core.high_watermark))
                return on.LogStartAdvanced(log_start_offset=start)
            case 12:
                offset = self.random.randint(core.log_start, core.high_watermark)
                return on.SnapshotTaken(snapshot_id=position(offset, core.history.epoch_before(Offset(offset))))
            case 13:
                download = core.role.download if isinstance(core.role, Follower) else None
                wanted = position(core.high_watermark + self.random.randrange(3), core.history.last_epoch)
                received = wanted if download is None else download.snapshot_id
                return on.SnapshotReceived(snapshot_id=received, is_intact=self.random.random() < 0.8)
            case 4 | 5:
                at_ms = self.replica.now_ms - self.random.randrange(100)
                return on.LeaderConfirmed(leader_id=self.node(), at_ms=at_ms)
            case 6 | 7:
                return on.ReadRequested(read_id=self.random.randrange(10**6), sequence=self.random.randrange(50))
            case _:
                return on.DeadlineReached()


def check_not_due_for_ever(replica: Replica) -> None:
    """Once everything that is due has been done, nothing is due at this moment."""
    for _ in range(6):
        deadline = replica.core.next_deadline_ms()
        if deadline is None or deadline > replica.now_ms:
            return
        replica.step(on.DeadlineReached())
    raise AssertionError(f"{replica.role} stays due: {replica.core.role}")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("local", [1, 9])
@pytest.mark.parametrize("directory", [None, b"disk"])
@pytest.mark.parametrize("seed", range(12))
def test_every_role_takes_every_event(role: str, local: int, directory: bytes | None, seed: int) -> None:
    if local == 9:
        role = {"Leader": "Follower", "Resigned": "Follower"}.get(role, "Unattached")
    replica = Replica.in_role(role, epoch=6, local=local, log=LOG, seed=seed, directory=directory)
    drawn = AnyEvent(replica, Random(seed), directories=directory is not None)
    answered: dict[int, int] = {}
    changes_asked = 0
    changes_answered: list[int] = []
    epoch, vote, high_watermark = replica.core.epoch, replica.core.voted_key, 0
    for _ in range(300):
        replica.now_ms += drawn.random.choice([0, 0, 1, 5, 30, 400])
        event = drawn.draw()
        try:
            replica.step(event)
        except InvariantViolation as violation:
            if "below the high watermark" not in str(violation):
                raise
            # A leader asks to cut what is committed: the node stops, on purpose.
            return
        for action in replica.actions:
            if isinstance(action, do.SendRequest):
                assert action.destination in (1, 2, 3) or directory is not None
                assert action.destination != local
                drawn.open.append((action.destination, action.request))
            elif isinstance(action, do.Respond | do.AnswerFetchSnapshot):
                answered[action.request_id] = answered.get(action.request_id, 0) + 1
            elif isinstance(action, do.AnswerVoterChange):
                changes_answered.append(action.request_id)
        changes_asked += isinstance(event, on.VoterChangeRequested)
        pending = getattr(replica.core.role, "pending_change", None)
        is_waiting = pending is not None and pending.request_id is not None
        assert len(set(changes_answered)) == len(changes_answered) == changes_asked - is_waiting
        core = replica.core
        if isinstance(event, on.RequestReceived):
            assert answered.get(event.request_id) == 1, "answered exactly once, at once"
        assert core.epoch >= epoch
        assert core.epoch > epoch or vote is None or core.voted_key == vote, "one vote an epoch"
        assert core.high_watermark >= high_watermark
        assert not core.is_leader or core.is_voter or core.voter_history.kraft_version == 1
        epoch, vote, high_watermark = core.epoch, core.voted_key, core.high_watermark
        if isinstance(event, on.DeadlineReached):
            check_not_due_for_ever(replica)


@pytest.mark.parametrize("role", ROLES)
def test_the_events_reach_every_kind(role: str) -> None:
    """The generator itself: else the test above could pass by drawing nothing."""
    replica = Replica.in_role(role, epoch=6, log=LOG)
    drawn = AnyEvent(replica, Random(1))
    fetch = FetchRequest(replica=key(1), leader_epoch=Epoch(6), fetch_offset=Offset(9), last_fetched_epoch=Epoch(3))
    drawn.open = [(NodeId(2), fetch)] * 3_000
    kinds = {type(drawn.draw()) for _ in range(6_000)}
    expected = set(typing.get_args(on.Event)) - {on.Started} - (set() if role == "Leader" else {on.AppendRequested})
    assert kinds == expected


# --- every pair, one by one -----------------------------------------------------------------------------------------

BODIES: list[type] = [VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest]
PAIRS = [
    (role, kind, body)
    for role in ROLES
    for kind in typing.get_args(on.Event)
    for body in (BODIES if kind in (on.RequestReceived, on.ResponseReceived, on.RequestFailed) else [None])
    # A Fetch has an event of its own; nobody appends where nobody leads; a group starts once.
    if (kind, body) != (on.RequestReceived, FetchRequest)
    and (kind is not on.AppendRequested or role == "Leader")
    and kind is not on.Started
]


def sent_requests(replica: Replica) -> dict[type, tuple[NodeId, Request]]:
    """One request of each kind that an answer may come to: the one under way, else one from before."""
    core = replica.core
    epoch = core.epoch
    found: dict[type, tuple[NodeId, Request]] = {
        VoteRequest: (NodeId(2), VoteRequest(candidate=key(1), epoch=epoch, log_end=position(9, 3), pre_vote=False)),
        BeginQuorumEpochRequest: (NodeId(2), BeginQuorumEpochRequest(leader_id=NodeId(1), leader_epoch=epoch)),
        EndQuorumEpochRequest: (
            NodeId(2),
            EndQuorumEpochRequest(leader_id=NodeId(1), leader_epoch=epoch, preferred_candidates=()),
        ),
        FetchRequest: (
            NodeId(2),
            FetchRequest(replica=key(1), leader_epoch=epoch, fetch_offset=core.log_end, last_fetched_epoch=Epoch(3)),
        ),
    }
    for action in replica.actions:
        if isinstance(action, do.SendRequest):
            found[type(action.request)] = (action.destination, action.request)
    return found


@pytest.mark.parametrize(
    ("role", "kind", "body"), PAIRS, ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", "-")
)
def test_a_role_takes_an_event(role: str, kind: type, body: type | None) -> None:
    """Each pair of role and event on fresh replicas, in twenty variants: nothing raises, no epoch goes back, no second vote."""
    met = 0
    for seed in range(4_000):
        if met == 20:
            break
        replica = Replica.in_role(role, epoch=6, log=LOG, seed=seed)
        drawn = AnyEvent(replica, Random(seed))
        if body is not None:
            drawn.open = [sent_requests(replica)[body]] * 2
        event = kind() if kind in (on.CampaignRequested, on.DeadlineReached, on.ResignRequested) else drawn.draw()
        about = event.request if isinstance(event, on.RequestReceived | on.ResponseReceived | on.RequestFailed) else None
        if type(event) is not kind or (body is not None and type(about) is not body):
            continue
        met += 1
        before = (replica.core.epoch, replica.core.voted_key, replica.core.high_watermark)
        replica.step(event)
        core = replica.core
        assert core.epoch >= before[0]
        assert core.epoch > before[0] or before[1] in (None, core.voted_key)
        assert core.high_watermark >= before[2]
        check_not_due_for_ever(replica)
    assert met == 20, "the generator hardly draws this event"
