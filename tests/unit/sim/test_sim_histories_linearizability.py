"""The linearizability checker on histories whose verdict is known: what a careless database would answer, and what only looks
wrong."""

from __future__ import annotations

import random

import pytest

from raftlake.sim.histories.kv import (
    Change,
    Changed,
    Conflict,
    Get,
    KvOperation,
    Seen,
    check_key_value,
    check_part,
    check_positions,
    partition_by_keys,
)
from raftlake.sim.histories.linearizability import Finding, Operation, Outcome

K = "k"


def op(start: int, end: int, action: Get | Change, outcome: Outcome = Outcome.OK, client: str = "c") -> KvOperation:
    return Operation(client=client, invoked_at=start, returned_at=end, outcome=outcome, action=action)


def put(
    start: int, end: int, value: bytes | None, version: int | None, expects: int | None = None, key: str = K
) -> KvOperation:
    """A put (or delete) that was answered with `version`; `expects` makes it a compare-and-set."""
    return op(start, end, Change({key: value}, {} if expects is None else {key: expects}, Changed(version)))


def lost(start: int, value: bytes | None, expects: int | None = None, key: str = K) -> KvOperation:
    """A change without an answer."""
    return op(start, start + 1, Change({key: value}, {} if expects is None else {key: expects}), Outcome.UNKNOWN)


def refused(start: int, end: int, expects: int, current: int) -> KvOperation:
    """A compare-and-set that lost."""
    return op(start, end, Change({K: b"never"}, {K: expects}, Conflict({K: current})))


def get(start: int, end: int, value: bytes | None, version: int | None = None, key: str = K) -> KvOperation:
    return op(start, end, Get({key: None if value is None else Seen(value, version)}))


GOOD: dict[str, list[KvOperation]] = {
    "nothing happened": [],
    "a key that was never written": [get(0, 1, None)],
    "one after the other": [put(0, 1, b"a", 1), get(2, 3, b"a", 1), put(4, 5, b"b", 2), get(6, 7, b"b", 2)],
    "a read beside a write sees either value": [put(0, 1, b"a", 1), put(2, 9, b"b", 2), get(3, 8, b"a"), get(4, 8, b"b")],
    "a write answered late was seen early": [put(0, 20, b"a", 1), get(1, 2, b"a", 1), get(30, 31, b"a", 1)],
    "of two equal compare-and-sets one wins": [put(0, 1, b"a", 1), put(2, 6, b"b", 2, expects=1), refused(3, 7, 1, 2)],
    "the loser may be answered first": [put(0, 1, b"a", 1), refused(2, 3, 1, 5), put(2, 9, b"b", 5, expects=1)],
    "an unknown write shows up late": [
        put(0, 1, b"a", 1),
        lost(2, b"b"),
        get(3, 4, b"a"),
        get(90, 91, b"a"),
        get(99, 100, b"b"),
    ],
    "an unknown write never shows up": [put(0, 1, b"a", 1), lost(2, b"b"), get(90, 99, b"a"), put(100, 101, b"c", 2)],
    "an unknown write is overwritten unseen": [lost(0, b"a"), put(1, 2, b"b", 9), get(3, 4, b"b", 9)],
    "an unknown delete explains an absent key": [put(0, 1, b"a", 1), lost(2, None), get(3, 4, b"a"), get(5, 6, None)],
    "an unknown delete and then a create": [
        put(0, 1, b"a", 1),
        lost(2, None),
        put(3, 4, b"b", 3, expects=0),
        get(5, 6, b"b", 3),
    ],
    "an unknown compare-and-set won": [put(0, 1, b"a", 1), lost(2, b"b", expects=1), refused(4, 5, 1, 2), get(6, 7, b"b", 2)],
    "an unknown write is known by its version alone": [put(0, 1, b"a", 1), lost(2, b"b"), refused(4, 5, 1, 2)],
    "a chain of unknown writes": [lost(0, b"a"), lost(1, b"b"), get(5, 6, b"a"), get(7, 8, b"b"), refused(9, 10, 1, 2)],
    "a refused write is nowhere": [
        put(0, 1, b"a", 1),
        op(2, 3, Change({K: b"b"}), Outcome.FAILED),
        get(4, 5, b"a", 1),
    ],
    "a read without an answer says nothing": [put(0, 1, b"a", 1), op(2, 3, Get({K: Seen(b"z")}), Outcome.UNKNOWN)],
    "deleted and created anew": [put(0, 1, b"a", 1), put(2, 3, None, 2), get(4, 5, None), put(6, 7, b"a", 3, expects=0)],
    "a transaction over two keys": [
        op(0, 9, Change({"x": b"1", "y": b"1"}, {"x": 0}, Changed(1))),
        get(2, 3, b"1", 1, key="y"),
        get(4, 5, b"1", 1, key="x"),
    ],
    "an unknown transaction shows at one key, then at the other": [
        op(0, 1, Change({"x": b"1", "y": b"1"}), Outcome.UNKNOWN),
        get(2, 3, None, key="x"),
        get(4, 5, b"1", 7, key="y"),
        get(6, 7, b"1", 7, key="x"),
    ],
}

