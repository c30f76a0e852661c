"""The sorted map of the key space: like a dict whatever is done to it, and in pieces that stay small."""

from __future__ import annotations

import gc
from random import Random

import pytest

from raftlake.kv.keyspace import LEAF_KEYS_MAX, Entry, KeySpace, pack, unpack


def filled(keys: list[int]) -> KeySpace:
    space = KeySpace()
    for number in keys:
        space.put(f"k{number:06d}", pack(number + 1, b"%d" % number))
    return space


def leaf_sizes(space: KeySpace) -> list[int]:
    return [len(leaf.rows) for leaf in space.freeze()]


def test_a_row_is_what_was_packed() -> None:
    assert unpack(pack(7, b"value")) == Entry(b"value", 7)
    assert unpack(pack((1 << 63) - 1, b"")) == Entry(b"", (1 << 63) - 1)


@pytest.mark.parametrize("seed", range(8))
def test_it_does_what_a_dict_does(seed: int) -> None:
    random = Random(seed)
    space, twin = KeySpace(), dict[str, Entry]()
    views: list[tuple[list[tuple[str, bytes]], dict[str, Entry]]] = []
    # Grows, then shrinks to nothing: leaves are split and put together again.
    for step in range(12_000):
        key = f"{random.randrange(3000):04d}"
        if random.random() < (0.2 if step < 6000 else 0.8):
            assert space.delete(key) == (twin.pop(key, None) is not None)
        else:
            twin[key] = Entry(b"%d" % step, step + 1)
            space.put(key, pack(step + 1, b"%d" % step))
        if step % 3000 == 1500:
            rows = [row for leaf in space.freeze() for row in leaf.sorted_rows().items()]
            views.append((rows, dict(twin)))
    for key in [*twin][50:]:
        assert space.delete(key) and twin.pop(key)
    assert len(space) == len(twin) == 50
    assert len(leaf_sizes(space)) < 4
    assert space.value_bytes == sum(len(entry.value) for entry in twin.values())
    assert [(key, unpack(row)) for key, row in space.rows_from("", inclusive=True)] == sorted(twin.items())
    for key in map("{:04d}".format, range(3000)):
        assert space.get(key) == twin.get(key)
        assert space.version_of(key) == (twin[key].version if key in twin else 0)
    for rows, then in views:
        assert [(key, unpack(row)) for key, row in rows] == sorted(then.items())


@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_leaves_are_bounded_and_well_filled_in_whatever_order_keys_come(order: str) -> None:
    keys = list(range(20_000))
    if order == "descending":
        keys.reverse()
    if order == "mixed":
        Random(1).shuffle(keys)
    space = filled(keys)
    sizes = leaf_sizes(space)
    assert max(sizes) <= LEAF_KEYS_MAX
    assert len(sizes) <= 20_000 / LEAF_KEYS_MAX * (1.1 if order == "ascending" else 2.1)
    assert [key for key, _ in space.rows_from("k010000", inclusive=True)][:2] == ["k010000", "k010001"]
    assert [key for key, _ in space.rows_from("k010000", inclusive=False)][:2] == ["k010001", "k010002"]
    assert [key for key, _ in space.rows_from("k0100005", inclusive=True)][:1] == ["k010001"]
    assert [*space.rows_from("l", inclusive=True)] == []


def test_the_garbage_collector_has_nothing_to_do_for_each_key() -> None:
    gc.collect()
    before = len(gc.get_objects())
    space = filled(list(range(20_000)))
    gc.collect()
    # What a full collection walks: a leaf and its dict for some hundred keys, and no entries.
    assert len(gc.get_objects()) - before < 20_000 / 50
    assert len(space) == 20_000


def test_a_change_after_a_freezing_copies_one_leaf() -> None:
    space = filled(list(range(5 * LEAF_KEYS_MAX)))
    frozen = space.freeze()
    space.put("k000700", pack(9, b"new"))
    space.delete("k000701")
    now = space.freeze()
    assert [old is new for old, new in zip(frozen, now, strict=True)].count(False) == 1


def test_a_space_is_freed_in_pieces() -> None:
    space = filled(list(range(10 * LEAF_KEYS_MAX)))
    leaves = len(leaf_sizes(space))
    assert [space.release(4) for _ in range(leaves // 4)] == [True] * (leaves // 4)
    assert not space.release(4)
