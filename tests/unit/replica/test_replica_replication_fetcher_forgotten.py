"""What a follower tells a peer of groups that it fetches there no longer, and what groups that lost a peer hear of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey
from raftlake.replica.replication.fetcher import PeerFetcher

LEFT, KEPT = GroupId("left", 0, b"l" * 16), GroupId("kept", 0, b"k" * 16)


def request(epoch: int) -> FetchRequest:
    return FetchRequest(
        replica=ReplicaKey(NodeId(3)),
        leader_epoch=Epoch(epoch),
        fetch_offset=Offset(5),
        last_fetched_epoch=Epoch(1),
        high_watermark=Offset(5),
    )


class Rounds:
    """A fetcher, and the rounds that it sends."""

    def __init__(self) -> None:
        self.sent: list[tuple[FetchRpc, Callable[[FetchReply], None]]] = []
        #: Who was told that the peer leads on; those who do not believe it, and who does not hear the peer.
        self.told: list[GroupId] = []
        self.doubting: set[GroupId] = set()
        self.cores = {group: SimpleNamespace(hears_leader=True) for group in (LEFT, KEPT)}
        engine: Any = SimpleNamespace(
            begin_input=lambda: None,
            network=SimpleNamespace(send=lambda peer, rpc, done: self.sent.append((rpc, done))),
            config=SimpleNamespace(node_id=NodeId(3), replica_fetch_wait_ms=500, replica_fetch_bytes_max=1),
            cluster_id=None,
            now_ms=0,
            partitions={group: SimpleNamespace(group=group, core=core) for group, core in self.cores.items()},
            step=lambda partition, event: self.tell(partition.group),
        )
        disk: Any = SimpleNamespace(is_low=False)
        self.fetcher = PeerFetcher(engine, disk, NodeId(1), lambda fetcher: None, lambda peer, report: None)

    def tell(self, group: GroupId) -> None:
        self.told.append(group)
        self.cores[group].hears_leader = group not in self.doubting

    def lose(self, group: GroupId) -> None:
        self.cores[group].hears_leader = False
        self.fetcher.lose(group)

    def round(self) -> tuple[list[GroupId], list[GroupId]]:
        """Sends the next round: the groups that it lists, and those that it forgets. The answer brings nothing."""
        self.fetcher.send_round()
        rpc, done = self.sent.pop()
        done(FetchReply(error=ErrorCode.NONE, session_id=7, messages=()))
        return [message.group for message in rpc.messages], list(rpc.forgotten)


@pytest.fixture
def rounds() -> Rounds:
    rounds = Rounds()
    for group in (LEFT, KEPT):
        rounds.fetcher.want(group, request(1))
    assert rounds.round() == ([LEFT, KEPT], [])
    return rounds


def test_a_group_that_is_left_is_forgotten_with_the_next_round(rounds: Rounds) -> None:
    rounds.fetcher.forget(LEFT)
    assert rounds.round() == ([], [LEFT])
    assert rounds.round() == ([], []), "it is told once"


def test_a_group_that_was_wanted_for_a_moment_is_forgotten_all_the_same(rounds: Rounds) -> None:
    """Simulator, seed 799001465: a voter left a leader, wanted to ask it in the next epoch, and heard of the new leader before
    it did. The peer was never told: it counted each later round as one of a follower, and answered a linearizable read."""
    rounds.fetcher.forget(LEFT)
    rounds.fetcher.want(LEFT, request(2))
    rounds.fetcher.forget(LEFT)
    assert rounds.round() == ([], [LEFT])


def test_a_group_that_is_wanted_again_takes_the_place_of_what_the_peer_holds(rounds: Rounds) -> None:
    rounds.fetcher.forget(LEFT)
    rounds.fetcher.want(LEFT, request(2))
    assert rounds.round() == ([LEFT], [])
    rounds.fetcher.forget(LEFT)
    assert rounds.round() == ([], [LEFT])


def test_groups_that_lost_the_peer_hear_of_it_with_its_next_answer_once(rounds: Rounds) -> None:
    for group in (LEFT, KEPT):
        rounds.lose(group)
    assert rounds.told == []
    rounds.round()
    assert rounds.told == [LEFT, KEPT]
    rounds.round()
    assert rounds.told == [LEFT, KEPT]


def test_a_group_that_lost_the_peer_and_asks_anew_hears_of_it_with_the_answer_to_that_round(rounds: Rounds) -> None:
    rounds.lose(LEFT)
    rounds.fetcher.send_round()
    rounds.fetcher.want(LEFT, request(1))
    _, done = rounds.sent.pop()
    done(FetchReply(error=ErrorCode.NONE, session_id=7, messages=()))
    assert rounds.told == [], "that round was sent before the question"
    rounds.round()
    assert rounds.told == [LEFT]


def test_a_group_that_lost_the_peer_and_left_it_is_told_nothing_until_it_comes_back(rounds: Rounds) -> None:
    """Simulator, seed 1130016276: an observer lost a connection, asked another voter, and came back to the same leader in the
    same epoch. The leader was not confirmed until the next record."""
    rounds.lose(LEFT)
    rounds.fetcher.forget(LEFT)
    rounds.round()
    assert rounds.told == []
    rounds.fetcher.want(LEFT, request(1))
    rounds.round()
    assert rounds.told == [LEFT]
    rounds.round()
    assert rounds.told == [LEFT]


def test_a_group_that_does_not_believe_an_answer_hears_of_the_peer_again(rounds: Rounds) -> None:
    """The connection was lost in the millisecond of the answer."""
    rounds.doubting.add(LEFT)
    for group in (LEFT, KEPT):
        rounds.lose(group)
    rounds.round()
    assert rounds.told == [LEFT, KEPT]
    rounds.doubting.clear()
    rounds.round()
    assert rounds.told == [LEFT, KEPT, LEFT]
    rounds.round()
    assert rounds.told == [LEFT, KEPT, LEFT]


def test_a_group_that_has_heard_of_its_leader_meanwhile_is_told_nothing(rounds: Rounds) -> None:
    rounds.lose(LEFT)
    rounds.cores[LEFT].hears_leader = True
    rounds.round()
    assert rounds.told == []
    rounds.cores[LEFT].hears_leader = False
    rounds.round()
    assert rounds.told == [], "it asks anew when it has lost a leader again"
