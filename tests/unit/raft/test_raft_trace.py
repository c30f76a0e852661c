"""The one-line text of events and actions: every kind has its own, and it says what matters."""

from __future__ import annotations

import typing

import pytest

from raftkit.replica import Replica, batch, key, position, voter_set
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoter,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.trace import describe, describe_message
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset

N = NodeId
E = Epoch
FETCH = FetchRequest(
    replica=key(2), leader_epoch=E(4), fetch_offset=Offset(17), last_fetched_epoch=E(3), high_watermark=Offset(9)
)
VOTE = VoteRequest(candidate=key(3), epoch=E(4), log_end=position(17, 3), pre_vote=True)
BEGIN = BeginQuorumEpochRequest(leader_id=N(1), leader_epoch=E(4))
PIECE = FetchSnapshotRequest(replica=key(2), leader_epoch=E(4), snapshot_id=position(50, 2), position=7)
END = EndQuorumEpochRequest(leader_id=N(1), leader_epoch=E(4), preferred_candidates=(key(3), key(2)))

MESSAGES = {
    "Vote pre_vote epoch=4 last=17@3": VOTE,
    "Vote granted leader=- epoch=4": VoteResponse(error=ErrorCode.NONE, leader_id=N(-1), leader_epoch=E(4), vote_granted=True),
    "Vote rejected FENCED_LEADER_EPOCH leader=2 epoch=5": VoteResponse(
        error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=N(2), leader_epoch=E(5), vote_granted=False
    ),
    "BeginQuorumEpoch epoch=4": BEGIN,
    "BeginQuorumEpoch leader=1 epoch=4": BeginQuorumEpochResponse(error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4)),
    "EndQuorumEpoch epoch=4 successors=3,2": END,
    "EndQuorumEpoch leader=1 epoch=4": EndQuorumEpochResponse(error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4)),
    "Fetch epoch=4 at=17@3 hw=9": FETCH,
    "Fetch leader=1 epoch=4 hw=12 records=17..20": FetchResponse(
        error=ErrorCode.NONE,
        leader_id=N(1),
        leader_epoch=E(4),
        high_watermark=Offset(12),
        batches=(batch(17, 18, 4), batch(18, 20, 4)),
    ),
    "Fetch leader=1 epoch=4 hw=12 diverging=5@2": FetchResponse(
        error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4), high_watermark=Offset(12), diverging=position(5, 2)
    ),
    "Fetch leader=1 epoch=4 hw=12 begins=50@2": FetchResponse(
        error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4), high_watermark=Offset(12), snapshot_id=position(50, 2)
    ),
    "FetchSnapshot epoch=4 50@2 byte=7": PIECE,
    "FetchSnapshot leader=1 epoch=4 50@2 bytes=7..10 of 30": FetchSnapshotResponse(
        error=ErrorCode.NONE,
        leader_id=N(1),
        leader_epoch=E(4),
        snapshot_id=position(50, 2),
        size=30,
        position=7,
        data=b"abc",
    ),
    "FetchSnapshot SNAPSHOT_NOT_FOUND leader=1 epoch=4": FetchSnapshotResponse(
        error=ErrorCode.SNAPSHOT_NOT_FOUND, leader_id=N(1), leader_epoch=E(4)
    ),
}

ACTIONS: dict[str, do.Action] = {
    "save epoch=4 leader=- voted=3": do.SaveElectionState(state=ElectionState(E(4), None, key(3))),
    "save epoch=4 leader=2 voted=-": do.SaveElectionState(state=ElectionState(E(4), N(2), None)),
    "append 3..7 epoch=4": do.AppendRecords(base_offset=Offset(3), end_offset=Offset(7), epoch=E(4), payload=None),
    "append fetched 3..7": do.AppendFetched(batches=(batch(3, 5, 4), batch(5, 7, 4)), leader_epoch=5),
    "append LeaderChange at=3 epoch=4 votes=1,2": do.AppendLeaderChange(
        offset=Offset(3), epoch=E(4), leader_id=N(1), voters=(N(1), N(2), N(3)), granting_voters=(N(1), N(2))
    ),
    "append LeaderChange at=0 epoch=4 votes=1 voters=1,2": do.AppendLeaderChange(
        offset=Offset(0),
        epoch=E(4),
        leader_id=N(1),
        voters=(N(1), N(2)),
        granting_voters=(N(1),),
        initial_voters=voter_set((1, 2)),
    ),
    "append voters 1,2 at=9 epoch=4": do.AppendVoters(offset=Offset(9), epoch=E(4), voters=voter_set((1, 2))),
    "append voters 1 at=9 epoch=4 kraft.version=1": do.AppendVoters(
        offset=Offset(9), epoch=E(4), voters=voter_set((1,)), kraft_version=1
    ),
    "answer voter change #7 DUPLICATE_VOTER leader=1 epoch=4": do.AnswerVoterChange(
        request_id=7, error=ErrorCode.DUPLICATE_VOTER, message="", leader_id=N(1), leader_epoch=E(4)
    ),
    "truncate to 5": do.TruncateTo(end_offset=Offset(5)),
    "reset log to 50@2": do.ResetLog(start=position(50, 2)),
    "whole again": do.MendReplica(),
    "->3 BeginQuorumEpoch epoch=4": do.SendRequest(destination=N(3), request=BEGIN),
    "answer #7 Vote granted leader=- epoch=4": do.Respond(
        request_id=7,
        response=VoteResponse(error=ErrorCode.NONE, leader_id=N(-1), leader_epoch=E(4), vote_granted=True),
    ),
    "answer fetch of 2 NOT_LEADER_OR_FOLLOWER leader=- epoch=5 hw=9": do.AnswerFetch(
        replica_id=N(2),
        request=FETCH,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=N(-1),
        leader_epoch=E(5),
        high_watermark=Offset(9),
    ),
    "answer #7 FetchSnapshot 50@2 leader=1 epoch=4": do.AnswerFetchSnapshot(
        request_id=7, request=PIECE, error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4)
    ),
    "write snapshot 50@2 at byte 7": do.WriteSnapshot(snapshot_id=position(50, 2), position=7, data=b"abc"),
    "finish snapshot 50@2": do.FinishSnapshot(snapshot_id=position(50, 2)),
    "abandon snapshot 50@2": do.AbandonSnapshot(snapshot_id=position(50, 2)),
    "build remote log aux leader=1 epoch=4": do.BuildRemoteLogAux(leader_id=NodeId(1), leader_epoch=Epoch(4)),
    "abandon remote log aux": do.AbandonRemoteLogAux(),
    "release fetch rounds": do.ReleaseFetchRounds(),
    "high watermark 9": do.AdvanceHighWatermark(high_watermark=Offset(9)),
    "adopt log start 7": do.AdoptLogStart(log_start=Offset(7)),
    "answer read #7 offset=9 leader=1 epoch=4": do.AnswerRead(
        read_id=7, error=ErrorCode.NONE, offset=Offset(9), leader_id=N(1), leader_epoch=E(4)
    ),
    "Prospective epoch=4 leader=2 (fetch timeout)": do.ReportRole(
        role="Prospective", epoch=E(4), leader_id=N(2), reason="fetch timeout"
    ),
    "refused epoch=5000000 of 3": do.ReportRefusedEpoch(source=N(3), epoch=E(5_000_000), own_epoch=E(4)),
}

