"""Kafka's own scenarios of changing voters (KIP-853), each under the name of its test.

From KafkaRaftClientReconfigTest, LeaderStateTest and KafkaRaftClientTest of Kafka 4.3.1. Where we are stricter than Kafka (a
removal that would lose the majority) or looser (nothing), the test says so. Checks of the cluster id and of listener names
belong to the driver and are tested there.
"""

from __future__ import annotations

from raftkit.replica import CONFIG, Replica, key
from raftkit.voters import (
    EPOCH,
    HERE,
    add,
    batch_with_voters,
    commit,
    disk_key,
    error_of,
    fetch,
    known_voters,
    leader,
    remove,
    static_leader,
)
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import AddVoter, EndQuorumEpochRequest, RemoveVoter, VoteRequest
from raftlake.raft.types import NodeId

# --- the first records


def test_leader_writes_bootstrap_records() -> None:
    """KafkaRaftClientReconfigTest.testLeaderWritesBootstrapRecords: the voters that a group begins with are nowhere in its
    log: its first leader writes them behind its LeaderChange."""
    replica = Replica.leader(epoch=EPOCH, flushed=False, directory=disk_key(1).directory_id, voter_keys=known_voters((1, 2, 3)))
    (change,) = replica.took(do.AppendLeaderChange)
    assert change.initial_voters is not None and change.initial_voters.ids == (1, 2, 3)
    assert (change.offset, replica.core.log_end, replica.core.voter_history.latest_offset) == (0, 3, 0)


def test_a_later_leader_does_not_write_them_again() -> None:
    """Ours: LeaderState.appendStartOfEpochControlRecords looks at where the latest voters stand."""
    voters = known_voters((1, 2, 3), offset=0)
    replica = Replica.leader(epoch=EPOCH, directory=disk_key(1).directory_id, voter_keys=voters, log=(((1, 0),), 5))
    assert replica.core.log_end == 6 and replica.core.voter_history.latest_offset == 0


def test_leader_does_not_bootstrap_records_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testLeaderDoesNotBootstrapRecordsWithKraftVersion0."""
    replica = Replica.leader(epoch=EPOCH)
    assert replica.core.log_end == 1 and replica.core.voter_history.kraft_version == 0


def test_follower_reads_kraft_bootstrap_records() -> None:
    """KafkaRaftClientReconfigTest.testFollowerReadsKRaftBootstrapRecords."""
    replica = Replica.follower()
    replica.answer_fetch(batch_with_voters(0, 3, (1, 2, 3, 4)))
    assert replica.core.voters.ids == (1, 2, 3, 4) and replica.core.voter_history.kraft_version == 1


# --- static voters go into the log


def test_kraft_upgrade_version() -> None:
    """KafkaRaftClientReconfigTest.testKRaftUpgradeVersion: KRaftVersion and KRaftVoters go into one batch, once an entry of
    the epoch is committed and every directory is known. Kafka waits for an operator here (UpdateFeatures); we do it by
    ourselves."""
    replica = static_leader()
    fetch(replica, 2)
    assert replica.core.is_serving_leader and replica.core.voter_history.kraft_version == 0
    fetch(replica, 3, 0)
    (append,) = replica.took(do.AppendVoters)
    assert (append.offset, append.kraft_version, replica.core.log_end) == (1, 1, 3)
    assert append.voters.voters == {NodeId(i): disk_key(i) for i in (1, 2, 3)}
    assert replica.core.voter_history.kraft_version == 1
    # Progress is kept (LeaderStateTest.testUpdateVotersFromNoDirectoryIdToDirectoryId).
    commit(replica, 2)
    assert replica.core.high_watermark == 3


def test_invalid_kraft_upgrade_version() -> None:
    """KafkaRaftClientReconfigTest.testInvalidKRaftUpgradeVersion: a voter that does not tell its directory, an epoch without a
    commit, or the setting keep the voters static."""
    replica = static_leader()
    replica.fetch(key(2), 1, EPOCH)
    fetch(replica, 3)
    assert replica.core.is_serving_leader and replica.core.voter_history.kraft_version == 0
    replica = static_leader()
    fetch(replica, 2, 0)
    fetch(replica, 3, 0)
    assert not replica.core.is_serving_leader and replica.core.voter_history.kraft_version == 0
    replica = static_leader(config=type(CONFIG)(voters_in_log=False))
    fetch(replica, 2)
    fetch(replica, 3)
    assert replica.core.is_serving_leader and replica.core.voter_history.kraft_version == 0


def test_a_lone_static_voter_goes_into_the_log() -> None:
    """Ours: nobody else has to tell its directory first."""
    replica = Replica(epoch=EPOCH, voters=(1,), directory=disk_key(1).directory_id)
    replica.flush()
    assert replica.role == "Leader" and replica.core.voters.voters == {NodeId(1): disk_key(1)}


# --- AddRaftVoter


def test_add_voter() -> None:
    """KafkaRaftClientReconfigTest.testAddVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    assert replica.change_voters(add(3)) is None
    (append,) = replica.took(do.AppendVoters)
    assert append.voters.ids == (1, 2, 3) and append.voters.endpoints[NodeId(3)] == HERE
    assert replica.core.voters == append.voters
    replica.flush()
    assert replica.voter_change_answer() is None
    fetch(replica, 3)
    assert error_of(replica.voter_change_answer()) is ErrorCode.NONE


