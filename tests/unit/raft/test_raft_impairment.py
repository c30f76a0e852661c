"""A replica that lost synced records: it follows and gives no vote, and it is whole again when nothing acknowledged can be
missing."""

from __future__ import annotations

import random

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import impairment
from raftlake.raft.config import RaftConfig
from raftlake.raft.core import RaftGroup
from raftlake.raft.events import (
    CampaignRequested,
    DeadlineReached,
    PeerUnreachable,
    RecordsFlushed,
    RequestReceived,
    ResponseReceived,
    SnapshotReceived,
    Started,
)
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import (
    DirectoryId,
    ElectionState,
    Epoch,
    Impairment,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
)

ME, LEADER, OTHER = NodeId(1), NodeId(2), NodeId(3)
#: Where nobody knows how far the lost records reached.
UNKNOWN_END = 1 << 62


class Replica:
    """Node 1 of three: its log ends at 10, all of epoch 3; it had 20 records, the last of which were of `last_epoch`."""

    def __init__(self, election: ElectionState, lost: Impairment | None) -> None:
        self.core = RaftGroup(
            RaftConfig(),
            ReplicaKey(ME),
            VoterSet({node: ReplicaKey(node) for node in (ME, LEADER, OTHER)}),
            epochs=[(Epoch(3), Offset(0))],
            log_start=Offset(0),
            log_end=Offset(10),
            election=election,
            rng=random.Random(1),
            now_ms=0,
            impairment=lost,
        )
        self.said = self.core.step(Started(), 0)

    def fetch(self) -> FetchRequest:
        """The fetch that it sent last."""
        return next(
            action.request
            for action in reversed(self.said)
            if isinstance(action, do.SendRequest) and isinstance(action.request, FetchRequest)
        )

    def answer(
        self,
        *,
        high_watermark: int,
        batches: tuple[tuple[int, int, int], ...] = (),
        log_end: int = -1,
        diverging: OffsetAndEpoch | None = None,
        now_ms: int = 10,
    ) -> None:
        """The leader, whose log ends at `log_end`, answers with `high_watermark` and batches (base offset, end offset, epoch);
        they are synced."""
        response = FetchResponse(
            error=ErrorCode.NONE,
            leader_id=LEADER,
            leader_epoch=self.core.epoch,
            high_watermark=Offset(high_watermark),
            log_start_offset=Offset(0),
            batches=tuple(
                FetchedBatch(base_offset=Offset(base), end_offset=Offset(end), epoch=Epoch(epoch), payload=None)
                for base, end, epoch in batches
            ),
            diverging=diverging,
            leader_log_end=Offset(log_end),
        )
        self.said = self.core.step(ResponseReceived(source=LEADER, request=self.fetch(), response=response), now_ms)
        if batches:
            flushed = RecordsFlushed(end_offset=self.core.log_end, generation=self.core.log_generation)
            self.said += self.core.step(flushed, now_ms)

    def asked_for_vote(self, *, pre_vote: bool, epoch: int, last_epoch: int = 3) -> bool:
        request = VoteRequest(
            candidate=ReplicaKey(OTHER),
            epoch=Epoch(epoch),
            log_end=OffsetAndEpoch(Offset(99), Epoch(last_epoch)),
            pre_vote=pre_vote,
            voter_directory_id=ReplicaKey(ME).directory_id,
            voter_id=ME,
        )
        self.said = self.core.step(RequestReceived(request_id=1, request=request), 20)
        answer = next(action.response for action in self.said if isinstance(action, do.Respond))
        assert isinstance(answer, VoteResponse)
        return answer.vote_granted

    def begin_at(self, snapshot_id: OffsetAndEpoch, *, high_watermark: int, log_end: int = -1) -> None:
        """The leader sends it to a snapshot, which is fetched."""
        response = FetchResponse(
            error=ErrorCode.NONE,
            leader_id=LEADER,
            leader_epoch=self.core.epoch,
            high_watermark=Offset(high_watermark),
            snapshot_id=snapshot_id,
            leader_log_end=Offset(log_end),
        )
        self.said = self.core.step(ResponseReceived(source=LEADER, request=self.fetch(), response=response), 10)
        self.said += self.core.step(SnapshotReceived(snapshot_id=snapshot_id, is_intact=True), 20)

    @property
    def is_mended(self) -> bool:
        return any(isinstance(action, do.MendReplica) for action in self.said)


def follower(epoch: int = 4, *, lost_in: int = 4, end: int = 0) -> Replica:
    return Replica(ElectionState(epoch=Epoch(epoch), leader_id=LEADER), Impairment(Epoch(lost_in), Offset(end)))


