"""What is done with a topic's partitions through the client: which leader is asked what, and what becomes of refusals."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from clientkit import DROP, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import LATEST, AsyncClient
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey


def deleted(message: Any, error: KioError = KioError.none, low: int | None = None) -> Any:
    """As a leader answers for which all is as it was asked; `low` is where partitions begin, by default the offset."""
    schema: Any = importlib.import_module("kio.schema.delete_records.v2.response")
    topics = tuple(
        schema.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(
                schema.DeleteRecordsPartitionResult(
                    partition_index=part.partition_index,
                    low_watermark=-1 if error else (part.offset if low is None else low),
                    error_code=error,
                )
                for part in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return schema.DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=topics)


def asked(quorum: FakeQuorum, node_id: int) -> list[dict[int, int]]:
    """The offsets by partition of each request that came to a node."""
    return [
        {int(part.partition_index): int(part.offset) for topic in message.topics for part in topic.partitions}
        for key, message in quorum.nodes[node_id].requests
        if key is ApiKey.DELETE_RECORDS
    ]


def test_each_leader_deletes_the_records_of_its_partitions() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 3)
            quorum.move_leader("t", 1, 2)
            for node in quorum.nodes.values():
                node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 4, 1: 5, 2: 6}) == {0: 4, 1: 5, 2: 6}
            assert (asked(quorum, 1), asked(quorum, 2)) == ([{0: 4, 2: 6}], [{1: 5}])

    run(test())


def test_the_answer_is_where_the_partition_begins() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, low=9)
            assert await client.delete_records("t", {0: LATEST}) == {0: 9}
            assert asked(quorum, 1) == [{0: -1}]

    run(test())


@pytest.mark.parametrize("passing", [KioError.not_leader_or_follower, KioError.leader_not_available, None])
def test_what_passes_is_asked_again(passing: KioError | None) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.once(ApiKey.DELETE_RECORDS, lambda _, message: DROP if passing is None else deleted(message, passing))
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 3}) == {0: 3}
            assert asked(quorum, 1) == [{0: 3}] * 2

    run(test())


def test_an_offset_above_the_high_watermark_is_refused() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.offset_out_of_range)
            with pytest.raises(RequestRejected, match="t-0") as caught:
                await client.delete_records("t", {0: 3})
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            assert len(asked(quorum, 1)) == 1

    run(test())
