"""Markers on their way, over an engine whose time and network the test moves: to whom, how often, and until when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from enginekit import ORDERS, THREE, TWO, Ground
from keyskit import Keys
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete
from raftlake.kv.keys import topic_key
from raftlake.ports.peer_rpcs import AskedMarker, GroupId, MarkersReply, MarkersRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.names import Names
from raftlake.replica.reserved import Topic
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.replica.transactions import delivery as module
from raftlake.replica.transactions.delivery import RETRY_MS_MAX, RETRY_MS_MIN, MarkerDelivery
from raftlake.wire.control import EndMarker

E, S = ErrorCode, TransactionState
GROUPS = [GroupId("orders", index, ORDERS.topic_id) for index in range(4)]
ONGOING = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.ONGOING)
MARKER = EndMarker(producer_id=10, epoch=3, commit=True, coordinator_epoch=7)


class Written:
    """The partitions that this node leads."""

    def __init__(self) -> None:
        self.asked: list[tuple[GroupId, EndMarker, Offset, Callable[[ErrorCode], None]]] = []

    def write(self, group: GroupId, marker: EndMarker, decided_at: Offset, done: Callable[[ErrorCode], None]) -> None:
        self.asked.append((group, marker, decided_at, done))

    def answer(self, error: ErrorCode = E.NONE) -> None:
        asked, self.asked = self.asked, []
        for *_, done in asked:
            done(error)


class World:
    """Node 1 leads partition 0 and 1, node 2 partition 2; partition 3 has no leader."""

    def __init__(self) -> None:
        self.ground = Ground()
        self.keys = Keys(self.ground)
        topic = Topic("orders", ORDERS.topic_id, 4)
        self.keys.apply(_put_topic(topic))
        names = Names(self.ground.engine.config)
        names.add(topic)
        leaders = [NodeId(1), NodeId(1), TWO, NodeId(-1)]
        for group, leader_id in zip(GROUPS, leaders, strict=True):
            self.lead(group, leader_id)
        self.markers, self.marked = Written(), list[tuple[str, int]]()
        self.delivery = MarkerDelivery(
            self.ground.engine,
            state=self.keys.state,
            names=names,
            markers=self.markers,
            on_marked=lambda key, version: self.marked.append((key, version)),
        )

    def lead(self, group: GroupId, leader_id: NodeId) -> None:
        core = type("Core", (), {"leader_id": leader_id, "is_leader": leader_id == NodeId(1)})()
        self.ground.engine.partitions[group] = type("Led", (), {"core": core})()  # type: ignore[assignment]

    def decide(self, *indexes: int, name: str = "a", producer_id: int = 10, commit: bool = True) -> int:
        """A transaction over these partitions is decided, and looked at; the version of that."""
        parts = frozenset((ORDERS.topic_id, index) for index in indexes)
        ongoing = replace(ONGOING, transactional_id=name, producer_id=producer_id, partitions=parts)
        self.keys.put(ongoing)
        self.keys.put(ongoing.decided(commit))
        self.look(name)
        return self.keys.version(name)

    def look(self, name: str = "a") -> None:
        self.delivery.look(transaction_key(name), self.keys.version(name), self.keys.transaction(name), 7)
        self.delivery.pump()

    @property
    def sent(self) -> list[tuple[NodeId, MarkersRpc, Any]]:
        return self.ground.wires.sent  # type: ignore[return-value]

    def reply(self, *errors: ErrorCode | FailureReason) -> None:
        """The first request is answered."""
        _, _, done = self.sent.pop(0)
        done(errors[0] if isinstance(errors[0], FailureReason) else MarkersReply(error=E.NONE, errors=errors))  # type: ignore[arg-type]
        self.ground.run(1)


def _put_topic(topic: Topic) -> Any:
    from raftlake.kv.commands import Put

    return Put(topic_key(topic.name), topic.encode())


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    world = World()
    version = world.decide(0, 1, 2)
    assert [(group, marker, at) for group, marker, at, _ in world.markers.asked] == [
        (GROUPS[0], MARKER, version + 1),
        (GROUPS[1], MARKER, version + 1),
    ]
    ((peer, rpc, _),) = world.sent
    assert (peer, rpc.replica_id) == (TWO, 1)
    assert rpc.markers == (AskedMarker(group=GROUPS[2], marker=MARKER, decided_at=Offset(version + 1)),)
    world.markers.answer()
    assert world.marked == []
    assert world.delivery.missing(transaction_key("a"), ONGOING) == {(ORDERS.topic_id, 2)}
    world.reply(E.NONE)
    assert world.marked == [(transaction_key("a"), version)]


def test_an_abort_says_so_and_a_transaction_without_partitions_needs_no_marker() -> None:
    world = World()
    world.decide(0, commit=False)
    assert [marker.commit for _, marker, _, _ in world.markers.asked] == [False]
    version = world.decide(name="b", producer_id=11)
    assert world.marked == [(transaction_key("b"), version)]


@pytest.mark.parametrize(
    "answer",
    [
        (E.NOT_LEADER_OR_FOLLOWER,),
        (E.REQUEST_TIMED_OUT,),
        (FailureReason.DISCONNECTED,),
        (E.NONE, E.NONE),
        (),
    ],
)
def test_what_is_not_known_to_be_written_is_asked_again_where_its_leader_is_then(answer: tuple[Any, ...]) -> None:
    world = World()
    world.decide(2)
    world.reply(*(answer or (E.UNKNOWN_TOPIC_OR_PARTITION,)))
    assert (world.sent, world.marked) == ([], [])
    world.lead(GROUPS[2], THREE)
    world.ground.run(RETRY_MS_MIN)
    assert [peer for peer, _, _ in world.sent] == [THREE]
    world.reply(E.NONE)
    assert len(world.marked) == 1


def test_tries_get_rarer_and_never_end() -> None:
    world = World()
    world.decide(0, 3)
    tries: list[int] = []
    for _ in range(3 * RETRY_MS_MAX):
        if world.markers.asked:
            tries.append(world.ground.time.ms)
            world.markers.answer(E.LEADER_NOT_AVAILABLE)
        world.ground.run(1)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:5] == [RETRY_MS_MIN * 2**number for number in range(5)]
    assert set(pauses[5:]) == {RETRY_MS_MAX}
    world.lead(GROUPS[3], NodeId(1))
    world.ground.run(RETRY_MS_MAX)
    world.markers.answer()
    assert len(world.marked) == 1


@pytest.mark.parametrize("is_under_way", [True, False])
def test_a_partition_that_is_deleted_has_nothing_to_end(is_under_way: bool) -> None:
    world = World()
    if is_under_way:
        version = world.decide(0)
        world.keys.apply(Delete(topic_key("orders")))
        world.markers.answer(E.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        world.keys.apply(Delete(topic_key("orders")))
        version = world.decide(0, 2)
    assert world.marked == [(transaction_key("a"), version)]
    assert world.sent == []


def test_looking_again_sends_nothing_twice_and_tells_again_what_is_all_there() -> None:
    world = World()
    world.decide(0)
    for _ in range(3):
        world.look()
    assert (len(world.markers.asked), world.marked) == (1, [])
    world.markers.answer()
    world.look()
    assert len(world.marked) == 2
    assert world.markers.asked == []


def test_a_decision_that_is_over_is_forgotten_and_late_answers_say_nothing() -> None:
    world = World()
    world.decide(0, 2)
    found = world.keys.transaction("a")
    assert found is not None
    world.keys.put(found.completed())
    world.look()
    assert len(world.delivery) == 0
    late = world.markers.asked
    version = world.decide(0, 2)
    world.markers.asked = [each for each in world.markers.asked if each not in late]
    for *_, done in late:
        done(E.NONE)
    world.reply(E.NONE)
    assert world.marked == []
    world.reply(E.NONE)
    world.markers.answer()
    assert world.marked == [(transaction_key("a"), version)]


def test_who_coordinates_no_more_sends_no_more() -> None:
    world = World()
    world.decide(0, 2)
    world.delivery.drop_all()
    world.markers.answer(E.NOT_LEADER_OR_FOLLOWER)
    world.reply(E.NOT_LEADER_OR_FOLLOWER)
    world.ground.run(5_000)
    assert (world.sent, world.markers.asked, world.marked, len(world.delivery)) == ([], [], [], 0)


def test_so_many_are_under_way_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENT_MAX", 5)
    monkeypatch.setattr(module, "SENT_TOGETHER", 2)
    world = World()
    for number in range(9):
        world.keys.put(
            replace(
                ONGOING.decided(True),
                transactional_id=f"id-{number}",
                producer_id=100 + number,
                partitions=frozenset({(ORDERS.topic_id, 2)}),
            )
        )
    for number in range(9):
        key = transaction_key(f"id-{number}")
        world.delivery.look(key, world.keys.version(f"id-{number}"), world.keys.transaction(f"id-{number}"), 7)
    world.delivery.pump()
    assert [len(rpc.markers) for _, rpc, _ in world.sent] == [2, 2, 1]
    world.reply(E.NONE, E.NONE)
    assert [len(rpc.markers) for _, rpc, _ in world.sent] == [2, 1, 2]
    while world.sent:
        world.reply(*[E.NONE] * len(world.sent[0][1].markers))
    assert len(world.marked) == 9