@pytest.mark.parametrize("pre_vote", [False, True])
def test_it_grants_nothing_and_learns_the_epoch(pre_vote: bool) -> None:
    replica = Replica(ElectionState(epoch=Epoch(4)), Impairment(Epoch(4), Offset(0)))
    assert not replica.asked_for_vote(pre_vote=pre_vote, epoch=6)
    assert replica.core.epoch == 6
    assert replica.core.voted_key is None
    sound = Replica(ElectionState(epoch=Epoch(4)), None)
    assert sound.asked_for_vote(pre_vote=pre_vote, epoch=6), "else the test shows nothing"


@pytest.mark.parametrize(
    "election",
    [
        ElectionState(epoch=Epoch(4)),
        ElectionState(epoch=Epoch(4), voted_key=ReplicaKey(ME)),
        ElectionState(epoch=Epoch(4), leader_id=LEADER),
        ElectionState(epoch=Epoch(4), leader_id=ME, voted_key=ReplicaKey(ME)),
    ],
    ids=["unattached", "candidate", "follower", "leader"],
)
def test_it_never_campaigns(election: ElectionState) -> None:
    replica = Replica(election, Impairment(Epoch(4), Offset(0)))
    said = list(replica.said)
    said += replica.core.step(CampaignRequested(), 1)
    said += replica.core.step(PeerUnreachable(peer=LEADER), 2)
    now_ms = 2
    for _ in range(50):
        due_ms = replica.core.next_deadline_ms()
        if due_ms is None:
            break
        assert due_ms > now_ms or replica.core.fetch_in_flight is None, "it spins"
        now_ms = max(now_ms + 1, due_ms)
        said += replica.core.step(DeadlineReached(), now_ms)
    asked = [action for action in said if isinstance(action, do.SendRequest) and isinstance(action.request, VoteRequest)]
    assert asked == []
    assert replica.core.voted_key in (None, election.voted_key)


def test_it_is_whole_with_all_below_the_high_watermark_of_a_leader_with_a_commit() -> None:
    replica = follower(epoch=5, lost_in=4, end=20)
    replica.answer(high_watermark=12, batches=((10, 11, 3),))
    assert not replica.is_mended, "12 is not reached"
    replica.answer(high_watermark=12, batches=((11, 12, 4),))
    assert not replica.is_mended, "nothing of epoch 5 is committed: the high watermark may lie below what was acknowledged"
    replica.answer(high_watermark=12, batches=((12, 13, 5),))
    assert not replica.is_mended
    replica.answer(high_watermark=13)
    assert replica.is_mended
    assert replica.core.impairment is None
    assert replica.asked_for_vote(pre_vote=False, epoch=6, last_epoch=5)


def test_it_waits_for_the_sync() -> None:
    replica = follower(epoch=5)
    replica.answer(high_watermark=13, batches=((10, 12, 3), (12, 13, 5)))
    assert replica.is_mended
    replica = follower(epoch=5)
    response = FetchResponse(
        error=ErrorCode.NONE,
        leader_id=LEADER,
        leader_epoch=Epoch(5),
        high_watermark=Offset(13),
        log_start_offset=Offset(0),
        batches=(FetchedBatch(base_offset=Offset(10), end_offset=Offset(13), epoch=Epoch(5), payload=None),),
    )
    replica.said = replica.core.step(ResponseReceived(source=LEADER, request=replica.fetch(), response=response), 10)
    assert not replica.is_mended
    replica.said = replica.core.step(RecordsFlushed(end_offset=Offset(13), generation=replica.core.log_generation), 11)
    assert replica.is_mended


def test_in_the_epoch_of_the_loss_all_that_was_acknowledged_must_be_back() -> None:
    """An old Fetch that claims offset 20 may still be on its way to the same leader."""
    replica = follower(epoch=4, lost_in=4, end=20)
    replica.answer(high_watermark=12, batches=((10, 12, 4),))
    assert not replica.is_mended
    replica.answer(high_watermark=12, batches=((12, 19, 4),))
    assert not replica.is_mended
    replica.answer(high_watermark=12, batches=((19, 20, 4),))
    assert replica.is_mended


# --- the end of the log was damaged: nobody knows how far it reached ---


def test_it_is_whole_in_the_same_epoch_once_it_has_what_the_leader_had() -> None:
    """No Fetch that was sent before the damage was found claims more than the leader holds now."""
    replica = follower(end=UNKNOWN_END)
    replica.answer(high_watermark=12, batches=((10, 15, 4),), log_end=20)
    assert not replica.is_mended, "a Fetch that claims 20 may still be on its way"
    replica.answer(high_watermark=15, batches=((15, 19, 4),), log_end=20)
    assert not replica.is_mended
    replica.answer(high_watermark=19, batches=((19, 20, 4),), log_end=20)
    assert replica.is_mended
    assert replica.asked_for_vote(pre_vote=False, epoch=5, last_epoch=4)


