"""JSON that anybody may have written: nothing of it raises."""

from __future__ import annotations

import pytest

from raftlake.kv.lenient_json import facts_of, number_of, text_of


@pytest.mark.parametrize(
    "value", [None, b"", b"no json", b"\xff", b"[1]", b"7", b"null", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000]
)
def test_what_is_no_object_has_no_members(value: bytes | None) -> None:
    assert facts_of(value) == {}


def test_members_of_another_kind_are_empty() -> None:
    facts = facts_of(b'{"t":"x","n":-7,"b":true,"f":1.0,"half":"a\\ud800b","l":[1]}')
    assert [text_of(facts, name) for name in ("t", "n", "l", "none")] == ["x", "", "", ""]
    assert text_of(facts, "half") == "a?b"
    assert [number_of(facts, name) for name in ("n", "b", "f", "t", "none")] == [-7, 0, 0, 0, 0]
    assert number_of(facts, "none", -1) == -1
