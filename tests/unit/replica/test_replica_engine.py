"""The ground of a node alone: cores are stepped and marked, turns are asked for once, deadlines strike in time."""

from __future__ import annotations

from enginekit import ORDERS, TWO, Ground
from raftlake.errors import InvariantViolation, StorageError
from raftlake.raft import actions as do
from raftlake.raft.events import DeadlineReached, Event
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.partition import Partition


def test_a_step_gathers_actions_marks_the_group_and_asks_for_one_turn() -> None:
    ground = Ground()
    first, second = ground.host(), ground.host(ORDERS)
    assert ground.turns == 1, "two groups were stepped"
    assert first.outbox and second.outbox
    assert ground.engine.take_dirty() == {METADATA_GROUP: first, ORDERS: second}
    assert ground.engine.take_dirty() == {}


def test_during_a_turn_nothing_asks_for_one_and_behind_it_everything_does() -> None:
    ground = Ground()
    partition = ground.host()
    ground.engine.begin_turn()
    ground.engine.mark_appending(partition)
    assert ground.turns == 1 and ground.engine.to_append
    ground.engine.end_turn()
    ground.engine.mark_dirty(partition)
    assert ground.turns == 2
    assert list(ground.engine.take_appending()) == [METADATA_GROUP]
    assert not ground.engine.to_append and ground.engine.has_marked


def test_a_closed_group_is_marked_no_longer_and_all_are_told_in_order() -> None:
    ground = Ground()
    partition, told = ground.host(), []
    ground.engine.closed += [lambda gone: told.append(("first", gone)), lambda gone: told.append(("second", gone))]
    ground.engine.mark_appending(partition)
    ground.engine.forget(partition)
    assert told == [("first", partition), ("second", partition)]
    assert not ground.engine.has_marked and partition.outbox == []


def test_the_first_error_stays() -> None:
    ground = Ground()
    first = StorageError("the disk")
    ground.engine.fail(first)
    ground.engine.fail(InvariantViolation("what came of it"))
    assert ground.engine.fatal is first and ground.turns == 1


def test_a_group_hears_of_its_peers_before_its_deadline_strikes() -> None:
    """A follower whose election timeout is over campaigns, unless it is told just then that its leader lives."""
    ground = Ground(3)
    partition = ground.host()
    ground.perform(partition)
    asked: list[int | None] = []

    def confirm(asking: Partition) -> None:
        assert asking is partition
        asked.append(partition.core.next_deadline_ms())

    ground.engine.confirm_peers = confirm
    due_ms = partition.core.next_deadline_ms()
    assert due_ms is not None
    ground.run(due_ms - 1)
    assert (asked, partition.outbox) == ([], [])
    ground.run(1)
    assert asked == [due_ms]
    said = ground.perform(partition)
    assert TWO in [action.destination for action in said if isinstance(action, do.SendRequest)], "it asks for pre-votes"


def test_a_deadline_that_moved_away_meanwhile_is_armed_anew() -> None:
    ground = Ground(3)
    partition = ground.host()
    ground.perform(partition)
    due_ms = partition.core.next_deadline_ms()
    assert due_ms is not None

    def confirm(asking: Partition) -> None:
        """As an answer of the leader: the core waits for its whole timeout again."""
        asking.core.step(DeadlineReached(), ground.engine.now_ms)

    ground.engine.confirm_peers = confirm
    stepped: list[Event] = []
    ground.engine.step = lambda partition, event: stepped.append(event)  # type: ignore[method-assign]
    ground.run(due_ms)
    later_ms = partition.core.next_deadline_ms()
    assert later_ms is not None and later_ms > due_ms
    assert partition.armed_deadline_ms == later_ms and stepped == []
