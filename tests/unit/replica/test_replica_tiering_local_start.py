"""Where the logs of a partition begin at its voters: what each says, and who says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from enginekit import ME, ORDERS, TWO, Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import LocalStartRpc, OffsetReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.tiering.local_start import LocalStarts, ask_local_starts

THREE = NodeId(3)
FAILED = next(iter(FailureReason))


def begins_at(offset: int) -> OffsetReply:
    return OffsetReply(error=ErrorCode.NONE, position=OffsetAndEpoch(Offset(offset), Epoch(3)))


class World:
    """This node has the log from 3 on."""

    def __init__(self, *voters: NodeId) -> None:
        self.ground, self.told = Ground(), list[LocalStarts]()
        partition = self.ground.lead(ORDERS)
        self.ground.append(partition, b"x", b"x")
        partition.roll()
        partition.log.advance_start(Offset(3))
        ask_local_starts(self.ground.engine, ORDERS, voters, self.told.append)

    def answer(self, node_id: NodeId, reply: Any) -> None:
        (done,) = (done for peer, _, done in self.ground.wires.sent if peer == node_id)
        done(reply)


def test_a_lone_voter_looks_into_its_own_log() -> None:
    world = World(ME)
    assert world.told == [LocalStarts(Offset(3))] and world.ground.wires.sent == []


@pytest.mark.parametrize(("two", "three", "last"), [(9, 4, 9), (4, 9, 9), (2, 1, 3)])
def test_the_last_start_counts_whoever_has_it(two: int, three: int, last: int) -> None:
    world = World(ME, TWO, THREE)
    asked = LocalStartRpc(group=ORDERS, replica_id=ME, leader_epoch=Epoch(-1), timestamp=-4)
    assert [(peer, rpc) for peer, rpc, _ in world.ground.wires.sent] == [(TWO, asked), (THREE, asked)]
    world.answer(THREE, begins_at(three))
    assert world.told == []
    world.answer(TWO, begins_at(two))
    assert world.told == [LocalStarts(Offset(last))]


def test_those_who_tell_nothing_are_named() -> None:
    world = World(ME, TWO, THREE)
    world.answer(THREE, FAILED)
    world.answer(TWO, OffsetReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    silent = f"node 2 (NOT_LEADER_OR_FOLLOWER), node 3 ({FAILED.value})"
    assert world.told == [LocalStarts(Offset(3), silent)]


def test_a_node_without_the_log_or_without_voters_says_so() -> None:
    ground, told = Ground(), list[LocalStarts]()
    ask_local_starts(ground.engine, ORDERS, [ME], told.append)
    ask_local_starts(ground.engine, ORDERS, [], told.append)
    assert [each.last for each in told] == [0, 0]
    assert "no such log" in told[0].silent and "no voters" in told[1].silent
