"""Leaders that are silent: left when another one leads, waited for when they still do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from clientkit import HANG, FakeQuorum, run
from raftlake.client import AsyncClient
from raftlake.client.stall_watch import StallWatch
from raftlake.wire.api import ApiKey


def test_a_leader_that_is_paused_is_left_as_soon_as_another_one_leads() -> None:
    async def test() -> None:
        # Nothing but the watch ends the wait for the silent leader.
        patient = {"request_timeout_ms": 600_000, "attempt_timeout_ms": 600_000}
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, stall_check_ms=30, **patient) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "zero")
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: HANG)
            appended = asyncio.create_task(client.append("t", "one"))
            while quorum.nodes[1].count(ApiKey.PRODUCE) == 1:
                await asyncio.sleep(0)
            quorum.move_leader("t", 0, 2)
            assert (await appended).offset == 1
            assert partition.values() == [b"zero", b"one"]

    run(test())


def test_a_slow_leader_that_still_leads_keeps_its_connection() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.append("t", "zero")
            connection = client._pool.get_open(client._cluster.nodes[1], "append")
            assert connection is not None
            watch = StallWatch(client._cluster, "t", 0, lambda: connection)
            await watch._ask_others(connection)
            assert connection.is_open
            quorum.move_leader("t", 0, 2)
            await watch._ask_others(connection)
            assert not connection.is_open

    run(test())


def test_others_are_asked_before_the_silent_node() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.append("t", "zero")
            asked = quorum.nodes[1].count(ApiKey.METADATA)
            connection = client._pool.get_open(client._cluster.nodes[1], "append")
            assert connection is not None
            for _ in range(6):
                await StallWatch(client._cluster, "t", 0, lambda: None)._ask_others(connection)
            assert quorum.nodes[1].count(ApiKey.METADATA) == asked

    run(test())


def test_nothing_is_watched_when_nothing_is_in_flight() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.append("t", "zero")
            asked = quorum.nodes[1].count(ApiKey.METADATA)
            # Only now: the append above, on a busy machine, may take longer than this, and then its own watch asks.
            client._cluster.config = replace(client._cluster.config, stall_check_ms=1)
            watch = StallWatch(client._cluster, "t", 0, lambda: None)
            watch.on_send()
            while watch._timer is not None:
                await asyncio.sleep(0)
            assert quorum.nodes[1].count(ApiKey.METADATA) == asked
            watch.close()

    run(test())