BAD: dict[str, list[KvOperation]] = {
    "stale read": [put(0, 1, b"a", 1), put(2, 3, b"b", 2), get(4, 5, b"a", 1)],
    "a read goes back": [put(0, 1, b"a", 1), put(2, 20, b"b", 2), get(3, 4, b"b"), get(5, 6, b"a")],
    "lost update": [put(0, 1, b"a", 1), put(2, 3, b"b", 2), get(4, 5, b"a", 1), get(6, 7, b"a", 1)],
    "an acknowledged write vanished": [put(0, 1, b"a", 1), get(2, 3, None)],
    "future read": [get(0, 1, b"a"), put(2, 3, b"a", 1)],
    "a value nobody wrote": [put(0, 1, b"a", 1), get(2, 3, b"ghost")],
    "two compare-and-sets won": [put(0, 1, b"a", 1), put(2, 6, b"b", 2, expects=1), put(3, 7, b"c", 3, expects=1)],
    "a compare-and-set won against the wrong version": [put(0, 1, b"a", 1), put(2, 3, b"b", 2), put(4, 5, b"c", 3, expects=1)],
    "a compare-and-set lost for no reason": [put(0, 1, b"a", 1), refused(2, 3, 1, 1)],
    "a compare-and-set lost to a version that never was": [put(0, 1, b"a", 1), refused(2, 3, 1, 7)],
    "a create won over a key that was there": [put(0, 1, b"a", 1), put(2, 3, b"b", 2, expects=0)],
    "a refused write shows up": [put(0, 1, b"a", 1), op(2, 3, Change({K: b"b"}), Outcome.FAILED), get(4, 5, b"b")],
    "an unknown write shows up and goes away": [put(0, 1, b"a", 1), lost(2, b"b"), get(4, 5, b"b"), get(6, 7, b"a")],
    "an unknown write took effect twice": [lost(0, b"a"), get(1, 2, b"a"), put(3, 4, b"b", 5), get(5, 6, b"a")],
    "an unknown write shows up before it was sent": [get(0, 1, b"a"), lost(2, b"a")],
    "an unknown write has two versions": [lost(0, b"a"), get(1, 2, b"a", 3), get(3, 4, b"a", 4)],
    "an unknown version does not fit between its neighbours": [
        put(0, 1, b"a", 5),
        lost(2, b"b"),
        get(3, 4, b"b", 4),
    ],
    "versions against time": [put(0, 1, b"a", 7), put(2, 3, b"b", 6)],
    "half a transaction": [
        op(0, 1, Change({"x": b"1", "y": b"1"}, {}, Changed(1))),
        get(2, 3, b"1", 1, key="x"),
        get(4, 5, None, key="y"),
    ],
    "half an unknown transaction": [
        op(0, 1, Change({"x": b"1", "y": b"1"}), Outcome.UNKNOWN),
        get(2, 3, b"1", 7, key="x"),
        get(4, 5, None, key="y"),
    ],
    "an unknown transaction with two versions": [
        op(0, 1, Change({"x": b"1", "y": b"1"}), Outcome.UNKNOWN),
        get(2, 3, b"1", 7, key="x"),
        get(4, 5, b"1", 8, key="y"),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD.keys())
def test_a_good_history_passes(history: list[KvOperation]) -> None:
    assert check_key_value(history) == []


@pytest.mark.parametrize("history", BAD.values(), ids=BAD.keys())
def test_a_bad_history_is_found(history: list[KvOperation]) -> None:
    ((keys, verdict),) = check_key_value(history)
    assert verdict.finding is Finding.NOT_LINEARIZABLE
    assert set(keys) <= {K, "x", "y"}


def test_equal_times_overlap() -> None:
    assert check_key_value([get(0, 5, b"a"), put(5, 6, b"a", 1)]) == []


def test_a_bad_history_is_explained_by_where_it_got_stuck() -> None:
    history = [put(0, 1, b"a", 1), put(2, 3, b"b", 2), get(4, 5, b"a", 1)]
    ((_, verdict),) = check_key_value(history)
    assert verdict.stuck == (history[2],)
    assert "b'b', 2" in str(verdict) and "c ok: Get" in str(verdict)


def test_a_search_that_grows_too_large_says_that_it_does_not_know() -> None:
    """Twenty writes at once, whose versions are not told, and a read that none of them explains."""
    history = [put(0, 100, b"%d" % number, None) for number in range(20)]
    history += [get(1000, 1001, b"ghost")]
    ((_, verdict),) = check_key_value(history, configurations_max=500)
    assert verdict.finding is Finding.UNDECIDED and not verdict.is_linearizable


def test_parts_share_no_key_even_through_others() -> None:
    history = [
        get(0, 1, None, key="a"),
        get(0, 1, None, key="b"),
        get(0, 1, None, key="c"),
        op(2, 3, Change({"a": b"1"}, {"c": 0}, Changed(1))),
        get(4, 5, None, key="d"),
    ]
    assert sorted(keys for keys, _ in partition_by_keys(history)) == [("a", "c"), ("b",), ("d",)]


def test_versions_of_one_log_ascend_over_all_keys() -> None:
    """Each key by itself looks right; together one of the writes stands before one that was answered earlier."""
    history = [put(0, 1, b"a", 9, key="x"), put(2, 3, b"a", 8, key="y")]
    assert check_key_value(history) == []
    (complaint,) = check_positions(history)
    assert "stands at 9, but 10 had been reached" in complaint


def test_a_get_stands_behind_what_was_answered_before_it() -> None:
    fresh = op(2, 3, Get({"y": None}, position=10))
    stale = op(2, 3, Get({"y": None}, position=9))
    assert check_positions([put(0, 1, b"a", 9, key="x"), fresh]) == []
    assert check_positions([put(0, 1, b"a", 9, key="x"), stale])
    assert check_positions([put(0, 4, b"a", 9, key="x"), stale]) == []


def test_no_two_changes_share_a_version() -> None:
    assert check_positions([put(0, 9, b"a", 4, key="x"), put(0, 9, b"a", 4, key="y")])
    conflict = op(0, 9, Change({K: b"z"}, {K: 1}, Conflict({K: 2}, position=5)))
    assert check_positions([put(0, 9, b"a", 4, key="x"), conflict])


def history_of(seed: int, count: int, clients: int) -> list[KvOperation]:
    """A long history of a correct register with overlapping clients, one in fifty changes without an answer."""
    rng = random.Random(seed)
    value, version, now = None, 0, 0
    history: list[KvOperation] = []
    for number in range(count):
        now += 10
        start, end = now - rng.randrange(5 * clients), now + rng.randrange(5 * clients)
        written = b"%d" % number
        kind = rng.randrange(4)
        if kind == 0:
            history.append(get(start, end, value, version if value is not None else None))
        elif kind == 1 and version:
            history.append(refused(start, end, version + 1_000_000, version))
        elif rng.randrange(50) == 0:
            if rng.randrange(2):
                value, version = written, version + 1
            history.append(lost(start, written))
        else:
            history.append(put(start, end, written, version + 1, expects=version if kind == 2 else None))
            value, version = written, version + 1
    return history


def test_it_is_fast_enough_for_long_histories() -> None:
    """A hundred thousand operations take seconds; here a tenth, and a linear bound on what is looked at, not on time."""
    history = history_of(1, 10_000, clients=10)
    ((keys, part),) = partition_by_keys(history)
    verdict = check_part(keys, part)
    assert verdict.is_linearizable
    assert verdict.configurations < 2 * len(history)


def test_a_fault_at_the_end_of_a_long_history_is_found() -> None:
    history = history_of(2, 3_000, clients=8)
    last = max(operation.returned_at for operation in history)
    history.append(get(last + 1, last + 2, b"17"))
    ((_, verdict),) = check_key_value(history)
    assert verdict.finding is Finding.NOT_LINEARIZABLE
