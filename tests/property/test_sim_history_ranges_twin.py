"""The linearizability checker with ranges of keys, against a brute-force twin: every order of every choice of unknown
operations, with every version that could be meant. Histories really happened, and are now and then bent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from raftlake.sim.histories.kv import (
    Change,
    Changed,
    Conflict,
    Get,
    KvOperation,
    Seen,
    check_key_value,
    partition_by_keys,
)
from raftlake.sim.histories.linearizability import Operation, Outcome

KEYS = ("d", "d/a", "d/b")
PREFIXES = ("d", "d/", "d/a", "x")
State = dict[str, tuple[bytes, float]]


def twin(history: Sequence[KvOperation]) -> bool:
    return all(twin_of_part(part) for _, part in partition_by_keys(history))


def twin_of_part(history: Sequence[KvOperation]) -> bool:
    known = [operation for operation in history if operation.outcome is Outcome.OK]
    unknown = [op for op in history if op.outcome is Outcome.UNKNOWN and isinstance(op.action, Change)]
    return any(
        respects_time(order) and any(fits(order, versions) for versions in versions_of(order))
        for count in range(len(unknown) + 1)
        for chosen in itertools.combinations(unknown, count)
        for order in itertools.permutations([*known, *chosen])
    )


def respects_time(order: Sequence[KvOperation]) -> bool:
    return not any(
        later.outcome is Outcome.OK and later.returned_at < earlier.invoked_at
        for earlier, later in itertools.combinations(order, 2)
    )


def versions_of(order: Sequence[KvOperation]) -> Iterator[dict[int, float]]:
    """Of the changes whose version is not told: one that somebody speaks of, or one somewhere between these."""
    places = [
        place
        for place, operation in enumerate(order)
        if isinstance(operation.action, Change) and operation.action.result in (None, Changed(None))
    ]
    choices = [[*range(1, 7), *(low + (place + 1) / 100 for low in range(7))] for place in places]
    for versions in itertools.product(*choices):
        if all(earlier < later for earlier, later in itertools.pairwise(versions)):
            yield dict(zip(places, versions, strict=True))


def below(state: State, prefix: str) -> float:
    return max((version for key, (_, version) in state.items() if key.startswith(prefix)), default=0)


def fits(order: Sequence[KvOperation], given_versions: dict[int, float]) -> bool:
    state: State = {}
    last: float = 0
    for place, operation in enumerate(order):
        action = operation.action
        if isinstance(action, Get):
            if any(any(key.startswith(prefix) for key in state) != exists for prefix, exists in action.below.items()):
                return False
            for key, seen in action.found.items():
                if (None if seen is None else (seen.value, seen.version)) != state.get(key):
                    return False
            continue
        failing = {key: state.get(key, (b"", 0))[1] for key, version in action.compares.items()}
        failing = {key: found for key, found in failing.items() if found != action.compares[key]}
        newer = {prefix: below(state, prefix) for prefix in action.newest}
        # A version that nobody speaks of may be any between two offsets, so what lies above the one counts as it.
        newer = {prefix: found for prefix, found in newer.items() if found >= action.newest[prefix] + 1}
        if isinstance(action.result, Conflict):
            if not (failing or newer) or failing != action.result.current or newer != action.result.newest:
                return False
            continue
        if failing or newer:
            return False
        version = given_versions.get(place)
        if version is None:
            assert isinstance(action.result, Changed) and action.result.version is not None
            version = action.result.version
        if version <= last:
            return False
        last = version
        for prefix in action.deleted:
            state = {key: entry for key, entry in state.items() if not key.startswith(prefix)}
        for key, value in action.values.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = (value, version)
    return True


def answered(state: State, change: Change, version: int) -> Change:
    """As one who does what is asked would answer; the state is changed."""
    current = {key: int(state.get(key, (b"", 0))[1]) for key in change.compares}
    current = {key: found for key, found in current.items() if found != change.compares[key]}
    newest = {prefix: int(below(state, prefix)) for prefix in change.newest}
    newest = {prefix: found for prefix, found in newest.items() if found > change.newest[prefix]}
    if current or newest:
        return replace(change, result=Conflict(current, newest=newest))
    for prefix in change.deleted:
        for key in [key for key in state if key.startswith(prefix)]:
            del state[key]
    for key, value in change.values.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = (value, version)
    return replace(change, result=Changed(version))


@st.composite
def happened(draw: st.DrawFn) -> list[KvOperation]:
    state: State = {}
    operations: list[KvOperation] = []
    for place in range(draw(st.integers(2, 4))):
        action: Get | Change
        prefix, key = draw(st.sampled_from(PREFIXES)), draw(st.sampled_from(KEYS))
        newest = {prefix: draw(st.integers(0, 3))} if draw(st.booleans()) else {}
        match draw(st.integers(0, 5)):
            case 0:
                action = Get({}, below={prefix: below(state, prefix) > 0})
            case 1:
                entry = state.get(key)
                action = Get({key: None if entry is None else Seen(entry[0], int(entry[1]))})
            case 2 | 3:
                action = answered(state, Change({}, newest=newest, deleted=(prefix,)), place + 1)
            case _:
                compares = draw(st.sampled_from([{}, {}, {key: 1}, {key: 0}]))
                action = answered(state, Change({key: b"%d" % place}, compares, newest=newest), place + 1)
        outcome = draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.UNKNOWN]))
        if outcome is Outcome.UNKNOWN and isinstance(action, Change):
            action = replace(action, result=None)
        invoked = 10 * place - draw(st.sampled_from([0, 5, 15, 25]))
        returned = 10 * place + draw(st.sampled_from([0, 5, 15, 25]))
        operations.append(
            Operation(client=f"c{place}", invoked_at=invoked, returned_at=returned, outcome=outcome, action=action)
        )
    if draw(st.booleans()):
        lied = draw(st.integers(0, len(operations) - 1))
        operations[lied] = replace(operations[lied], action=bent(draw, operations[lied].action))
    return operations


def bent(draw: st.DrawFn, action: Get | Change) -> Get | Change:
    match action:
        case Get(found=found, below=there) if not found:
            return replace(action, below={prefix: not exists for prefix, exists in there.items()})
        case Get(found=found):
            return replace(action, found={key: None if seen else Seen(b"0", 1) for key, seen in found.items()})
        case Change(result=Conflict(newest=newest) as conflict) if newest:
            other = {prefix: draw(st.integers(1, 4)) for prefix in newest}
            return replace(action, result=replace(conflict, newest=other))
        case Change(result=Changed()):
            return replace(action, result=Changed(draw(st.integers(1, 4))))
        case _:
            return action


@settings(max_examples=300, deadline=None)
@given(happened())
def test_it_says_what_trying_everything_says(history: list[KvOperation]) -> None:
    expected = twin(history)
    event("linearizable" if expected else "not linearizable")
    assert (not check_key_value(history)) == expected


def done(at: int, action: Get | Change) -> KvOperation:
    return Operation(client="c", invoked_at=10 * at, returned_at=10 * at + 5, outcome=Outcome.OK, action=action)


PUT = Change({"d/a": b"1"}, result=Changed(4))
WRONG: dict[str, list[Get | Change]] = {
    "a range with a newer key holds": [PUT, Change({"k": b"2"}, newest={"d/": 3}, result=Changed(5))],
    "a range with a key holds as empty": [PUT, Change({"k": b"2"}, newest={"d": 0}, result=Changed(5))],
    "a range that holds is refused": [PUT, Change({"k": b"2"}, newest={"d/": 4}, result=Conflict({}, newest={"d/": 4}))],
    "a refusal names another version": [PUT, Change({"k": b"2"}, newest={"d/": 0}, result=Conflict({}, newest={"d/": 3}))],
    "a refusal names what is deleted": [
        PUT,
        Change({"d/a": None}, result=Changed(5)),
        Change({"k": b"2"}, newest={"d/": 0}, result=Conflict({}, newest={"d/": 4})),
    ],
    "a deleted range has a key": [PUT, Change({}, deleted=("d/",), result=Changed(5)), Get({"d/a": Seen(b"1", 4)})],
    "a deleted range is told as there": [PUT, Change({}, deleted=("d/",), result=Changed(5)), Get({}, below={"d": True})],
    "a deletion takes a key of another range": [PUT, Change({}, deleted=("e/",), result=Changed(5)), Get({"d/a": None})],
    "a key is told as absent from its range": [PUT, Get({}, below={"d/": False})],
    "a range without keys is told as there": [PUT, Get({}, below={"e": True})],
    "a range without keys is refused": [Change({"k": b"2"}, newest={"e": 0}, result=Conflict({}, newest={"e": 1}))],
}


@pytest.mark.parametrize("actions", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_about_a_range_is_found(actions: list[Get | Change]) -> None:
    assert check_key_value([done(at, action) for at, action in enumerate(actions)])


def test_right_answers_about_ranges_are_fine() -> None:
    history: list[Get | Change] = [
        PUT,
        Change({"d/b": b"2"}, newest={"d/": 4}, result=Changed(6)),
        Change({"k": b"3"}, newest={"d": 5}, result=Conflict({}, newest={"d": 6})),
        Get({"d/b": Seen(b"2", 6)}, below={"d/": True, "d": True, "e": False}),
        Change({"d": b"4"}, deleted=("d/",), newest={"d/": 6}, result=Changed(7)),
        Get({"d/a": None, "d": Seen(b"4", 7)}, below={"d/": False}),
        Change({"k": b"5"}, newest={"d/": 0}, result=Changed(8)),
    ]
    assert not check_key_value([done(at, action) for at, action in enumerate(history)])
