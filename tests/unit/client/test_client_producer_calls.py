"""A call of a producer raises before anything is sent, or tells of every batch. A closed producer sends nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from clientkit import FakeQuorum, FakeTopic, run
from raftlake.client import AsyncClient, AsyncProducer, NewRecord
from raftlake.errors import RequestRejected, WireError
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch

LARGE = NewRecord(value=bytes(600_000))
NEVER = NewRecord(value=b"x", timestamp_ms=2**70)
BATCH = build_batch([Record(value=b"a")], timestamp_ms=1)


def producer_test(test: Callable[[FakeQuorum, AsyncClient, FakeTopic], Awaitable[None]]) -> None:
    async def body() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            await client.append("t", b"0")
            await test(quorum, client, topic)

    run(body())


@pytest.mark.parametrize("records", [[LARGE, NEVER], [NEVER, LARGE], [NEVER]], ids=["last", "first", "alone"])
@pytest.mark.parametrize("method", ["append_each", "append_many"])
def test_what_cannot_be_built_is_an_error_of_a_call_that_sends_nothing(method: str, records: list[NewRecord]) -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient, topic: FakeTopic) -> None:
        with pytest.raises(struct.error):
            await getattr(client, method)("t", records)
        await client.append("t", b"1")
        assert topic.partitions[0].values() == [b"0", b"1"]

    producer_test(test)


@pytest.mark.parametrize("batches", [[BATCH, b"no batch"], [b"no batch", BATCH]], ids=["last", "first"])
def test_what_is_no_batch_is_an_error_of_a_call_that_sends_nothing(batches: list[bytes]) -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient, topic: FakeTopic) -> None:
        producer = client.producer()
        with pytest.raises(WireError):
            await producer.append_batches("t", 0, batches)
        with pytest.raises(WireError):
            producer.submit_batches("t", 0, batches)
        assert [result.offset for result in await producer.append_batches("t", 0, [BATCH, BATCH])] == [1, 2]
        assert topic.partitions[0].values() == [b"0", b"a", b"a"]

    producer_test(test)


APPENDS: dict[str, Callable[[AsyncProducer], Awaitable[object]]] = {
    "append": lambda producer: producer.append("u", b"late"),
    "append_many": lambda producer: producer.append_many("u", [b"late"]),
    "append_each": lambda producer: producer.append_each("u", [b"late"]),
}


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_nothing_is_appended_by_a_producer_that_was_closed_while_it_looked_for_the_topic(
    append: Callable[[AsyncProducer], Awaitable[object]], is_transactional: bool
) -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient, _: FakeTopic) -> None:
        topic = quorum.add_topic("u")
        producer = client.transactional_producer("mine") if is_transactional else client.producer()
        held = asyncio.Event()
        quorum.nodes[1].once(ApiKey.METADATA, lambda *_: held.set())
        asked = asyncio.ensure_future(append(producer))
        await held.wait()
        await client.close_producer(producer)
        with pytest.raises(RequestRejected, match="closed"):
            await asked
        with pytest.raises(RequestRejected, match="closed"):
            await append(producer)
        assert topic.partitions[0].values() == []
        assert producer._senders == {}

    producer_test(test)


def test_a_closed_producer_asks_for_no_id() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient, _: FakeTopic) -> None:
        producer = client.transactional_producer("mine")
        await client.close_producer(producer)
        with pytest.raises(RequestRejected, match="closed"):
            await producer.begin()

    producer_test(test)
