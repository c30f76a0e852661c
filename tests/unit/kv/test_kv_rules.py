"""The judge of reserved keys, as the state machine asks it."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.keyspace import Entry
from raftlake.kv.machine import StateMachine
from raftlake.kv.rules import NoRules

KEY, FREE = "/raftlake/topics/t", "/users/k"


class Hearer:
    """Refuses the value `no`, and writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def take(self, key: str, value: bytes, version: int, standing: Entry | None) -> str | None:
        self.heard.append((f"take {value.decode()} over {None if standing is None else standing.value}", key, version))
        return "it says no" if value == b"no" else None

    def drop(self, key: str) -> None:
        self.heard.append(("drop", key, -1))

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        self.heard.append((f"restore {entry.value!r}", key, version_of(key)))
        return key if entry.value == b"empty" else None


def machine_of(*commands: Txn) -> StateMachine:
    machine = StateMachine(rules=Hearer)
    for offset, command in enumerate(commands, 1):
        machine.apply(offset, encode(command))
    return machine


def put(key: str, value: bytes) -> Txn:
    return Txn((), (Put(key, value),))


def heard_by(machine: StateMachine) -> list[tuple[str, str, int]]:
    assert isinstance(machine.rules, Hearer)
    return machine.rules.heard


def test_reserved_keys_are_judged_and_others_are_not() -> None:
    machine = machine_of(put(KEY, b"yes"), put(FREE, b"no"), put(KEY, b"no"), Txn((), (Delete(KEY), Delete(FREE))))
    assert heard_by(machine) == [
        ("take yes over None", KEY, 1),
        ("take no over b'yes'", KEY, 3),
        ("drop", KEY, -1),
    ]


def test_a_refused_put_leaves_the_value_and_counts_the_version() -> None:
    machine = machine_of(put(KEY, b"yes"), put(KEY, b"no"))
    assert machine.get(KEY) == Entry(b"yes", 2)
    assert machine.apply(3, encode(put(KEY, b"no"))).ignored == ((KEY, "it says no"),)


def test_a_key_that_was_not_there_is_not_told_as_dropped() -> None:
    assert heard_by(machine_of(Txn((), (Delete(KEY),)))) == []


def test_a_snapshot_has_a_judge_of_its_own_which_may_empty_a_key() -> None:
    source = machine_of(put(KEY, b"empty"), put(KEY + "2", b"kept"), put(FREE, b"empty"))
    target = StateMachine(rules=Hearer)
    before = target.rules
    target.restore(list(source.snapshot()))
    assert target.rules is not before
    assert sorted(key for _, key, _ in heard_by(target)) == [KEY, KEY + "2"]
    assert [target.get(key) for key in (KEY, KEY + "2", FREE)] == [Entry(b"", 1), Entry(b"kept", 2), Entry(b"empty", 3)]


def test_without_rules_everything_is_taken() -> None:
    rules = NoRules()
    assert rules.take(KEY, b"no", 1, None) is None
    assert rules.restore(KEY, Entry(b"empty", 1), lambda _: 1) is None
    rules.drop(KEY)
