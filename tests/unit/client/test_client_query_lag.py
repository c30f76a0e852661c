"""`query_lags` and `forget_query` in front of keys and topics in memory: pages, names, topics that went, times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from connector.fakekeys import FakeKeys
from raftlake.client import QueryLag, QueryMissing, query_lag
from raftlake.client.errors import KvConflict, OffsetOutOfRange
from raftlake.client.query_lag import forget_query, query_lags
from raftlake.client.types import KvPage
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import DeletePrefix, Put
from raftlake.kv.query_positions import SourcePosition, encode, position_key, topic_key

IDS = {"t": bytes(15) + b"\x01", "u": bytes(15) + b"\x02"}
#: Where partitions begin and end.
BOUNDS = {("t", 0): (3, 20), ("t", 1): (0, 5), ("u", 0): (0, 9)}


class AsyncKeys:
    def __init__(self, space: FakeKeys, spend: Callable[[float], Awaitable[None]]) -> None:
        self.space = space
        self.spend = spend
        #: Before the next deletion.
        self.before: Any = None

    async def list(
        self, prefix: str, *, timeout_ms: float, after: str | None = None, values: bool = False, limit: int = 0
    ) -> KvPage:
        await self.spend(timeout_ms)
        return self.space.list(prefix, after=after, values=True)

    async def delete_prefix(self, prefix: str, *, if_newest: int, timeout_ms: float) -> None:
        await self.spend(timeout_ms)
        if self.before is not None:
            self.before()
        self.space.txn({}, [DeletePrefix(prefix)], newest={prefix: if_newest})


class FakeClient:
    def __init__(self) -> None:
        self.space = FakeKeys()
        #: What each call takes, ms, and what each was given.
        self.takes_ms = 0.0
        self.now_ms = 0.0
        self.given_ms: list[float] = []
        self.kv = AsyncKeys(self.space, self.spend)
        self.topics_there = dict(IDS)
        self.reads: list[tuple[str, int, int]] = []

    async def spend(self, timeout_ms: float) -> None:
        self.given_ms.append(timeout_ms)
        self.now_ms += min(self.takes_ms, timeout_ms)
        if self.takes_ms > timeout_ms:
            raise RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "had no answer in time")

    async def topics(self, names: Iterable[str], *, timeout_ms: float) -> list[Any]:
        await self.spend(timeout_ms)
        return [
            SimpleNamespace(
                name=name,
                topic_id=self.topics_there[name],
                partitions=[SimpleNamespace(partition=number) for topic, number in BOUNDS if topic == name],
            )
            for name in names
            if name in self.topics_there
        ]

    async def list_offsets(self, topic: str, timestamps: Mapping[int, int], **arguments: Any) -> dict[int, int]:
        # Open transactions are records that wait, too.
        assert set(timestamps.values()) == {-1} and arguments["isolation"] == 0
        await self.spend(arguments["timeout_ms"])
        return {number: BOUNDS[topic, number][1] for number in timestamps}

    async def read(self, topic: str, partition: int, offset: int, **arguments: Any) -> list[Any]:
        assert arguments["max_wait_ms"] == 0
        self.reads.append((topic, partition, offset))
        await self.spend(arguments["timeout_ms"])
        start, end = BOUNDS[topic, partition]
        if offset < start:
            raise OffsetOutOfRange(topic, partition, offset, start, end)
        return [SimpleNamespace(timestamp_ms=1000 + offset)] if offset < end - 1 else []

    def say(self, query: str, name: str = "", reads: str = "r", **offsets: Mapping[int, int]) -> None:
        position = SourcePosition(offsets=offsets, name=name, run="r", seen_ms=7, batch_ms=6, host="h", pid=5)
        self.space.txn({}, [Put(position_key(query, reads), encode(position))])


class ClientDeadline:
    """On the clock of a fake client."""

    def __init__(self, client: FakeClient, timeout_ms: float) -> None:
        self._client = client
        self._at_ms = client.now_ms + timeout_ms

    def remaining_ms(self) -> float:
        return max(0.0, self._at_ms - self._client.now_ms)

    def is_over(self) -> bool:
        return self._client.now_ms >= self._at_ms


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.say("q-1", "totals", t={0: 12, 1: 5}, u={0: 8})
    made.say("q-2", "totals", t={0: 1})
    made.say("q-3", gone={0: 4}, t={7: 1})
    for topic, topic_id in IDS.items():
        made.space.txn({}, [Put(topic_key("q-1", topic), b'{"topic_id": "%s"}' % topic_id.hex().encode())])
    return made


def ask(client: FakeClient, query: str | None = None, topic: str | None = None, **arguments: Any) -> tuple[QueryLag, ...]:
    return asyncio.run(query_lags(client, query, topic, **{"with_times": False, "timeout_ms": 60_000} | arguments))  # type: ignore[arg-type]


def told(found: Iterable[QueryLag]) -> list[tuple[Any, ...]]:
    return [(each.query, each.topic, each.partition, each.position, each.end, each.records) for each in found]


def test_all_queries_over_all_pages_of_keys(client: FakeClient) -> None:
    found = ask(client)
    assert told(found) == [
        ("q-1", "t", 0, 12, 20, 8),
        ("q-1", "t", 1, 5, 5, 0),
        ("q-1", "u", 0, 8, 9, 1),
        ("q-2", "t", 0, 1, 20, 19),
        ("q-3", "gone", 0, 4, None, None),
        ("q-3", "t", 7, 1, None, None),
    ]
    first = found[0]
    assert (first.name, first.batch_ms, first.seen_ms, first.host, first.pid) == ("totals", 6, 7, "h", 5)
    assert client.space.page_entries < len(client.space.entries) and not client.reads


def test_one_query_by_its_id_and_those_of_a_name(client: FakeClient) -> None:
    assert {each.query for each in ask(client, "q-1")} == {"q-1"}
    assert {each.query for each in ask(client, "totals")} == {"q-1", "q-2"}
    assert told(ask(client, "totals", "u")) == [("q-1", "u", 0, 8, 9, 1)]
    assert {each.query for each in ask(client, None, "t")} == {"q-1", "q-2", "q-3"}
    with pytest.raises(QueryMissing, match="no streaming query has the id or the name 'nope'"):
        ask(client, "nope")
    with pytest.raises(QueryMissing, match="no streaming query 'q-2' reads a topic 'u'"):
        ask(client, "q-2", "u")
    with pytest.raises(QueryMissing, match="no streaming query reads a topic 'nope'"):
        ask(client, None, "nope")


def test_a_topic_that_was_created_again_has_no_end(client: FakeClient) -> None:
    client.topics_there["t"] = bytes(15) + b"\x09"
    assert told(ask(client, "q-1")) == [
        ("q-1", "t", 0, 12, None, None),
        ("q-1", "t", 1, 5, None, None),
        ("q-1", "u", 0, 8, 9, 1),
    ]
    # What a query has not written down is taken for the topic of that name.
    assert ask(client, "q-2")[0].end == 20


def test_the_time_of_the_first_record_that_waits(client: FakeClient) -> None:
    found = {(each.query, each.topic, each.partition): each.waiting_since_ms for each in ask(client, with_times=True)}
    assert found == {
        ("q-1", "t", 0): 1012,
        ("q-1", "t", 1): None,
        # Only a marker is there.
        ("q-1", "u", 0): None,
        # It was deleted.
        ("q-2", "t", 0): None,
        ("q-3", "gone", 0): None,
        ("q-3", "t", 7): None,
    }
    assert sorted(client.reads) == [("t", 0, 1), ("t", 0, 12), ("u", 0, 8)], "where something waits, and nowhere else"


@pytest.fixture
def slow(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Each call takes 10 ms, of the time of `client`."""
    monkeypatch.setattr(query_lag, "Deadline", lambda timeout_ms: ClientDeadline(client, timeout_ms))
    client.takes_ms = 10
    return client


