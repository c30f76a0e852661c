"""What every request is checked for and every response may teach: epoch, leader, whom it was meant for."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.raft.credit import REQUEST_STEPS
from raftlake.raft.handlers.common import handle_common_response, is_for_us, validate_voter_only_request
from raftlake.raft.types import EPOCH_MAX, NO_DIRECTORY, DirectoryId, Epoch, NodeId

MINE, OTHER = DirectoryId(b"mine".ljust(16, b"\0")), DirectoryId(b"other".ljust(16, b"\0"))


def learn(replica: Replica, *, error: ErrorCode = ErrorCode.NONE, leader: int = -1, epoch: int = 6) -> bool:
    """A response of voter 3 came; whether nothing else is to be done with it."""
    replica.core.actions = []
    return handle_common_response(replica.core, error, NodeId(leader), Epoch(epoch), NodeId(3), replica.now_ms)


@pytest.mark.parametrize(
    ("remote", "epoch", "error"),
    [
        (2, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, 5, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, 6, ErrorCode.INVALID_REQUEST),
        (1, 7, ErrorCode.INVALID_REQUEST),
        (2, EPOCH_MAX + 1, ErrorCode.INVALID_REQUEST),
        (2, EPOCH_MAX, ErrorCode.INVALID_REQUEST),
        (2, 6 + REQUEST_STEPS, ErrorCode.NONE),
        (2, 7 + REQUEST_STEPS, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.NONE),
    ],
)
def test_the_epoch_is_checked_before_the_sender(remote: int, epoch: int, error: ErrorCode) -> None:
    replica = Replica.unattached(epoch=6)
    assert validate_voter_only_request(replica.core, NodeId(remote), Epoch(epoch), replica.now_ms) is error


@pytest.mark.parametrize(
    ("voter", "directory", "is_ours"),
    [(-1, NO_DIRECTORY, True), (1, NO_DIRECTORY, True), (1, MINE, True), (-1, MINE, True), (2, MINE, False), (1, OTHER, False)],
)
def test_a_request_is_for_our_number_and_our_disk(voter: int, directory: DirectoryId, is_ours: bool) -> None:
    replica = Replica(directory=b"mine")
    assert is_for_us(replica.core, NodeId(voter), directory) == is_ours


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"])
def test_old_and_unbelievable_epochs_teach_nothing(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    for epoch, error in [(5, ErrorCode.NONE), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (EPOCH_MAX + 1, ErrorCode.NONE)]:
        assert learn(replica, error=error, epoch=epoch, leader=3)
    assert replica.view == before


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"])
@pytest.mark.parametrize(
    ("leader", "after"), [(-1, ("Unattached", 8, -1)), (3, ("Follower", 8, 3)), (9, ("Unattached", 8, -1))]
)
def test_a_newer_epoch_is_accepted_by_every_role(role: str, leader: int, after: tuple[str, int, int]) -> None:
    replica = Replica.in_role(role, epoch=6)
    assert learn(replica, epoch=8, leader=leader)
    assert replica.view == after


def test_ourselves_as_leader_of_a_newer_epoch_is_not_believed() -> None:
    """Only a lost disk could make it true, and then we must not take up that epoch: we go on in the next one."""
    replica = Replica.follower(epoch=6)
    assert learn(replica, epoch=8, leader=1)
    assert replica.view == ("Unattached", 9, -1)


@pytest.mark.parametrize("role", ["Unattached", "Prospective", "Candidate"])
def test_a_leader_of_our_epoch_is_followed_when_none_is_known(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    assert not learn(replica, leader=3), "the answer itself still counts"
    assert replica.view == ("Follower", 6, 3)
    replica = Replica.in_role(role, epoch=6)
    assert learn(replica, leader=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert replica.view == ("Follower", 6, 3)


@pytest.mark.parametrize("role", ["Follower", "Leader", "Resigned"])
def test_a_second_leader_of_our_epoch_is_not_believed(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    before = replica.view
    learn(replica, leader=3)
    learn(replica, leader=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert replica.view == before


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.BROKER_NOT_AVAILABLE])
def test_what_agrees_with_us_is_left_to_the_handler(error: ErrorCode) -> None:
    assert not learn(Replica.follower(epoch=6, leader=2), leader=2, error=error)
