"""The versions of keys over HTTP: whose ETag an answer carries, and what a condition on one means where there is no key."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import httpx
import pytest

from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.replica.config import Endpoint
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.runtime.http.kv import CONDITION_FAILED
from runtime_fakes import run
from runtime_http_fakes import Front, http_front

JSON_BODY = {"content-type": "application/json"}


def fronted(test: Callable[[Front], Awaitable[None]]) -> None:
    async def main() -> None:
        async with http_front() as on:
            await test(on)

    run(main())


def etag_and_offset(answer: httpx.Response) -> tuple[str | None, str]:
    return answer.headers.get("etag"), answer.headers["x-raftlake-offset"]


# --- ETags of several keys -------------------------------------------------------------------------------------------------


def test_each_of_several_keys_is_answered_with_its_own_version() -> None:
    async def test(on: Front) -> None:
        client = on.client
        for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")):
            await client.put(f"/v1/kv/{key}", content=value)
        # Refused: it takes an offset, and changes no version.
        assert (await client.put("/v1/kv/a", content=b"5", headers={"If-None-Match": "*"})).status_code == 412
        for method in (client.get, client.head):
            answers = {key: await method(f"/v1/kv/{key}") for key in ("a", "b", "c", "b", "a")}
            assert {key: etag_and_offset(answer) for key, answer in answers.items()} == {
                "a": ('"3"', "6"),
                "b": ('"2"', "6"),
                "c": ('"4"', "6"),
            }
        stale = await client.get("/v1/kv/b?consistency=stale")
        assert (stale.content, *etag_and_offset(stale)) == (b"2", '"2"', "6")
        listed = (await client.get("/v1/kv?values=true")).json()["entries"]
        assert [(row["key"], row["version"], base64.b64decode(row["value"])) for row in listed] == [
            ("a", 3, b"3"),
            ("b", 2, b"2"),
            ("c", 4, b"4"),
        ]

    fronted(test)


def test_writes_one_after_the_other_each_get_the_version_of_their_own_change() -> None:
    async def test(on: Front) -> None:
        first = await on.client.put("/v1/kv/a", content=b"")
        second = await on.client.put("/v1/kv/b", content=b"")
        both = await on.client.post("/v1/txn", json={"ops": [{"delete": {"key": "a"}}, {"put": {"key": "c", "text": ""}}]})
        gone = await on.client.delete("/v1/kv/b")
        absent = await on.client.delete("/v1/kv/b")
        assert [etag_and_offset(answer) for answer in (first, second, both, gone, absent)] == [
            ('"1"', "2"),
            ('"2"', "3"),
            ('"3"', "4"),
            ('"4"', "5"),
            ('"5"', "6"),
        ]
        assert etag_and_offset(await on.client.get("/v1/kv/c")) == ('"3"', "6")
        missing = await on.client.get("/v1/kv/a")
        assert (missing.status_code, *etag_and_offset(missing)) == (404, None, "6")

    fronted(test)


def test_a_conflict_names_the_version_of_the_key_that_was_asked_for() -> None:
    async def test(on: Front) -> None:
        for key in ("a", "b", "c"):
            await on.client.put(f"/v1/kv/{key}", content=b"")
        refused = await on.client.put("/v1/kv/b", content=b"", headers={"If-Match": '"3"'})
        assert (refused.status_code, refused.json()) == (412, {"error": CONDITION_FAILED, "key": "b", "version": 2})
        assert etag_and_offset(refused) == (None, "5")
        several = await on.client.post(
            "/v1/txn",
            json={
                "compare": [{"key": key, "version": version} for key, version in (("c", 3), ("a", 9), ("x", -1), ("b", 0))],
                "ops": [{"put": {"key": "a", "text": ""}}],
            },
        )
        assert several.status_code == 412
        assert several.json()["failed"] == [
            {"key": "a", "version": 1},
            {"key": "x", "version": 0},
            {"key": "b", "version": 2},
        ]
        assert etag_and_offset(several) == (None, "6")

    fronted(test)


# --- conditions ------------------------------------------------------------------------------------------------------------


#: Entity-tags that no node gave: each is the number of a version, or none, in another spelling than a node's.
NO_VERSION = [
    '"0"',
    '"00"',
    '"02"',
    '"002"',
    '"+2"',
    '"2.0"',
    '"0x2"',
    '"9223372036854775808"',
    '"9999999999999999999"',
    '""',
    '"v2"',
]


@pytest.mark.parametrize("match", [*NO_VERSION, '"7"', "*"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_if_match_never_matches_a_key_that_does_not_exist(method: str, match: str) -> None:
    """RFC 9110 §13.1.1. Version 0 is no version of an entry."""

    async def test(on: Front) -> None:
        await on.client.put("/v1/kv/other", content=b"")
        for _ in range(2):
            answer = await on.client.request(method, "/v1/kv/k", headers={"If-Match": match})
            assert (answer.status_code, answer.json()) == (412, {"error": CONDITION_FAILED, "key": "k", "version": 0})
        assert on.node.kv.machine.get("k") is None

    fronted(test)


@pytest.mark.parametrize("match", NO_VERSION)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_tag_that_no_node_gave_does_not_match_a_key_that_exists_either(method: str, match: str) -> None:
    """RFC 9110 §8.8.3.2: entity-tags are compared byte by byte. The key has version 2."""

    async def test(on: Front) -> None:
        await on.client.put("/v1/kv/other", content=b"")
        await on.client.put("/v1/kv/k", content=b"v")
        answer = await on.client.request(method, "/v1/kv/k", headers={"If-Match": match})
        assert (answer.status_code, answer.json()) == (412, {"error": CONDITION_FAILED, "key": "k", "version": 2})
        entry = on.node.kv.machine.get("k")
        assert entry is not None and (entry.value, entry.version) == (b"v", 2)

    fronted(test)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_if_none_match_is_for_a_key_that_does_not_exist(method: str) -> None:
    async def test(on: Front) -> None:
        absent = await on.client.request(method, "/v1/kv/k", headers={"If-None-Match": "*"})
        assert (absent.status_code, absent.headers["etag"]) == (200, '"1"')
        await on.client.put("/v1/kv/k", content=b"v")
        present = await on.client.request(method, "/v1/kv/k", headers={"If-None-Match": "*"})
        assert (present.status_code, present.json()["version"]) == (412, 2)

    fronted(test)


def test_a_key_that_was_deleted_and_made_again_has_no_old_version() -> None:
    async def test(on: Front) -> None:
        put = on.client.put
        assert (await put("/v1/kv/k", content=b"1")).headers["etag"] == '"1"'
        await on.client.delete("/v1/kv/k")
        assert (await put("/v1/kv/k", content=b"2", headers={"If-Match": '"1"'})).json()["version"] == 0
        assert (await put("/v1/kv/k", content=b"3", headers={"If-None-Match": "*"})).headers["etag"] == '"4"'
        assert (await put("/v1/kv/k", content=b"4", headers={"If-Match": '"1"'})).json()["version"] == 4
        assert (await put("/v1/kv/k", content=b"5", headers={"If-Match": '"4"'})).headers["etag"] == '"6"'

    fronted(test)


def test_version_0_in_a_transaction_still_means_that_the_key_must_not_exist() -> None:
    async def test(on: Front) -> None:
        body = {"compare": [{"key": "k", "version": 0}], "ops": [{"put": {"key": "k", "text": "v"}}]}
        assert (await on.client.post("/v1/txn", json=body)).status_code == 200
        again = await on.client.post("/v1/txn", json=body)
        assert (again.status_code, again.json()["failed"]) == (412, [{"key": "k", "version": 1}])
        assert on.node.kv.proposed == [Txn((Compare("k", 0),), (Put("k", b"v"),))] * 2

    fronted(test)


def test_each_condition_is_a_compare_of_its_own_key() -> None:
    async def test(on: Front) -> None:
        await on.client.put("/v1/kv/a", content=b"v", headers={"If-Match": '"9223372036854775807"'})
        await on.client.delete("/v1/kv/b", headers={"If-Match": '"12"'})
        await on.client.delete("/v1/kv/c")
        assert on.node.kv.proposed == [
            Txn((Compare("a", (1 << 63) - 1),), (Put("a", b"v"),)),
            Txn((Compare("b", 12),), (Delete("b"),)),
            Txn((), (Delete("c"),)),
        ]

    fronted(test)


# --- redirects -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), [("PUT", "/v1/kv/k"), ("DELETE", "/v1/kv/k"), ("POST", "/v1/txn")])
def test_a_node_that_hands_over_leadership_sends_no_client_to_itself(method: str, path: str) -> None:
    """It still takes itself for the leader, and its own address is known. A client that went there would go in circles."""

    async def test(on: Front) -> None:
        on.node.http[1] = Endpoint("10.0.0.1", 8091)
        content = b'{"ops":[]}' if method == "POST" else b""
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=1)  # type: ignore[arg-type]
        for _ in range(2):
            answer = await on.client.request(method, path, content=content, headers=JSON_BODY)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "location" not in answer.headers and "nothing changed" in answer.json()["error"]
        # Its successor is known.
        for leader_id, location in ((2, "http://10.0.0.2:8092"), (3, "http://[::1]:8093")):
            on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=leader_id)  # type: ignore[arg-type]
            answer = await on.client.request(method, path, content=content, headers=JSON_BODY)
            assert (answer.status_code, answer.headers["location"]) == (307, location + path)
            assert answer.json()["leaderId"] == leader_id
        # It leads again.
        on.node.kv.outcome = None
        assert (await on.client.request(method, path, content=content, headers=JSON_BODY)).status_code == 200

    fronted(test)


def test_a_redirect_names_the_key_as_it_was_sent() -> None:
    async def test(on: Front) -> None:
        on.node.kv.outcome = ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=2)  # type: ignore[arg-type]
        for path in ("/v1/kv/a%2Fb%20%C3%BC%2E", "/v1/kv/a/b", "/v1/kv/%3Fx=1%26", "/v1/kv/k?&"):
            moved = await on.client.put(path, content=b"v")
            assert (moved.status_code, moved.headers["location"]) == (307, f"http://10.0.0.2:8092{path}")

    fronted(test)
