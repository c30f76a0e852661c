"""Appends to a leader that has no room: it is asked again, and what it says is what its caller hears in the end."""

from __future__ import annotations

import asyncio

import pytest

from clientkit import DROP, FakeQuorum, produced, run
from raftlake.client import AsyncClient
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey


def no_room(header: object, message: object) -> object:
    answer = produced("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS)
    answer.topics[0].partitions[0].error_message = "node 2 has little room"
    return answer


def test_a_leader_without_room_is_asked_again_and_nobody_else() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "first")
            node, asked = quorum.nodes[partition.leader_id], list[int]()

            def on_metadata(header: object, message: object) -> object:
                asked.append(1)
                return DROP

            for each in quorum.nodes.values():
                each.standing[ApiKey.METADATA] = on_metadata
            for _ in range(5):
                node.once(ApiKey.PRODUCE, no_room)
            ended = await asyncio.gather(*(client.append("t", f"{number}") for number in range(3)))
            assert [result.offset for result in ended] == [1, 2, 3]
            assert partition.values() == [b"first", b"0", b"1", b"2"]
            assert asked == []

    run(test())


def test_an_append_that_found_no_room_in_time_is_a_refusal_that_names_the_node() -> None:
    """Definite: the leader said each time that nothing was appended."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1, request_timeout_ms=300) as client:
            partition = quorum.add_topic("t").partitions[0]
            quorum.nodes[partition.leader_id].standing[ApiKey.PRODUCE] = no_room
            with pytest.raises(RequestRejected, match="node 2 has little room") as caught:
                await client.append("t", "v")
            assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS and partition.values() == []

    run(test())
