"""Where the core says or does something else than Kafka's Raft 4.3.1: the rows of the tables "Where we differ from Kafka" in
docs/protocol/elections.md and docs/protocol/replication.md that no scenario shows."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key, position
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Epoch, NodeId, Offset

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5; a leader of epoch 6 adds its LeaderChange at 9.
LOG = (((1, 0), (3, 3), (5, 6)), 9)


@pytest.mark.parametrize("begins_with", ["resignation", "restart"])
def test_a_resigned_leader_names_no_leader(begins_with: str) -> None:
    """ResignedState.election names the local id; a client that asks would be sent back here."""
    replica = Replica.resigned(epoch=6) if begins_with == "resignation" else Replica(epoch=6, leader=1)
    assert replica.view == ("Resigned", 6, -1)
    fetched = replica.fetch(2, 0, 0)
    assert fetched is not None and fetched.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    answers = [fetched, replica.vote(3, 6), replica.pre_vote(3, 6), replica.end(3, 5)]
    assert [answer.leader_id for answer in answers] == [-1] * 4
    assert [answer.leader_epoch for answer in answers] == [6] * 4


def test_a_resigned_leader_still_knows_that_it_led() -> None:
    """The file names it as leader, so that it is Resigned again after a restart; nobody else may lead the epoch."""
    replica = Replica.resigned(epoch=6)
    assert replica.saved is not None and (replica.saved.epoch, replica.saved.leader_id) == (6, 1)
    assert replica.begin(3, 6).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Resigned", 6, -1)


@pytest.mark.parametrize("directory", [None, b"disk"])
def test_a_leader_keeps_its_own_vote_on_record(directory: bytes | None) -> None:
    """LeaderState.election has no voted key, so Kafka's quorum-state of a leader has none either."""
    replica = Replica.leader(epoch=6, directory=directory)
    assert replica.saved is not None
    assert (replica.saved.leader_id, replica.saved.voted_key) == (1, key(1, directory))
    replica.pass_time(CONFIG.check_quorum_timeout_ms)
    assert replica.view == ("Resigned", 6, -1)
    assert replica.core.voted_key == key(1, directory)
    again = Replica(epoch=6, leader=1, voted=key(1, directory), directory=directory)
    assert again.view == ("Resigned", 6, -1)


@pytest.mark.parametrize(("epoch", "error"), [(5, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_an_error_of_a_leader_tells_the_high_watermark(epoch: int, error: ErrorCode) -> None:
    """KafkaRaftClient.buildEmptyFetchResponse says -1. One that has not committed in its epoch announces none here either."""
    replica = Replica.leader(epoch=6, log=LOG)
    answer = replica.fetch(2, 9, 5, epoch=epoch)
    assert answer is not None and (answer.error, answer.high_watermark) == (error, -1)
    replica.commit_epoch_start()
    answer = replica.fetch(2, 9, 5, epoch=epoch)
    assert answer is not None and (answer.error, answer.high_watermark) == (error, 10)


def test_an_error_of_a_follower_tells_what_it_knows_to_be_committed() -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(high_watermark=7)
    answer = replica.fetch(3, 9, 5)
    assert answer is not None
    assert (answer.error, answer.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 7)


def test_parked_fetches_of_a_leader_that_goes_tell_the_high_watermark() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    replica.commit_epoch_start()
    assert replica.fetch(3, 10, 6) is None
    replica.begin(2, 7)
    told = [(answer.error, answer.high_watermark) for answer in replica.took(do.AnswerFetch)]
    assert told == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 10)] * 2


def test_begin_quorum_epoch_of_the_known_leader_ends_a_pre_vote() -> None:
    """KafkaRaftClient.maybeTransition does nothing there unless the request brings more endpoints: the round goes on."""
    replica = Replica.prospective(epoch=6, leader=2)
    replica.answer_vote(2, granted=False, leader=2)
    assert replica.begin(2, 6).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 2)
    assert set(replica.sent(FetchRequest)) == {2}
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert replica.role == "Follower", "the leader has a whole fetch timeout again"


def test_begin_quorum_epoch_of_a_known_leader_that_may_not_be_followed_changes_nothing() -> None:
    """Node 7 leads by the file, and is no voter of a quorum whose voters stay static."""
    replica = Replica(epoch=6, leader=7)
    replica.pass_until_role("Prospective")
    assert replica.begin(7, 6).error is ErrorCode.NONE
    assert replica.view == ("Prospective", 6, 7)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (1, 3, (3, 1)),
        (3, 3, (3, 1)),  # the boundary: epoch 3 begins at 3, so the record before is of epoch 1
        (4, 3, None),
        (5, 5, (6, 3)),
        (6, 5, (6, 3)),
        (7, 5, None),
        (9, 6, (9, 5)),
        (10, 6, None),
        (1, 1, None),
    ],
)
def test_an_epoch_that_begins_at_the_claimed_position_or_later_diverges(
    offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:
    """RaftLog.validateOffsetAndEpoch looks at the end of the epoch alone, and sends records behind a record that differs."""
    replica = Replica.leader(epoch=6, log=LOG)
    answer = replica.fetch(2, offset, epoch, high_watermark=-2)
    assert answer is not None and answer.snapshot_id is None
    assert answer.diverging == (None if diverging is None else position(*diverging))
    assert replica.core.role.voters[NodeId(2)].end_offset == (offset if diverging is None else -1)  # type: ignore[union-attr]


def test_an_epoch_that_begins_at_our_log_start_is_judged_by_the_record_before() -> None:
    """The log begins at 4, in the middle of epoch 3: that epoch reaches to before our start, and its position counts."""
    replica = Replica.leader(epoch=6, log=LOG)
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(4)))
    answer = replica.fetch(2, 4, 3, high_watermark=-2)
    assert answer is not None and (answer.diverging, answer.snapshot_id) == (None, None)


def test_a_saved_vote_without_a_directory_id_restarts_as_unattached() -> None:
    """ElectionState.isVotedCandidate takes it for a vote of its own, and Kafka restarts as Candidate. A vote for this node's
    number may have been for another disk; it binds all the same."""
    replica = Replica(epoch=6, voted=key(1), directory=b"disk")
    assert replica.view == ("Unattached", 6, -1)
    assert not replica.vote(3, 6, (99, 5)).vote_granted
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 6
    assert Replica(epoch=6, voted=key(1, b"disk"), directory=b"disk").view == ("Candidate", 6, -1)
    assert Replica(epoch=6, voted=key(1)).view == ("Candidate", 6, -1)


@pytest.mark.parametrize("directory", [None, b"disk"])
def test_a_candidate_that_lost_restarts_behind_the_leader_that_it_followed(directory: bytes | None) -> None:
    """QuorumState.initialize asks for the own vote before the leader, and Kafka restarts as Candidate of an epoch whose leader
    it knows."""
    replica = Replica.candidate(epoch=6, directory=directory)
    replica.begin(3, 6)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id, replica.saved.voted_key) == (6, 3, key(1, directory))
    again = Replica(epoch=6, leader=3, voted=replica.saved.voted_key, directory=directory)
    assert again.view == ("Follower", 6, 3)
    assert again.core.voted_key == key(1, directory)
    request = again.core.fetch_in_flight
    assert isinstance(request, FetchRequest) and request.leader_epoch == Epoch(6)
