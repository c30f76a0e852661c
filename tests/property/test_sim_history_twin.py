"""The linearizability checker against a brute-force twin: every order of every choice of unknown operations, with every
version that could be meant. Histories are small, partly made up from nothing and partly bent from ones that really happened."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from raftlake.sim.histories.kv import Change, Changed, Conflict, Get, KvOperation, Seen, check_key_value, partition_by_keys
from raftlake.sim.histories.linearizability import Operation, Outcome
from raftlake.sim.histories.log import Append, End, LogOperation, check_log

KEYS = ("a", "b")
VALUES = (b"x", b"y", b"z")
VERSIONS = st.integers(1, 4)


# --- the twin --------------------------------------------------------------------------------------------------------


def twin(history: Sequence[KvOperation]) -> bool:
    """Each part that shares keys by itself: that versions ascend across parts is for `check_positions`."""
    return all(twin_of_part(part) for _, part in partition_by_keys(history))


def twin_of_part(history: Sequence[KvOperation]) -> bool:
    known = [operation for operation in history if operation.outcome is Outcome.OK]
    unknown = [op for op in history if op.outcome is Outcome.UNKNOWN and isinstance(op.action, Change)]
    return any(
        respects_time(order) and fits_some_versions(order)
        for count in range(len(unknown) + 1)
        for chosen in itertools.combinations(unknown, count)
        for order in itertools.permutations([*known, *chosen])
    )


def respects_time(order: Sequence[KvOperation] | Sequence[LogOperation]) -> bool:
    return not any(
        later.outcome is Outcome.OK and later.returned_at < earlier.invoked_at
        for earlier, later in itertools.combinations(order, 2)
    )


def fits_some_versions(order: Sequence[KvOperation]) -> bool:
    open_places = [
        place
        for place, operation in enumerate(order)
        if isinstance(operation.action, Change)
        and (operation.action.result is None or operation.action.result == Changed(None))
    ]
    # A version that nobody ever speaks of is written as a number of its own below zero.
    choices = [[*range(1, 5), -10 - place] for place in open_places]
    return any(fits(order, dict(zip(open_places, versions, strict=True))) for versions in itertools.product(*choices))


def fits(order: Sequence[KvOperation], given_versions: dict[int, int]) -> bool:
    state: dict[str, tuple[bytes, int]] = {}
    last = 0
    for place, operation in enumerate(order):
        action = operation.action
        if isinstance(action, Get):
            for key, seen in action.found.items():
                if (seen is None) != (key not in state):
                    return False
                if seen is not None and (seen.value != state[key][0] or seen.version not in (None, state[key][1])):
                    return False
            continue
        failing: dict[str, int] = {}
        for key, version in action.compares.items():
            current = state[key][1] if key in state else 0
            if current == 0 if version == -1 else current != version:
                failing[key] = current
        if isinstance(action.result, Conflict):
            if not failing or failing != action.result.current:
                return False
            continue
        if failing:
            return False
        version = given_versions[place] if place in given_versions else action.result.version  # noqa: SIM401
        assert version is not None
        if version > 0:
            if version <= last:
                return False
            last = version
        for key, value in action.values.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = (value, version)
    return True


# --- histories -------------------------------------------------------------------------------------------------------


def seen_values() -> st.SearchStrategy[Seen | None]:
    return st.none() | st.builds(Seen, st.sampled_from(VALUES), st.none() | VERSIONS)


def gets() -> st.SearchStrategy[Get]:
    return st.dictionaries(st.sampled_from(KEYS), seen_values(), min_size=1).map(Get)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    values = draw(st.dictionaries(st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES), min_size=1))
    compares = draw(st.dictionaries(st.sampled_from(KEYS), st.integers(-1, 4), max_size=1))
    conflict = st.builds(lambda version: Conflict(dict.fromkeys(compares, version)), st.integers(0, 4))
    results = st.builds(Changed, st.none() | VERSIONS)
    return Change(values, compares, draw(results | conflict) if compares else draw(results))


@st.composite
def made_up(draw: st.DrawFn) -> list[KvOperation]:
    operations: list[KvOperation] = []
    for number in range(draw(st.integers(1, 4))):
        action = draw(gets() | changes())
        outcome = draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED]))
        if outcome is not Outcome.OK and isinstance(action, Change):
            action = replace(action, result=None)
        invoked = draw(st.integers(0, 8))
        operations.append(
            Operation(
                client=f"c{number}", invoked_at=invoked, returned_at=invoked + draw(st.integers(0, 4)),
                outcome=outcome, action=action,
            )
        )  # fmt: skip
    return operations


@st.composite
def happened(draw: st.DrawFn) -> list[KvOperation]:
    """What a real object answered, with unknown outcomes, wide intervals and now and then one lie."""
    state: dict[str, tuple[bytes, int]] = {}
    operations: list[KvOperation] = []
    version = 0
    for place in range(draw(st.integers(2, 5))):
        key = draw(st.sampled_from(KEYS))
        entry = state.get(key)
        if draw(st.booleans()):
            found = None if entry is None else Seen(entry[0], draw(st.sampled_from([entry[1], None])))
            action: Get | Change = Get({key: found})
        else:
            compares = draw(st.sampled_from([{}, {key: 0 if entry is None else entry[1]}, {key: -1}, {key: 3}]))
            current = 0 if entry is None else entry[1]
            failing = [k for k, wanted in compares.items() if (current == 0 if wanted == -1 else current != wanted)]
            value = draw(st.none() | st.sampled_from(VALUES))
            if failing:
                action = Change({key: value}, compares, Conflict({key: current}))
            else:
                version += 1
                action = Change({key: value}, compares, Changed(version))
                if value is None:
                    state.pop(key, None)
                else:
                    state[key] = (value, version)
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
        action = draw(gets() | changes())
        if operations[lied].outcome is not Outcome.OK and isinstance(action, Change):
            action = replace(action, result=None)
        operations[lied] = replace(operations[lied], action=action)
    return operations


@settings(max_examples=200, deadline=None)
@given(made_up() | happened())
def test_it_says_what_trying_everything_says(history: list[KvOperation]) -> None:
    expected = twin(history)
    event("linearizable" if expected else "not linearizable")
    assert (not check_key_value(history)) == expected


def shuffled(history: list[KvOperation]) -> Iterator[list[KvOperation]]:
    yield history[::-1]
    yield history[1:] + history[:1]


@settings(max_examples=25, deadline=None)
@given(happened())
def test_the_order_in_which_a_history_is_written_down_does_not_matter(history: list[KvOperation]) -> None:
    expected = not check_key_value(history)
    assert all((not check_key_value(other)) == expected for other in shuffled(history))


# --- the append log --------------------------------------------------------------------------------------------------


def log_twin(history: Sequence[LogOperation], final: Sequence[bytes]) -> bool:
    """Some order of the appends (and of any of the unknown ones) builds the final log, and each end was its length then."""
    known = [operation for operation in history if operation.outcome is Outcome.OK]
    unknown = [op for op in history if op.outcome is Outcome.UNKNOWN and isinstance(op.action, Append)]
    return any(
        respects_time(order) and builds(order, final)
        for count in range(len(unknown) + 1)
        for chosen in itertools.combinations(unknown, count)
        for order in itertools.permutations([*known, *chosen])
    )


def builds(order: Sequence[LogOperation], final: Sequence[bytes]) -> bool:
    values: list[bytes] = []
    for operation in order:
        match operation.action:
            case Append(values=appended, base_offset=base):
                if base is not None and base != len(values):
                    return False
                values += appended
            case End(offset=offset) if offset != len(values):
                return False
    return values == list(final)


@st.composite
def log_histories(draw: st.DrawFn) -> tuple[list[LogOperation], list[bytes]]:
    """Appends and ends as they happened, with wide intervals, unknown outcomes and now and then a lie."""
    final: list[bytes] = []
    history: list[LogOperation] = []
    for place in range(draw(st.integers(1, 5))):
        outcome = draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.UNKNOWN]))
        action: Append | End
        if draw(st.integers(0, 2)):
            values = tuple(b"%d-%d" % (place, index) for index in range(draw(st.integers(1, 2))))
            lie = draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1]))
            action = Append(values, max(len(final) + lie, 0) if outcome is Outcome.OK else None)
            if outcome is Outcome.OK or draw(st.booleans()):
                final += values
        else:
            action = End(max(len(final) + draw(st.sampled_from([0, 0, 0, 1, -1])), 0))
        invoked = 10 * place - draw(st.sampled_from([0, 5, 15, 25]))
        returned = 10 * place + draw(st.sampled_from([0, 5, 15, 25]))
        history.append(Operation(client=f"c{place}", invoked_at=invoked, returned_at=returned, outcome=outcome, action=action))
    match draw(st.integers(0, 7)):
        case 0 if len(final) > 1:
            final[0], final[-1] = final[-1], final[0]
        case 1 if final:
            final.pop(draw(st.integers(0, len(final) - 1)))
        case 2 if final:
            final.append(final[0])
    return history, final


@settings(max_examples=200, deadline=None)
@given(log_histories())
def test_the_log_checker_says_what_trying_everything_says(case: tuple[list[LogOperation], list[bytes]]) -> None:
    history, final = case
    expected = log_twin(history, final)
    event("linearizable" if expected else "not linearizable")
    assert (check_log(history, dict(enumerate(final))) == []) == expected
