"""Kafka's own scenarios of UpdateRaftVoter (KIP-853), each under the name of its test in KafkaRaftClientReconfigTest."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica, key
from raftkit.voters import ELSEWHERE, EPOCH, add, disk_key, error_of, fetch, leader, static_leader, update
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import UpdateVoter
from raftlake.raft.types import Epoch, NodeId


def test_update_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoter: the new address goes into the log; the answer does not wait for its commit.
    KafkaRaftClientReconfigTest.testUpdateVoter: the new address goes into the log; the answer does not wait for its commit."""
    replica = leader(1, 2, 3)
    assert error_of(replica.change_voters(update(disk_key(2)))) is ErrorCode.NONE
    (append,) = replica.took(do.AppendVoters)
    assert append.voters.endpoints[NodeId(2)] == ELSEWHERE and append.kraft_version is None
    assert error_of(replica.change_voters(update(disk_key(3)))) is ErrorCode.REQUEST_TIMED_OUT


def test_leader_updates_voter() -> None:
    """KafkaRaftClientReconfigTest.testLeaderUpdatesVoter."""
    replica = leader(1, 2, 3)
    assert error_of(replica.change_voters(update(disk_key(1)))) is ErrorCode.NONE
    assert replica.core.voters.endpoints[NodeId(1)] == ELSEWHERE


@pytest.mark.parametrize("versions", [(-1, 1), (2, 1), (0, 0), (2, 3)])
def test_invalid_update_voter(versions: tuple[int, int]) -> None:
    """KafkaRaftClientReconfigTest.testInvalidUpdateVoter."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), versions=versions))
    assert error_of(answer) is ErrorCode.INVALID_REQUEST


def test_update_voter_without_an_endpoint() -> None:
    """KafkaRaftClientReconfigTest.testInvalidUpdateVoter."""
    answer = leader(1, 2, 3).change_voters(UpdateVoter(voter=disk_key(2), endpoints=(), leader_epoch=Epoch(EPOCH)))
    assert error_of(answer) is ErrorCode.INVALID_REQUEST


def test_update_voter_old_epoch() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterOldEpoch."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), epoch=EPOCH - 1))
    assert error_of(answer) is ErrorCode.FENCED_LEADER_EPOCH


def test_update_voter_new_epoch() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterNewEpoch."""
    answer = leader(1, 2, 3).change_voters(update(disk_key(2), epoch=EPOCH + 1))
    assert error_of(answer) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_update_voter_to_not_leader() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterToNotLeader."""
    answer = Replica.follower(epoch=EPOCH).change_voters(update(disk_key(2)))
    assert error_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_update_voter_without_fenced_previous_leaders() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithoutFencedPreviousLeaders."""
    answer = leader(1, 2, 3, commits=False).change_voters(update(disk_key(2)))
    assert error_of(answer) is ErrorCode.REQUEST_TIMED_OUT


def test_update_voter_with_kraft_version_0() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithKraftVersion0: Nothing is written, but the voter's directory and address
    are remembered for the day when voters go into the log."""
    replica = static_leader()
    fetch(replica, 2)
    assert error_of(replica.change_voters(update(disk_key(3)))) is ErrorCode.NONE
    (append,) = replica.took(do.AppendVoters)
    assert append.voters.voters[NodeId(3)] == disk_key(3) and append.voters.endpoints[NodeId(3)] == ELSEWHERE


def test_update_voter_with_none_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithNoneVoter."""
    answer = leader(1, 2, 3).change_voters(update(key(2, b"other disk")))
    assert error_of(answer) is ErrorCode.VOTER_NOT_FOUND


def test_update_voter_with_none_voter_id() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithNoneVoterId."""
    assert error_of(leader(1, 2, 3).change_voters(update(disk_key(9)))) is ErrorCode.VOTER_NOT_FOUND
    static = static_leader()
    fetch(static, 2)
    assert error_of(static.change_voters(update(disk_key(9)))) is ErrorCode.VOTER_NOT_FOUND


def test_update_voter_with_pending_add_voter() -> None:
    """KafkaRaftClientReconfigTest.testUpdateVoterWithPendingAddVoter."""
    replica = leader(1, 2)
    fetch(replica, 3)
    replica.change_voters(add(3))
    assert error_of(replica.change_voters(update(disk_key(2)))) is ErrorCode.REQUEST_TIMED_OUT
