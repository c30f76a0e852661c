"""The key-value routes at their bounds: pages, bodies, and keys that are reserved wherever in a request they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raftlake.kv.commands import Put, Txn
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.runtime.http.base import ByteBudget, HttpError
from raftlake.runtime.http.exchange import PIECE_BYTES
from raftlake.runtime.http.kv import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from raftlake.runtime.http.pages import LIST_BYTES_MAX
from runtime_fakes import run, settle, until
from runtime_http_fakes import FakeKv, Front, http_front

JSON_BODY = {"content-type": "application/json"}


def fronted(test: Callable[[Front], Awaitable[None]]) -> None:
    async def main() -> None:
        async with http_front() as on:
            await test(on)

    run(main())


def fill(on: Front, count: int, value: bytes = b"") -> list[str]:
    keys = [f"k{number:05d}" for number in range(count)]
    for start in range(0, count, 1000):
        ops = tuple(Put(key, value) for key in keys[start : start + 1000])
        on.node.kv.apply(Txn((), ops))
    return keys


async def page(on: Front, **params: Any) -> tuple[list[str], bool]:
    answer = await on.client.get("/v1/kv", params=params)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return [row["key"] for row in body["entries"]], body["more"]


def test_a_page_holds_as_many_keys_as_asked_for_up_to_the_bound() -> None:
    async def test(on: Front) -> None:
        keys = fill(on, LIST_LIMIT_MAX + 1)
        assert await page(on) == (keys[:LIST_LIMIT_DEFAULT], True)
        assert await page(on, limit=1) == (keys[:1], True)
        assert await page(on, limit=LIST_LIMIT_MAX) == (keys[:LIST_LIMIT_MAX], True)
        assert await page(on, after=keys[0], limit=LIST_LIMIT_MAX) == (keys[1:], False)
        assert await page(on, after=keys[-1]) == ([], False)
        assert await page(on, after=keys[-LIST_LIMIT_DEFAULT - 1]) == (keys[-LIST_LIMIT_DEFAULT:], False)
        assert (await on.client.get("/v1/kv", params={"limit": LIST_LIMIT_MAX + 1})).status_code == 400

    fronted(test)


def test_a_page_with_values_ends_at_its_bytes_and_one_without_does_not() -> None:
    async def test(on: Front) -> None:
        fits = LIST_BYTES_MAX >> 20
        keys = [f"k{number}" for number in range(fits + 2)]
        for key in keys:
            on.node.kv.apply(Txn((), (Put(key, bytes(1 << 20)),)))
        assert await page(on, values="true") == (sorted(keys)[:fits], True)
        assert await page(on, values="true", after=sorted(keys)[fits - 1]) == (sorted(keys)[fits:], False)
        assert await page(on, values="false") == (sorted(keys), False)
        assert await page(on) == (sorted(keys), False)

    fronted(test)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("reserved", [{"delete": {"key": "/raftlake/x"}}, {"put": {"key": "/raftlake/", "text": ""}}])
def test_no_operation_of_a_transaction_writes_a_reserved_key(reserved: dict[str, Any], place: int) -> None:
    async def test(on: Front) -> None:
        ops: list[dict[str, Any]] = [{"put": {"key": "a", "text": ""}}, {"delete": {"key": "/raftlak"}}]
        ops.insert(place, reserved)
        answer = await on.client.post("/v1/txn", json={"ops": ops})
        assert answer.status_code == 403 and "written by the quorum alone" in answer.json()["error"]
        assert on.node.kv.proposed == []
        ops.remove(reserved)
        compare = [{"key": "/raftlake/x", "version": 0}]
        assert (await on.client.post("/v1/txn", json={"compare": compare, "ops": ops})).status_code == 200

    fronted(test)


def test_the_second_wrong_part_of_a_transaction_is_named_by_its_place() -> None:
    async def test(on: Front) -> None:
        good = {"put": {"key": "a", "text": ""}}
        answer = await on.client.post("/v1/txn", json={"ops": [good, {"put": {"key": "b"}}]})
        assert answer.status_code == 400 and answer.json()["error"].startswith("ops[1]: put takes")
        compare = [{"key": "a", "version": 0}, {"key": "b", "version": -2}]
        answer = await on.client.post("/v1/txn", json={"compare": compare, "ops": [good]})
        assert answer.status_code == 400 and answer.json()["error"].startswith("compare[1]: version -2")

    fronted(test)


def test_a_body_of_the_largest_size_is_taken_however_it_comes() -> None:
    async def test(on: Front) -> None:
        async def chunks(size: int) -> Any:
            for start in range(0, size, 1 << 16):
                yield bytes(min(1 << 16, size - start))

        for size, status in (((1 << 20), 200), ((1 << 20) + 1, 413)):
            assert (await on.client.put("/v1/kv/whole", content=bytes(size))).status_code == status
            assert (await on.client.put("/v1/kv/chunked", content=chunks(size))).status_code == status
        assert len(on.node.kv.proposed) == 2

    fronted(test)


def test_the_last_byte_of_a_budget_is_for_use() -> None:
    budget = ByteBudget(100)
    with budget.hold(60), budget.hold(40):
        with pytest.raises(HttpError), budget.hold(1):
            raise AssertionError("there was no room")
        with budget.hold(0):
            assert budget.held == 100
    with budget.hold(99):
        with budget.hold(1):
            assert budget.held == 100
        with pytest.raises(HttpError), budget.hold(2):
            raise AssertionError("there was no room")
    assert budget.held == 0


@pytest.mark.parametrize("size", [1, PIECE_BYTES, PIECE_BYTES + 1, 1 << 20])
def test_a_value_of_any_size_is_told_by_head_and_given_by_get(size: int) -> None:
    """One connection: bytes of a body behind a HEAD would be taken for the next answer."""

    async def test(on: Front) -> None:
        value = bytes(range(256)) * (size // 256 + 1)
        await on.client.put("/v1/kv/k", content=value[:size])
        for _ in range(2):
            told = await on.client.head("/v1/kv/k")
            assert (told.status_code, told.headers["content-length"], told.content) == (200, str(size), b"")
            given = await on.client.get("/v1/kv/k")
            assert (given.status_code, given.content) == (200, value[:size])
        assert on.front.connection_count == 1

    fronted(test)


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_a_condition_that_stands_twice_changes_nothing(name: str) -> None:
    async def test(on: Front) -> None:
        for first, second in (("*", "*"), ('"1"', "*"), ("*", '"1"')):
            answer = await on.client.put("/v1/kv/k", headers=[(name, first), (name, second)])
            assert answer.status_code == 400 and "must stand once" in answer.json()["error"]
        assert on.node.kv.proposed == []

    fronted(test)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/kv/k", 503),
        ("HEAD", "/v1/kv/k", 503),
        ("GET", "/v1/kv", 503),
        ("PUT", "/v1/kv/k", 504),
        ("DELETE", "/v1/kv/k", 504),
        ("POST", "/v1/txn", 504),
    ],
)
def test_every_request_under_way_when_the_node_stops_is_answered(method: str, path: str, status: int) -> None:
    """Two of them. The quorum answers the first, and the end waits for the second."""

    async def test(on: Front) -> None:
        waiting: list[Callable[[Any], None]] = []
        on.node.kv.read = lambda linearizable, done: waiting.append(done)  # type: ignore[method-assign]
        on.node.kv.propose = lambda txn, done: waiting.append(done)  # type: ignore[method-assign]
        content = b'{"ops":[]}' if method == "POST" else b""
        asked = []
        for count in (1, 2):
            asked.append(asyncio.create_task(on.client.request(method, path, content=content, headers=JSON_BODY)))
            await until(lambda count=count: len(waiting) == count)  # type: ignore[misc]
        on.front.close()
        ended = asyncio.create_task(on.front.wait_closed())
        await settle()
        if method in ("GET", "HEAD"):
            FakeKv.read(on.node.kv, True, waiting[0])
        else:
            waiting[0](ProposeOutcome(ProposeStatus.REFUSED))
        first = await asked[0]
        assert first.status_code in (200, 404) if method in ("GET", "HEAD") else first.status_code == 503
        await settle()
        assert not ended.done()
        await on.front.abandon()
        await ended
        second = await asked[1]
        assert second.status_code == status
        assert ("retry-after" in second.headers) == (status == 503)

    fronted(test)