def test_it_need_not_catch_up_with_a_leader_that_is_written_to() -> None:
    """What the leader appended since the first answer, no earlier Fetch can have claimed."""
    replica = follower(end=UNKNOWN_END)
    replica.answer(high_watermark=12, batches=((10, 13, 4),), log_end=15)
    replica.answer(high_watermark=14, batches=((13, 15, 4),), log_end=900)
    assert replica.is_mended


def test_what_is_synced_counts_and_not_what_came() -> None:
    replica = follower(end=UNKNOWN_END)
    response = FetchResponse(
        error=ErrorCode.NONE,
        leader_id=LEADER,
        leader_epoch=Epoch(4),
        high_watermark=Offset(12),
        log_start_offset=Offset(0),
        batches=tuple(
            FetchedBatch(base_offset=Offset(base), end_offset=Offset(end), epoch=Epoch(4), payload=None)
            for base, end in ((10, 12), (12, 20))
        ),
        leader_log_end=Offset(20),
    )
    replica.said = replica.core.step(ResponseReceived(source=LEADER, request=replica.fetch(), response=response), 10)
    replica.said += replica.core.step(RecordsFlushed(end_offset=Offset(12), generation=replica.core.log_generation), 11)
    assert not replica.is_mended
    replica.said = replica.core.step(RecordsFlushed(end_offset=Offset(20), generation=replica.core.log_generation), 12)
    assert replica.is_mended


def test_an_answer_without_records_shows_nothing() -> None:
    """It may be empty for want of room or time. A leader that does not tell its log end is believed nothing."""
    replica = follower(end=UNKNOWN_END)
    replica.answer(high_watermark=12, batches=((10, 12, 4),))
    for _ in range(3):
        replica.answer(high_watermark=12)
        assert not replica.is_mended
    replica.answer(high_watermark=12, log_end=13)
    assert not replica.is_mended
    replica.answer(high_watermark=12, batches=((12, 13, 4),))
    assert replica.is_mended


def test_the_log_end_does_not_replace_the_other_conditions() -> None:
    replica = follower(end=UNKNOWN_END)
    replica.answer(high_watermark=-1, batches=((10, 12, 4),), log_end=12)
    assert not replica.is_mended, "nothing of the epoch is committed"
    replica.answer(high_watermark=14, batches=((12, 13, 4),), log_end=14)
    assert not replica.is_mended, "14 is not reached"
    replica.answer(high_watermark=14, batches=((13, 14, 4),), log_end=14)
    assert replica.is_mended


def test_a_leader_of_an_earlier_epoch_tells_nothing_about_the_epoch_of_the_loss() -> None:
    replica = follower(epoch=4, lost_in=5, end=UNKNOWN_END)
    replica.answer(high_watermark=12, batches=((10, 12, 4),), log_end=12)
    assert not replica.is_mended
    replica.core.step(
        RequestReceived(request_id=1, request=BeginQuorumEpochRequest(leader_id=LEADER, leader_epoch=Epoch(5))), 20
    )
    replica.core.step(DeadlineReached(), 21)
    assert replica.core.epoch == 5
    request = replica.core.fetch_in_flight
    assert isinstance(request, FetchRequest)
    replica.said = [do.SendRequest(destination=LEADER, request=request)]
    replica.answer(high_watermark=13, batches=((12, 13, 5),), now_ms=22)
    assert not replica.is_mended
    replica.answer(high_watermark=13, log_end=13, now_ms=23)
    assert replica.is_mended


def test_a_later_epoch_is_enough_as_ever() -> None:
    replica = follower(epoch=5, lost_in=4, end=UNKNOWN_END)
    replica.answer(high_watermark=12, batches=((10, 12, 5),))
    assert replica.is_mended


@pytest.mark.parametrize("end", [20, 40])
def test_what_is_known_of_the_end_is_no_less_than_what_the_leader_tells(end: int) -> None:
    replica = follower(end=end)
    replica.answer(high_watermark=12, batches=((10, 20, 4),), log_end=30)
    assert replica.is_mended is (end == 20)
    if end > 20:
        replica.answer(high_watermark=12, batches=((20, 30, 4),), log_end=50)
        assert replica.is_mended


def test_an_answer_that_cuts_or_names_a_snapshot_tells_the_log_end_too() -> None:
    """Else a replica that got everything by a snapshot would wait for the next record."""
    replica = follower(end=UNKNOWN_END)
    replica.begin_at(OffsetAndEpoch(Offset(30), Epoch(4)), high_watermark=30, log_end=30)
    assert replica.is_mended
    replica = follower(end=UNKNOWN_END)
    replica.answer(high_watermark=12, diverging=OffsetAndEpoch(Offset(8), Epoch(3)), log_end=9)
    replica.answer(high_watermark=9, batches=((8, 9, 4),))
    assert replica.is_mended


