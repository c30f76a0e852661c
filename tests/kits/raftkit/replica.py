"""One replica under test: short words for the messages that it gets, and for what it did about them.

`Replica` starts in any role with any log; each call steps the core once, keeps its actions in `actions` and returns what
the question was about.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.config import RaftConfig
from raftlake.raft.core import RaftGroup
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoterChange,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import (
    NO_DIRECTORY,
    NO_LEADER,
    DirectoryId,
    ElectionState,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
)
from raftlake.raft.voters import VoterHistory

ActionT = TypeVar("ActionT")
RequestT = TypeVar("RequestT")

CONFIG = RaftConfig()
START_MS = 10_000


def key(node_id: int, directory: bytes | None = None) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), NO_DIRECTORY if directory is None else DirectoryId(directory.ljust(16, b"\0")))


def position(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


def batch(base: int, end: int, epoch: int) -> FetchedBatch:
    return FetchedBatch(base_offset=Offset(base), end_offset=Offset(end), epoch=Epoch(epoch), payload=f"{base}..{end}@{epoch}")


def voter_set(ids: Sequence[int]) -> VoterSet:
    return VoterSet({NodeId(i): key(i) for i in ids})


class Replica:
    """Node 1 of voters 1, 2, 3 unless told otherwise. `log` is (epoch, first offset) pairs and the log end."""

    def __init__(
        self,
        *,
        local: int = 1,
        voters: Sequence[int] = (1, 2, 3),
        log: tuple[Sequence[tuple[int, int]], int] = ((), 0),
        log_start: int = 0,
        epoch: int | None = None,
        leader: int | None = None,
        voted: int | ReplicaKey | None = None,
        config: RaftConfig = CONFIG,
        directory: bytes | None = None,
        voter_keys: VoterSet | VoterHistory | None = None,
        seed: int = 0,
        snapshot: tuple[int, int] | None = None,
        start: bool = True,
        bootstrap: Sequence[int] = (),
        told_log_start: int = 0,
        shares_log_start: bool = True,
    ) -> None:
        self.now_ms = START_MS
        entries, end = log
        voted_key = key(voted) if isinstance(voted, int) else voted
        election = None
        if epoch is not None:
            election = ElectionState(
                epoch=Epoch(epoch), leader_id=None if leader is None else NodeId(leader), voted_key=voted_key
            )
        self.core = RaftGroup(
            config,
            key(local, directory),
            voter_set(voters) if voter_keys is None else voter_keys,
            epochs=[(Epoch(e), Offset(o)) for e, o in entries],
            log_start=Offset(log_start),
            log_end=Offset(end),
            election=election,
            snapshot_id=None if snapshot is None else position(*snapshot),
            rng=Random(seed),
            now_ms=self.now_ms,
            bootstrap_peers=tuple(map(NodeId, bootstrap)),
            told_log_start=Offset(told_log_start),
            shares_log_start=shares_log_start,
        )
        self.actions: list[do.Action] = []
        self.saved = election
        self._request_id = 0
        self._change_id = 0
        if start:
            self.step(on.Started())

    # --- roles

    @classmethod
    def unattached(cls, epoch: int = 5, **kwargs: object) -> Replica:
        """Knows no leader of `epoch`."""
        return cls(epoch=epoch, **kwargs)  # type: ignore[arg-type]

    @classmethod
    def follower(cls, epoch: int = 5, leader: int = 2, **kwargs: object) -> Replica:
        """Follows `leader`, has not fetched from it yet; its first fetch is under way."""
        return cls(epoch=epoch, leader=leader, **kwargs)  # type: ignore[arg-type]

    @classmethod
    def prospective(cls, epoch: int = 5, **kwargs: object) -> Replica:
        """Its pre-votes are under way; with `leader` it knows the one that it gave up."""
        replica = cls(epoch=epoch, **kwargs)  # type: ignore[arg-type]
        replica.pass_time(CONFIG.fetch_timeout_ms if replica.role == "Follower" else CONFIG.election_jitter_ms_max)
        assert replica.role == "Prospective", replica.role
        return replica

    @classmethod
    def candidate(cls, epoch: int = 6, **kwargs: object) -> Replica:
        """Its votes are under way."""
        replica = cls.prospective(epoch=epoch - 1, **kwargs)
        replica.answer_votes(granted=True)
        assert replica.role == "Candidate", replica.role
        return replica

    @classmethod
    def leader(cls, epoch: int = 6, *, flushed: bool = True, **kwargs: object) -> Replica:
        """Elected; its LeaderChange record is synced where `flushed`."""
        replica = cls.candidate(epoch=epoch, **kwargs)
        replica.answer_votes(granted=True)
        assert replica.role == "Leader", replica.role
        if flushed:
            replica.flush()
        return replica

    @classmethod
    def resigned(cls, epoch: int = 6, **kwargs: object) -> Replica:
        """Led `epoch` until its voters went silent."""
        replica = cls.leader(epoch=epoch, **kwargs)
        replica.pass_time(CONFIG.check_quorum_timeout_ms)
        assert replica.role == "Resigned", replica.role
        return replica

    @classmethod
    def in_role(cls, role: str, epoch: int = 6, **kwargs: object) -> Replica:
        makers = {
            "Unattached": cls.unattached,
            "Follower": cls.follower,
            "Prospective": cls.prospective,
            "Candidate": cls.candidate,
            "Leader": cls.leader,
            "Resigned": cls.resigned,
        }
        return makers[role](epoch=epoch, **kwargs)

    @property
    def role(self) -> str:
        return self.core.role_name

    @property
    def view(self) -> tuple[str, int, int]:
        """Role, epoch and known leader (-1 for none)."""
        return self.core.role_name, self.core.epoch, self.core.leader_id

    # --- steps

    def step(self, event: on.Event) -> list[do.Action]:
        self.actions = self.core.step(event, self.now_ms)
        for action in self.actions:
            if isinstance(action, do.SaveElectionState):
                self.saved = action.state
        return self.actions

    def pass_time(self, duration_ms: int) -> list[do.Action]:
        """Let time pass, reporting each deadline when it is reached; all actions on the way."""
        end_ms = self.now_ms + duration_ms
        gathered: list[do.Action] = []
        for _ in range(1_000):
            deadline_ms = self.core.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                self.now_ms = end_ms
                self.actions = gathered
                return gathered
            self.now_ms = max(self.now_ms, deadline_ms)
            gathered += self.step(on.DeadlineReached())
        raise AssertionError(f"a busy loop: {self.role} is due at {self.core.next_deadline_ms()} for ever")

    def pass_until_role(self, role: str, limit_ms: int = 10_000) -> int:
        """Pass time until the role is `role`; the milliseconds that took."""
        start_ms = self.now_ms
        while self.role != role:
            deadline_ms = self.core.next_deadline_ms()
            assert deadline_ms is not None and deadline_ms - start_ms <= limit_ms, f"still {self.role}"
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(on.DeadlineReached())
        return self.now_ms - start_ms

    # --- requests to it

    def _respond(self, request: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest) -> Response:
        self._request_id += 1
        self.step(on.RequestReceived(request_id=self._request_id, request=request))
        responses = [action for action in self.actions if isinstance(action, do.Respond)]
        assert len(responses) == 1
        assert responses[0].request_id == self._request_id
        return responses[0].response

    def vote(
        self,
        candidate: int | ReplicaKey,
        epoch: int,
        last: tuple[int, int] = (0, 0),
        *,
        pre_vote: bool = False,
        voter: int = -1,
        directory: DirectoryId = NO_DIRECTORY,
    ) -> VoteResponse:
        response = self._respond(
            VoteRequest(
                candidate=candidate if isinstance(candidate, ReplicaKey) else key(candidate),
                epoch=Epoch(epoch),
                log_end=position(*last),
                pre_vote=pre_vote,
                voter_id=NodeId(voter),
                voter_directory_id=directory,
            )
        )
        assert isinstance(response, VoteResponse)
        return response

    def pre_vote(self, candidate: int, epoch: int, last: tuple[int, int] = (0, 0), *, voter: int = -1) -> VoteResponse:
        return self.vote(candidate, epoch, last, pre_vote=True, voter=voter)

    def begin(self, leader: int, epoch: int, *, voter: int = -1) -> BeginQuorumEpochResponse:
        request = BeginQuorumEpochRequest(leader_id=NodeId(leader), leader_epoch=Epoch(epoch), voter_id=NodeId(voter))
        response = self._respond(request)
        assert isinstance(response, BeginQuorumEpochResponse)
        return response

    def end(self, leader: int, epoch: int, successors: Sequence[int] = ()) -> EndQuorumEpochResponse:
        response = self._respond(
            EndQuorumEpochRequest(
                leader_id=NodeId(leader), leader_epoch=Epoch(epoch), preferred_candidates=tuple(map(key, successors))
            )
        )
        assert isinstance(response, EndQuorumEpochResponse)
        return response

    def fetch(
        self,
        replica: int | ReplicaKey,
        offset: int,
        last_epoch: int,
        *,
        epoch: int | None = None,
        high_watermark: int | None = None,
        log_start: int | None = None,
        follows: int = 0,
    ) -> do.AnswerFetch | None:
        """A replica's Fetch; its answer, None where it was parked. It knows our high watermark and log start unless told
        otherwise."""
        request = FetchRequest(
            replica=replica if isinstance(replica, ReplicaKey) else key(replica),
            leader_epoch=self.core.epoch if epoch is None else Epoch(epoch),
            fetch_offset=Offset(offset),
            last_fetched_epoch=Epoch(last_epoch),
            high_watermark=Offset(2**62 if high_watermark is None else high_watermark),
            log_start_offset=Offset(2**62 if log_start is None else log_start),
        )
        self.step(on.FetchRequestReceived(request=request, follows=follows))
        (answer,) = [answer for answer in self.took(do.AnswerFetch) if answer.request is request] or [None]
        return answer

    # --- what it sent, and answers to that

    def took(self, kind: type[ActionT]) -> list[ActionT]:
        """The actions of one kind of the last step."""
        return [action for action in self.actions if isinstance(action, kind)]

    def sent(self, kind: type[RequestT]) -> dict[int, RequestT]:
        """The requests of one kind of the last step, by destination."""
        sends = self.took(do.SendRequest)
        return {send.destination: send.request for send in sends if isinstance(send.request, kind)}

    def respond(self, source: int, request: Request, response: Response) -> list[do.Action]:
        return self.step(on.ResponseReceived(source=NodeId(source), request=request, response=response))

    def fail(self, peer: int, request: Request, reason: on.FailureReason = on.FailureReason.DISCONNECTED) -> list[do.Action]:
        return self.step(on.RequestFailed(peer=NodeId(peer), request=request, reason=reason))

    def vote_in_flight(self, voter: int) -> VoteRequest:
        request = self.core.role.votes.in_flight[NodeId(voter)]  # type: ignore[union-attr]
        assert isinstance(request, VoteRequest)
        return request

    def answer_vote(
        self,
        voter: int,
        *,
        granted: bool,
        error: ErrorCode = ErrorCode.NONE,
        leader: int = -1,
        epoch: int | None = None,
        request: VoteRequest | None = None,
    ) -> list[do.Action]:
        """`voter` answers the (pre-)vote under way, as one of our epoch unless told otherwise."""
        response = VoteResponse(
            error=error,
            leader_id=NodeId(leader),
            leader_epoch=self.core.epoch if epoch is None else Epoch(epoch),
            vote_granted=granted,
        )
        return self.respond(voter, request or self.vote_in_flight(voter), response)

    def answer_votes(self, *, granted: bool) -> None:
        """The other voters answer in turn, until the role changes."""
        role = self.core.role
        for voter in self.core.other_voters:
            if self.core.role is role:
                self.answer_vote(voter, granted=granted)

    def answer_fetch(
        self,
        *batches: FetchedBatch,
        high_watermark: int = -1,
        error: ErrorCode = ErrorCode.NONE,
        source: int | None = None,
        leader: int | None = None,
        epoch: int | None = None,
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
        log_start: int = -1,
        request: FetchRequest | None = None,
    ) -> list[do.Action]:
        """The fetch under way is answered, by its destination as our leader unless told otherwise."""
        in_flight = request or self.core.fetch_in_flight
        assert in_flight is not None, "no fetch is under way"
        response = FetchResponse(
            error=error,
            leader_id=self.core.leader_id if leader is None else NodeId(leader),
            leader_epoch=self.core.epoch if epoch is None else Epoch(epoch),
            high_watermark=Offset(high_watermark),
            log_start_offset=Offset(log_start),
            diverging=diverging,
            snapshot_id=snapshot_id,
            batches=batches,
        )
        return self.respond(self.core.fetch_peer if source is None else source, in_flight, response)

    # --- the rest

    def change_voters(self, change: VoterChange) -> do.AnswerVoterChange | None:
        """The answer to a request to change the voters, None where it waits for the commit."""
        self._change_id += 1
        self.step(on.VoterChangeRequested(request_id=self._change_id, change=change))
        return self.voter_change_answer()

    def voter_change_answer(self) -> do.AnswerVoterChange | None:
        """The answer that the last step gave, to the change asked for last."""
        return next((answer for answer in self.took(do.AnswerVoterChange) if answer.request_id == self._change_id), None)

    def append(self, *record_counts: int) -> list[do.Action]:
        return self.step(on.AppendRequested(record_counts=record_counts, payload="payload"))

    def flush(self, end: int | None = None, generation: int | None = None) -> list[do.Action]:
        """A sync ended, of the whole log unless told otherwise."""
        return self.step(
            on.RecordsFlushed(
                end_offset=self.core.log_end if end is None else Offset(end),
                generation=self.core.log_generation if generation is None else generation,
            )
        )

    def read(self, read_id: int, sequence: int) -> do.AnswerRead | None:
        self.step(on.ReadRequested(read_id=read_id, sequence=sequence))
        return next((answer for answer in self.took(do.AnswerRead) if answer.read_id == read_id), None)

    def commit_epoch_start(self) -> None:
        """A leader of three voters: one follower has the LeaderChange record."""
        self.flush()
        self.fetch(self.core.other_voters[0], self.core.log_end, self.core.epoch)
        assert self.core.is_serving_leader


__all__ = ["CONFIG", "NO_LEADER", "START_MS", "Replica", "batch", "key", "position", "voter_set"]
