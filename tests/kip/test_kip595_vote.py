"""KIP-595, sentence by sentence: Vote. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

import struct

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica, batch, key, position
from raftlake.raft import actions as do
from raftlake.raft.config import RaftConfig
from raftlake.raft.messages import BeginQuorumEpochRequest, VoteRequest
from raftlake.raft.roles import Candidate
from raftlake.raft.types import NodeId
from raftlake.wire.batch_header import parse_header
from raftlake.wire.batch_records import decode_records
from raftlake.wire.control import LeaderChange, leader_change_batch, parse_control_record

#: Records 0..4 of epoch 1, 5..8 of epoch 3.
LOG = (((1, 0), (3, 5)), 9)

# --- requests and responses -----------------------------------------------------------------------------------------


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
    """“it will also need to update the quorum-state file as "voting for myself" before sending out the vote requests.”"""
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
    epoch; if it is no longer in "candidate" state, just ignore the response.”
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
    the new epoch.”
    """
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.answer_vote(2, granted=True)
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
    """“The ID of the newly elected leader” and “The IDs of the voters who voted for the current leader”"""
    (record,) = Replica.leader(epoch=6, flushed=False).took(do.AppendLeaderChange)
    assert (record.leader_id, record.granting_voters) == (1, (1, 2))


def test_a_vote_that_cannot_be_won_backs_off_at_once() -> None:
    """“if there are only two voters and a candidate fails to get a vote from the other voter [...] there is no need to wait
    for the election timeout. The candidate in this case can immediately step down and backoff.” with
    quorum.election.jitter.max.ms. The next attempt is a pre-vote, so the epoch is not bumped by backing off.
    """
    replica = Replica.candidate(epoch=6, voters=(1, 2))
    replica.answer_vote(2, granted=False)
    assert replica.pass_until_role("Prospective") <= 2 * CONFIG.election_jitter_ms_max
    assert replica.core.epoch == 6


# --- what a vote request says, and what makes it true ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_leader_s_log_is_at_least_as_good_as_those_of_its_majority(seed: int) -> None:
    """“Note we need to respect the extra condition on leadership: the candidate’s log is at least as up-to-date as any other
    log in the majority who vote for it.”
    """
    cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
    ends = {1: ((2, 3), (4, 1)), 2: ((2, 3),), 3: ((2, 3), (3, 2)), 4: ((2, 2),), 5: ()}
    for node, runs in ends.items():
        offset = 0
        for epoch, count in runs:
            for _ in range(count):
                cluster.nodes[NodeId(node)].disk.batches.append(batch(offset, offset + 1, epoch))
                offset += 1
    # By epoch, then by length: 1 > 3 > 2 > 4 > 5. Three votes of logs that are no better can be had by 1, 3 and 2 alone.
    cluster.start()
    assert cluster.await_leader().local.id in (1, 2, 3)


@pytest.mark.parametrize(
    ("mine", "granted"),
    [(((), 0), True), ((((1, 0),), 6), True), ((((3, 0),), 5), True), ((((3, 0),), 6), False), ((((4, 0),), 1), False)],
)
def test_up_to_date_is_decided_by_the_last_entries_alone(mine: tuple[tuple[tuple[int, int], ...], int], granted: bool) -> None:
    """“Raft determines which of two logs is more "up-to-date" by comparing the offset and epoch of the last entries in the
    logs.”
    """
    assert Replica.unattached(epoch=6, log=mine).vote(3, 7, (5, 3)).vote_granted == granted


def test_a_vote_request_carries_the_end_of_the_log() -> None:
    """“The Vote request includes information about the candidate’s log, and the voter denies its vote if its own log is more
    up-to-date than that of the candidate.”
    """
    candidate = Replica.candidate(epoch=6, log=LOG)
    asked = candidate.vote_in_flight(2)
    assert Replica(local=2, log=(LOG[0], 9)).vote(1, asked.epoch, (asked.log_end.offset, asked.log_end.epoch)).vote_granted
    longer = Replica(local=2, log=(LOG[0], 10))
    assert not longer.vote(1, asked.epoch, (asked.log_end.offset, asked.log_end.epoch)).vote_granted


