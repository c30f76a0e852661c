"""Topics that were deleted and created again behind the back of a client that knows the old ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from clientkit import FakeQuorum, run
from clientkit_answers import metadata
from raftlake.client import LATEST, AsyncClient, NewRecord
from raftlake.client.partitioner import partition_for_key
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey

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
