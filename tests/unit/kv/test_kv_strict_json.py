"""Reading JSON that may be anything: the right fields, or a refusal that says what is wrong."""

from __future__ import annotations

import pytest

from raftlake.kv.strict_json import (
    BRACKETS_MAX,
    VALUE_BYTES_MAX,
    Refused,
    integer,
    items,
    json_object,
    plain_text,
    read_or_refuse,
    whole_number,
)


def test_a_good_object_is_read() -> None:
    assert json_object(b'{"a": 1, "b": ["x"]}') == {"a": 1, "b": ["x"]}
    assert read_or_refuse(lambda: integer(json_object(b'{"a": 7}')["a"], 7, 7)) == 7


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"[]", "no JSON object"),
        (b"{", ""),
        (b"\xff", ""),
        (b'{"a": 1.5}', "1.5 is not a whole number"),
        (b'{"a": NaN}', "NaN is not a whole number"),
        (b'{"a": -1}', "is not a whole number"),
        (b'{"a": 12345678901234567890}', "is not a whole number"),
        (b'{"a": ' + b"[" * BRACKETS_MAX, "brackets"),
        (b" " * (VALUE_BYTES_MAX + 1), "bytes, at most"),
        (b"{}", "a is missing"),
    ],
)
def test_what_is_wrong_is_said_and_never_raised(value: bytes, reason: str) -> None:
    refused = read_or_refuse(lambda: json_object(value)["a"])
    assert isinstance(refused, Refused) and reason in refused.reason


def test_the_largest_value_and_the_deepest_are_read() -> None:
    assert json_object(b"{}".ljust(VALUE_BYTES_MAX)) == {}
    depth = BRACKETS_MAX - 1
    assert "a" in json_object(b'{"a": ' + b"[" * depth + b"]" * depth + b"}")


@pytest.mark.parametrize("digits", ["", "01", "-1", "1e3", "\u0661", "1" * 20])
def test_a_number_is_plain_digits(digits: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        whole_number(digits)
    assert whole_number("0") == 0 and whole_number("9" * 19) == 10**19 - 1


@pytest.mark.parametrize("found", [True, 0, 4, "3", None, 2.0])
def test_a_number_lies_within_its_bounds(found: object) -> None:
    with pytest.raises(ValueError, match="from 1 to 3"):
        integer(found, 1, 3)
    assert [integer(each, 1, 3) for each in (1, 3)] == [1, 3]


@pytest.mark.parametrize("found", ["a\n", "\x85", "\u202e", "\ud800", "\ufffe", "\U0010ffff", 1, None])
def test_a_text_is_plain(found: object) -> None:
    with pytest.raises(ValueError, match="text"):
        plain_text(found)
    assert plain_text("Köln 1") == "Köln 1"


def test_a_list_is_a_list() -> None:
    assert items([1]) == [1]
    with pytest.raises(ValueError, match="list"):
        items("ab")
