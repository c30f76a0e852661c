"""One connection: order, time limits, what ends it; and the pool that shares and lends connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode as KioError

from clientkit import DROP, HANG, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import protocol
from raftlake.client.connection import Connection, open_connection
from raftlake.client.errors import Disconnected
from raftlake.client.pool import ConnectionPool
from raftlake.client.types import Address, ClientConfig
from raftlake.errors import RequestRejected
from raftlake.wire.api import ApiKey


def config_for(quorum: FakeQuorum) -> ClientConfig:
    return ClientConfig(bootstrap=(address_of(quorum),))


def address_of(quorum: FakeQuorum, node_id: int = 1) -> Address:
    return Address("127.0.0.1", quorum.nodes[node_id].port)


async def ask(connection: Connection, timeout_ms: float = 5000) -> Any:
    return await connection.request(ApiKey.METADATA, protocol.METADATA_VERSION, protocol.metadata_request(["t"]), timeout_ms)


def test_answers_come_in_the_order_of_the_requests() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            connection = await open_connection(address_of(quorum), config_for(quorum))
            order: list[int] = []
            ended = asyncio.Event()

            def done(number: int) -> None:
                order.append(number)
                if number == 49:
                    ended.set()

            for number in range(50):
                connection.send(
                    ApiKey.METADATA,
                    protocol.METADATA_VERSION,
                    protocol.metadata_request([]),
                    5000,
                    lambda _, number=number: done(number),
                )
            assert connection.in_flight == 50
            await ended.wait()
            assert order == list(range(50))
            connection.close()

    run(test())


def test_a_lost_connection_ends_every_request_once_and_in_order() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            connection = await open_connection(address_of(quorum), config_for(quorum))
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: DROP)
            answers = await asyncio.gather(*(ask(connection) for _ in range(3)), return_exceptions=True)
            assert [type(answer) for answer in answers] == [Disconnected] * 3
            assert all(isinstance(answer, Disconnected) and answer.sent for answer in answers)
            assert not connection.is_open
            with pytest.raises(Disconnected) as caught:
                await ask(connection)
            assert not caught.value.sent

    run(test())


def test_a_request_that_overstays_ends_the_connection() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            connection = await open_connection(address_of(quorum), config_for(quorum))
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: HANG)
            slow = asyncio.create_task(ask(connection))
            with pytest.raises(Disconnected, match="in time"):
                await ask(connection, timeout_ms=30)
            with pytest.raises(Disconnected, match="in time"):
                await slow

    run(test())


def test_a_cancelled_request_does_not_disturb_the_next_one() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            connection = await open_connection(address_of(quorum), config_for(quorum))
            cancelled = asyncio.create_task(ask(connection))
            await asyncio.sleep(0)
            cancelled.cancel()
            assert (await ask(connection)).cluster_id == "fake"
            connection.close()

    run(test())


def test_an_answer_to_another_request_ends_the_connection() -> None:
    async def test() -> None:
        async def answer_wrongly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            writer.write((12).to_bytes(4) + (999).to_bytes(4) + bytes(8))
            await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer_wrongly, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        async with server:
            with pytest.raises(Disconnected, match="bad bytes"):
                await open_connection(address, ClientConfig(bootstrap=(address,)))

    run(test())


def test_a_node_that_never_answers_the_first_request_is_given_up() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            quorum.nodes[1].once(ApiKey.API_VERSIONS, lambda *_: HANG)
            with pytest.raises(Disconnected) as caught:
                await open_connection(address_of(quorum), ClientConfig(bootstrap=(address_of(quorum),), connect_timeout_ms=50))
            assert not caught.value.sent

    run(test())


def test_private_versions_are_not_negotiated_and_others_are() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            connection = await open_connection(address_of(quorum), config_for(quorum))
            connection.require_version(ApiKey.READ_OFFSET, 0)
            connection.require_version(ApiKey.METADATA, 12)
            with pytest.raises(RequestRejected, match="METADATA version 99"):
                connection.require_version(ApiKey.METADATA, 99)
            connection.versions = {ApiKey.API_VERSIONS: (0, 4)}
            with pytest.raises(RequestRejected, match=r"does not speak METADATA version 12$"):
                connection.require_version(ApiKey.METADATA, 12)
            connection.versions = {ApiKey.BEGIN_QUORUM_EPOCH: (0, 1)}
            with pytest.raises(RequestRejected, match="METADATA version 12: it is a listener for peers"):
                connection.require_version(ApiKey.METADATA, 12)
            connection.close()

    run(test())


def test_callers_share_one_connection_for_each_use() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            pool = ConnectionPool(config_for(quorum))
            address = address_of(quorum)
            first, second = await asyncio.gather(pool.get(address), pool.get(address))
            assert first is second is pool.get_open(address)
            assert await pool.get(address, "append") is not first
            first.close()
            assert pool.get_open(address) is None
            assert await pool.get(address) is not first
            await pool.close()
            with pytest.raises(RuntimeError, match="closed"):
                await pool.get(address)

    run(test())


def test_borrowed_connections_are_for_one_caller_and_are_used_again() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            pool = ConnectionPool(config_for(quorum))
            address = address_of(quorum)
            async with pool.borrow(address) as one, pool.borrow(address) as two:
                assert one is not two
            async with pool.borrow(address) as again:
                assert again in (one, two)
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: HANG)
            borrowed: list[Connection] = []

            async def wait_in_vain() -> None:
                async with pool.borrow(address) as busy:
                    borrowed.append(busy)
                    await ask(busy)

            waiting = asyncio.create_task(wait_in_vain())
            while not quorum.nodes[1].count(ApiKey.METADATA):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not borrowed[0].is_open, "an answer may still come on it"
            await pool.close()
            assert not one.is_open and not two.is_open

    run(test())


def test_a_refused_negotiation_leaves_no_connection_open() -> None:
    """A client tries again for as long as its calls have time."""

    async def test() -> None:
        async with FakeQuorum() as quorum:
            node = quorum.nodes[1]
            node.standing[ApiKey.API_VERSIONS] = lambda *_: ApiVersionsResponse(
                error_code=KioError.unknown_server_error, api_keys=(), throttle_time=NO_THROTTLE
            )
            for _ in range(3):
                with pytest.raises(Disconnected, match="refused ApiVersions") as caught:
                    await open_connection(address_of(quorum), config_for(quorum))
                assert not caught.value.sent
            async with asyncio.timeout(10):
                while not all(transport.is_closing() for transport in node._transports):
                    await asyncio.sleep(0)
            assert len(node._transports) == 3

    run(test())