def test_the_offset_of_a_vote_request_is_the_log_end() -> None:
    """“The offset of the last record written to the metadata log” Kafka: the offset after it, so that an empty log says 0.
    Ours ends where the log is synced: what a crash may still take is no argument for being elected.
    """
    assert Replica.candidate(epoch=6, log=LOG).vote_in_flight(2).log_end == position(9, 3)
    assert Replica.candidate(epoch=6).vote_in_flight(2).log_end == position(0, 0)
    slow = Replica.follower(epoch=6, leader=3, log=LOG)
    slow.answer_fetch(batch(9, 11, 6))
    slow.pass_until_role("Prospective")
    assert (slow.core.log_end, slow.vote_in_flight(2).log_end) == (11, position(9, 3))
    slow.flush()
    slow.answer_vote(3, granted=True)
    assert slow.vote_in_flight(2).log_end == position(11, 6)


def test_a_candidate_counts_its_own_vote() -> None:
    """“Also note that a candidate always votes for itself at the current candidate epoch.”"""
    replica = Replica.candidate(epoch=6)
    assert isinstance(replica.core.role, Candidate)
    assert replica.core.role.tally.granting == (1,)
    assert (replica.core.epoch, replica.core.voted_key) == (6, key(1))
    assert not replica.vote(2, 6, (99, 5)).vote_granted


def test_votes_short_of_a_majority_are_only_remembered() -> None:
    """“Otherwise, just record this vote in memory and do nothing.”"""
    replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.answer_vote(2, granted=True)
    assert replica.actions == []
    assert isinstance(replica.core.role, Candidate)
    assert replica.core.role.tally.granting == (1, 2)


# --- the first record -----------------------------------------------------------------------------------------------


def test_the_first_record_commits_what_came_before_it() -> None:
    """“Writing the dummy entry with the new epoch is not necessary for correctness, but as an optimization to reduce the
    client request latency. Basically it allows for faster advancement of the high watermark following a leader election”
    """
    replica = Replica.leader(epoch=6, log=LOG)
    assert replica.core.high_watermark == 0
    replica.fetch(2, 10, 6)
    (moved,) = replica.took(do.AdvanceHighWatermark)
    assert moved.high_watermark == 10, "nobody appended anything"


def test_the_type_of_the_first_record() -> None:
    """“The dummy record will be a control record with Type=3.” Kafka: type 2; 3 became the header of a snapshot."""
    written = leader_change_batch(9, 6, -1, 1, (1, 2, 3), (1, 3))
    assert parse_header(written).is_control
    (record,) = decode_records(written, include_control=True)
    assert record.key is not None
    assert struct.unpack(">hh", record.key) == (0, 2)
    assert parse_control_record(record.key, record.value) == LeaderChange(leader_id=1, voters=(1, 2, 3), granting_voters=(1, 3))


# --- elections that nobody wins -------------------------------------------------------------------------------------


def test_candidates_of_one_epoch_refuse_one_another() -> None:
    """“Note on Gridlocked Elections: It is possible that an election fails because each voter votes for itself.”"""
    candidates = {node: Replica.candidate(local=node, epoch=6) for node in (1, 2, 3)}
    for node, candidate in candidates.items():
        for other in candidates.values():
            if other is not candidate:
                assert not other.vote(node, 6).vote_granted
    assert [candidate.role for candidate in candidates.values()] == ["Candidate"] * 3


@pytest.mark.parametrize("voters", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_gridlocks_end(voters: int, seed: int) -> None:
    """“Or, with an even number of voters active, it is possible that a vote ends up split.” All begin in the same moment; the
    random waits part them.
    """
    cluster = Cluster(range(1, voters + 1), seed=seed, config=RaftConfig(election_jitter_ms_max=1))
    cluster.start()
    cluster.await_leader(limit_ms=5_000)


def test_an_election_without_a_majority_ends_with_its_timeout() -> None:
    """“Generally if a voter fails to get a majority of votes before quorum.election.timeout.ms, then the vote is deemed to
    have failed, which will cause the candidate to bump the epoch, step down, and backoff according to
    quorum.election.jitter.max.ms before retrying.” Kafka: back to a pre-vote, and the epoch is bumped only if that is won.
    """
    replica = Replica.candidate(epoch=6)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms
    assert replica.core.epoch == 6
    replica.answer_vote(3, granted=True)
    assert replica.view == ("Candidate", 7, -1)
