"""Transactions that take too long, and ids that nobody uses, over time that the test moves and keys that it commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginekit import WALL_MS_AT_START, Ground
from keyskit import Keys
from raftlake.kv.commands import Delete, Put
from raftlake.replica.quorum import Quorum
from raftlake.replica.transaction_entry import ID_BRACKETS_MAX, Transaction, TransactionState, encode, transaction_key
from raftlake.replica.transactions import deadlines as module
from raftlake.replica.transactions.coordinator import Coordinator
from raftlake.replica.transactions.deadlines import ABORTS_PER_TICK, RETRY_MS, SWEEP_INTERVAL_MS, TRUST_MS, Deadlines

S = TransactionState
DAY_MS = 86_400_000
IDLE = Transaction(transactional_id="a", producer_id=10, epoch=0, timeout_ms=1_000, state=S.EMPTY, updated_ms=WALL_MS_AT_START)
ONGOING = replace(IDLE, state=S.ONGOING, started_ms=1)


class World:
    def __init__(self, **settings: object) -> None:
        self.ground = Ground(**settings)  # type: ignore[arg-type]
        self.keys = Keys(self.ground)
        coordinator = Coordinator(
            self.ground.engine,
            kv=self.keys,  # type: ignore[arg-type]
            quorum=Quorum(self.ground.engine),
            take_id=lambda done: done(None),
        )
        self.deadlines = Deadlines(self.ground.engine, kv=self.keys, coordinator=coordinator)  # type: ignore[arg-type]

    def put(self, *transactions: Transaction) -> None:
        self.keys.put(*transactions)
        for each in transactions:
            self.deadlines.look(transaction_key(each.transactional_id), each)

    def pass_ms(self, duration_ms: int) -> None:
        """Tick at the end of it."""
        self.ground.time.ms += duration_ms
        self.ground.engine.begin_input()
        self.ground.engine.timers.run_due(self.ground.engine.now_ms)
        self.deadlines.tick()

    def commit_all(self) -> None:
        while self.keys.proposed:
            self.keys.commit()

    def standing(self, name: str = "a") -> str:
        found = self.keys.transaction(name)
        return "" if found is None else f"{found.state.value}/{found.epoch}"


def test_a_transaction_is_aborted_when_its_time_is_over_and_no_sooner() -> None:
    world = World()
    world.put(ONGOING, replace(ONGOING, transactional_id="b", producer_id=11, timeout_ms=2_000))
    world.pass_ms(999)
    world.commit_all()
    assert [world.standing(name) for name in "ab"] == ["Ongoing/0"] * 2
    world.pass_ms(1)
    world.commit_all()
    assert [world.standing(name) for name in "ab"] == ["PrepareAbort/1", "Ongoing/0"]
    world.pass_ms(1_000)
    world.commit_all()
    assert world.standing("b") == "PrepareAbort/1"


def test_more_partitions_do_not_give_more_time() -> None:
    world = World()
    world.put(ONGOING)
    world.pass_ms(900)
    world.put(replace(ONGOING, partitions=frozenset({(bytes(range(1, 17)), 0)}), updated_ms=5))
    world.pass_ms(100)
    world.commit_all()
    assert world.standing() == "PrepareAbort/1"


def test_the_next_transaction_has_a_time_of_its_own() -> None:
    world = World()
    world.put(ONGOING)
    world.pass_ms(900)
    world.put(replace(ONGOING, partitions=frozenset({(bytes(range(1, 17)), 0)}), updated_ms=5))
    world.pass_ms(50)
    found = world.keys.transaction("a")
    assert found is not None
    world.put(found.decided(True))
    world.put(replace(ONGOING, ended=found.decided(True).decision, started_ms=2))
    world.pass_ms(999)
    world.commit_all()
    assert world.standing() == "Ongoing/0"
    world.pass_ms(1)
    world.commit_all()
    assert world.standing() == "PrepareAbort/1"


def test_the_next_transaction_is_known_though_nobody_saw_the_end_of_the_last_one() -> None:
    world = World()
    world.put(ONGOING)
    world.pass_ms(900)
    found = replace(ONGOING, ended=ONGOING.decided(True).decision, started_ms=2)
    world.keys.put(ONGOING.decided(True))
    world.put(found)
    world.pass_ms(999)
    assert world.keys.proposed == []
    world.pass_ms(1)
    assert len(world.keys.proposed) == 1


def test_what_has_ended_is_not_aborted() -> None:
    world = World()
    world.put(ONGOING)
    world.put(ONGOING.decided(True))
    world.pass_ms(5_000)
    assert (world.keys.proposed, len(world.deadlines)) == ([], 0)
    world.put(replace(ONGOING, transactional_id="b", producer_id=11))
    world.keys.apply(Delete(transaction_key("b")))
    world.pass_ms(5_000)
    world.pass_ms(5_000)
    assert (world.keys.proposed, len(world.deadlines)) == ([], 0)


def test_an_abort_that_another_change_came_before_is_not_forced_and_one_that_failed_is_tried_again() -> None:
    from raftlake.replica.kv.outcomes import ProposeStatus

    world = World()
    world.put(ONGOING)
    world.pass_ms(1_000)
    world.keys.fail(ProposeStatus.UNKNOWN)
    world.pass_ms(RETRY_MS - 1)
    assert world.keys.proposed == []
    world.pass_ms(1)
    assert len(world.keys.proposed) == 1
    world.put(ONGOING.decided(True))
    world.commit_all()
    world.keys.prove()
    assert world.standing() == "PrepareCommit/0"


def test_a_wall_clock_that_leaps_ends_nothing() -> None:
    world = World()
    world.put(ONGOING)
    world.ground.time.wall_ms = lambda: WALL_MS_AT_START + 400 * DAY_MS  # type: ignore[method-assign]
    world.pass_ms(999)
    assert world.keys.proposed == []


def test_a_new_coordinator_counts_anew() -> None:
    world = World()
    world.put(ONGOING)
    world.pass_ms(900)
    world.deadlines.begin()
    world.deadlines.look(transaction_key("a"), ONGOING)
    world.pass_ms(999)
    assert world.keys.proposed == []
    world.pass_ms(1)
    assert len(world.keys.proposed) == 1


def test_ten_thousand_whose_time_is_over_at_once_are_aborted_some_at_a_time() -> None:
    world = World()
    many = [replace(ONGOING, transactional_id=f"id-{number}", producer_id=number) for number in range(10_000)]
    for first in range(0, len(many), 1_000):
        world.put(*many[first : first + 1_000])
    world.pass_ms(1_000)
    assert len(world.keys.proposed) == ABORTS_PER_TICK
    world.commit_all()
    ticks = 1
    while any(found.is_ongoing for found in world.keys.state.transactions.by_key.values()):
        world.pass_ms(250)
        assert len(world.keys.proposed) <= ABORTS_PER_TICK
        while world.keys.proposed:
            txn, _ = world.keys.proposed[0]
            world.keys.commit()
            key = txn.compares[0].key
            world.deadlines.look(key, world.keys.state.transactions.by_key[key])
        ticks += 1
    assert ticks <= 2 * len(many) / ABORTS_PER_TICK


def test_many_short_transactions_with_long_times_leave_nothing_behind() -> None:
    world = World()
    for number in range(5_000):
        current = replace(ONGOING, timeout_ms=900_000, started_ms=number)
        world.deadlines.look(transaction_key("a"), current)
        world.deadlines.look(transaction_key("a"), replace(current, state=S.EMPTY))
    assert len(world.deadlines._heap) <= 1_001


# --- idle ids ---


def aged(world: World, **fields: int) -> None:
    """Ids that were used last at these times: milliseconds before the start of the test."""
    world.keys.put(
        *(
            replace(IDLE, transactional_id=name, producer_id=number, updated_ms=WALL_MS_AT_START - before_ms)
            for number, (name, before_ms) in enumerate(fields.items())
        )
    )


def names(world: World) -> set[str]:
    return {found.transactional_id for found in world.keys.state.transactions.by_key.values()}


def test_ids_that_nobody_used_for_a_week_are_forgotten() -> None:
    world = World()
    aged(world, old=8 * DAY_MS, young=6 * DAY_MS)
    world.pass_ms(TRUST_MS)
    world.commit_all()
    assert names(world) == {"young"}
    for _ in range(30):
        world.pass_ms(DAY_MS // 24)
        world.commit_all()
    assert names(world) == set()


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_id_with_something_under_way_is_not_forgotten(state: TransactionState) -> None:
    world = World()
    world.keys.put(replace(IDLE, state=state, updated_ms=WALL_MS_AT_START - 100 * DAY_MS))
    world.pass_ms(TRUST_MS)
    assert world.keys.proposed == []


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_id_with_nothing_under_way_is(state: TransactionState) -> None:
    world = World()
    world.keys.put(replace(IDLE, state=state, updated_ms=WALL_MS_AT_START - 100 * DAY_MS))
    world.pass_ms(TRUST_MS)
    world.commit_all()
    assert names(world) == set()


def test_no_id_is_forgotten_in_the_first_hour_nor_after_a_clock_was_set() -> None:
    world = World()
    aged(world, old=8 * DAY_MS)
    world.pass_ms(TRUST_MS - 1)
    assert world.keys.proposed == []
    world.ground.time.wall_ms = lambda: WALL_MS_AT_START + world.ground.time.ms + DAY_MS  # type: ignore[method-assign]
    world.pass_ms(1)
    world.pass_ms(TRUST_MS - 1)
    assert world.keys.proposed == []
    world.pass_ms(SWEEP_INTERVAL_MS)
    assert len(world.keys.proposed) == 1


def test_of_many_idle_ids_some_are_forgotten_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_PER_SWEEP", 10)
    monkeypatch.setattr(module, "FORGOTTEN_PER_SWEEP", 4)
    world = World()
    aged(world, **{f"id-{number:02}": 8 * DAY_MS if number % 3 else 0 for number in range(30)})
    world.pass_ms(TRUST_MS)
    counts = [len(world.keys.proposed)]
    for _ in range(12):
        world.commit_all()
        world.pass_ms(SWEEP_INTERVAL_MS)
        counts.append(len(world.keys.proposed))
    assert max(counts) <= 4
    assert names(world) == {f"id-{number:02}" for number in range(0, 30, 3)}


def test_keys_of_earlier_releases_that_no_node_reads_back_are_forgotten() -> None:
    world = World()
    bracketed = {count: transaction_key("[" * count) for count in (ID_BRACKETS_MAX, ID_BRACKETS_MAX + 1)}
    for count, key in bracketed.items():
        world.keys.apply(Put(key, encode(replace(IDLE, transactional_id="[" * count, producer_id=count))))
    assert list(world.keys.state.transactions.by_key) == [bracketed[ID_BRACKETS_MAX]]
    world.pass_ms(TRUST_MS - 1)
    assert world.keys.proposed == []
    world.pass_ms(SWEEP_INTERVAL_MS)
    world.commit_all()
    assert {key: world.keys.machine.get(key) is not None for key in bracketed.values()} == {
        bracketed[ID_BRACKETS_MAX]: True,
        bracketed[ID_BRACKETS_MAX + 1]: False,
    }


def test_a_key_that_means_something_by_now_is_not_forgotten() -> None:
    world = World()
    key = transaction_key("a")
    world.keys.apply(Put(key, b"{}"))
    world.pass_ms(TRUST_MS)
    assert len(world.keys.proposed) == 1
    world.keys.put(IDLE)
    world.commit_all()
    assert names(world) == {"a"}


def test_a_key_that_describes_a_transaction_of_another_ids_producer_is_kept() -> None:
    """A snapshot may hold it. What it says is read by every node."""
    world = World()
    world.keys.put(IDLE)
    entry = world.keys.machine.get(transaction_key("a"))
    assert entry is not None
    value = encode(replace(IDLE, transactional_id="b"))
    assert not world.deadlines._is_unused(transaction_key("b"), value, before_ms=0)
