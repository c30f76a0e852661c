"""The key-value space over HTTP: conditions, statuses and what each of them promises."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.kv.commands import ANY, Compare, Delete, Put, Txn
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.runtime.http.base import ByteBudget, HttpError
from raftlake.runtime.http.kv import CONDITION_FAILED
from runtime_fakes import run
from runtime_http_fakes import Front, http_front

JSON = {"content-type": "application/json"}


def fronted(test: Callable[[Front], Awaitable[None]]) -> None:
    async def main() -> None:
        async with http_front() as on:
            await test(on)

    run(main())


def test_put_get_delete() -> None:
    async def test(on: Front) -> None:
        made = await on.client.put("/v1/kv/a/b c%2Fd", content=b"\x00bytes")
        assert (made.status_code, made.headers["etag"], made.headers["x-raftlake-offset"]) == (200, '"1"', "2")
        assert made.json() == {"key": "a/b c/d", "version": 1}
        assert on.node.kv.machine.get("a/b c/d") is not None
        got = await on.client.get("/v1/kv/a/b%20c/d")
        assert (got.status_code, got.content, got.headers["etag"]) == (200, b"\x00bytes", '"1"')
        assert got.headers["content-type"] == "application/octet-stream"
        head = await on.client.head("/v1/kv/a/b%20c/d")
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "6")
        gone = await on.client.delete("/v1/kv/a/b%20c/d")
        assert (gone.status_code, gone.headers["etag"]) == (200, '"2"')
        missing = await on.client.get("/v1/kv/a/b%20c/d")
        assert (missing.status_code, missing.headers["x-raftlake-offset"]) == (404, "3")
        assert missing.json() == {"error": "no such key", "key": "a/b c/d"}

    fronted(test)


def test_a_key_space_at_its_quota_is_507_and_says_what_to_do() -> None:
    async def test(on: Front) -> None:
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.REFUSED, reason="kv.quota.bytes=5: delete keys")
        ops = json.dumps({"ops": [{"put": {"key": "k", "text": "v"}}]}).encode()
        writes = [on.client.put("/v1/kv/k", content=b"v"), on.client.post("/v1/txn", content=ops, headers=JSON)]
        for refused in [await write for write in writes]:
            assert (refused.status_code, refused.json()) == (507, {"error": "kv.quota.bytes=5: delete keys"})
            assert "retry-after" not in refused.headers and "x-raftlake-offset" in refused.headers
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.REFUSED)
        assert (await on.client.put("/v1/kv/k", content=b"v")).status_code == 503

    fronted(test)


def test_conditions_of_a_write() -> None:
    async def test(on: Front) -> None:
        put = on.client.put
        assert (await put("/v1/kv/k", content=b"1", headers={"If-None-Match": "*"})).status_code == 200
        refused = await put("/v1/kv/k", content=b"2", headers={"If-None-Match": "*"})
        assert (refused.status_code, refused.json()) == (412, {"error": CONDITION_FAILED, "key": "k", "version": 1})
        assert (await put("/v1/kv/k", content=b"2", headers={"If-Match": '"1"'})).status_code == 200
        stale = await on.client.delete("/v1/kv/k", headers={"If-Match": '"1"'})
        assert (stale.status_code, stale.json()) == (412, {"error": CONDITION_FAILED, "key": "k", "version": 3})
        assert (await on.client.delete("/v1/kv/k", headers={"If-Match": '"3"'})).status_code == 200
        absent = await put("/v1/kv/k", content=b"4", headers={"If-Match": "*"})
        assert (absent.status_code, absent.json()) == (412, {"error": CONDITION_FAILED, "key": "k", "version": 0})
        assert on.node.kv.proposed[-1].compares == (Compare("k", ANY),)

    fronted(test)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"If-None-Match": '"1"'}, "If-None-Match: .*accepted is \\*"),
        ({"If-Match": "1"}, 'If-Match: 1: accepted is one version in quotes, as in "17"'),
        ({"If-Match": 'W/"1"'}, "accepted is one version"),
        ({"If-Match": '"1", "2"'}, "accepted is one version"),
        ({"If-Match": '"1","2"'}, "accepted is one version"),
        ({"If-Match": '"1" ' + '"'}, "accepted is one version"),
        ({"If-Match": '"1 2"'}, "accepted is one version"),
        ({"If-Match": '"1'}, "accepted is one version"),
        ({"If-Match": '"1"', "If-None-Match": "*"}, "contradict"),
    ],
)
def test_a_condition_that_cannot_be_read_changes_nothing(headers: dict[str, str], message: str) -> None:
    async def test(on: Front) -> None:
        for answer in (await on.client.put("/v1/kv/k", headers=headers), await on.client.delete("/v1/kv/k", headers=headers)):
            assert answer.status_code == 400
            with pytest.raises(ValueError, match=message):
                raise ValueError(answer.json()["error"])
        assert on.node.kv.proposed == []

    fronted(test)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/kv/", 400),
        ("/v1/kv/%ff", 400),
        ("/v1/kv/" + "k" * 1025, 400),
        ("/v1/kv//raftlake/topics/t", 403),
        ("/v1/kv/%2Fraftlake%2Fx", 403),
        ("/v1/kv/k?x=1", 400),
        ("/v1/kv/k?consistency=linearizable", 400),
    ],
)
def test_keys_that_cannot_be_written(path: str, status: int) -> None:
    async def test(on: Front) -> None:
        assert (await on.client.put(path, content=b"v")).status_code == status
        assert (await on.client.delete(path)).status_code == status
        assert on.node.kv.proposed == []

    fronted(test)


def test_reserved_keys_can_be_read() -> None:
    async def test(on: Front) -> None:
        on.node.kv.apply(Txn((), (Put("/raftlake/cluster", b"{}"),)))
        assert (await on.client.get("/v1/kv//raftlake/cluster")).content == b"{}"

    fronted(test)


def test_values_have_a_limit() -> None:
    async def test(on: Front) -> None:
        assert (await on.client.put("/v1/kv/k", content=bytes(1 << 20))).status_code == 200
        refused = await on.client.put("/v1/kv/k", content=bytes((1 << 20) + 1))
        assert refused.status_code == 413 and "1048576" in refused.json()["error"]

        async def chunks() -> Any:
            for _ in range(40):
                yield bytes(1 << 16)

        unannounced = await on.client.put("/v1/kv/k", content=chunks())
        assert unannounced.status_code == 413
        assert len(on.node.kv.proposed) == 1

    fronted(test)


def test_reads_are_linearizable_unless_asked_to_be_stale() -> None:
    async def test(on: Front) -> None:
        on.node.kv.apply(Txn((), (Put("k", b"v"),)))
        await on.client.get("/v1/kv/k")
        await on.client.get("/v1/kv/k?consistency=linearizable")
        await on.client.get("/v1/kv?prefix=k")
        assert on.node.kv.reads == 3
        on.node.kv.read_error = ErrorCode.LEADER_NOT_AVAILABLE
        refused = await on.client.get("/v1/kv/k")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "LEADER_NOT_AVAILABLE" in refused.json()["error"]
        assert (await on.client.get("/v1/kv/k?consistency=stale")).content == b"v"
        assert (await on.client.get("/v1/kv?consistency=stale")).status_code == 200
        wrong = await on.client.get("/v1/kv/k?consistency=eventual")
        assert (wrong.status_code, "linearizable and stale" in wrong.json()["error"]) == (400, True)

    fronted(test)


def test_lists() -> None:
    async def test(on: Front) -> None:
        for key in ("a/1", "a/2", "a/3", "b/1"):
            on.node.kv.apply(Txn((), (Put(key, key.encode()),)))
        get = on.client.get
        first = (await get("/v1/kv", params={"prefix": "a/", "limit": 2})).json()
        assert first == {
            "entries": [{"key": "a/1", "version": 1, "size": 3}, {"key": "a/2", "version": 2, "size": 3}],
            "more": True,
        }
        rest = (await get("/v1/kv", params={"prefix": "a/", "after": "a/2", "values": "true"})).json()
        assert rest == {
            "entries": [{"key": "a/3", "version": 3, "size": 3, "value": base64.b64encode(b"a/3").decode()}],
            "more": False,
        }
        assert [entry["key"] for entry in (await get("/v1/kv")).json()["entries"]] == ["a/1", "a/2", "a/3", "b/1"]

    fronted(test)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit='0': accepted is a whole number from 1 to 10000"),
        ("limit=x", "accepted is a whole number"),
        ("limit=\u0663", "accepted is a whole number"),
        ("values=yes", "accepted are false and true"),
        ("prefx=a", "unknown query parameter 'prefx'; accepted: prefix, after, limit, values, consistency"),
        ("prefix=a&prefix=b", "query parameter 'prefix' stands twice"),
        ("prefix=%ff", "query parameter 'prefix' is not percent-encoded UTF-8"),
    ],
)
def test_a_wrong_query_is_named(query: str, message: str) -> None:
    async def test(on: Front) -> None:
        answer = await on.client.get(f"/v1/kv?{query}")
        assert answer.status_code == 400
        assert message in answer.json()["error"]

    fronted(test)


def test_transactions() -> None:
    async def test(on: Front) -> None:
        body = {
            "compare": [{"key": "a", "version": 0}],
            "ops": [
                {"put": {"key": "a", "value": base64.b64encode(b"\x01").decode()}},
                {"put": {"key": "b", "text": "\u00e9"}},
            ],
        }
        made = await on.client.post("/v1/txn", json=body)
        assert (made.status_code, made.json(), made.headers["etag"]) == (200, {"succeeded": True, "version": 1}, '"1"')
        assert on.node.kv.proposed[-1] == Txn((Compare("a", 0),), (Put("a", b"\x01"), Put("b", "\u00e9".encode())))
        again = await on.client.post("/v1/txn", json=body)
        assert again.status_code == 412
        assert again.json() == {"error": CONDITION_FAILED, "succeeded": False, "failed": [{"key": "a", "version": 1}]}
        present = {"compare": [{"key": "a", "version": -1}], "ops": []}
        assert (await on.client.post("/v1/txn", json=present)).status_code == 200
        assert on.node.kv.proposed[-1] == Txn((Compare("a", ANY),), ())
        gone = await on.client.post("/v1/txn", json={"ops": [{"delete": {"key": "a"}}]})
        assert gone.status_code == 200
        assert on.node.kv.proposed[-1] == Txn((), (Delete("a"),))

    fronted(test)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "the body is not JSON"),
        ("[" * 100_000, 400, "the body is not JSON"),
        ([], 400, "the body must be"),
        ({"compare": []}, 400, "the body must be"),
        ({"ops": [], "x": 1}, 400, "the body must be"),
        ('{"ops": [], "ops": []}', 400, "'ops' stands twice in one object of the body"),
        ('{"ops": [{"put": {"key": "a", "key": "b", "text": ""}}]}', 400, "'key' stands twice in one object of the body"),
        ({"ops": [], "compare": [{"key": "a", "version": -2}]}, 400, "compare[0]: version -2 of key 'a' is not a log offset"),
        ({"ops": {}}, 400, "ops must be a list"),
        ({"ops": [{"put": {"key": "a"}}]}, 400, 'ops[0]: put takes a key and either "value" (base64) or "text"'),
        ({"ops": [{"put": {"key": "a", "value": "!"}}]}, 400, "ops[0]: value is not base64"),
        ({"ops": [{"put": {"key": "a", "text": "\ud800"}}]}, 400, "ops[0]: text is not valid Unicode"),
        ({"ops": [{"put": {"value": ""}}]}, 400, "ops[0]: put needs a key"),
        ({"ops": [{"drop": {"key": "a"}}]}, 400, "ops[0] must be"),
        ({"ops": [{"put": {"key": "a", "text": ""}, "delete": {"key": "b"}}]}, 400, "ops[0] must be"),
        ({"ops": [{"delete": {"key": "a", "text": "b"}}]}, 400, "ops[0]: delete takes a key or a prefix, and nothing else"),
        ({"ops": [{"delete": {"key": ""}}]}, 400, "ops[0]: key has 0 bytes"),
        ({"ops": [{"delete": {"key": "a"}}, {"delete": {"key": "a"}}]}, 400, "changes a key twice"),
        ({"ops": [{"put": {"key": "/raftlake/x", "text": ""}}]}, 403, "written by the quorum alone"),
        ({"ops": [], "compare": [{"key": "a"}]}, 400, "compare[0] must be"),
        ({"ops": [], "compare": [{"key": "a", "version": "1"}]}, 400, "compare[0]: key must be a string and version"),
        ({"ops": [], "compare": [{"key": "a", "version": True}]}, 400, "compare[0]: key must be a string and version"),
        ({"ops": [], "compare": [{"key": "a", "version": -2}]}, 400, "compare[0]: version -2"),
        ({"ops": [{"put": {"key": "a", "text": "x" * ((1 << 20) + 1)}}]}, 413, "value of key 'a' has 1048577 bytes"),
    ],
)
def test_a_wrong_transaction_names_its_part(body: Any, status: int, message: str) -> None:
    async def test(on: Front) -> None:
        content = body if isinstance(body, str) else json.dumps(body)
        answer = await on.client.post("/v1/txn", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
        assert on.node.kv.proposed == []

    fronted(test)


def test_a_follower_sends_writers_to_the_leader() -> None:
    async def test(on: Front) -> None:
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=2)  # type: ignore[arg-type]
        moved = await on.client.put("/v1/kv/a%20b", content=b"v")
        assert (moved.status_code, moved.headers["location"]) == (307, "http://10.0.0.2:8092/v1/kv/a%20b")
        assert moved.json() == {"error": "node 2 leads", "leaderId": 2, "leader": "10.0.0.2:8092"}
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=3)  # type: ignore[arg-type]
        assert (await on.client.post("/v1/txn", json={"ops": []})).headers["location"] == "http://[::1]:8093/v1/txn"
        for leader_id in (-1, 9):
            on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=leader_id)  # type: ignore[arg-type]
            nowhere = await on.client.delete("/v1/kv/a")
            assert (nowhere.status_code, nowhere.headers["retry-after"]) == (503, "1")

    fronted(test)


def test_refused_and_unknown_are_told_apart() -> None:
    async def test(on: Front) -> None:
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.REFUSED)
        refused = await on.client.put("/v1/kv/k", content=b"v")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "nothing changed" in refused.json()["error"]
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.UNKNOWN)
        unknown = await on.client.put("/v1/kv/k", content=b"v")
        assert unknown.status_code == 504 and "unknown" in unknown.json()["error"]
        assert on.metrics.commit_latency.read(10**15) == (0.0, 0.0)

    fronted(test)


def test_a_broken_invariant_stops_the_node_and_another_bug_does_not(caplog: pytest.LogCaptureFixture) -> None:
    async def test(on: Front) -> None:
        broken = InvariantViolation("we")
        on.node.kv.listeners.append(raising(broken))
        assert (await on.client.put("/v1/kv/k", content=b"v")).status_code == 500
        assert on.fatal == [broken]
        on.node.kv.listeners[-1] = raising(KeyError("bug"))
        assert (await on.client.put("/v1/kv/k", content=b"v")).status_code == 500
        assert on.fatal == [broken]

    def raising(error: Exception) -> Callable[[int], None]:
        def fail(applied_offset: int) -> None:
            raise error

        return fail

    fronted(test)
    assert "failed to serve PUT /v1/kv/k" in caplog.text


def test_bodies_under_way_have_a_limit_together() -> None:
    budget = ByteBudget(100)
    with budget.hold(90):
        with pytest.raises(HttpError) as refused, budget.hold(20):
            raise AssertionError("there was no room")
        assert refused.value.status == 503
        with budget.hold(10):
            assert budget.held == 100
    with budget.hold(1000):
        assert budget.held == 1000
    assert budget.held == 0
