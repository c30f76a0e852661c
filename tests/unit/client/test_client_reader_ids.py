"""Offsets of the topic with an id, while a node names the one that was deleted, and leads it still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

import clientkit_answers as answers
from clientkit import FakeQuorum, FakeTopic, fetched, run
from raftlake.client import LATEST, AsyncClient
from raftlake.client.cluster import Topic
from raftlake.client.deadline import Deadline
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch

Ask = Callable[[AsyncClient, bytes | None], Awaitable[object]]

ASKED: dict[str, Ask] = {
    "list_offsets": lambda client, topic_id: client.list_offsets("t", {0: LATEST}, topic_id=topic_id),
    "read_offset": lambda client, topic_id: client.read_offset("t", [0], topic_id=topic_id),
    "read_offset of all": lambda client, topic_id: client.read_offset("t", topic_id=topic_id),
    "read_stable_offset": lambda client, topic_id: client.read_stable_offset("t", [0], topic_id=topic_id),
    "read_stable_offset of all": lambda client, topic_id: client.read_stable_offset("t", topic_id=topic_id),
}
questions = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)


def lag(quorum: FakeQuorum, node_id: int) -> None:
    """This node does not hear of what happens from now on, and goes on leading what it leads."""
    node = quorum.nodes[node_id]
    known = FakeQuorum()
    known.nodes, known.topics = quorum.nodes, dict(quorum.topics)
    for api_key in (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.READ_OFFSET):

        def answer(header: Any, message: Any) -> Any:
            return known.answer(node, header, message)

        node.standing[api_key] = answer


async def recreated(quorum: FakeQuorum, client: AsyncClient) -> tuple[FakeTopic, FakeTopic]:
    """The client knows the old topic from a node that lags, with one record. The new one has three."""
    old = quorum.add_topic("t", leader_id=1)
    await client.append("t", "old")
    lag(quorum, 1)
    new = quorum.add_topic("t", leader_id=2)
    fill(new, 3)
    return old, new


def fill(topic: FakeTopic, count: int) -> None:
    records = [Record(value=b"new")] * count
    built = build_batch(records, timestamp_ms=1, producer_id=count, producer_epoch=0, base_sequence=0)
    assert topic.partitions[0].append(built)[0] is ErrorCode.NONE


@questions
def test_a_node_that_leads_the_old_topic_still_is_not_asked_for_the_new_one(ask: Ask) -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            old, new = await recreated(quorum, client)
            for _ in range(2):
                assert await ask(client, new.topic_id) == {0: 3}
                assert (await client.describe_topic("t", topic_id=new.topic_id)).topic_id == new.topic_id
                assert await ask(client, old.topic_id) == {0: 1}, "the cache has the new one"
                assert (await client.describe_topic("t", topic_id=old.topic_id)).topic_id == old.topic_id
            assert await ask(client, None) in ({0: 1}, {0: 3})

    run(test())


@questions
def test_an_id_that_no_node_names_in_time_is_told_from_a_topic_that_is_gone(ask: Ask) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=20) as client:
            old = quorum.add_topic("t")
            assert await ask(client, old.topic_id) == {0: 0}
            new = quorum.add_topic("t")
            # The offsets of a newer topic may be told where the client has not heard of it. A look behind them tells.
            assert await ask(client, new.topic_id) == {0: 0}
            for question in (ask, describe):
                with pytest.raises(RequestRejected, match="deleted and created again") as caught:
                    await question(client, old.topic_id)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            del quorum.topics["t"]
            client._cluster.forget_topic("t")
            for question in (ask, describe):
                with pytest.raises(RequestRejected, match="does not exist") as caught:
                    await question(client, new.topic_id)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test())


def describe(client: AsyncClient, topic_id: bytes | None) -> Awaitable[object]:
    return client.describe_topic("t", topic_id=topic_id)


@pytest.mark.parametrize("hears", [True, False])
def test_a_question_that_is_asked_again_is_of_the_same_topic(hears: bool) -> None:
    """Behind a refusal the client looks again, and meets a node that lags. `hears`: the other one hears of a third topic."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            _, new = await recreated(quorum, client)
            assert await client.list_offsets("t", {0: LATEST}, topic_id=new.topic_id) == {0: 3}

            def refuse(_: Any, message: Any) -> Any:
                refused = answers.list_offsets(quorum, quorum.nodes[1], message)
                if hears:
                    quorum.add_topic("t", leader_id=2).partitions[0].end_offset = 9
                return refused

            quorum.nodes[2].once(ApiKey.LIST_OFFSETS, refuse)
            asking = client.list_offsets("t", {0: LATEST}, topic_id=new.topic_id)
            if not hears:
                assert await asking == {0: 3}
                return
            with pytest.raises(RequestRejected) as caught:
                await asking
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID

    run(test())


def test_the_stable_offset_is_that_of_the_same_topic() -> None:
    """A third topic comes between the two questions and the Fetch that decides."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=20) as client:
            topic = quorum.add_topic("t")
            topic.partitions[0].end_offset, topic.partitions[0].stable_offset = 9, 4

            def replaced(*_: Any) -> Any:
                quorum.add_topic("t")
                return fetched(topic.topic_id, 0, ErrorCode.UNKNOWN_TOPIC_ID)

            quorum.nodes[1].once(ApiKey.FETCH, replaced)
            with pytest.raises(RequestRejected) as caught:
                await client.read_stable_offset("t", topic_id=topic.topic_id)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID

    run(test())


def test_a_stream_begins_with_the_offsets_of_the_topic_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call of the client hears of the old topic between the look and the question."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            _, new = await recreated(quorum, client)
            cluster = client._cluster
            known, look = cluster._topics["t"], cluster.topic_with

            async def behind(name: str, partitions: Iterable[int], deadline: Deadline, **arguments: Any) -> Topic:
                monkeypatch.undo()
                found = await look(name, partitions, deadline, topic_id=new.topic_id)
                cluster._topics["t"] = known
                return found

            monkeypatch.setattr(cluster, "topic_with", behind)
            stream = client.stream("t", start=LATEST, max_wait_ms=10)
            coming = asyncio.ensure_future(anext(stream))
            while not quorum.nodes[2].count(ApiKey.FETCH):
                await asyncio.sleep(0)
            fill(new, 1)
            assert (await coming).offset == 3
            await stream.aclose()  # type: ignore[attr-defined]

    run(test())
