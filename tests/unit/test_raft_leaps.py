"""An epoch far above ours is not taken in, whoever names it and however: the last epoch would end all elections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.leaps import WINDOW_MS
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX, Epoch, NodeId

LOG = (((5, 0),), 3)

REQUESTS: dict[str, Callable[[Replica, int], ErrorCode]] = {
    "vote": lambda replica, epoch: replica.vote(3, epoch, (9, 5)).error,
    "pre-vote": lambda replica, epoch: replica.pre_vote(3, epoch, (9, 5)).error,
    "begin": lambda replica, epoch: replica.begin(3, epoch).error,
    "end": lambda replica, epoch: replica.end(3, epoch, (1,)).error,
}


def refused(replica: Replica) -> list[tuple[int, int, int]]:
    return [(each.source, each.epoch, each.own_epoch) for each in replica.took(do.ReportRefusedEpoch)]


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("make", [Replica.unattached, Replica.follower, Replica.candidate, Replica.leader])
def test_a_request_raises_the_epoch_by_a_million_and_not_by_more(make: Callable[..., Replica], kind: str) -> None:
    replica = make(epoch=6, log=LOG)
    view = replica.view
    # It counts from the epoch of the start; who campaigned since then has bumped it by itself.
    top = 6 + EPOCH_LEAP_MAX - (make in (Replica.candidate, Replica.leader))
    for epoch in (top + 1, EPOCH_MAX):
        assert REQUESTS[kind](replica, epoch) is ErrorCode.INVALID_REQUEST
        assert replica.view == view and replica.took(do.SaveElectionState) == []
        assert refused(replica) == [(3, epoch, 6)]
    REQUESTS[kind](replica, top)
    assert replica.view[1] == top
    assert refused(replica) == []


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_answer_raises_the_epoch_by_a_million_and_not_by_more(error: ErrorCode) -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(error=error, leader=3, epoch=7 + EPOCH_LEAP_MAX)
    assert replica.view == ("Follower", 6, 2)
    assert refused(replica) == [(2, 7 + EPOCH_LEAP_MAX, 6)]
    assert replica.core.fetch_retry_at_ms is not None, "it asks again, later"
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(error=error, leader=3, epoch=6 + EPOCH_LEAP_MAX)
    assert replica.view == ("Follower", 6 + EPOCH_LEAP_MAX, 3)


def test_an_answer_to_a_vote_leads_to_no_leap() -> None:
    replica = Replica.candidate(epoch=6, log=LOG)
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=EPOCH_MAX)
    assert replica.view[:2] == ("Candidate", 6)
    assert refused(replica) == [(2, EPOCH_MAX, 6)]
    replica.answer_vote(3, granted=True)
    assert replica.view == ("Leader", 6, 1)


def test_many_small_leaps_are_one_large_leap() -> None:
    """Else two thousand messages would do what one may not."""
    replica = Replica.unattached(epoch=6, log=LOG)
    assert replica.begin(2, 6 + EPOCH_LEAP_MAX // 2).error is ErrorCode.NONE
    replica.now_ms += WINDOW_MS - 1
    assert replica.begin(3, 6 + EPOCH_LEAP_MAX).error is ErrorCode.NONE
    assert replica.begin(2, 7 + EPOCH_LEAP_MAX).error is ErrorCode.INVALID_REQUEST
    replica.now_ms += 1
    assert replica.begin(2, 7 + EPOCH_LEAP_MAX).error is ErrorCode.NONE
    assert replica.begin(3, 7 + 2 * EPOCH_LEAP_MAX).error is ErrorCode.INVALID_REQUEST
    assert replica.begin(3, 6 + 2 * EPOCH_LEAP_MAX).error is ErrorCode.NONE


def test_a_replica_that_has_nothing_takes_any_epoch_from_an_answer_and_from_no_request() -> None:
    old = 5 * EPOCH_LEAP_MAX
    replica = Replica()
    assert replica.begin(2, old).error is ErrorCode.INVALID_REQUEST
    assert replica.view == ("Unattached", 0, -1)
    replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=3, epoch=old)
    assert replica.view == ("Follower", old, 3)
    assert replica.begin(2, old + EPOCH_LEAP_MAX + 1).error is ErrorCode.INVALID_REQUEST, "from then on as anybody"
    assert replica.begin(2, old + EPOCH_LEAP_MAX).error is ErrorCode.NONE


@pytest.mark.parametrize("known", [{"epoch": 1}, {"log": (((1, 0),), 1)}])
def test_a_replica_that_has_a_vote_or_a_record_is_not_new(known: dict[str, object]) -> None:
    replica = Replica(**known)  # type: ignore[arg-type]
    if replica.core.fetch_in_flight is None:
        replica.pass_until_role("Prospective")
        replica.answer_vote(2, granted=False, epoch=5 * EPOCH_LEAP_MAX, leader=3)
    else:
        replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=3, epoch=5 * EPOCH_LEAP_MAX)
    assert replica.core.epoch == 1
    assert len(refused(replica)) == 1


def test_a_restart_does_not_forget_where_the_epoch_was() -> None:
    replica = Replica.unattached(epoch=6 + EPOCH_LEAP_MAX, log=LOG)
    assert replica.begin(3, 6 + 2 * EPOCH_LEAP_MAX).error is ErrorCode.NONE
    assert replica.core.epoch == Epoch(6 + 2 * EPOCH_LEAP_MAX)
    assert replica.core.leader_id == NodeId(3)
