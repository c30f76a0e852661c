"""Names up to a delimiter: what stands right below a prefix, in pages, without a look at the deep keys."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import OPERATIONS_MAX, Put, Txn, encode
from raftlake.kv.keyspace import LEAF_KEYS_MAX, KeySpace, pack
from raftlake.kv.machine import StateMachine


def filled(*keys: str, value: bytes = b"v") -> StateMachine:
    machine = StateMachine()
    for start in range(0, len(keys), OPERATIONS_MAX):
        ops = tuple(Put(key, value) for key in keys[start : start + OPERATIONS_MAX])
        machine.apply(max(machine.applied_offset, 1), encode(Txn((), ops)))
    return machine


def names(
    machine: StateMachine, prefix: str = "", after: str | None = None, limit: int = 100, delimiter: str = "/"
) -> list[str]:
    return [name for name, _ in machine.names(prefix, after, limit, delimiter)[0]]


TREE = filled("a", "a/", "a/b", "a/b/c", "a0", "b/1", "b/2", "c", "c/d/e")


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("", ["a", "a/", "a0", "b/", "c", "c/"]),
        ("a", ["a", "a/", "a0"]),
        ("a/", ["a/", "a/b", "a/b/"]),
        ("b/", ["b/1", "b/2"]),
        ("b", ["b/"]),
        ("c/", ["c/d/"]),
        ("c/d/e", ["c/d/e"]),
        ("d", []),
    ],
)
def test_what_stands_right_below_a_prefix(prefix: str, found: list[str]) -> None:
    assert names(TREE, prefix) == found


def test_a_key_has_its_row_and_a_beginning_has_none() -> None:
    page, more = TREE.names("", None, 3, "/")
    assert [(name, row is None) for name, row in page] == [("a", False), ("a/", True), ("a0", False)] and more
    # The key itself, right below itself.
    assert [(name, row is None) for name, row in TREE.names("a/", None, 1, "/")[0]] == [("a/", False)]


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("a", ["a/", "a0", "b/", "c", "c/"]),
        ("a/", ["a0", "b/", "c", "c/"]),
        # Within a beginning, which stands above: it is passed over as a whole.
        ("a/b", ["a0", "b/", "c", "c/"]),
        ("b", ["b/", "c", "c/"]),
        ("b/", ["c", "c/"]),
        ("c/", []),
        ("z", []),
        ("", ["a", "a/", "a0", "b/", "c", "c/"]),
    ],
)
def test_a_page_goes_on_behind_a_name_of_either_kind(after: str, found: list[str]) -> None:
    assert names(TREE, "", after) == found


def test_after_a_name_outside_of_the_prefix() -> None:
    assert names(TREE, "b/", "a") == ["b/1", "b/2"]
    assert names(TREE, "b/", "b/") == ["b/1", "b/2"]
    assert names(TREE, "b/", "c") == []


@pytest.mark.parametrize("delimiter", ["0", "é", "\U0010ffff"])
def test_any_character_delimits(delimiter: str) -> None:
    machine = filled(f"x{delimiter}1", f"x{delimiter}2", "x", "y", f"{delimiter}z")
    assert names(machine, delimiter=delimiter) == sorted(["x", f"x{delimiter}", "y", delimiter])
    assert names(machine, "x", delimiter=delimiter) == ["x", f"x{delimiter}"]


def test_limits_in_names_and_in_bytes_of_values() -> None:
    machine = filled("a", "b/1", "c", "d", value=bytes(10))
    assert machine.names("", None, 4, "/")[1] is False and machine.names("", None, 3, "/")[1] is True
    page, more = machine.names("", None, 9, "/", bytes_max=20)
    assert ([name for name, _ in page], more) == (["a", "b/", "c"], True)
    page, more = machine.names("", None, 9, "/", bytes_max=1)
    assert ([name for name, _ in page], more) == (["a", "b/"], True)


def test_the_keys_behind_a_beginning_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    space = KeySpace()
    for number in range(20 * LEAF_KEYS_MAX):
        space.put(f"deep/{number:06}", pack(1, b""))
    space.put("e", pack(1, b""))
    leaves, looked = space.freeze(), []
    assert len(leaves) >= 20
    kind = type(leaves[0])
    sorted_rows = kind.sorted_rows
    monkeypatch.setattr(kind, "sorted_rows", lambda leaf: looked.append(leaf) or sorted_rows(leaf))
    assert [name for name, _ in space.names_from("", None, "/")] == ["deep/", "e"]
    assert len(looked) <= 3
