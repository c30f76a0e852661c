"""Partitions that leaders add, alone: what is proposed on a node that does not coordinate, what goes together, what waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginekit import Ground
from keyskit import Keys
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.quorum import Quorum
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.replica.transactions.additions import Additions
from raftlake.replica.transactions.coordinator import HOLD_MS, Coordinator
from raftlake.replica.transactions.requests import DONE, FENCED, UNMAPPED, Answer

E, S = ErrorCode, TransactionState
TOPIC = bytes(range(1, 17))
P0, P1, P2 = (TOPIC, 0), (TOPIC, 1), (TOPIC, 2)
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=3, timeout_ms=1000, state=S.EMPTY)
ME = ("a", 10, 3)


class World:
    def __init__(self, *, coordinates: bool = False) -> None:
        self.ground = Ground()
        self.keys = Keys(self.ground)
        coordinator = Coordinator(
            self.ground.engine,
            kv=self.keys,  # type: ignore[arg-type]
            quorum=Quorum(self.ground.engine),
            take_id=lambda done: done(None),
        )
        self.additions = Additions(self.ground.engine, kv=self.keys, coordinator=coordinator)  # type: ignore[arg-type]
        if not coordinates:
            del self.ground.engine.partitions[METADATA_GROUP]

    def add(self, *partitions: tuple[bytes, int], producer: tuple[str, int, int] = ME) -> list[Answer]:
        """What is told of each appears in the list. The turn is over then."""
        told: list[Answer] = []
        for part in partitions:
            self.additions.add(producer, part, told.append)
        self.later(0)
        return told

    def later(self, ms: int) -> None:
        self.ground.time.ms += ms
        self.ground.engine.begin_input()
        self.ground.engine.timers.run_due(self.ground.engine.now_ms)

    def partitions(self) -> set[tuple[bytes, int]]:
        found = self.keys.transaction("a")
        assert found is not None
        return set(found.partitions)


@pytest.fixture
def world() -> World:
    found = World()
    found.keys.put(EMPTY)
    return found


@pytest.mark.parametrize("coordinates", [True, False])
def test_what_comes_in_one_turn_is_one_command_under_the_condition_that_nothing_changed(coordinates: bool) -> None:
    world = World(coordinates=coordinates)
    world.keys.put(EMPTY)
    told = world.add(P0, P1)
    ((txn, _),) = world.keys.proposed
    assert txn.compares == (Compare(transaction_key("a"), world.keys.version("a")),)
    assert told == []
    world.keys.commit()
    assert (told, world.partitions(), len(world.additions)) == ([DONE, DONE], {P0, P1}, 0)


def test_what_comes_meanwhile_goes_together_afterwards(world: World) -> None:
    first, second, third = world.add(P0), world.add(P1), world.add(P2)
    assert len(world.keys.proposed) == 1
    world.keys.commit()
    assert (first, second, third, len(world.keys.proposed)) == ([DONE], [], [], 1)
    world.keys.commit()
    assert (second, third, world.partitions()) == ([DONE], [DONE], {P0, P1, P2})


def test_where_another_change_came_first_it_is_judged_anew(world: World) -> None:
    told = world.add(P0)
    world.keys.put(replace(EMPTY, state=S.ONGOING, partitions=frozenset({P2}), started_ms=1))
    assert not world.keys.commit().succeeded
    assert told == []
    assert world.keys.commit().succeeded
    assert (told, world.partitions()) == ([DONE], {P0, P2})


@pytest.mark.parametrize(
    ("producer", "answer", "words"),
    [
        (("a", 10, 2), FENCED, "producer 10 has epoch 2, the newest is 3"),
        (("a", 11, 3), UNMAPPED, "the transactional id has producer 10, not 11"),
        (("nobody", 10, 3), UNMAPPED, "the transactional id is not known"),
    ],
)
def test_a_refusal_rests_on_keys_as_of_now_and_says_why(
    world: World, producer: tuple[str, int, int], answer: Answer, words: str
) -> None:
    told = world.add(P0, producer=producer)
    assert (told, world.keys.proposed) == ([], [])
    world.keys.prove()
    (refused,) = told
    assert (replace(refused, why=""), len(world.additions)) == (answer, 0)
    assert refused.why.startswith(words)


def test_keys_that_cannot_be_read_say_nothing(world: World) -> None:
    told = world.add(P0, producer=("a", 10, 2))
    world.keys.prove(E.NOT_LEADER_OR_FOLLOWER)
    assert told == [Answer(E.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize("status", [ProposeStatus.UNKNOWN, ProposeStatus.NOT_LEADER])
def test_a_command_without_an_outcome_is_to_come_again(world: World, status: ProposeStatus) -> None:
    told = world.add(P0)
    world.keys.fail(status)
    assert told == [Answer(E.COORDINATOR_NOT_AVAILABLE)]
    again = world.add(P0)
    world.keys.commit()
    assert again == [DONE]


def test_it_waits_for_the_transaction_before(world: World) -> None:
    before = replace(EMPTY, state=S.ONGOING, epoch=2, partitions=frozenset({P1}), started_ms=1).raised(True)
    world = World()
    world.keys.put(before)
    told = world.add(P0)
    world.later(HOLD_MS - 1)
    assert (told, world.keys.proposed) == ([], [])
    world.keys.put(before.completed())
    # The wait is over, and the command takes its time.
    world.later(HOLD_MS)
    assert told == []
    world.keys.commit()
    assert (told, world.partitions(), len(world.additions)) == ([DONE], {P0}, 0)


def test_it_waits_so_long_and_no_longer(world: World) -> None:
    before = replace(EMPTY, state=S.ONGOING, epoch=2, partitions=frozenset({P1}), started_ms=1).raised(False)
    world = World()
    world.keys.put(before)
    told = world.add(P0)
    world.later(HOLD_MS)
    assert (told, len(world.additions)) == ([Answer(E.CONCURRENT_TRANSACTIONS)], 0)
    world.keys.put(before.completed())
    assert world.keys.proposed == []