def test_add_voter_completes_early_with_ack_when_committed_false() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterCompletesEarlyWithAckWhenCommittedFalse."""
    replica = leader(1, 2)
    fetch(replica, 3)
    assert error_of(replica.change_voters(add(3, waits=False))) is ErrorCode.NONE
    assert error_of(replica.change_voters(add(4))) is ErrorCode.REQUEST_TIMED_OUT, "it is still under way"
    commit(replica, 2)
    assert replica.voter_change_answer() is None, "it was answered"
    assert error_of(replica.change_voters(remove(3))) is None


def test_add_voter_to_not_leader() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterToNotLeader."""
    for role in ("Unattached", "Follower", "Prospective", "Candidate", "Resigned"):
        replica = Replica.in_role(role, epoch=EPOCH)
        assert error_of(replica.change_voters(add(4))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = Replica.follower(epoch=EPOCH, leader=3).change_voters(add(4))
    assert answer is not None and (answer.leader_id, answer.leader_epoch) == (3, EPOCH)


def test_add_voter_with_missing_default_listener() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithMissingDefaultListener."""
    answer = leader(1, 2).change_voters(AddVoter(voter=disk_key(3), endpoints=()))
    assert error_of(answer) is ErrorCode.INVALID_REQUEST


def test_add_voter_with_missing_directory_id() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithMissingDirectoryId."""
    assert error_of(leader(1, 2).change_voters(AddVoter(voter=key(3), endpoints=HERE))) is ErrorCode.INVALID_REQUEST


def test_add_voter_with_pending_add_voter() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithPendingAddVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    fetch(replica, 4)
    replica.change_voters(add(3))
    assert error_of(replica.change_voters(add(4))) is ErrorCode.REQUEST_TIMED_OUT
    assert replica.core.voters.ids == (1, 2, 3)


def test_add_voter_without_fenced_previous_leaders() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithoutFencedPreviousLeaders: a pitfall of Raft's first edition: before an entry
    of the own epoch is committed a change of the leader before may be."""
    replica = leader(1, 2, commits=False)
    fetch(replica, 3)
    assert error_of(replica.change_voters(add(3))) is ErrorCode.REQUEST_TIMED_OUT
    assert replica.core.voters.ids == (1, 2)


def test_add_voter_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithKraftVersion0."""
    replica = Replica.leader(epoch=EPOCH)
    replica.commit_epoch_start()
    assert error_of(replica.change_voters(add(4))) is ErrorCode.UNSUPPORTED_VERSION


def test_add_voter_with_existing_voter() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithExistingVoter: also with another directory: the old one goes first."""
    replica = leader(1, 2)
    assert error_of(replica.change_voters(add(2))) is ErrorCode.DUPLICATE_VOTER
    again = AddVoter(voter=key(2, b"new disk"), endpoints=HERE)
    assert error_of(replica.change_voters(again)) is ErrorCode.DUPLICATE_VOTER


def test_add_voter_timeout() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterTimeout: the change stays in the log; nothing else is changed until it is
    committed."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    replica.flush()
    for _ in range(4):
        replica.now_ms += CONFIG.request_timeout_ms // 4
        fetch(replica, 2, 3)
        replica.step(on.DeadlineReached())
    answer = replica.voter_change_answer()
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT and answer is not None and answer.message == ""
    refused = replica.change_voters(remove(2))
    assert error_of(refused) is ErrorCode.REQUEST_TIMED_OUT
    assert refused is not None and "is not committed yet" in refused.message, "a reason: nothing was begun"
    fetch(replica, 2)
    assert replica.core.high_watermark == 4 and replica.voter_change_answer() is None
    assert error_of(replica.change_voters(remove(3))) is None


def test_add_voter_invalid_feature_version() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterInvalidFeatureVersion."""
    replica = leader(1, 2)
    fetch(replica, 3)
    assert error_of(replica.change_voters(add(3, versions=(0, 0)))) is ErrorCode.INVALID_REQUEST


def test_add_voter_with_lagging_new_voter() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithLaggingNewVoter: it has not fetched, or not everything; Kafka then forgives
    an hour of silence, we one fetch timeout."""
    replica = leader(1, 2)
    assert error_of(replica.change_voters(add(3))) is ErrorCode.REQUEST_TIMED_OUT
    fetch(replica, 3, 0)
    answer = replica.change_voters(add(3))
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT and answer is not None and "lagging" in answer.message
    fetch(replica, 3)
    replica.now_ms += CONFIG.fetch_timeout_ms + 1
    assert error_of(replica.change_voters(add(3))) is ErrorCode.REQUEST_TIMED_OUT
    fetch(replica, 3)
    assert replica.change_voters(add(3)) is None


def test_add_voter_that_caught_up_under_another_directory() -> None:
    """Ours: it is a replica that has caught up, and not a number."""
    replica = leader(1, 2)
    replica.fetch(key(3, b"old disk"), replica.core.log_end, EPOCH)
    assert error_of(replica.change_voters(add(3))) is ErrorCode.REQUEST_TIMED_OUT


def test_add_voter_fails_when_losing_leadership() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterFailsWhenLosingLeadership: Kafka answers NOT_LEADER_OR_FOLLOWER, as where nothing
    was begun. The next leader may commit the change, so ours says that its outcome is open: no reason is given."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    replica.begin(2, EPOCH + 1)
    answer = replica.voter_change_answer()
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT and answer is not None
    assert (answer.message, answer.leader_id) == ("", 2)


# --- RemoveRaftVoter


def test_remove_voter() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoter."""
    replica = leader(1, 2, 3)
    fetch(replica, 3)
    assert replica.change_voters(remove(2)) is None
    assert replica.core.voters.ids == (1, 3)
    replica.flush()
    fetch(replica, 2)
    assert replica.voter_change_answer() is None, "who was removed does not count"
    fetch(replica, 3)
    assert error_of(replica.voter_change_answer()) is ErrorCode.NONE


def test_remove_voter_is_leader() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterIsLeader: it leads until the removal is committed, does not count itself,
    answers, and hands over (KAFKA-16530)."""
    replica = leader(1, 2, 3)
    fetch(replica, 2)
    assert replica.change_voters(remove(1)) is None
    assert replica.role == "Leader" and not replica.core.is_voter
    replica.flush()
    fetch(replica, 2)
    assert replica.core.high_watermark == 3, "of 2 and 3, only 2 has it"
    replica.append(1)
    fetch(replica, 3, 4)
    assert error_of(replica.voter_change_answer()) is ErrorCode.NONE
    assert replica.role == "Leader" and replica.core.high_watermark == 4
    replica.step(on.DeadlineReached())
    assert replica.role == "Resigned"
    ends = replica.sent(EndQuorumEpochRequest)
    assert sorted(ends) == [2, 3]
    assert ends[2].preferred_candidates == (disk_key(2), disk_key(3))
    # It never stands again.
    replica.pass_time(20_000)
    assert replica.role == "Unattached" and replica.sent(VoteRequest) == {}


def test_remove_voter_to_not_leader() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterToNotLeader."""
    assert error_of(Replica.follower().change_voters(remove(2))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_remove_voter_with_pending_remove_voter() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithPendingRemoveVoter."""
    replica = leader(1, 2, 3)
    replica.change_voters(remove(2))
    assert error_of(replica.change_voters(remove(3))) is ErrorCode.REQUEST_TIMED_OUT


def test_remove_voter_without_fenced_previous_leaders() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithoutFencedPreviousLeaders."""
    assert error_of(leader(1, 2, 3, commits=False).change_voters(remove(2))) is ErrorCode.REQUEST_TIMED_OUT


def test_remove_voter_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithKraftVersion0."""
    replica = Replica.leader(epoch=EPOCH)
    replica.commit_epoch_start()
    assert error_of(replica.change_voters(remove(2))) is ErrorCode.UNSUPPORTED_VERSION


def test_remove_voter_with_none_voter() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithNoneVoter: the node is a voter, the directory is not."""
    replica = leader(1, 2, 3)
    change = RemoveVoter(voter=key(2, b"other disk"))
    assert error_of(replica.change_voters(change)) is ErrorCode.VOTER_NOT_FOUND


def test_remove_voter_with_none_voter_id() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithNoneVoterId."""
    assert error_of(leader(1, 2, 3).change_voters(remove(9))) is ErrorCode.VOTER_NOT_FOUND


def test_remove_voter_to_empty_voter_set() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterToEmptyVoterSet."""
    replica = Replica(epoch=EPOCH, directory=disk_key(1).directory_id, voter_keys=known_voters((1,)))
    replica.flush()
    assert replica.core.is_serving_leader
    answer = replica.change_voters(remove(1))
    assert error_of(answer) is ErrorCode.VOTER_NOT_FOUND
    assert answer is not None and answer.message == "node 1 is the only voter, and without one no node leads: add another first"


def test_remove_voter_timed_out() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterTimedOut."""
    replica = leader(1, 2, 3)
    replica.change_voters(remove(2))
    replica.flush()
    for _ in range(4):
        replica.now_ms += CONFIG.request_timeout_ms // 4
        fetch(replica, 3, 3)
        replica.step(on.DeadlineReached())
    answer = replica.voter_change_answer()
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT and answer is not None and answer.message == ""


def test_remove_voter_fails_when_losing_leadership() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterFailsWhenLosingLeadership: as for an addition."""
    replica = leader(1, 2, 3)
    replica.change_voters(remove(2))
    replica.begin(3, EPOCH + 1)
    answer = replica.voter_change_answer()
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT and answer is not None and answer.message == ""


def test_remove_voter_that_the_majority_needs() -> None:
    """Ours: stricter than Kafka: with one of three down, removing the other one would stop the group for good."""
    replica = leader(1, 2, 3)
    replica.now_ms += CONFIG.fetch_timeout_ms + 1
    fetch(replica, 2)
    answer = replica.change_voters(remove(2))
    assert error_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer is not None and "node 3 does not answer" in answer.message
    assert replica.change_voters(remove(3)) is None, "the silent one may go"


def test_remove_voter_right_after_an_election() -> None:
    """Ours: who has not fetched from the new leader yet may have died before; the leader would be alone."""
    replica = leader(1, 2, 3, commits=False)
    fetch(replica, 2)
    answer = replica.change_voters(remove(2))
    assert error_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS
    fetch(replica, 3)
    assert replica.change_voters(remove(2)) is None


def test_remove_voter_right_after_another_died() -> None:
    """Ours: the dead one has fetched within the timeout, but its connection is gone since."""
    replica = leader(1, 2, 3)
    fetch(replica, 2)
    fetch(replica, 3)
    replica.now_ms += 1
    replica.step(on.PeerUnreachable(peer=NodeId(3)))
    answer = replica.change_voters(remove(2))
    assert error_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS
    replica.now_ms += 1
    fetch(replica, 3)
    assert replica.change_voters(remove(2)) is None, "it is back"


def test_add_voter_with_pending_remove_voter() -> None:
    """KafkaRaftClientReconfigTest.testAddVoterWithPendingRemoveVoter."""
    replica = leader(1, 2, 3)
    fetch(replica, 4)
    replica.change_voters(remove(2))
    assert error_of(replica.change_voters(add(4))) is ErrorCode.REQUEST_TIMED_OUT


def test_remove_voter_with_pending_add_voter() -> None:
    """KafkaRaftClientReconfigTest.testRemoveVoterWithPendingAddVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    assert error_of(replica.change_voters(remove(2))) is ErrorCode.REQUEST_TIMED_OUT