def test_all_that_is_asked_has_one_deadline(slow: FakeClient) -> None:
    """The time of each call is what the ones before have left."""
    ask(slow, "q-1", with_times=True, timeout_ms=1_000)
    assert slow.given_ms == [1_000 - 10 * call for call in range(len(slow.given_ms))] and len(slow.given_ms) > 7
    slow.given_ms.clear()
    with pytest.raises(RequestRejected, match="had no answer in time"):
        ask(slow, timeout_ms=15)
    assert slow.given_ms == [15, 5]
    slow.given_ms.clear()
    asyncio.run(forget_query(slow, "q-1", 1_000))  # type: ignore[arg-type]
    assert slow.given_ms == [1_000 - 10 * call for call in range(len(slow.given_ms))] and len(slow.given_ms) >= 2


def test_what_waits_is_told_of_without_its_time_where_the_time_is_over(
    slow: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a partition without a leader takes all of it."""
    monkeypatch.setattr(query_lag, "_READS_MAX", 1)

    async def read(topic: str, partition: int, offset: int, *, timeout_ms: float, **_: Any) -> list[Any]:
        slow.reads.append((topic, partition, offset))
        slow.now_ms += timeout_ms
        raise RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")

    monkeypatch.setattr(slow, "read", read)
    found = ask(slow, with_times=True, timeout_ms=1_000)
    assert [each.records for each in found] == [8, 0, 1, 19, None, None]
    assert [each.waiting_since_ms for each in found] == [None] * 6
    assert slow.now_ms == 1_000 and len(slow.reads) == 1


def test_a_query_is_forgotten_with_its_topics(client: FakeClient) -> None:
    def forget(query: str) -> tuple[QueryLag, ...]:
        return asyncio.run(forget_query(client, query, 60_000))  # type: ignore[arg-type]

    with pytest.raises(QueryMissing, match="no streaming query has the id 'totals'"):
        forget("totals")
    client.kv.before = lambda: client.say("q-1", "totals", t={0: 13})
    with pytest.raises(KvConflict):
        forget("q-1")
    client.kv.before = None
    # The newest of its keys is not the first one.
    client.space.txn({}, [Put(topic_key("q-1", "u"), b'{"topic_id": "%s"}' % IDS["u"].hex().encode())])
    assert told(forget("q-1"))[0] == ("q-1", "t", 0, 13, None, None)
    assert not [key for key in client.space.entries if key.startswith("/sources/q-1/")]
    assert {each.query for each in ask(client)} == {"q-2", "q-3"}
    with pytest.raises(QueryMissing):
        forget("q-1")
