"""Topics that were deleted and created again behind the back of a client that knows the old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from clientkit import FakeQuorum, fetched, run
from clientkit_answers import describe_topic, metadata
from raftlake.client import EARLIEST, LATEST, AsyncClient, NewRecord
from raftlake.client.partitioner import partition_for_key
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint

Use = Callable[[AsyncClient], Awaitable[object]]

USES: dict[str, Use] = {
    "append": lambda client: client.append("t", "new", partition=3),
    "append_many": lambda client: client.append_many("t", [NewRecord(value=b"new", partition=3)]),
    "read": lambda client: client.read("t", 3, 0, max_wait_ms=0),
    "list_offsets": lambda client: client.list_offsets("t", {3: LATEST}),
    "read_offset": lambda client: client.read_offset("t", [3]),
}
uses = pytest.mark.parametrize("use", USES.values(), ids=USES)


@uses
def test_a_partition_that_is_not_in_the_cache_is_asked_for(use: Use) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", partitions=2)
            await client.append("t", "old", partition=1)
            quorum.add_topic("t", partitions=4)
            asked = quorum.nodes[1].count(ApiKey.METADATA)
            await use(client)
            assert quorum.nodes[1].count(ApiKey.METADATA) == asked + 1

    run(test())


@uses
def test_a_node_that_has_not_heard_of_the_new_topic_is_not_believed(use: Use) -> None:
    """Nodes learn of topics one after another. Another one is asked, though only this one has an open connection."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", partitions=2)
            await client.append("t", "old", partition=1)
            lagging = FakeQuorum()
            lagging.nodes, lagging.topics["t"] = quorum.nodes, quorum.topics["t"]
            quorum.nodes[1].standing[ApiKey.METADATA] = lambda _, message: metadata(lagging, quorum.nodes[1], message)
            quorum.add_topic("t", partitions=4)
            await use(client)

    run(test())


@uses
def test_a_partition_that_no_node_knows_within_the_grace_does_not_exist(use: Use) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t", partitions=3)
            with pytest.raises(RequestRejected, match="topic 't' has 3 partitions, not 3") as caught:
                await use(client)
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            quorum.add_topic("t", partitions=2)
            with pytest.raises(RequestRejected, match="topic 't' has 2 partitions, not 3"):
                await use(client)

    run(test())


@uses
def test_a_partition_may_appear_within_the_grace(use: Use) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", partitions=2)
            for _ in range(3):
                quorum.nodes[1].once(ApiKey.METADATA, lambda *_: None)
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: quorum.add_topic("t", partitions=4) and None)
            await use(client)

    run(test())


def test_a_key_whose_partition_is_gone_gets_another_one() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=20) as client:
            quorum.add_topic("t", partitions=4)
            gone = next(key for key in "abcdefghijkl" if partition_for_key(key.encode(), 4) >= 2)
            await client.append("t", "old", key=gone)
            topic = quorum.add_topic("t", partitions=2)
            appended = await client.append("t", "new", key=gone)
            assert topic.partitions[appended.partition].values() == [b"new"]

    run(test())


def test_a_topic_of_the_same_shape_is_read_by_its_new_id() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client, AsyncClient(quorum.bootstrap) as other:
            quorum.add_topic("t")
            await client.append("t", "old")
            assert [record.value for record in await client.read("t", 0, 0)] == [b"old"]
            quorum.add_topic("t")
            await other.append("t", "new")
            assert [record.value for record in await client.read("t", 0, 0)] == [b"new"]

    run(test())


def test_who_asks_for_one_topic_is_not_given_another_of_its_name() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=20) as client:
            old = quorum.add_topic("t")
            await client.append("t", "old")
            new = quorum.add_topic("t")
            assert (await client.fetch_raw("t", 0, 0, topic_id=new.topic_id, wait_ms=0)).next_offset == 0
            with pytest.raises(RequestRejected, match="deleted and created again") as caught:
                await client.fetch_raw("t", 0, 0, topic_id=old.topic_id)
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID

    run(test())


def test_a_topic_that_is_created_again_during_a_fetch_is_not_mistaken_for_the_old_one() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=20) as client:
            old = quorum.add_topic("t")
            await client.append("t", "old")
            quorum.nodes[1].once(ApiKey.FETCH, lambda *_: quorum.add_topic("t") and None)
            with pytest.raises(RequestRejected, match="UNKNOWN_TOPIC_ID: topic 't' was deleted and created again"):
                await client.fetch_raw("t", 0, 0, topic_id=old.topic_id)

    run(test())


