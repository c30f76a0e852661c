"""The coordinator alone, over keys whose commands the test commits: what it proposes, what waits, and what is answered when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginekit import Ground
from keyskit import Keys
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Delete, EndTxn, Txn
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.quorum import Quorum
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.replica.transactions import coordinator as module
from raftlake.replica.transactions.coordinator import HELD_PER_ID, HOLD_MS, Coordinator
from raftlake.replica.transactions.requests import AddPartitions, Answer, End, InitProducer, Request

E, S = ErrorCode, TransactionState
P0, P1 = (bytes(range(1, 17)), 0), (bytes(range(1, 17)), 1)
KEY = transaction_key("a")
EMPTY = Transaction(transactional_id="a", producer_id=10, epoch=0, timeout_ms=1000, state=S.EMPTY)
ONGOING = replace(EMPTY, state=S.ONGOING, partitions=frozenset({P0}))


class World:
    def __init__(self, **settings: object) -> None:
        self.ground = Ground(**settings)  # type: ignore[arg-type]
        self.keys = Keys(self.ground)
        self.next_ids: list[int | None] = []
        self.coordinator = Coordinator(
            self.ground.engine,
            kv=self.keys,  # type: ignore[arg-type]
            quorum=Quorum(self.ground.engine),
            take_id=lambda done: done(self.next_ids.pop(0)),
        )
        self.told: list[Answer] = []

    def submit(self, request: Request) -> list[Answer]:
        told: list[Answer] = []
        self.coordinator.submit(request, lambda answer: (told.append(answer), self.told.append(answer)))  # type: ignore[arg-type,func-returns-value]
        return told

    def lose(self) -> None:
        """This node leads the metadata log no more."""
        del self.ground.engine.partitions[METADATA_GROUP]

    def init(self, expected: tuple[int, int] | None = None) -> list[Answer]:
        return self.submit(InitProducer(transactional_id="a", timeout_ms=1000, expected=expected))

    def add(self, *partitions: tuple[bytes, int], epoch: int = 0) -> list[Answer]:
        return self.submit(AddPartitions(transactional_id="a", producer_id=10, epoch=epoch, partitions=frozenset(partitions)))

    def end(self, commit: bool = True, epoch: int = 0) -> list[Answer]:
        return self.submit(End(transactional_id="a", producer_id=10, epoch=epoch, commit=commit))

    def standing(self) -> str:
        found = self.keys.transaction("a")
        return "" if found is None else f"{found.state.value} {found.producer_id}/{found.epoch} {len(found.partitions)}"

    @property
    def lanes(self) -> int:
        return len(self.coordinator._lanes)


def errors(*answers: list[Answer]) -> list[ErrorCode]:
    return [answer.error for each in answers for answer in each]


def test_each_change_is_under_the_condition_that_nobody_else_made_one() -> None:
    world = World()
    world.next_ids = [10]
    told = world.init()
    assert told == []
    ((txn, _),) = world.keys.proposed
    assert txn.compares == (Compare(KEY, 0),)
    world.keys.commit()
    assert (told, world.standing()) == ([Answer(E.NONE, 10, 0)], "Empty 10/0 0")
    added = world.add(P0)
    ((txn, _),) = world.keys.proposed
    assert txn.compares == (Compare(KEY, world.keys.version("a")),)
    world.keys.commit()
    assert (errors(added), world.standing()) == ([E.NONE], "Ongoing 10/0 1")
    ended = world.end()
    assert [txn for txn, _ in world.keys.proposed] == [Txn((), (EndTxn(10, 0, True, retires_epoch=False),))]
    world.keys.commit()
    assert (errors(ended), world.standing(), world.lanes) == ([E.NONE], "PrepareCommit 10/0 1", 0)


def test_of_one_id_one_command_is_under_way_and_the_next_request_sees_what_it_did() -> None:
    world = World()
    world.keys.put(EMPTY)
    both, rival = [world.add(P0), world.add(P1)], world.init()
    assert len(world.keys.proposed) == 1
    while world.keys.proposed:
        world.keys.commit()
        assert len(world.keys.proposed) <= 1
    assert errors(*both) == [E.NONE, E.NONE]
    assert (rival, world.standing()) == ([], "PrepareAbort 10/1 2")


def test_a_request_over_which_another_change_came_first_is_judged_anew() -> None:
    world = World()
    world.keys.put(EMPTY)
    told = world.add(P0)
    world.keys.put(replace(EMPTY, epoch=1))
    world.keys.commit()
    assert (errors(told), world.keys.proposed) == ([E.PRODUCER_FENCED], [])
    told = world.add(P0, epoch=1)
    world.keys.put(replace(ONGOING, epoch=1, partitions=frozenset({P1})))
    world.keys.commit()
    assert errors(told) == []
    world.keys.commit()
    assert (errors(told), world.standing()) == ([E.NONE], "Ongoing 10/1 2")


def test_an_end_that_comes_after_the_time_is_over_is_refused() -> None:
    world = World()
    world.keys.put(ONGOING)
    told = world.end()
    world.keys.put(replace(ONGOING.decided(False), epoch=1))
    assert not world.keys.commit().succeeded
    assert (errors(told), world.standing()) == ([E.PRODUCER_FENCED], "PrepareAbort 10/1 1")


@pytest.mark.parametrize("error", [E.NONE, E.NOT_LEADER_OR_FOLLOWER])
def test_an_answer_without_a_change_waits_for_a_proof_that_the_keys_are_of_now(error: ErrorCode) -> None:
    world = World()
    world.keys.put(ONGOING)
    told = [world.add(P0), world.end(epoch=1)]
    assert (errors(*told), world.keys.proposed, len(world.keys.reads)) == ([], [], 2)
    world.keys.prove(error)
    expected = [E.NONE, E.PRODUCER_FENCED] if error is E.NONE else [E.COORDINATOR_NOT_AVAILABLE] * 2
    assert (errors(*told), world.lanes) == (expected, 0)


def test_what_is_found_while_the_proof_comes_is_what_counts() -> None:
    world = World()
    world.keys.put(EMPTY)
    told = world.end()
    world.keys.put(ONGOING)
    world.keys.prove()
    assert (told, len(world.keys.proposed)) == ([], 1)
    world.keys.commit()
    assert (errors(told), world.standing()) == ([E.NONE], "PrepareCommit 10/0 1")


@pytest.mark.parametrize(
    ("status", "reason", "is_passing", "error"),
    [
        (ProposeStatus.UNKNOWN, "", False, E.COORDINATOR_NOT_AVAILABLE),
        (ProposeStatus.NOT_LEADER, "", False, E.COORDINATOR_NOT_AVAILABLE),
        (ProposeStatus.REFUSED, "", False, E.COORDINATOR_NOT_AVAILABLE),
        (ProposeStatus.REFUSED, "disks are full", True, E.COORDINATOR_NOT_AVAILABLE),
        (ProposeStatus.REFUSED, "the key space is full", False, E.POLICY_VIOLATION),
    ],
)
def test_what_is_not_known_to_be_done_is_asked_again(
    status: ProposeStatus, reason: str, is_passing: bool, error: ErrorCode
) -> None:
    world = World()
    world.keys.put(EMPTY)
    told = world.add(P0)
    world.keys.fail(status, reason, is_passing=is_passing)
    assert errors(told) == [error]
    assert told[0].why == (reason if error is E.POLICY_VIOLATION else "")
    assert world.lanes == 0


def test_a_node_that_does_not_lead_or_has_not_applied_all_says_so() -> None:
    world = World()
    world.lose()
    assert (errors(world.init()), world.coordinator.epoch) == ([E.NOT_COORDINATOR], None)
    fresh = World()
    fresh.keys.machine._applied_offset = 0
    assert (errors(fresh.init()), fresh.coordinator.epoch) == ([E.COORDINATOR_LOAD_IN_PROGRESS], None)


def test_without_a_producer_id_there_is_no_producer_yet() -> None:
    world = World()
    world.next_ids = [None]
    assert errors(world.init()) == [E.COORDINATOR_LOAD_IN_PROGRESS]


def test_two_that_begin_at_once_get_one_id_and_two_epochs() -> None:
    world = World()
    world.next_ids = [10, 11]
    both = [world.init(), world.init()]
    while world.keys.proposed:
        world.keys.commit()
    assert [told for each in both for told in each] == [Answer(E.NONE, 10, 0), Answer(E.NONE, 10, 1)]


# --- what waits ---


def test_the_next_transaction_takes_the_place_of_complete() -> None:
    world = World()
    world.keys.put(ONGOING, replace(ONGOING, transactional_id="b", producer_id=11))
    world.end()
    world.keys.commit()
    version = world.keys.version("a")
    told = world.add(P1)
    assert (told, world.keys.proposed) == ([], [])
    world.coordinator.on_marked(KEY, version)
    ((txn, _),) = world.keys.proposed
    assert txn.compares == (Compare(KEY, version),)
    world.keys.commit()
    found = world.keys.transaction("a")
    assert found is not None
    assert (errors(told), found.state, found.partitions, found.ended.value) == ([E.NONE], S.ONGOING, {P1}, "commit")
    assert (world.keys.proposed, world.lanes) == ([], 0)


def test_without_anybody_who_waits_it_is_complete() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    world.coordinator.on_marked(KEY, world.keys.version("a"))
    world.keys.commit()
    assert (world.standing(), world.lanes) == ("CompleteCommit 10/0 0", 0)


def test_markers_of_an_older_decision_complete_nothing() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    version = world.keys.version("a")
    world.keys.put(ONGOING.decided(True).completed())
    world.keys.put(ONGOING)
    world.keys.put(ONGOING.decided(False))
    world.coordinator.on_marked(KEY, version)
    assert (world.keys.proposed, world.lanes) == ([], 0)
    world.keys.apply(Delete(KEY))
    world.coordinator.on_marked(KEY, version)
    assert (world.keys.proposed, world.lanes) == ([], 0)


def test_two_that_take_over_what_is_ongoing_wait_for_its_abort() -> None:
    world = World()
    world.keys.put(ONGOING)
    both = [world.init(), world.init()]
    world.keys.commit()
    assert (world.standing(), world.told) == ("PrepareAbort 10/1 1", [])
    world.coordinator.on_marked(KEY, world.keys.version("a"))
    while world.keys.proposed:
        world.keys.commit()
    assert [told for each in both for told in each] == [Answer(E.NONE, 10, 2), Answer(E.NONE, 10, 3)]
    assert world.standing() == "Empty 10/3 0"


def test_what_waits_too_long_is_to_come_again_and_no_sooner() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    told = [world.add(P1), world.init()]
    world.ground.run(HOLD_MS - 1)
    assert errors(*told) == []
    world.ground.run(1)
    assert (errors(*told), world.lanes) == ([E.CONCURRENT_TRANSACTIONS] * 2, 0)


def test_an_end_does_not_wait_behind_what_waits() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    waits, told = world.add(P1), world.end()
    world.keys.prove()
    assert (waits, errors(told)) == ([], [E.NONE])


def test_as_many_wait_as_may() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    told = [world.add(P1) for _ in range(HELD_PER_ID + 2)]
    assert errors(*told) == [E.CONCURRENT_TRANSACTIONS] * 2


def test_of_all_ids_as_many_wait_as_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_MAX", 3)
    world = World()
    decided = [replace(ONGOING.decided(True), transactional_id=f"id-{number}", producer_id=100 + number) for number in range(4)]
    world.keys.put(*decided)

    def wait(number: int) -> list[Answer]:
        return world.submit(
            AddPartitions(transactional_id=f"id-{number}", producer_id=100 + number, epoch=0, partitions=frozenset({P1}))
        )

    assert [errors(wait(number)) for number in range(4)] == [[], [], [], [E.CONCURRENT_TRANSACTIONS]]
    world.ground.run(HOLD_MS)
    assert errors(wait(3)) == []


def test_who_coordinates_no_more_lets_go_of_what_waits() -> None:
    world = World()
    world.keys.put(ONGOING.decided(True))
    told = world.add(P1)
    world.lose()
    world.coordinator.resign()
    assert (errors(told), world.lanes) == ([E.NOT_COORDINATOR], 0)


def test_a_full_set_of_ids_takes_no_new_one_and_serves_the_others() -> None:
    world = World(transactional_ids_max=1)
    world.keys.put(EMPTY)
    world.next_ids = [50]
    told = world.submit(InitProducer(transactional_id="b", timeout_ms=1000))
    assert errors(told) == [E.POLICY_VIOLATION]
    assert "transactional.ids.max" in told[0].why
    again = world.init()
    world.keys.commit()
    assert errors(again) == [E.NONE]


# --- ids that nobody uses ---


def test_an_id_is_forgotten_as_it_was_seen_and_not_while_it_is_used() -> None:
    world = World()
    world.keys.put(EMPTY)
    version = world.keys.version("a")
    world.keys.put(replace(EMPTY, epoch=1))
    world.coordinator.forget(KEY, version)
    assert not world.keys.commit().succeeded
    assert world.standing() == "Empty 10/1 0"
    told = world.add(P0, epoch=1)
    world.coordinator.forget(KEY, world.keys.version("a"))
    assert len(world.keys.proposed) == 1
    world.keys.commit()
    assert (errors(told), world.standing(), world.keys.proposed) == ([E.NONE], "Ongoing 10/1 1", [])
