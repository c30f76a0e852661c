"""Where the log of a partition begins at its leader: this node, another one, or nobody who says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ME, ORDERS, TWO, Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import LocalStartRpc, OffsetReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, Epoch, Offset, OffsetAndEpoch
from raftlake.replica.tiering.local_start import ask_local_start


def ask(ground: Ground, told: list[Offset | str]) -> None:
    ask_local_start(ground.engine, ORDERS, told.append)


def follower(leader_id: int) -> Ground:
    ground = Ground()
    core = SimpleNamespace(is_leader=False, leader_id=leader_id, epoch=Epoch(7))
    partition: Any = SimpleNamespace(core=core)
    ground.engine.partitions[ORDERS] = partition
    return ground


def test_a_leader_looks_into_its_own_log() -> None:
    ground, told = Ground(), []  # type: tuple[Ground, list[Offset | str]]
    partition = ground.lead(ORDERS)
    ground.append(partition, b"x", b"x")
    partition.roll()
    partition.log.advance_start(Offset(3))
    ask(ground, told)
    assert told == [3] and ground.wires.sent == []


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (OffsetReply(error=ErrorCode.NONE, position=OffsetAndEpoch(Offset(9), Epoch(3))), 9),
        (OffsetReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), "node 2: NOT_LEADER_OR_FOLLOWER"),
        (next(iter(FailureReason)), f"node 2: {next(iter(FailureReason)).value}"),
    ],
)
def test_a_follower_asks_its_leader(reply: Any, answer: Offset | str) -> None:
    ground, told = follower(TWO), []  # type: tuple[Ground, list[Offset | str]]
    ask(ground, told)
    ((peer, rpc, done),) = ground.wires.sent
    assert (peer, rpc, told) == (TWO, LocalStartRpc(group=ORDERS, replica_id=ME, leader_epoch=Epoch(7), timestamp=-4), [])
    done(reply)
    assert told == [answer]


def test_without_a_leader_nobody_says() -> None:
    for ground in (Ground(), follower(NO_LEADER)):
        told: list[Offset | str] = []
        ask(ground, told)
        assert told == ["this node knows no leader of it"] and ground.wires.sent == []
