"""KIP-595, sentence by sentence, for what the pure core implements. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour. Cluster
ids and the batching of groups are the driver's.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, position
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    VoteRequest,
)
from raftlake.raft.types import Epoch, NodeId

#: Records 0..4 of epoch 1, 5..8 of epoch 3.
LOG = (((1, 0), (3, 5)), 9)


# --- all requests and responses -------------------------------------------------------------------------------------


def test_request_epochs_are_consistent() -> None:
    """“Voters and leaders are always expected to ensure that the request epoch is consistent with its own and return an
    error if it is not.”
    """
    leader = Replica.leader(epoch=6)
    older, newer = leader.fetch(2, 0, 0, epoch=5), leader.fetch(2, 0, 0, epoch=7)
    assert older is not None
    assert newer is not None
    assert (older.error, newer.error) == (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
    voter = Replica.unattached(epoch=6)
    assert voter.begin(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    assert voter.end(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH


def test_leader_and_epoch_ride_on_all_responses() -> None:
    """“We piggyback current leader and epoch information on all responses. This reduces latency to discover a leader
    change.”
    """
    follower = Replica.follower(epoch=6, leader=2)
    fetch = follower.fetch(3, 0, 0)
    assert fetch is not None
    for answer in (
        follower.vote(3, 6),
        follower.vote(3, 5),
        follower.begin(2, 6),
        follower.begin(3, 5),
        follower.end(3, 5),
        fetch,
    ):
        assert (answer.leader_id, answer.leader_epoch) == (2, 6)


# --- Vote -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "granted"), [((1, 4), True), ((99, 2), False)])
def test_the_log_with_the_later_epoch_is_more_up_to_date(last: tuple[int, int], granted: bool) -> None:
    """“If the logs' last entry have different epochs, then the log with the later epoch is more up-to-date.”"""
    assert Replica.unattached(epoch=6, log=LOG).vote(3, 7, last).vote_granted == granted


@pytest.mark.parametrize(("last", "granted"), [((8, 3), False), ((9, 3), True), ((10, 3), True)])
def test_of_logs_that_end_in_the_same_epoch_the_longer_one_is(last: tuple[int, int], granted: bool) -> None:
    """“If the logs end with the same epoch, then whichever log is longer is more up-to-date. [...] the voter denies its
    vote if its own log is more up-to-date than that of the candidate.”
    """
    assert Replica.unattached(epoch=6, log=LOG).vote(3, 7, last).vote_granted == granted


def test_a_candidate_increments_its_epoch() -> None:
    """“When a voter decides to become a candidate and ask for others to vote for it, it will increment its current leader
    epoch as CandidateEpoch.” Kafka: after a pre-vote in the current one.
    """
    replica = Replica.prospective(epoch=6)
    replica.answer_vote(2, granted=True)
    assert {vote.epoch for vote in replica.sent(VoteRequest).values()} == {7}


def test_a_known_larger_epoch_rejects_the_vote() -> None:
    """“First it checks whether an epoch larger than the candidate epoch from the request is known. If so, the vote is
    rejected.”
    """
    replica = Replica.unattached(epoch=6)
    response = replica.vote(3, 5)
    assert not response.vote_granted
    assert response.leader_epoch == 6


def test_a_vote_is_only_repeated_for_the_same_candidate() -> None:
    """“It checks if it has voted for that candidate epoch already. If it has, then only grant the vote if the candidate id
    matches the id that was already voted. Otherwise, the vote is rejected.”
    """
    replica = Replica.unattached(epoch=6, voted=2)
    assert replica.vote(2, 6).vote_granted
    assert not replica.vote(3, 6).vote_granted


def test_an_unexpected_candidate_is_rejected_and_its_epoch_accepted() -> None:
    """“Check whether CandidateId is one of the expected voters. If not, then reject the vote. [...] the voter should accept
    the epoch bump and itself begin a new election.” Kafka: it begins one at its election timeout, not at once.
    """
    replica = Replica.follower(epoch=6)
    assert not replica.vote(9, 7, (99, 6)).vote_granted
    assert replica.view == ("Unattached", 7, -1)
    assert replica.pass_until_role("Prospective") >= CONFIG.election_timeout_ms


