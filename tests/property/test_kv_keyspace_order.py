"""The order of the key space against a plain sorted dict, over splits, merges and freezings in any order.

Leaves are made small for it: a few dozen keys then go through what takes a node thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlake.kv import keyspace
from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.keyspace import Entry, KeySpace, Row, pack, unpack
from raftlake.kv.machine import StateMachine

LEAF_KEYS = 8
KEYS = 40
Step = tuple[str, int]
NUMBERS = st.integers(0, KEYS - 1)
STEPS = st.one_of(
    st.tuples(st.just("put"), NUMBERS),
    st.tuples(st.just("put"), NUMBERS),
    st.tuples(st.just("put"), NUMBERS),
    st.tuples(st.just("delete"), NUMBERS),
    st.tuples(st.just("delete"), NUMBERS),
    st.tuples(st.sampled_from(["fill up", "fill down", "fill mixed"]), NUMBERS),
    st.tuples(st.sampled_from(["clear up", "clear down", "thin up", "thin down"]), NUMBERS),
    st.tuples(st.just("freeze"), NUMBERS),
    st.tuples(st.just("list"), NUMBERS),
)


@contextmanager
def small_leaves() -> Iterator[None]:
    with mock.patch.multiple(keyspace, LEAF_KEYS_MAX=LEAF_KEYS, _SMALL_LEAF_KEYS=2):
        yield


def key_of(number: int) -> str:
    return f"k{number:02d}"


def changes_of(step: Step) -> list[Step]:
    """Beside single changes, those of neighbouring keys: they fill leaves until they split, or empty them until they merge."""
    kind, number = step
    if kind in ("put", "delete"):
        return [step]
    if kind in ("freeze", "list"):
        return []
    what, direction = kind.split()
    numbers = [*range(number, min(number + 12, KEYS))]
    if direction == "down":
        numbers.reverse()
    elif direction == "mixed":
        numbers = numbers[::2] + numbers[1::2]
    if what == "thin":
        numbers = [each for each in numbers if each % 4]
    return [("put" if what == "fill" else "delete", each) for each in numbers]


def rows_of(rows: Iterator[Row] | list[Row]) -> list[tuple[str, Entry]]:
    return [(key, unpack(row)) for key, row in rows]


def require_order(space: KeySpace, twin: dict[str, Entry]) -> None:
    """Looks at a copy: a leaf that is read is put in order, and would no longer show what it was."""
    seen = deepcopy(space)
    assert rows_of(seen.rows_from("", inclusive=True)) == sorted(twin.items())
    sizes = [len(leaf.rows) for leaf in seen.freeze()]
    assert max(sizes) <= LEAF_KEYS and sum(sizes) == len(twin)


@pytest.mark.parametrize("leaf_keys", [LEAF_KEYS, keyspace.LEAF_KEYS_MAX])
def test_a_leaf_that_was_frozen_unsorted_lists_in_order_after_a_write(leaf_keys: int) -> None:
    space = KeySpace()
    with mock.patch.object(keyspace, "LEAF_KEYS_MAX", leaf_keys):
        for version, key in enumerate(("c", "a", "b"), start=1):
            space.put(key, pack(version, b""))
        leaves = space.freeze()
        space.put("a", pack(4, b""))
        space.put("d", pack(5, b""))
        space.put("0", pack(6, b""))
        assert [key for key, _ in space.rows_from("", inclusive=True)] == ["0", "a", "b", "c", "d"]
        assert [key for leaf in leaves for key in leaf.sorted_rows()] == ["a", "b", "c"]


@pytest.mark.parametrize("further", ["k00", "k12", "k19", "k21", "k39"])
@pytest.mark.parametrize(("kept_of_one", "kept_of_other"), [(0, LEAF_KEYS), (2, 2), (1, 2)])
@pytest.mark.parametrize("emptied", ["first", "second"])
@pytest.mark.parametrize("order", [1, -1])
def test_leaves_that_were_merged_take_further_keys_in_order(
    order: int, emptied: str, kept_of_one: int, kept_of_other: int, further: str
) -> None:
    """Between the two, above all of them and below all of them; whatever the order in which the leaves were filled."""
    space, twin = KeySpace(), dict[str, Entry]()

    def put(key: str, version: int) -> None:
        space.put(key, pack(version, b""))
        twin[key] = Entry(b"", version)
        require_order(space, twin)

    with small_leaves():
        for number in [*range(10, 10 + LEAF_KEYS + 1), *(20, 22, 24)[::order]]:
            put(key_of(number), number)
        first, second = (sorted(leaf.rows)[::order] for leaf in space.freeze())
        one, other = (first, second) if emptied == "first" else (second, first)
        for key in [*other[kept_of_other:], *one[kept_of_one:]]:
            assert space.delete(key)
            del twin[key]
            require_order(space, twin)
        assert len(space.freeze()) == 1
        put(further, 50)
        put("k13", 51)


@pytest.mark.parametrize("count", [keyspace.LEAF_KEYS_MAX, keyspace.LEAF_KEYS_MAX + 1, 2 * keyspace.LEAF_KEYS_MAX + 1])
@pytest.mark.parametrize("order", [1, -1])
def test_a_page_may_end_where_a_leaf_does(count: int, order: int) -> None:
    """Leaves of the size that nodes have."""
    machine = StateMachine()
    for offset, number in enumerate(range(count)[::order], start=1):
        machine.apply(offset, encode(Txn((), (Put(f"k{number:05d}", b""),))))
    keys = [f"k{number:05d}" for number in range(count)]
    bounds = sorted({0, 1, 255, 256, 257, 511, 512, 513, count - 1, count} & set(range(count + 1)))
    for bound in bounds:
        page, more = machine.list("", None, max(bound, 1))
        assert ([key for key, _ in page], more) == (keys[: max(bound, 1)], max(bound, 1) < count)
        if bound:
            rest, more = machine.list("", keys[bound - 1], count)
            assert ([key for key, _ in rest], more) == (keys[bound:], False)


@given(st.lists(STEPS, min_size=10, max_size=40))
@settings(max_examples=200)
def test_rows_are_those_of_a_sorted_dict(steps: list[Step]) -> None:
    space, twin = KeySpace(), dict[str, Entry]()
    frozen: list[tuple[list[keyspace.Leaf], dict[str, Entry]]] = []
    version = 0
    with small_leaves():
        for step in steps:
            for kind, number in changes_of(step):
                version += 1
                key = key_of(number)
                if kind == "put":
                    twin[key] = Entry(b"%d" % version, version)
                    space.put(key, pack(version, b"%d" % version))
                else:
                    assert space.delete(key) == (twin.pop(key, None) is not None)
            start = key_of(step[1])
            if step[0] == "freeze":
                frozen.append((space.freeze(), dict(twin)))
            elif step[0] == "list":
                for inclusive in (True, False):
                    expected = [row for row in sorted(twin.items()) if row[0] > start or (inclusive and row[0] == start)]
                    assert rows_of(space.rows_from(start, inclusive=inclusive)) == expected
            require_order(space, twin)
    assert len(space) == len(twin) and space.value_bytes == sum(len(entry.value) for entry in twin.values())
    assert {key_of(number): space.version_of(key_of(number)) for number in range(KEYS)} == {
        key: twin[key].version if key in twin else 0 for key in map(key_of, range(KEYS))
    }
    # Read last, so that what was shared has been left as it was by all that came after.
    for leaves, then in frozen:
        assert rows_of([row for leaf in leaves for row in leaf.sorted_rows().items()]) == sorted(then.items())


@given(
    st.lists(STEPS, min_size=10, max_size=40), st.integers(1, 7), NUMBERS, st.sampled_from(["", "k", "k1", "k2", "k25", "x"])
)
@settings(max_examples=150)
def test_pages_of_a_machine_are_those_of_a_sorted_dict(steps: list[Step], limit: int, after: int, prefix: str) -> None:
    """Also of one that was restored from a snapshot, and goes on."""
    machine, twin, restored = StateMachine(), dict[str, Entry](), StateMachine()
    with small_leaves():
        for step in steps:
            changes = changes_of(step)
            if step[0] == "freeze":
                restored.restore(machine.snapshot())
            for kind, number in changes:
                key, offset = key_of(number), max(machine.applied_offset, 1)
                operation = Put(key, b"%d" % offset) if kind == "put" else Delete(key)
                machine.apply(offset, encode(Txn((), (operation,))))
                if kind == "put":
                    twin[key] = Entry(b"%d" % offset, offset)
                else:
                    twin.pop(key, None)
        restored.restore(machine.snapshot())
        expected = tuple(row for row in sorted(twin.items()) if row[0] > key_of(after) and row[0].startswith(prefix))
        for each in (machine, restored):
            found, cursor, more = [], key_of(after), True
            while more:
                page, more = each.list(prefix, cursor, limit)
                assert len(page) == limit or not more
                found += page
                cursor = page[-1][0] if page else cursor
            assert tuple(found) == expected
            assert each.list("", None, KEYS) == (tuple(sorted(twin.items())), False)
