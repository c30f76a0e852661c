"""The invariant about Fetch rounds of senders that have left the leader."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.invariants.left_leaders import LeftLeaders

ONE, TWO = GroupId("one", 0, b"1" * 16), GroupId("two", 0, b"2" * 16)
LEADER, SENDER = NodeId(1), NodeId(3)


def take(led: Mapping[GroupId, int], known: Mapping[GroupId, int]) -> None:
    view = ClusterView((LEADER, SENDER), lambda node_id, group: None, lambda node_id, group: None)
    LeftLeaders(view).on_round(LEADER, SENDER, led, known)


@pytest.mark.parametrize(
    "known",
    [
        {ONE: 4, TWO: 9},
        # It is late, or the sender hosts the group no longer.
        {ONE: 3, TWO: 9},
        {TWO: 9},
    ],
)
def test_a_round_of_a_follower_is_in_order(known: Mapping[GroupId, int]) -> None:
    take({ONE: 4}, known)


def test_a_round_that_counts_for_no_group_is_in_order() -> None:
    take({}, {ONE: 5})


def test_a_round_of_a_sender_that_was_in_a_later_epoch_is_told() -> None:
    """Simulator, seed 799001465."""
    with pytest.raises(Violation, match=r"node 1 leads two-0.* in epoch 4, and counts a round of node 3, which had epoch 5"):
        take({ONE: 4, TWO: 4}, {ONE: 4, TWO: 5})