def test_a_vote_is_in_the_quorum_state_before_the_response() -> None:
    """“If yes, then grant that vote by first updating the quorum-state file, and then returning the response with
    voteGranted to yes; otherwise rejects that request with the response.”
    """
    replica = Replica.follower(epoch=6)
    assert replica.vote(3, 7).vote_granted
    saves = [index for index, action in enumerate(replica.actions) if isinstance(action, do.SaveElectionState)]
    (answer,) = [index for index, action in enumerate(replica.actions) if isinstance(action, do.Respond)]
    assert saves
    assert max(saves) < answer


def test_a_candidate_votes_for_itself_on_disk_before_it_asks() -> None:
    """“it will also need to update the quorum-state file as 'voting for myself' before sending out the vote requests.”"""
    replica = Replica.prospective(epoch=6)
    replica.answer_vote(2, granted=True)
    kinds = [type(action) for action in replica.actions]
    assert kinds == [do.SaveElectionState, do.ReportRole, do.SendRequest, do.SendRequest]
    assert replica.saved is not None
    assert replica.saved.voted_key is not None
    assert replica.saved.voted_key.id == 1


def test_a_candidate_can_grant_a_vote_of_a_larger_epoch() -> None:
    """“if it receives a Vote request with a larger candidate epoch, it can still grants that vote while at the same time
    transiting back to voter state because a newer leader may has been elected for a newer epoch.”
    """
    replica = Replica.candidate(epoch=6)
    assert replica.vote(3, 7).vote_granted
    assert replica.role == "Unattached"


def test_a_vote_response_is_ignored_by_who_is_no_candidate() -> None:
    """“First we need to check if the voter is still a candidate because it may already observed an election with a larger
    epoch; if it is no longer in 'candidate' state, just ignore the response.”
    """
    replica = Replica.candidate(epoch=6)
    request = replica.vote_in_flight(2)
    replica.begin(3, 7)
    replica.answer_vote(2, granted=True, request=request, epoch=6)
    assert replica.view == ("Follower", 7, 3)
    assert replica.actions == []


def test_a_restarted_candidate_resends_its_vote_requests() -> None:
    """“this information does not need to be persisted, since upon failover it can just resend the vote request and the
    voters would just grant that request again as long as there's no newer epoch candidate”
    """
    candidate = Replica(epoch=6, voted=1)
    request = candidate.sent(VoteRequest)[NodeId(2)]
    voter = Replica(local=2, epoch=6, voted=1)
    assert voter.vote(1, request.epoch, (0, 0)).vote_granted


def test_a_majority_makes_the_leader_durably() -> None:
    """“and if yes, it can transit to the leader state by updating the quorum-state file indicating itself as the leader for
    the new epoch. Otherwise, just record this vote in memory and do nothing.”
    """
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.answer_vote(2, granted=True)
    assert replica.actions == []
    replica.answer_vote(3, granted=True)
    assert isinstance(replica.actions[0], do.SaveElectionState)
    assert replica.actions[0].state.leader_id == 1


def test_a_leader_writes_its_record_before_it_announces_itself() -> None:
    """“it would also start by writing the current assignment state to its log so that its LastEpoch and LastEpochOffset are
    updated, and then after that it can start sending out BeginQuorumEpoch requests.” and “for this special quorum topic
    all log appends must be synced to FS before returning.”
    """
    replica = Replica.leader(epoch=6, flushed=False)
    assert len(replica.took(do.AppendLeaderChange)) == 1
    assert replica.core.log_end_position == position(1, 6)
    assert replica.sent(BeginQuorumEpochRequest) == {}
    replica.flush()
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_the_leader_change_record_names_leader_and_votes() -> None:
    """LeaderChangeMessage: "The ID of the newly elected leader", "The IDs of the voters who voted for the current leader"."""
    (record,) = Replica.leader(epoch=6, flushed=False).took(do.AppendLeaderChange)
    assert (record.leader_id, record.granting_voters) == (1, (1, 2))