# --- the leaders of the old topic ------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_a_late_answer_about_the_deleted_topic_names_no_leader_of_the_new_one(api_key: ApiKey) -> None:
    """Its epochs are higher, and a cache that believed them would do so for good."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            old = quorum.add_topic("t", leader_id=1)
            old.partitions[0].epoch = 57
            await client.append("t", b"0")
            late = quorum.not_leader_naming("t", 0, 2)
            if api_key is ApiKey.FETCH:
                late = fetched(old.topic_id, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                late.node_endpoints = [NodeEndpoint(2, "127.0.0.1", quorum.nodes[2].port)]
            late.topics[0].partitions[0].current_leader = LeaderAndEpoch(2, 58)

            def replaced(*_: object) -> object:
                """While the answer is on its way, another call of the client hears of the new topic."""
                quorum.add_topic("t", leader_id=1)
                client._cluster._learn_topic(describe_topic(quorum, "t"), client.config.bootstrap[0])
                return late

            quorum.nodes[1].once(api_key, replaced)
            if api_key is ApiKey.FETCH:
                assert await client.read("t", 0, 0, max_wait_ms=0, timeout_ms=3000) == []
            assert (await client.append("t", b"new", timeout_ms=3000)).offset == 0
            (partition,) = (await client.describe_topic("t")).partitions
            assert (partition.leader_id, partition.leader_epoch) == (1, 1)

    run(test())


def test_the_leader_that_an_answer_names_is_that_of_the_topic_it_is_about() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            old = quorum.add_topic("t", leader_id=1)
            await client.partitions("t")
            new = quorum.add_topic("t", leader_id=1)
            await client.partitions("t")
            cluster = client._cluster
            assert not cluster.learn_leader("t", old.topic_id, 0, 2, 57, [])
            assert not cluster.learn_leader("t", new.topic_id, 0, 2, 1, []), "epoch 1 has its leader"
            assert not cluster.learn_leader("t", new.topic_id, 1, 2, 2, [])
            assert not cluster.learn_leader("u", new.topic_id, 0, 2, 2, [])
            assert cluster.learn_leader("t", new.topic_id, 0, 2, 2, [])

    run(test())


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stream_whose_topic_is_created_again_leaves_nothing_out_in_silence(count: int) -> None:
    """The new topic has fewer records than were read of the old one, as many, or more."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client, AsyncClient(quorum.bootstrap) as other:
            quorum.add_topic("t")
            await other.append_many("t", ["old 0", "old 1"])
            stream = client.stream("t", start=EARLIEST, max_wait_ms=10)
            assert [(await anext(stream)).value for _ in range(2)] == [b"old 0", b"old 1"]
            quorum.add_topic("t")
            await other.append_many("t", [f"new {number}" for number in range(count)])
            with pytest.raises(RequestRejected, match="deleted and created again: begin anew") as caught:
                async with asyncio.timeout(10):
                    await anext(stream)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID

    run(test())


@pytest.mark.parametrize("partitions", [None, [0]])
@pytest.mark.parametrize("start", [EARLIEST, {0: 0}])
def test_a_stream_begins_with_the_topic_that_there_is(partitions: list[int] | None, start: int | dict[int, int]) -> None:
    """The client knows the old one still."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client, AsyncClient(quorum.bootstrap) as other:
            quorum.add_topic("t")
            await client.append("t", "old")
            quorum.add_topic("t")
            await other.append("t", "new")
            stream = client.stream("t", partitions=partitions, start=start, max_wait_ms=10)
            assert (await anext(stream)).value == b"new"
            await stream.aclose()  # type: ignore[attr-defined]

    run(test())


def test_a_stream_goes_on_with_a_topic_that_gets_more_partitions() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            await client.append("t", "one")
            stream = client.stream("t", start=EARLIEST, max_wait_ms=10)
            assert (await anext(stream)).value == b"one"
            topic.partitions.append(type(topic.partitions[0])())
            await client.partitions("t")
            await client.append("t", "two", partition=0)
            assert (await anext(stream)).value == b"two"
            await stream.aclose()  # type: ignore[attr-defined]

    run(test())
