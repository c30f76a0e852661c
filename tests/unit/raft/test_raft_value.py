"""Values: made by keyword, compared and hashed by their fields, without a dictionary each."""

from __future__ import annotations

import pytest

from raftlake.raft.value import value


@value
class Point:
    x: int
    y: int = 0


def test_values_are_equal_and_hash_alike_when_their_fields_are() -> None:
    assert Point(x=1) == Point(x=1, y=0) != Point(x=1, y=1)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2
    assert repr(Point(x=1)) == "Point(x=1, y=0)"


def test_fields_are_named_and_no_others_can_be_set() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Point(x=1).z = 2  # type: ignore[attr-defined]


def test_a_value_matches_by_class_and_attribute() -> None:
    match Point(x=1, y=2):
        case Point(x=1, y=found):
            assert found == 2
        case _:
            raise AssertionError
