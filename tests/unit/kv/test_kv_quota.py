"""How far the key space may grow: what counts, what is under way, and the worst that commands can make of one another."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn, encode, put
from raftlake.kv.keyspace import ENTRY_OVERHEAD_BYTES, LEAF_KEYS_MAX, entry_bytes
from raftlake.kv.machine import StateMachine
from raftlake.kv.quota import Levels, Quota, Reservation

KEYS = ("a", "bb", "ä/ö", "/raftlake/topics/t")


def counted(machine: StateMachine) -> int:
    """What the space holds, counted anew."""
    entries, _ = machine.list("", None, 1 << 31)
    return sum(ENTRY_OVERHEAD_BYTES + len(key.encode()) + len(entry.value) for key, entry in entries)


class Applied:
    """A machine, and commands that are applied one after the other."""

    def __init__(self) -> None:
        self.machine = StateMachine()

    def apply(self, txn: Txn) -> None:
        self.machine.apply(max(self.machine.applied_offset, 1), encode(txn))


def put_bytes(key: str, size: int) -> Txn:
    return put(key, bytes(size))


def test_a_key_counts_with_the_bytes_of_its_name_its_value_and_an_overhead() -> None:
    applied = Applied()
    applied.apply(put_bytes("ä", 10))
    assert applied.machine.size == entry_bytes("ä", 10) == 128 + 2 + 10
    applied.apply(put_bytes("b", 0))
    assert applied.machine.size_of("b") == 129 and applied.machine.size_of("c") == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_size_is_exact_whatever_is_done(seed: int) -> None:
    """Replacements, deletions of keys that are there or not, failed compares, frozen views, a snapshot in between."""
    random, applied = Random(seed), Applied()
    views = []
    for step in range(6 * LEAF_KEYS_MAX):
        key = f"{random.randrange(3 * LEAF_KEYS_MAX)}é"
        compares = (Compare(key, ABSENT),) if random.randrange(4) == 0 else ()
        other = Delete(f"{random.randrange(3 * LEAF_KEYS_MAX)}é!")
        change = Delete(key) if random.random() < (0.2 if step < 2000 else 0.7) else Put(key, bytes(random.randrange(50)))
        applied.apply(Txn(compares, (change, other)))
        if step % 1000 == 500:
            views.append((applied.machine.freeze(), applied.machine.size))
            assert applied.machine.size == counted(applied.machine)
    restored = StateMachine()
    restored.restore(applied.machine.snapshot())
    assert applied.machine.size == counted(applied.machine) == restored.size > 0
    restored.restore(StateMachine().snapshot())
    assert restored.size == 0
    for view, size in views:
        rows = view.rows(1 << 30, 1 << 30)
        assert sum(entry_bytes(key, len(row) - 12) for key, row in rows) == size


def test_what_would_grow_beyond_the_quota_is_refused_and_the_last_byte_fits() -> None:
    applied, quota = Applied(), Quota(1000)
    fits = 1000 - entry_bytes("k", 0)
    assert quota.reserve(applied.machine, put_bytes("k", fits + 1)) is None
    assert quota.under_way == 0
    assert quota.reserve(applied.machine, put_bytes("k", fits)) is not None


def test_what_is_under_way_counts_until_it_is_applied() -> None:
    applied, quota = Applied(), Quota(1000)
    txn = put_bytes("a", 400)
    first = quota.reserve(applied.machine, txn)
    assert first is not None and quota.reserve(applied.machine, put_bytes("b", 400)) is None
    applied.apply(txn)
    quota.release(first)
    assert quota.under_way == 0
    assert quota.reserve(applied.machine, put_bytes("b", 400)) is None
    assert quota.reserve(applied.machine, put_bytes("b", 300)) is not None


def test_what_does_not_grow_always_passes() -> None:
    applied = Applied()
    for key in ("a", "b"):
        applied.apply(put_bytes(key, 5000))
    quota = Quota(1000)
    for txn in (
        put_bytes("a", 5000),
        put_bytes("a", 10),
        Txn((), (Delete("a"),)),
        Txn((), (Delete("never"),)),
        Txn((), ()),
        Txn((), (Delete("b"), Put("c", bytes(5000)))),
    ):
        assert quota.reserve(applied.machine, txn) is not None, txn
    assert quota.reserve(applied.machine, put_bytes("d", 0)) is None


def test_a_hot_key_of_one_size_passes_however_often_it_is_under_way() -> None:
    applied = Applied()
    applied.apply(put_bytes("hot", 5000))
    quota = Quota(1000)
    assert all(quota.reserve(applied.machine, put_bytes("hot", 5000)) is not None for _ in range(100))


def test_one_deletion_makes_room_once() -> None:
    """Commands under way that each delete the same key and put another: only the first one makes room."""
    applied = Applied()
    applied.apply(put_bytes("a", 900))
    quota = Quota(applied.machine.size)
    first = quota.reserve(applied.machine, Txn((), (Delete("a"), Put("b", bytes(900)))))
    assert first is not None
    assert quota.reserve(applied.machine, Txn((), (Delete("a"), Put("c", bytes(900))))) is None
    assert quota.reserve(applied.machine, put_bytes("a", 900)) is None, "its deletion is under way"
    quota.release(first)
    assert quota.reserve(applied.machine, put_bytes("a", 900)) is not None, "it was not deleted after all"


def test_the_quorums_own_keys_have_room_of_their_own_which_has_an_end() -> None:
    applied = Applied()
    applied.apply(put_bytes("a", 5000))
    quota = Quota(1000, own_room=6000)
    assert quota.reserve(applied.machine, put_bytes("b", 1)) is None
    assert quota.reserve(applied.machine, put_bytes("/raftlake/nodes/1", 100)) is not None
    assert quota.reserve(applied.machine, put_bytes("/raftlake/nodes/2", 6000)) is None


@pytest.mark.parametrize("keys", [("/raftlake/nodes/1", "b"), ("b", "/raftlake/nodes/1")])
def test_one_key_of_the_quorum_is_enough_for_its_room_wherever_it_stands(keys: tuple[str, str]) -> None:
    quota, applied = Quota(1000, own_room=6000), Applied()
    applied.apply(put_bytes("a", 5000))
    assert quota.reserve(applied.machine, Txn((), tuple(Put(key, b"") for key in keys))) is not None


change = st.one_of(
    st.builds(Delete, st.sampled_from(KEYS)), st.builds(Put, st.sampled_from(KEYS), st.integers(0, 900).map(bytes))
)
txns = st.lists(change, min_size=1, max_size=3, unique_by=lambda op: op.key).map(lambda ops: Txn((), tuple(ops)))


@settings(max_examples=300, deadline=None)
@given(st.lists(txns, max_size=12), st.integers(0, 3000), st.randoms(use_true_random=False))
def test_whichever_of_the_commands_succeed_the_space_stays_within_the_quota(
    commands: list[Txn], bytes_max: int, random: Random
) -> None:
    """All are under way together. Each of them may fail by a compare or be lost with its leader."""
    applied, quota = Applied(), Quota(bytes_max, own_room=0)
    for key in KEYS[: random.randrange(len(KEYS))]:
        applied.apply(put_bytes(key, random.randrange(900)))
    limit = max(bytes_max, applied.machine.size)
    let_through: list[tuple[Txn, Reservation]] = []
    for txn in commands:
        reservation = quota.reserve(applied.machine, txn)
        if reservation is not None:
            let_through.append((txn, reservation))
        if let_through and random.randrange(3) == 0:
            # The oldest one is decided.
            decided, held = let_through.pop(0)
            if random.randrange(2):
                applied.apply(decided)
            quota.release(held)
            assert applied.machine.size <= limit
    for txn, reservation in let_through:
        if random.randrange(3):
            applied.apply(txn)
        quota.release(reservation)
        assert applied.machine.size <= limit
    assert quota.under_way == 0


def test_a_level_is_news_once_and_again_after_it_was_left_by_a_margin() -> None:
    levels = Levels((85, 95), margin=5)
    news = [(used, levels.look(used, 100), levels.reached) for used in (84, 85, 86, 94, 95, 100, 94, 95, 91, 90, 95)]
    assert [is_news for _, is_news, _ in news] == [False, True, False, False, True, False, False, False, False, False, True]
    assert [levels.look(used, 100) for used in (81, 85, 80, 84, 85)] == [False, False, False, False, True]
    assert levels.reached == 85
    assert levels.look(100, 100) and levels.reached == 95
    assert not levels.look(0, 100) and levels.reached == 0
