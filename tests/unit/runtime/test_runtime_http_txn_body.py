"""What a transaction's JSON may be made of: counted before an object is built, in pieces, and right about strings."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlake.kv.commands import COMPARES_MAX, OPERATIONS_MAX, Compare, Put
from raftlake.runtime.http import txn_body
from raftlake.runtime.http.base import NUMBER_DIGITS_MAX, HttpError
from raftlake.runtime.http.txn_body import PARTS_MAX, parse_txn, require_few_parts


def finish(pieces: Any) -> Any:
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value


def passes(body: bytes) -> bool:
    try:
        finish(require_few_parts(body))
    except HttpError:
        return False
    return True


@pytest.mark.parametrize("part", [b"{},", b"[],", b'{"":0},', b'"",', b'"":', b"[", b'"'])
def test_a_body_of_nothing_but_parts_is_refused_before_it_is_parsed(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_body.json, "loads", None)
    pieces = parse_txn(b'{"ops":[' + part * 100_000 + b"{}]}")
    with pytest.raises(HttpError, match="more parts than any has") as refused:
        finish(pieces)
    assert refused.value.status == 400


def test_the_largest_transaction_passes() -> None:
    compares = [{"key": f"c{number}", "version": number} for number in range(COMPARES_MAX)]
    ops = [{"put": {"key": f"k{number}", "value": base64.b64encode(bytes(5000)).decode()}} for number in range(OPERATIONS_MAX)]
    txn = finish(parse_txn(json.dumps({"compare": compares, "ops": ops}, indent=1).encode()))
    assert len(txn.compares) == COMPARES_MAX and len(txn.ops) == OPERATIONS_MAX
    assert txn.compares[-1] == Compare(f"c{COMPARES_MAX - 1}", COMPARES_MAX - 1)


def test_one_operation_too_many_is_told_exactly() -> None:
    ops = [{"delete": {"key": f"k{number}"}} for number in range(OPERATIONS_MAX + 1)]
    with pytest.raises(HttpError, match=f"{OPERATIONS_MAX + 1} operations"):
        finish(parse_txn(json.dumps({"ops": ops}).encode()))


@pytest.mark.parametrize(
    "text", ["{[,:" * 50_000, '"{},' * 50_000, "\\" * 50_001 + "{," * 50_000, "\\" * 200_000, "é,{" * 50_000]
)
def test_what_stands_in_a_string_is_no_part(text: str) -> None:
    for ensure_ascii in (True, False):
        body = json.dumps({"ops": [{"put": {"key": "k", "text": text}}]}, ensure_ascii=ensure_ascii).encode()
        assert finish(parse_txn(body)).ops == (Put("k", text.encode()),)


@pytest.mark.parametrize("backslashes", [0, 1, 2, 3, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1])
@pytest.mark.parametrize("before", [0, 1, 64 * 1024 - 10])
def test_a_quote_is_escaped_by_an_odd_number_of_backslashes_wherever_they_stand(backslashes: int, before: int) -> None:
    parts = b"{}," * PARTS_MAX
    body = b'["' + b"x" * before + b"\\" * backslashes + b'"' + parts
    assert passes(body) == (backslashes % 2 == 1)


@given(st.recursive(st.text(alphabet='"\\{,a', max_size=9), lambda inner: st.lists(inner, max_size=4), max_leaves=30))
def test_the_parts_are_those_that_a_parser_finds(value: Any) -> None:
    """A value repeated until it is too much, and one that is not too much."""

    def parts_of(value: Any) -> int:
        if isinstance(value, str):
            return 1
        return 1 + max(len(value) - 1, 0) + sum(map(parts_of, value))

    times = 300 // (parts_of(value) + 1)
    with patch.object(txn_body, "PARTS_MAX", 300):
        for count in (max(times - 2, 0), times, 2 * times + 10):
            assert passes(json.dumps([value] * count).encode()) == (parts_of([value] * count) <= 300)


def test_other_encodings_than_utf_8_are_no_json() -> None:
    """Their quotes and backslashes stand apart, so the count of parts would mean nothing."""
    body = json.dumps({"ops": []})
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        with pytest.raises(HttpError, match="not JSON"):
            finish(parse_txn(body.encode(encoding)))
    assert finish(parse_txn(body.encode("utf-8-sig"))).ops == ()


def test_long_bodies_are_looked_through_in_pieces() -> None:
    text = json.dumps({"ops": [{"put": {"key": "k", "text": '"' * 100_000}}]}).encode()
    assert sum(1 for _ in require_few_parts(text)) >= 100_000 // 256


@pytest.mark.parametrize("digits", [NUMBER_DIGITS_MAX + 1, 4_301, 10_000])
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    "body",
    [
        '{"compare":[{"key":"k","version":%s}],"ops":[]}',
        '{"ops":[{"end_txn":{"producer_id":%s,"epoch":1,"commit":true}}]}',
        '{"ops":[],"other":%s}',
    ],
)
def test_a_number_of_many_digits_is_refused_in_our_words(body: str, sign: str, digits: int) -> None:
    """Python's own words are advice to whoever runs the node."""
    told = f"a number of {digits} digits; a number has at most {NUMBER_DIGITS_MAX}"
    with pytest.raises(HttpError, match=told) as refused:
        finish(parse_txn((body % (sign + "9" * digits)).encode()))
    assert refused.value.status == 400


def test_the_largest_numbers_are_read() -> None:
    most = 2**63 - 1
    assert len(str(most)) == NUMBER_DIGITS_MAX
    body = json.dumps({"compare": [{"key": "k", "version": most}, {"key": "l", "version": -1}], "ops": []})
    assert finish(parse_txn(body.encode())).compares == (Compare("k", most), Compare("l", -1))
