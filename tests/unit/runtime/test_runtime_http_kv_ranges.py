"""Ranges of keys over HTTP: compares and deletions of a prefix in a transaction, and lists up to a delimiter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest

from raftlake.kv.commands import DELETE_RANGE_KEYS_MAX, ComparePrefix, DeletePrefix, Put, Txn, encode
from raftlake.kv.machine import StateMachine, TxnResult
from raftlake.kv.ranges import RangeResult
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.runtime.http import pages
from raftlake.runtime.http.base import ByteBudget
from raftlake.runtime.http.kv import CONDITION_FAILED, END_REFUSED
from raftlake.runtime.http.pages import NAMES_MAX, ROWS_AT_ONCE, Page
from runtime_fakes import run
from runtime_http_fakes import Front, http_front


def fronted(test: Callable[[Front], Awaitable[None]]) -> None:
    async def main() -> None:
        async with http_front() as on:
            await test(on)

    run(main())


def fill(on: Front, *keys: str) -> None:
    for key in keys:
        on.node.kv.apply(Txn((), (Put(key, b"v"),)))


def names(answer: Any) -> tuple[list[str], list[str], bool]:
    body = answer.json()
    return [row["key"] for row in body["entries"]], body["prefixes"], body["more"]


# --- transactions ---


def test_a_range_is_compared_and_deleted_in_one_transaction() -> None:
    async def test(on: Front) -> None:
        fill(on, "d/a", "d/b", "e")
        body = {
            "compare": [{"prefix": "d/", "newest": 1}],
            "ops": [{"delete": {"prefix": "d/"}}, {"put": {"key": "d", "text": ""}}],
        }
        refused = await on.client.post("/v1/txn", json=body)
        assert refused.status_code == 412
        assert refused.json() == {"error": CONDITION_FAILED, "succeeded": False, "failed": [{"prefix": "d/", "newest": 2}]}
        body["compare"] = [{"prefix": "d/", "newest": 2}]
        done = await on.client.post("/v1/txn", json=body)
        assert (done.status_code, done.json(), done.headers["etag"]) == (
            200,
            {"succeeded": True, "version": 5, "deleted": 2},
            '"5"',
        )
        assert on.node.kv.proposed[-1] == Txn((ComparePrefix("d/", 2),), (DeletePrefix("d/"), Put("d", b"")))
        nothing = await on.client.post("/v1/txn", json={"ops": [{"delete": {"prefix": "d/"}}]})
        assert nothing.json() == {"succeeded": True, "version": 6, "deleted": 0}
        compared = await on.client.post("/v1/txn", json={"compare": [{"prefix": "d/", "newest": 0}], "ops": []})
        assert compared.json() == {"succeeded": True, "version": 7}

    fronted(test)


def test_keys_and_ranges_that_do_not_hold_are_told_together() -> None:
    async def test(on: Front) -> None:
        fill(on, "d/a", "k")
        compare = [{"prefix": "d/", "newest": 0}, {"key": "k", "version": 0}, {"prefix": "x", "newest": 0}]
        refused = await on.client.post("/v1/txn", json={"compare": compare, "ops": []})
        assert refused.status_code == 412
        assert refused.json()["failed"] == [{"key": "k", "version": 2}, {"prefix": "d/", "newest": 1}]

    fronted(test)


def outcome_of(**given: Any) -> ProposeOutcome:
    return ProposeOutcome(ProposeStatus.DONE, TxnResult(succeeded=False, offset=9, **given))


@pytest.mark.parametrize(
    ("given", "status", "told"),
    [
        (
            {"ranges": RangeResult(deletes_too_large=("d/",))},
            409,
            {"too_large": [{"prefix": "d/", "of": "delete", "keys_max": 10_000}], "failed": [], "succeeded": False},
        ),
        (
            {"ranges": RangeResult(compares_too_large=("c/",))},
            409,
            {"too_large": [{"prefix": "c/", "of": "compare", "keys_max": 10_000}], "failed": [], "succeeded": False},
        ),
        (
            {"ranges": RangeResult(newest=(("c/", 3),), deletes_too_large=("d/",))},
            412,
            {
                "failed": [{"prefix": "c/", "newest": 3}],
                "too_large": [{"prefix": "d/", "of": "delete", "keys_max": 10_000}],
                "succeeded": False,
            },
        ),
        (
            {"refused": ((7, "why"),), "ranges": RangeResult(deletes_too_large=("d/",))},
            412,
            {
                "failed": [],
                "refused": [{"producer_id": 7, "reason": "why"}],
                "too_large": [{"prefix": "d/", "of": "delete", "keys_max": 10_000}],
                "succeeded": False,
            },
        ),
    ],
)
def test_what_stood_in_the_way_is_named(given: dict[str, Any], status: int, told: dict[str, Any]) -> None:
    async def test(on: Front) -> None:
        on.node.kv.outcome = outcome_of(**given)
        answer = await on.client.post("/v1/txn", json={"ops": [{"delete": {"prefix": "d/"}}]})
        assert answer.status_code == status and answer.headers["x-raftlake-offset"] == "10"
        body = answer.json()
        error = body.pop("error")
        assert body == told
        if status == 409:
            assert "10000 keys" in error and "nothing changed" in error
        else:
            assert error in (CONDITION_FAILED, END_REFUSED)

    fronted(test)


def test_a_range_of_too_many_keys_is_409_and_stays() -> None:
    async def test(on: Front) -> None:
        for start in range(0, DELETE_RANGE_KEYS_MAX + 1, 1000):
            last = min(start + 1000, DELETE_RANGE_KEYS_MAX + 1)
            on.node.kv.apply(Txn((), tuple(Put(f"d/{number:06}", b"") for number in range(start, last))))
        answer = await on.client.post("/v1/txn", json={"ops": [{"delete": {"prefix": "d/"}}]})
        assert answer.status_code == 409 and len(on.node.kv.machine) == DELETE_RANGE_KEYS_MAX + 1

    fronted(test)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"ops": [{"delete": {"prefix": ""}}]}, 400, "prefix has 0 bytes"),
        ({"ops": [{"delete": {"prefix": "k" * 1025}}]}, 400, "prefix has 1025 bytes"),
        ({"ops": [{"delete": {"prefix": 7}}]}, 400, "a key or a prefix, a string"),
        ({"ops": [{"delete": {"prefix": "a", "key": "b"}}]}, 400, "and nothing else"),
        ({"ops": [{"delete": {}}]}, 400, "delete needs a key or a prefix"),
        ({"ops": [{"put": {"prefix": "a", "text": ""}}]}, 400, "put needs a key, a string"),
        ({"ops": [{"delete": {"prefix": "/"}}]}, 403, "some begin with '/'"),
        ({"ops": [{"delete": {"prefix": "/raftlake"}}]}, 403, "written by the quorum alone"),
        ({"ops": [{"delete": {"prefix": "/raftlake/topics/x"}}]}, 403, "written by the quorum alone"),
        ({"ops": [{"delete": {"prefix": "a/"}}, {"put": {"key": "a/b", "text": ""}}]}, 400, "deletes all below 'a/'"),
        ({"ops": [{"delete": {"prefix": "a/"}}, {"delete": {"prefix": "a"}}]}, 400, "deletes all below 'a'"),
        ({"compare": [{"prefix": "a", "newest": -1}], "ops": []}, 400, "newest -1"),
        ({"compare": [{"prefix": "a", "newest": True}], "ops": []}, 400, "newest a whole number"),
        ({"compare": [{"prefix": 1, "newest": 1}], "ops": []}, 400, "prefix must be a string"),
        ({"compare": [{"prefix": "", "newest": 1}], "ops": []}, 400, "prefix has 0 bytes"),
        ({"compare": [{"prefix": "a", "version": 1}], "ops": []}, 400, "compare[0] must be"),
        ({"compare": [{"prefix": "a", "newest": 1, "key": "a"}], "ops": []}, 400, "compare[0] must be"),
    ],
)
def test_ranges_that_cannot_be_meant_change_nothing(body: dict[str, Any], status: int, message: str) -> None:
    async def test(on: Front) -> None:
        answer = await on.client.post("/v1/txn", json=body)
        assert answer.status_code == status and message in answer.json()["error"]
        assert on.node.kv.proposed == []

    fronted(test)


def test_a_watch_sees_each_key_of_a_range_go() -> None:
    async def test(on: Front) -> None:
        fill(on, "d/a", "d/b", "e")
        async with on.client.stream("GET", "/v1/watch?prefix=d/&from=3") as watch:
            await on.client.post("/v1/txn", json={"ops": [{"delete": {"prefix": "d"}}]})
            text = ""
            async with asyncio.timeout(10):
                async for chunk in watch.aiter_text():
                    text += chunk
                    if text.count("event: delete") == 2:
                        break
        rows = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
        assert [(row["key"], row["version"]) for row in rows] == [("d/a", 4), ("d/b", 4)]

    fronted(test)


# --- lists ---


def test_a_list_ends_at_the_delimiter() -> None:
    async def test(on: Front) -> None:
        fill(on, "p/a", "p/a/x", "p/a/y/z", "p/b", "p/c/x", "p", "p/", "q/a")
        answer = await on.client.get("/v1/kv?prefix=p/&delimiter=/")
        assert names(answer) == (["p/", "p/a", "p/b"], ["p/a/", "p/c/"], False)
        assert answer.json()["entries"][1] == {"key": "p/a", "version": 1, "size": 1}
        assert names(await on.client.get("/v1/kv?delimiter=/")) == (["p"], ["p/", "q/"], False)
        assert names(await on.client.get("/v1/kv?prefix=x&delimiter=/")) == ([], [], False)
        assert "prefixes" not in (await on.client.get("/v1/kv?prefix=p/")).json()
        with_values = await on.client.get("/v1/kv?prefix=p/&delimiter=/&values=true")
        assert [row["value"] for row in with_values.json()["entries"]] == ["dg=="] * 3

    fronted(test)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_pages_with_a_delimiter_go_on_behind_either_kind(limit: int) -> None:
    async def test(on: Front) -> None:
        fill(on, "a", "b/1", "b/2", "b/3", "c", "d/1", "d/2", "e/", "\U0010ffff/x", "\U0010ffff0")
        found: list[str] = []
        more, after = True, ""
        while more:
            keys, prefixes, more = names(await on.client.get(f"/v1/kv?delimiter=/&limit={limit}{after}"))
            assert 0 < len(keys) + len(prefixes) <= limit
            found += sorted([*keys, *prefixes])
            after = f"&after={quote(found[-1])}"
        assert found == ["a", "b/", "c", "d/", "e/", "\U0010ffff/", "\U0010ffff0"]

    fronted(test)


@pytest.mark.parametrize("delimiter", ["", "//", "ab"])
def test_a_delimiter_is_one_character(delimiter: str) -> None:
    async def test(on: Front) -> None:
        answer = await on.client.get(f"/v1/kv?delimiter={delimiter}")
        assert answer.status_code == 400 and "accepted is one character" in answer.json()["error"]

    fronted(test)


def test_both_ways_to_a_page_of_names_lead_to_the_same() -> None:
    on = StateMachine()
    keys = [f"{name}/{number:03}" for name in ("é", '"', "a") for number in range(3)] + ["k", "k\x01"]
    for offset, key in enumerate(keys, start=1):
        on.apply(offset, encode(Txn((), (Put(key, b"v" * 9),))))
    budget = ByteBudget(1 << 30)
    page = Page(on, budget, lambda: True, prefix="", after=None, limit=1000, with_values=True, delimiter="/")
    small, pieces = page.small(), page.pieces()
    held = []
    while True:
        try:
            next(pieces)
            held.append(budget.held)
        except StopIteration as end:
            large = end.value
            break
    assert small is not None and small.body == large.body
    assert json.loads(large.body)["prefixes"] == ['"/', "a/", "é/"]
    assert max(held) >= len(large.body) == budget.held


def test_a_page_of_many_names_ends_early_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name costs a search."""
    assert NAMES_MAX > ROWS_AT_ONCE
    monkeypatch.setattr(pages, "NAMES_MAX", 150)

    async def test(on: Front) -> None:
        on.node.kv.apply(Txn((), tuple(Put(f"{number:03}/x", b"") for number in range(400))))
        keys, prefixes, more = names(await on.client.get("/v1/kv?delimiter=/&limit=10000"))
        assert (keys, prefixes, more) == ([], [f"{number:03}/" for number in range(150)], True)

    fronted(test)
