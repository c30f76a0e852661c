"""The facade: dispatch, the read-only view, and what DescribeQuorum and OffsetForLeaderEpoch are told."""

from __future__ import annotations

import typing

import pytest

from raftkit.replica import Replica, batch, position
from raftlake.errors import InvariantViolation, require
from raftlake.raft import core
from raftlake.raft.actions import Action
from raftlake.raft.events import Event
from raftlake.raft.invariants import check
from raftlake.raft.messages import FetchRequest, Request
from raftlake.raft.roles import Leader
from raftlake.raft.types import Epoch, NodeId, Offset

LOG = (((1, 0), (3, 5)), 9)


def test_every_event_has_a_handler() -> None:
    assert set(core.HANDLERS) == set(typing.get_args(Event))


def test_every_request_has_a_handler_for_its_answer_and_its_failure() -> None:
    requests = set(typing.get_args(Request))
    assert set(core.RESPONSE_HANDLERS) == set(core.FAILURE_HANDLERS) == requests
    # A Fetch comes with its causal clock, as an event of its own.
    assert requests - set(core.REQUEST_HANDLERS) == {FetchRequest}


def test_the_view_of_a_leader() -> None:
    group = Replica.leader(epoch=6, log=LOG).core
    assert (group.role_name, group.epoch, group.leader_id, group.is_leader, group.is_voter) == ("Leader", 6, 1, True, True)
    assert (group.log_start, group.log_end, group.flushed_end, group.high_watermark) == (0, 10, 10, 0)
    assert (group.epoch_start_offset, group.log_generation, group.is_serving_leader) == (9, 0, False)
    assert isinstance(group.role, Leader)
    assert group.role.pending_reads == []


def test_leadership_ends_in_the_view_at_once() -> None:
    replica = Replica.leader(epoch=6)
    replica.commit_epoch_start()
    replica.begin(2, 7)
    group = replica.core
    assert (group.is_leader, group.is_serving_leader, group.leader_id) == (False, False, 2)


def test_only_a_leader_knows_its_replicas() -> None:
    for role in ("Unattached", "Follower", "Prospective", "Candidate", "Resigned"):
        assert Replica.in_role(role).core.replica_progress() == ()


def test_what_describe_quorum_is_told() -> None:
    """As Kafka's tool needs it: the leader's own times are -1 and now; now is the driver's to say."""
    replica = Replica.leader(epoch=6, log=LOG, local=2, voters=(3, 1, 2))
    replica.now_ms = 20_000
    replica.fetch(3, 10, 6)
    replica.fetch(9, 9, 3)
    replica.fetch(7, 10, 6)
    lines = [
        (status.key.id, status.log_end, status.last_fetch_ms, status.last_caught_up_ms, status.is_voter)
        for status in replica.core.replica_progress()
    ]
    assert lines == [
        (1, -1, -1, -1, True),
        (2, 10, -1, -1, True),
        (3, 10, 20_000, 20_000, True),
        (7, 10, 20_000, 20_000, False),
        (9, 9, 20_000, -1, False),
    ]


@pytest.mark.parametrize(
    ("epoch", "end"), [(0, (-1, -1)), (1, (5, 1)), (2, (5, 1)), (3, (9, 3)), (5, (9, 3)), (6, (10, 6)), (7, (-1, -1))]
)
def test_the_end_of_an_epoch(epoch: int, end: tuple[int, int]) -> None:
    assert Replica.leader(epoch=6, log=LOG).core.epoch_end(Epoch(epoch)) == position(*end)


def test_the_end_of_the_current_epoch_before_its_first_record_came() -> None:
    assert Replica.follower(epoch=6, log=LOG).core.epoch_end(Epoch(6)) == position(9, 3)
    assert Replica(epoch=6).core.epoch_end(Epoch(6)) == position(-1, -1)


def test_a_leader_has_caught_up_once_its_own_epoch_is_applied() -> None:
    group = Replica.leader(epoch=6, log=LOG).core
    assert [group.has_caught_up(Offset(offset)) for offset in (8, 9, 10)] == [False, False, True]


def test_a_follower_has_caught_up_with_all_that_its_leader_spoke_of() -> None:
    """Not with what it has of it, and not with what an older epoch's leader said."""
    replica = Replica.follower(epoch=3, log=LOG)
    assert not replica.core.has_caught_up(Offset(9)), "nothing was said yet"
    replica.answer_fetch(high_watermark=12)
    assert not replica.core.has_caught_up(Offset(9)), "the leader has more"
    replica.answer_fetch(batch(9, 12, 3), high_watermark=12)
    assert replica.core.has_caught_up(Offset(12)) and not replica.core.has_caught_up(Offset(11))
    replica.begin(3, 4)
    assert not replica.core.has_caught_up(Offset(12)), "a new leader may not know yet what is committed"


def test_a_follower_that_stays_behind_its_leader_has_caught_up_with_what_was_committed_when_it_started() -> None:
    replica = Replica.follower(epoch=3, log=LOG)
    replica.answer_fetch(high_watermark=-1)
    assert not replica.core.has_caught_up(Offset(9)), "the leader does not know yet what is committed"
    for begin, end, told in ((9, 12, 14), (12, 14, 17), (14, 16, 20)):
        replica.answer_fetch(batch(begin, end, 3), high_watermark=told)
        replica.flush()
    assert [replica.core.has_caught_up(Offset(offset)) for offset in (13, 14, 16)] == [False, True, True]
    replica.begin(3, 4)
    replica.answer_fetch(batch(16, 18, 4), high_watermark=-1)
    replica.flush()
    assert not replica.core.has_caught_up(Offset(18)), "what the leader before spoke of is not enough"
    replica.answer_fetch(high_watermark=18)
    assert replica.core.has_caught_up(Offset(18)) and not replica.core.has_caught_up(Offset(17))


def test_each_step_hands_out_a_list_of_its_own() -> None:
    replica = Replica.follower(epoch=6)
    first = replica.answer_fetch(high_watermark=0)
    second = replica.answer_fetch(high_watermark=0)
    assert first is not second
    assert all(isinstance(action, typing.get_args(Action)) for action in first + second)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_events_give_the_same_actions(seed: int) -> None:
    def actions() -> list[object]:
        replica = Replica.follower(epoch=6, seed=seed)
        taken: list[object] = list(replica.pass_time(20_000))
        replica.begin(3, 9)
        taken += replica.actions
        taken += replica.pass_time(20_000)
        return taken

    assert actions() == actions()


# --- invariants -----------------------------------------------------------------------------------------------------


def test_require_says_what_is_wrong() -> None:
    require(True, "never read")
    with pytest.raises(InvariantViolation, match="the sky fell"):
        require(False, "the sky fell")


@pytest.mark.parametrize(
    ("name", "value"),
    [("high_watermark", 10), ("high_watermark", -1), ("flushed_end", 10), ("log_start", 1), ("epoch", 2), ("log_end", -1)],
)
def test_a_step_that_leaves_nonsense_stops_the_node(name: str, value: int) -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    setattr(replica.core, name, value)
    with pytest.raises(InvariantViolation, match="replica 1 in epoch"):
        check(replica.core)


def test_each_step_is_checked() -> None:
    replica = Replica.follower(epoch=6, log=LOG)
    replica.core.high_watermark = Offset(99)
    with pytest.raises(InvariantViolation):
        replica.begin(NodeId(3), 7)