def test_a_leader_of_a_lower_epoch_hears_of_ours() -> None:
    """It would refuse our fetches for ever, and who does not campaign tells nobody else its epoch."""
    replica = Replica(ElectionState(epoch=Epoch(9), voted_key=ReplicaKey(ME)), Impairment(Epoch(9), Offset(0)))
    peer = replica.core.fetch_peer
    behind = FetchResponse(
        error=ErrorCode.UNKNOWN_LEADER_EPOCH,
        leader_id=peer,
        leader_epoch=Epoch(8),
        high_watermark=Offset(-1),
        log_start_offset=Offset(-1),
    )
    said = replica.core.step(ResponseReceived(source=peer, request=replica.fetch(), response=behind), 10)
    asked = [action.request for action in said if isinstance(action, do.SendRequest)]
    assert [(type(each), each.epoch) for each in asked if isinstance(each, VoteRequest)] == [(VoteRequest, 9)]
    request = next(each for each in asked if isinstance(each, VoteRequest))
    assert request.pre_vote
    assert request.log_end == OffsetAndEpoch(Offset(0), Epoch(0)), "nobody who has a record grants it"
    granted = VoteResponse(error=ErrorCode.NONE, leader_id=NodeId(-1), leader_epoch=Epoch(9), vote_granted=True)
    for voter in (LEADER, OTHER):
        replica.core.step(ResponseReceived(source=voter, request=request, response=granted), 11)
    assert replica.core.role_name == "Unattached"
    assert replica.core.epoch == 9


def test_a_sound_replica_is_never_mended() -> None:
    replica = Replica(ElectionState(epoch=Epoch(5), leader_id=LEADER), None)
    replica.answer(high_watermark=13, batches=((10, 13, 5),))
    assert not replica.is_mended
    impairment.mend_if_whole(replica.core)
    assert not any(isinstance(action, do.MendReplica) for action in replica.core.actions)


def test_a_snapshot_of_all_that_the_leader_has_committed_makes_it_whole() -> None:
    """Else it stayed impaired until somebody wrote the next record."""
    replica = follower(lost_in=3)
    replica.begin_at(OffsetAndEpoch(Offset(30), Epoch(4)), high_watermark=30)
    assert replica.is_mended


@pytest.mark.parametrize(("epoch", "high_watermark"), [(3, 30), (4, 31)], ids=["of an older epoch", "not of all"])
def test_another_snapshot_does_not(epoch: int, high_watermark: int) -> None:
    replica = follower(lost_in=3)
    replica.begin_at(OffsetAndEpoch(Offset(30), Epoch(epoch)), high_watermark=high_watermark)
    assert not replica.is_mended


# --- alone by its settings ---


def alone(election: ElectionState, lost: Impairment | None) -> tuple[RaftGroup, list[do.Action]]:
    """Node 1, whose log is empty and whose settings name it as the only voter; and what it does first."""
    core = RaftGroup(
        RaftConfig(),
        ReplicaKey(ME, DirectoryId(b"d" * 16)),
        VoterSet({ME: ReplicaKey(ME)}),
        epochs=[],
        log_start=Offset(0),
        log_end=Offset(0),
        election=election,
        rng=random.Random(1),
        now_ms=0,
        impairment=lost,
    )
    return core, core.step(Started(), 0)


LOST_ALL = Impairment(Epoch(4), Offset(9))


def test_who_lost_its_log_asks_the_leader_that_it_knew_though_its_settings_name_no_other() -> None:
    """The first node of a quorum that grew and removed it. It was to be told by the log who votes, and asked nobody for it."""
    core, said = alone(ElectionState(epoch=Epoch(4), leader_id=LEADER), LOST_ALL)
    assert (core.role_name, core.leader_id) == ("Follower", LEADER)
    (fetch,) = (action for action in said if isinstance(action, do.SendRequest))
    assert fetch.destination == LEADER and isinstance(fetch.request, FetchRequest)


@pytest.mark.parametrize(
    ("election", "lost", "role"),
    [
        # It has all of its log: it leads.
        (ElectionState(epoch=Epoch(4), leader_id=LEADER), None, "Leader"),
        (ElectionState(epoch=Epoch(4), leader_id=ME), None, "Leader"),
        # It lost its log, and knows of nobody who has it.
        (ElectionState(epoch=Epoch(4)), LOST_ALL, "Unattached"),
        (ElectionState(epoch=Epoch(4), leader_id=ME), LOST_ALL, "Unattached"),
    ],
)
def test_who_is_alone_by_its_settings_leads_only_with_all_of_its_log(
    election: ElectionState, lost: Impairment | None, role: str
) -> None:
    core, said = alone(election, lost)
    assert core.role_name == role
    assert not any(isinstance(action, do.SendRequest) for action in said)