def test_a_vote_that_cannot_be_won_backs_off_at_once() -> None:
    """“if there are only two voters and a candidate fails to get a vote from the other voter [...] there is no need to wait
    for the election timeout. The candidate in this case can immediately step down and backoff.” with
    “quorum.election.jitter.max.ms”. The next attempt is a pre-vote, so the epoch is not bumped by backing off.
    """
    replica = Replica.candidate(epoch=6, voters=(1, 2))
    replica.answer_vote(2, granted=False)
    assert replica.pass_until_role("Prospective") <= 2 * CONFIG.election_jitter_ms_max
    assert replica.core.epoch == 6


# --- BeginQuorumEpoch -----------------------------------------------------------------------------------------------


def test_all_voters_and_only_voters_hear_of_the_new_leader() -> None:
    """“it will send the BeginQuorumEpoch request to all voters in the quorum. [...] Note that only voters receive the
    BeginQuorumEpoch request”
    """
    replica = Replica.leader(epoch=6, flushed=False)
    replica.fetch(9, 0, 0)
    replica.flush()
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_the_old_leader_names_the_new_one_in_its_fetch_answers() -> None:
    """“the old leader would return an error code in FetchQuorumRecords response indicating that it is no longer the leader
    and it will also encode the current known leader id / epoch as well, then the observers can start fetching from the
    new leader.”
    """
    old = Replica.leader(epoch=6)
    old.begin(3, 7)
    answer = old.fetch(9, 1, 6, epoch=6)
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 3, 7)
    observer = Replica.follower(local=9, epoch=6, leader=1)
    observer.answer_fetch(error=answer.error, leader=answer.leader_id, epoch=answer.leader_epoch)
    assert observer.view == ("Follower", 7, 3)
    assert set(observer.sent(FetchRequest)) == {3}


@pytest.mark.parametrize("epoch", [6, 8])
def test_a_leader_of_the_same_or_a_later_epoch_is_accepted(epoch: int) -> None:
    """“A voter will accept a BeginQuorumEpoch if its leader epoch is greater than or equal to the current known epoch so
    long as it doesn't conflict with previous knowledge.”
    """
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, epoch).error is ErrorCode.NONE
    assert replica.view == ("Follower", epoch, 3)


def test_a_second_leader_of_an_epoch_is_rejected() -> None:
    """“if the leaderId for epoch 5 was known to be A, then a voter will reject a BeginQuorumEpoch request from a separate
    voter B from the same epoch.”
    """
    replica = Replica.follower(epoch=5, leader=2)
    assert replica.begin(3, 5).error is not ErrorCode.NONE
    assert replica.view == ("Follower", 5, 2)


def test_an_older_leader_is_rejected() -> None:
    """“If the epoch is less than the known epoch, the request is rejected.”"""
    assert Replica.follower(epoch=5).begin(3, 4).error is ErrorCode.FENCED_LEADER_EPOCH


def test_who_accepts_a_leader_follows_and_fetches() -> None:
    """“As soon as a broker accepts a BeginQuorumEpoch request, it will transition to a follower state and begin sending
    FetchQuorumRecords requests to the new leader.”
    """
    replica = Replica.candidate(epoch=6)
    replica.begin(3, 6)
    assert replica.role == "Follower"
    assert set(replica.sent(FetchRequest)) == {3}


def test_an_endorsed_leader_stops_announcing_itself() -> None:
    """“If the response contains no errors, then the leader will record the follower in memory as having endorsed the
    election. The leader will continue sending BeginQuorumEpoch to each known voter until it has received its
    endorsement.”
    """
    replica = Replica.leader(epoch=6)
    first = replica.sent(BeginQuorumEpochRequest)
    replica.fail(3, first[3])
    ok = BeginQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6))
    replica.respond(2, first[2], ok)
    replica.pass_time(200)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {3}


def test_a_fetch_endorses_too() -> None:
    """“An endorsement from an existing voter may also be inferred through a received FetchQuorumRecords request with the
    new leader's epoch even if the BeginQuorumEpoch request was never received.”
    """
    replica = Replica.leader(epoch=6, flushed=False)
    replica.fetch(2, 0, 0)
    replica.flush()
    assert set(replica.sent(BeginQuorumEpochRequest)) == {3}


