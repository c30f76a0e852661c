"""Connections of the Kafka listener that do nothing: idle, amid a request, or taking no answers."""

from __future__ import annotations

import asyncio
import struct

import pytest

from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire.api import ApiKey, encode_request
from runtime_fakes import FakeNode, FakePeers, connect, find, found, run, served, settle, until


def test_an_idle_client_is_closed_and_a_peer_is_not() -> None:
    """connections.max.idle.ms. A node's connections for votes are idle as long as all is well."""

    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(found()))
        async with served(node, limits=ConnectionLimits(idle_seconds=600)) as on:
            began = asyncio.get_running_loop().time()
            client, silent, peer = [await connect(on.address) for _ in range(3)]
            client.send(ApiKey.FIND_QUORUM, 0, find())
            await client.receive(ApiKey.FIND_QUORUM, 0)
            peer.send(ApiKey.FIND_QUORUM, 0, find(), client_id=peer_client_id(2))
            await peer.receive(ApiKey.FIND_QUORUM, 0)
            on.listener.end_overdue(began + 590)
            assert on.listener.connection_count == 3
            on.listener.end_overdue(asyncio.get_running_loop().time() + 610)
            assert await client.is_closed() and await silent.is_closed()
            await until(lambda: on.listener.connection_count == 1)
            peer.send(ApiKey.FIND_QUORUM, 0, find())
            await peer.receive(ApiKey.FIND_QUORUM, 0)
            for wire in (client, silent, peer):
                wire.close()

    run(main())


def test_who_says_it_is_a_node_that_is_not_known_idles_out_as_a_client() -> None:
    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(found()))
        async with served(node, limits=ConnectionLimits(idle_seconds=600)) as on:
            claimer = await connect(on.address)
            claimer.send(ApiKey.FIND_QUORUM, 0, find(), client_id=peer_client_id(77))
            await claimer.receive(ApiKey.FIND_QUORUM, 0)
            on.listener.end_overdue(asyncio.get_running_loop().time() + 610)
            assert await claimer.is_closed()

    run(main())


def test_an_observer_that_is_known_by_its_first_request_keeps_its_connection() -> None:
    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(found()))
        peers = FakePeers()
        async with served(node, limits=ConnectionLimits(idle_seconds=600), peers=peers) as on:
            observer = await connect(on.address)
            observer.send(ApiKey.FIND_QUORUM, 0, find(), client_id=peer_client_id(9))
            await observer.receive(ApiKey.FIND_QUORUM, 0)
            peers.observers.add(9)
            on.listener.end_overdue(asyncio.get_running_loop().time() + 610)
            assert on.listener.connection_count == 1
            observer.close()

    run(main())


def test_a_client_that_waits_for_an_answer_is_not_idle() -> None:
    async def main() -> None:
        async with served(limits=ConnectionLimits(idle_seconds=600)) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)
            on.listener.end_overdue(asyncio.get_running_loop().time() + 10_000)
            on.node.calls[0].reply(found())
            await wire.receive(ApiKey.FIND_QUORUM, 0)
            wire.close()

    run(main())


@pytest.mark.parametrize("sent", [b"\x00\x00", b"\x00\x00\x10\x00half", b"\x00\x20\x00\x00" + bytes(200_000)])
def test_half_a_request_is_not_waited_for_for_ever(sent: bytes) -> None:
    async def main() -> None:
        async with served(limits=ConnectionLimits(stall_seconds=30)) as on:
            began = asyncio.get_running_loop().time()
            wire = await connect(on.address)
            wire.writer.write(sent)
            await wire.writer.drain()
            await until(lambda: any(each._decoder.is_amid_frame for each in on.listener._connections))
            await settle()
            on.listener.end_overdue(began + 25)
            assert on.listener.connection_count == 1
            on.listener.end_overdue(asyncio.get_running_loop().time() + 31)
            assert await wire.is_closed()
            wire.close()

    run(main())


def test_a_client_that_takes_no_answers_holds_little_and_is_ended() -> None:
    """It asks and asks and never reads. What it may hold is bounded, and so is the time."""
    answer = found("x" * 20_000)

    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(answer))
        async with served(node, limits=ConnectionLimits(unsent_bytes_max=100_000, stall_seconds=30)) as on:
            greedy = await connect(on.address)
            greedy.reader._transport.pause_reading()  # type: ignore[attr-defined]

            async def ask_on() -> None:
                while True:
                    greedy.send(ApiKey.FIND_QUORUM, 0, find())
                    await greedy.writer.drain()
                    await asyncio.sleep(0)

            began = asyncio.get_running_loop().time()
            asking = asyncio.create_task(ask_on())
            await until(lambda: on.listener._unsent_bytes > 0)
            asking.cancel()
            assert 100_000 < on.listener._unsent_bytes < 1_000_000
            (connection,) = on.listener._connections
            now = asyncio.get_running_loop().time()
            on.listener.end_overdue(began + 25)
            assert on.listener.connection_count == 1
            on.listener.end_overdue(now + 60)
            await until(lambda: on.listener.connection_count == 0)
            assert on.listener._unsent_bytes == 0
            assert connection.fault_of(now + 1000) is None
            greedy.writer.transport.abort()

    run(main())


@pytest.mark.parametrize("announced", [100, 8 << 20])
def test_a_request_that_comes_a_byte_now_and_then_is_not_waited_for_for_ever(announced: int) -> None:
    """It is never silent. A connection that sends whole requests at the same pace may stay."""

    async def main() -> None:
        async with served(limits=ConnectionLimits(idle_seconds=600, stall_seconds=30)) as on:
            slow = await connect(on.address)
            slow.writer.write(struct.pack(">i", announced))
            await until(lambda: any(each._decoder.is_amid_frame for each in on.listener._connections))
            (connection,) = on.listener._connections
            end = 630 + (announced >> 20 if announced > 1 << 20 else 0)
            now = asyncio.get_running_loop().time()
            connection._now = lambda: now
            for _ in range(0, end, 20):
                heard_at = connection._heard_at
                now += 20
                on.listener.end_overdue(now)
                assert on.listener.connection_count == 1
                slow.writer.write(b"x")
                await until(lambda: connection._heard_at > heard_at)  # noqa: B023
            now += 21
            on.listener.end_overdue(now)
            assert await slow.is_closed()
            slow.close()

    run(main())


def test_requests_that_come_slowly_one_after_the_other_are_served() -> None:
    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(found()))
        async with served(node, limits=ConnectionLimits(idle_seconds=60, stall_seconds=30)) as on:
            wire = await connect(on.address)
            frame = b"".join(bytes(part) for part in encode_request(ApiKey.FIND_QUORUM, 0, 1, "c", find()))
            wire.writer.write(frame[:10])
            await until(lambda: any(each._decoder.is_amid_frame for each in on.listener._connections))
            (connection,) = on.listener._connections
            now = asyncio.get_running_loop().time()
            connection._now = lambda: now
            for served_before in range(20):
                now += 20
                on.listener.end_overdue(now)
                wire.writer.write(frame[10:] + frame[:10])
                await until(lambda: connection.requests > served_before)  # noqa: B023
            assert on.listener.connection_count == 1
            wire.close()

    run(main())
