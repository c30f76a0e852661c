"""Writes to nodes that have no room: whom they are asked of again, and what their callers hear in the end."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable

import pytest

from clientkit import DROP, FakeQuorum, produced, run
from clientkit_kv import Answer, Front, answer_all, kv_test
from raftlake.client import AsyncClient, Delete, NoRoom, Put
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


# --- keys ---

Write = Callable[[AsyncClient], Awaitable[int]]

WRITES: dict[str, Write] = {
    "put": lambda client: client.kv.put("k", b"v"),
    "delete": lambda client: client.kv.delete("k"),
    "txn": lambda client: client.kv.txn({"k": 0}, [Put("k", b"v"), Delete("l")]),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
DONE: Answer = (200, {"etag": '"5"'}, b"{}")
REFUSED: Answer = (503, {"retry-after": "1"}, b'{"error":"nothing changed"}')
#: Of a node whose key space is at its quota, and of one whose disk is nearly full.
FULL: Answer = (507, {}, b'{"error":"kv.quota.bytes=1000"}')
LOW: Answer = (507, {"retry-after": "1"}, b'{"error":"node 2 is low"}')


def asked(*fronts: Front) -> int:
    return sum(len(front.requests) for front in fronts)


@writes
def test_a_full_key_space_is_a_definite_refusal_and_not_asked_again(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, FULL, DONE)
        with pytest.raises(NoRoom, match=r"507: kv\.quota\.bytes=1000"):
            await write(client)
        assert asked(one, two) == 1

    kv_test(test)


@writes
def test_disks_that_are_nearly_full_are_waited_for(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, LOW, REFUSED, LOW, DONE)
        assert await write(client) == 5
        assert asked(one, two) == 4

    kv_test(test)


def test_a_write_that_waited_for_a_disk_in_vain_ends_with_what_the_node_said() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, LOW, DONE)
        with pytest.raises(NoRoom, match="node 2 is low"):
            await client.kv.put("k", b"v")
        assert asked(one, two) == 1

    # The pause ends with the deadline, for which a busy machine has the time for one answer.
    kv_test(test, request_timeout_ms=500, retry_backoff_ms=5000, retry_backoff_ms_max=5000)


def test_the_error_of_a_full_node_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(NoRoom("because")))
    assert (type(error), error.message, error.code) == (NoRoom, "because", ErrorCode.POLICY_VIOLATION)
