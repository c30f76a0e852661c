"""Ranges of keys in the client: what is sent, what the answers mean, and what is definite."""

from __future__ import annotations

import asyncio
import json
import pickle

import pytest

from clientkit_kv import Answer, Front, answer_all, kv_test
from raftlake.client import (
    AsyncClient,
    Client,
    DeletePrefix,
    KvConflict,
    KvDeleted,
    KvEntry,
    KvPage,
    Put,
    RangeTooLarge,
)
from raftlake.client.sync_kv import Kv
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WireError

DONE: Answer = (200, {"etag": '"9"'}, b'{"succeeded":true,"version":9,"deleted":3}')
TOO_LARGE: Answer = (
    409,
    {},
    b'{"error":"more than 10000 keys; nothing changed","too_large":[{"prefix":"d/","of":"delete","keys_max":10000}]}',
)


def sent(one: Front, two: Front) -> list[object]:
    return [json.loads(body) for _, _, body in [*one.requests, *two.requests]]


def test_a_range_is_deleted_and_counted() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE)
        assert await client.kv.delete_prefix("d/") == KvDeleted(version=9, count=3)
        assert sent(one, two) == [{"compare": [], "ops": [{"delete": {"prefix": "d/"}}]}]

    kv_test(test)


def test_a_range_is_deleted_under_a_condition() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, DONE)
        await client.kv.delete_prefix("d/", if_newest=7)
        ops = [Put("k", b""), DeletePrefix("e/")]
        assert await client.kv.txn({"k": 0}, ops, newest={"d/": 0}) == 9
        first, second = sorted(sent(one, two), key=lambda body: len(body["ops"]))  # type: ignore[index]
        assert first == {"compare": [{"prefix": "d/", "newest": 7}], "ops": [{"delete": {"prefix": "d/"}}]}
        assert second == {
            "compare": [{"key": "k", "version": 0}, {"prefix": "d/", "newest": 0}],
            "ops": [{"put": {"key": "k", "value": ""}}, {"delete": {"prefix": "e/"}}],
        }

    kv_test(test)


def test_a_range_that_is_newer_is_a_conflict_that_names_it() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        failed = [{"prefix": "d/", "newest": 8}, {"key": "k", "version": 3}]
        answer_all(one, two, (412, {}, json.dumps({"error": "x", "failed": failed}).encode()))
        with pytest.raises(KvConflict, match="a key below 'd/' is at version 8") as told:
            await client.kv.txn({"k": 1}, [], newest={"d/": 7})
        for conflict in (told.value, pickle.loads(pickle.dumps(told.value))):
            assert (conflict.newest, conflict.current, conflict.refused) == ({"d/": 8}, {"k": 3}, {})

    kv_test(test)


def test_a_range_of_too_many_keys_is_definite_and_not_sent_again() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, TOO_LARGE, DONE)
        with pytest.raises(RangeTooLarge, match="409: more than 10000 keys") as told:
            await client.kv.delete_prefix("d/")
        assert len(sent(one, two)) == 1
        for refusal in (told.value, pickle.loads(pickle.dumps(told.value))):
            assert isinstance(refusal, RequestRejected) and refusal.code is ErrorCode.INVALID_REQUEST
            assert refusal.prefixes == {"d/": 10_000} and refusal.message == told.value.message

    kv_test(test)


@pytest.mark.parametrize(
    "answer",
    [
        (409, {}, b"conflict of a proxy"),
        (409, {}, b'{"error":"x"}'),
        (409, {}, b'{"error":"x","too_large":[]}'),
        (409, {}, b'{"error":"x","too_large":[{"prefix":7,"keys_max":1}]}'),
        (409, {}, b'{"error":"x","too_large":7}'),
        (412, {}, b'{"error":"x","failed":[{"prefix":"d/"}]}'),
        (412, {}, b'{"error":"x","failed":[{"prefix":"d/","newest":"8"}]}'),
        (200, {"etag": '"9"'}, b'{"succeeded":true}'),
        (200, {"etag": '"9"'}, b'{"deleted":true}'),
        (200, {}, b'{"deleted":3}'),
    ],
)
def test_an_answer_that_says_nothing_of_a_range_is_unknown(answer: Answer) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer, DONE)
        with pytest.raises(UnknownOutcome):
            await client.kv.delete_prefix("d/")
        assert len(sent(one, two)) == 1

    kv_test(test)


@pytest.mark.parametrize("prefix", ["", "/", "/raftlake/topics/", "k" * 1025])
def test_prefixes_that_cannot_be_deleted_are_not_sent(prefix: str) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        with pytest.raises(RequestRejected):
            await client.kv.delete_prefix(prefix)
        assert sent(one, two) == []

    kv_test(test)


def test_a_list_up_to_a_delimiter() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        body = b'{"entries":[{"key":"p/a","version":3,"size":1}],"prefixes":["p/a/","p/b/"],"more":true}'
        answer_all(one, two, (200, {}, body), (200, {}, b'{"entries":[],"prefixes":[7],"more":true}'))
        page = await client.kv.list("p/", delimiter="/")
        assert (page.prefixes, page.more, page.last) == (("p/a/", "p/b/"), True, "p/b/")
        ((line, _, _),) = [*one.requests, *two.requests]
        assert line == "GET /v1/kv?consistency=linearizable&prefix=p%2F&limit=1000&delimiter=%2F"
        with pytest.raises(WireError, match="no list of keys"):
            await client.kv.list("p/", delimiter="/")

    kv_test(test)


@pytest.mark.parametrize(
    ("keys", "prefixes", "last"), [((), (), None), (("a",), (), "a"), ((), ("a/",), "a/"), (("b", "c"), ("a/", "b/"), "c")]
)
def test_the_last_name_of_a_page(keys: tuple[str, ...], prefixes: tuple[str, ...], last: str | None) -> None:
    entries = tuple(KvEntry(key=key, version=1, size=0) for key in keys)
    assert KvPage(entries=entries, more=False, version=1, prefixes=prefixes).last == last


def test_programs_without_an_event_loop_have_the_same() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE)

        def blocking() -> KvDeleted:
            with Client(client_bootstrap) as plain:
                return plain.kv.delete_prefix("d/")

        client_bootstrap = [str(address) for address in client.config.bootstrap]
        assert await asyncio.to_thread(blocking) == KvDeleted(version=9, count=3)

    kv_test(test)
    assert Kv.delete_prefix.__doc__
