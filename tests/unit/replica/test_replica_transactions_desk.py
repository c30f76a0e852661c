"""Markers that another node asks for: one answer, whatever comes of each, and in time."""

from __future__ import annotations

from collections.abc import Callable

from enginekit import ORDERS, TWO, Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import AskedMarker, GroupId, MarkersReply, MarkersRpc, PeerReply
from raftlake.raft.types import Offset
from raftlake.replica.transactions.desk import ANSWER_MS, MarkerDesk
from raftlake.wire.control import EndMarker

E = ErrorCode
ASKED = tuple(
    AskedMarker(
        group=GroupId("orders", index, ORDERS.topic_id),
        marker=EndMarker(producer_id=10 + index, epoch=0, commit=True, coordinator_epoch=1),
        decided_at=Offset(5),
    )
    for index in range(3)
)


class World:
    def __init__(self, *at_once: ErrorCode) -> None:
        self.ground = Ground()
        self.at_once = list(at_once)
        self.waiting: list[Callable[[ErrorCode], None]] = []
        self.groups: list[GroupId] = []
        self.replies: list[PeerReply] = []
        MarkerDesk(self.ground.engine, self).receive(
            MarkersRpc(cluster_id=None, replica_id=TWO, markers=ASKED), self.replies.append
        )

    def write(self, group: GroupId, marker: EndMarker, decided_at: Offset, done: Callable[[ErrorCode], None]) -> None:
        assert (marker.producer_id, decided_at) == (10 + group.partition, 5)
        self.groups.append(group)
        if self.at_once:
            done(self.at_once.pop(0))
        else:
            self.waiting.append(done)


def test_all_are_asked_for_and_answered_in_their_order() -> None:
    world = World()
    assert world.groups == [asked.group for asked in ASKED]
    for index, error in ((2, E.NOT_LEADER_OR_FOLLOWER), (0, E.NONE)):
        world.waiting[index](error)
        assert world.replies == []
    world.waiting[1](E.LEADER_NOT_AVAILABLE)
    told = (E.NONE, E.LEADER_NOT_AVAILABLE, E.NOT_LEADER_OR_FOLLOWER)
    assert world.replies == [MarkersReply(error=E.NONE, errors=told)]
    world.ground.run(2 * ANSWER_MS)
    assert len(world.replies) == 1


def test_what_is_known_at_once_is_answered_at_once_and_once() -> None:
    world = World(E.NONE, E.NONE, E.NOT_LEADER_OR_FOLLOWER)
    assert [reply.errors for reply in world.replies if isinstance(reply, MarkersReply)] == [
        (E.NONE, E.NONE, E.NOT_LEADER_OR_FOLLOWER)
    ]
    world.ground.run(2 * ANSWER_MS)
    assert len(world.replies) == 1


def test_what_takes_long_does_not_keep_the_answer() -> None:
    world = World(E.NONE)
    world.ground.run(ANSWER_MS - 1)
    assert world.replies == []
    world.ground.run(1)
    assert world.replies == [MarkersReply(error=E.NONE, errors=(E.NONE, E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT))]
    for done in world.waiting:
        done(E.NONE)
    assert len(world.replies) == 1


def test_who_asks_for_nothing_is_answered() -> None:
    replies: list[PeerReply] = []
    ground = Ground()
    MarkerDesk(ground.engine, World()).receive(MarkersRpc(cluster_id=None, replica_id=TWO, markers=()), replies.append)
    assert replies == [MarkersReply(error=E.NONE)]
