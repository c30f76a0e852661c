"""Pages of keys: one moment's rows, room for them before they are built, and the same JSON whatever the way."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.machine import StateMachine
from raftlake.runtime.http.base import ByteBudget, HttpError, Response
from raftlake.runtime.http.pages import BYTES_AT_ONCE, ROWS_AT_ONCE, Page

#: Names that JSON makes long: control characters, what needs two escapes, and plain ones.
NAMES = ["\x01" * 30, "𝄞" * 20, "é" * 40, "plain", '"\\' * 20]


def apply(machine: StateMachine, *ops: Any) -> None:
    machine.apply(max(machine.applied_offset, 1), encode(Txn((), ops)))


def filled(count: int, value: bytes = b"v") -> StateMachine:
    machine = StateMachine()
    for start in range(0, count, 1000):
        apply(machine, *(Put(f"k{number:05d}", value) for number in range(start, min(start + 1000, count))))
    return machine


def page(machine: StateMachine, budget: ByteBudget | None = None, **given: Any) -> Page:
    asked = {"prefix": "", "after": None, "limit": 1000, "with_values": False} | given
    is_wanted = asked.pop("is_wanted", lambda: True)
    return Page(machine, budget or ByteBudget(1 << 30), is_wanted, **asked)


def finish(pieces: Any) -> Response:
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("with_values", [False, True])
def test_both_ways_to_a_page_lead_to_the_same(with_values: bool) -> None:
    machine = filled(3)
    for name in NAMES:
        apply(machine, Put(name, name.encode()))
    small = page(machine, with_values=with_values).small()
    large = finish(page(machine, with_values=with_values).pieces())
    assert small is not None and small.body == large.body and small.offset == large.offset == machine.applied_offset
    rows = json.loads(large.body)["entries"]
    assert [row["key"] for row in rows] == sorted(["k00000", "k00001", "k00002", *NAMES])
    for row in rows:
        entry = machine.get(row["key"])
        assert entry is not None and (row["version"], row["size"]) == (entry.version, len(entry.value))
        assert base64.b64decode(row.get("value", "")) == (entry.value if with_values else b"")


@pytest.mark.parametrize(
    ("count", "limit", "is_small"),
    [
        (ROWS_AT_ONCE, 1000, True),
        (ROWS_AT_ONCE + 1, 1000, False),
        (5000, ROWS_AT_ONCE, True),
        (5000, ROWS_AT_ONCE + 1, False),
        (0, 10_000, True),
    ],
)
def test_a_page_is_small_by_what_it_holds(count: int, limit: int, is_small: bool) -> None:
    small = page(filled(count), limit=limit).small()
    assert (small is not None) == is_small
    if small is not None:
        assert json.loads(small.body)["more"] == (count > limit)


def test_a_page_of_few_large_values_is_not_small_with_them() -> None:
    machine = filled(3, bytes(BYTES_AT_ONCE // 2))
    assert page(machine).small() is not None
    assert page(machine, with_values=True).small() is None
    assert page(machine, with_values=True, limit=2).small() is not None


def test_the_rows_are_those_of_one_moment() -> None:
    machine = filled(500)
    pieces = page(machine).pieces()
    for _ in range(10):
        next(pieces)
    offset = machine.applied_offset
    apply(machine, Delete("k00499"), Put("k00498", b"new"), Put("k00000x", b""))
    response = finish(pieces)
    rows = json.loads(response.body)["entries"]
    assert [row["key"] for row in rows] == [f"k{number:05d}" for number in range(500)]
    assert {row["version"] for row in rows} == {1} and response.offset == offset


@pytest.mark.parametrize("names", [[f"k{number}" for number in range(300)], [name * 8 for name in NAMES]])
@pytest.mark.parametrize("with_values", [False, True])
def test_room_is_asked_for_before_the_body_is_built_and_is_enough(names: list[str], with_values: bool) -> None:
    machine, budget = StateMachine(), ByteBudget(1 << 30)
    for name in names:
        apply(machine, Put(name, bytes(1000)))
    pieces = page(machine, budget, with_values=with_values).pieces()
    next(pieces)
    assert budget.held == 0
    next(pieces)
    asked = budget.held
    response = finish(pieces)
    assert response.hold is not None and budget.held == len(response.body) <= asked
    response.hold.release()
    response.hold.release()
    assert budget.held == 0


def test_without_room_nothing_is_built() -> None:
    machine, budget = filled(300), ByteBudget(10_000)
    budget.take(1)
    pieces = page(machine, budget).pieces()
    next(pieces)
    with pytest.raises(HttpError) as refused:
        next(pieces)
    assert refused.value.status == 503 and budget.held == 1


def test_a_page_that_is_dropped_amid_its_pieces_gives_its_room_back() -> None:
    budget = ByteBudget(1 << 30)
    dropped = page(filled(300), budget)
    pieces = dropped.pieces()
    for _ in range(4):
        next(pieces)
    assert budget.held
    pieces.close()
    dropped.drop()
    assert budget.held == 0


def test_the_client_that_has_gone_gets_no_page() -> None:
    budget = ByteBudget(1 << 30)
    with pytest.raises(HttpError):
        next(page(filled(300), budget, is_wanted=lambda: False).pieces())


def test_no_piece_is_large() -> None:
    machine = filled(1000)
    count = sum(1 for _ in page(machine).pieces())
    assert count >= 1000 // 16
    machine = filled(7, bytes(1 << 20))
    assert sum(1 for _ in page(machine, with_values=True).pieces()) >= 7 + 2