EVENTS: dict[str, on.Event] = {
    "Started": on.Started(),
    "DeadlineReached": on.DeadlineReached(),
    "CampaignRequested": on.CampaignRequested(),
    "ResignRequested": on.ResignRequested(),
    "request #7 Vote pre_vote epoch=4 last=17@3": on.RequestReceived(request_id=7, request=VOTE),
    "fetch of 2 Fetch epoch=4 at=17@3 hw=9 follows=5": on.FetchRequestReceived(request=FETCH, follows=5),
    "replica 2 confirmed at=99 follows=5 epoch=7": on.ReplicaConfirmed(
        replica_id=N(2), at_ms=99, follows=5, leader_epoch=Epoch(7)
    ),
    "leader 1 confirmed at=99": on.LeaderConfirmed(leader_id=N(1), at_ms=99),
    "response of 3 BeginQuorumEpoch leader=1 epoch=4": on.ResponseReceived(
        source=N(3),
        request=BEGIN,
        response=BeginQuorumEpochResponse(error=ErrorCode.NONE, leader_id=N(1), leader_epoch=E(4)),
    ),
    "request to 3 timed out: BeginQuorumEpoch epoch=4": on.RequestFailed(
        peer=N(3), request=BEGIN, reason=on.FailureReason.TIMED_OUT
    ),
    "peer 2 unreachable": on.PeerUnreachable(peer=N(2)),
    "append requested of 5 records": on.AppendRequested(record_counts=(3, 2), payload=None),
    "flushed to 9 generation=1": on.RecordsFlushed(end_offset=Offset(9), generation=1),
    "read #7 sequence=5": on.ReadRequested(read_id=7, sequence=5),
    "snapshot 50@2 taken": on.SnapshotTaken(snapshot_id=position(50, 2)),
    "snapshot 50@2 received": on.SnapshotReceived(snapshot_id=position(50, 2), is_intact=True),
    "snapshot 50@2 received damaged": on.SnapshotReceived(snapshot_id=position(50, 2), is_intact=False),
    "tiered 3..9": on.HistoryTiered(start_offset=Offset(3), end_offset=Offset(9)),
    "remote log aux built 50@2 epoch=4": on.RemoteLogAuxBuilt(leader_epoch=Epoch(4), snapshot_id=position(50, 2), voters=None),
    "remote log aux failed epoch=4": on.RemoteLogAuxFailed(leader_epoch=Epoch(4)),
    "remote log aux failed epoch=4 refused": on.RemoteLogAuxFailed(leader_epoch=Epoch(4), is_refused=True),
    "remote log aux failed epoch=4 unusable": on.RemoteLogAuxFailed(leader_epoch=Epoch(4), is_unusable=True),
    "voter change #7 RemoveVoter 3": on.VoterChangeRequested(request_id=7, change=RemoveVoter(voter=key(3))),
    "log start 5": on.LogStartAdvanced(log_start_offset=Offset(5)),
}


@pytest.mark.parametrize(("text", "message"), MESSAGES.items(), ids=list(MESSAGES))
def test_messages(text: str, message: VoteRequest) -> None:
    assert describe_message(message) == text


@pytest.mark.parametrize(("text", "item"), [*ACTIONS.items(), *EVENTS.items()], ids=[*ACTIONS, *EVENTS])
def test_actions_and_events(text: str, item: do.Action | on.Event) -> None:
    assert describe(item) == text


def test_every_kind_is_described() -> None:
    assert {type(action) for action in ACTIONS.values()} == set(typing.get_args(do.Action))
    assert {type(event) for event in EVENTS.values()} == set(typing.get_args(on.Event))


def test_a_whole_election_reads_like_one() -> None:
    replica = Replica.candidate(epoch=6)
    replica.answer_vote(2, granted=True)
    assert [describe(action) for action in replica.actions] == [
        "save epoch=6 leader=1 voted=1",
        "Leader epoch=6 leader=1 (election won)",
        "append LeaderChange at=0 epoch=6 votes=1,2",
    ]