def test_a_fenced_leader_follows_the_newer_one() -> None:
    """“If the error code indicates that voter's known leader epoch is larger (i.e. if the error is FENCED_LEADER_EPOCH),
    then the voter will update quorum-state and become a follower of that leader and begin sending FetchQuorumRecords
    requests.”
    """
    replica = Replica.leader(epoch=6)
    request = replica.sent(BeginQuorumEpochRequest)[2]
    fenced = BeginQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(7))
    replica.respond(2, request, fenced)
    assert replica.view == ("Follower", 7, 3)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id) == (7, 3)
    assert set(replica.sent(FetchRequest)) == {3}


# --- EndQuorumEpoch -------------------------------------------------------------------------------------------------


def test_a_leader_that_stops_tells_all_voters_its_successors_in_order() -> None:
    """“The EndQuorumEpochRequest will be sent to all voters in the quorum. Inside each request, leader will define the list
    of preferred successors sorted by each voter's current replicated offset in descending order.”
    """
    replica = Replica.leader(epoch=6, voters=(1, 2, 3, 4))
    replica.fetch(4, 1, 6)
    replica.fetch(3, 0, 0)
    replica.step(on.ResignRequested())
    ends = replica.sent(EndQuorumEpochRequest)
    assert set(ends) == {2, 3, 4}
    assert {tuple(successor.id for successor in end.preferred_candidates) for end in ends.values()} == {(4, 3, 2)}


def test_a_candidate_that_stops_sends_nothing() -> None:
    """“If the shutting down voter is either an active current leader or a candidate if there is an election in progress,
    then this request will be sent.” Kafka: leaders only; a candidate just never takes office.
    """
    replica = Replica.candidate(epoch=6)
    replica.step(on.ResignRequested())
    assert replica.actions == []


def test_the_first_successor_starts_at_once() -> None:
    """“If the node's priority is highest, it will become candidate immediately instead of waiting for next poll.” Kafka:
    prospective, with a pre-vote first.
    """
    replica = Replica.follower(epoch=6, leader=2)
    replica.end(2, 6, [1, 3])
    assert replica.role == "Prospective"


def test_later_successors_wait_exponentially_by_rank() -> None:
    """“For a successor with priority N > 0, the next election timeout will be computed as: MIN(retryBackOffMaxMs,
    retryBackoffMs * 2^(N - 1)) where the retryBackOffMaxMs is currently hard coded as one second.” Kafka: the base is
    max >> (successors - 1).
    """
    waits = []
    for rank in (1, 2, 3):
        successors = [2, 3, 4]
        successors.insert(rank, 1)
        replica = Replica.follower(epoch=6, leader=5, voters=(1, 2, 3, 4, 5))
        replica.end(5, 6, successors)
        waits.append(replica.pass_until_role("Prospective"))
    base = CONFIG.retry_backoff_ms_max >> 3
    assert waits == [base, 2 * base, 4 * base]


def test_an_older_end_is_rejected() -> None:
    """“the voter checks if the epoch from the request is greater than or equal to its last known epoch. If the epoch is
    smaller than the last known epoch, or the leader id is not known for this epoch, the request is rejected.” Kafka: an
    unknown leader is learned.
    """
    assert Replica.follower(epoch=6).end(2, 5).error is ErrorCode.FENCED_LEADER_EPOCH
    replica = Replica.unattached(epoch=6)
    assert replica.end(2, 6, [3, 1]).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 2)


def test_who_is_not_among_the_successors_waits_longest() -> None:
    """“Then the voter will check whether it is inside the given preferred successors. If not, return
    INCONSISTENT_VOTER_SET.” Kafka: no code path returns that error; it waits for the whole backoff.
    """
    replica = Replica.follower(epoch=6, leader=2)
    assert replica.end(2, 6, [3]).error is ErrorCode.NONE
    assert replica.pass_until_role("Prospective") == CONFIG.retry_backoff_ms_max


def test_a_resigned_leader_hears_of_a_newer_one() -> None:
    """“if the error code indicates there's already higher epoch leader already [...] then updating its quorum-state file
    while transiting to follower state.”
    """
    replica = Replica.resigned(epoch=6)
    request = replica.sent(EndQuorumEpochRequest)[2]
    fenced = EndQuorumEpochResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(7))
    replica.respond(2, request, fenced)
    assert replica.view == ("Follower", 7, 3)
    assert replica.saved is not None
    assert replica.saved.leader_id == 3
