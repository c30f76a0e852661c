"""What a leader learns of a new voter's endpoint, from real listeners and from servers that are none."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from raftlake.ports.driver import KraftVersions, ListenerUse
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.replica.config import Endpoint
from raftlake.runtime.peers.address import PeerAddresses
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.peers.endpoint_probe import ANSWER_BYTES_MAX, ProbeFailed, ask_kraft_versions
from raftlake.runtime.peers.network import TcpNetwork
from raftlake.runtime.sockets import bind
from runtime_fakes import LOOPBACK, address_of, run, served, until

#: ApiVersions v0 as who knows no newer one answers: correlation id 1, UNSUPPORTED_VERSION, one API.
OLD = struct.pack(">iihihhh", 16, 1, 35, 1, 18, 0, 3)


def asked(address: Endpoint, timeout_seconds: float = 5.0) -> Any:
    return _reason(ask_kraft_versions(address, "raftlake-node-1", timeout_seconds, PeerAddresses()))


async def _reason(asking: Any) -> Any:
    found = await asking
    assert not isinstance(found, ProbeFailed) or found.detail
    return found.reason if isinstance(found, ProbeFailed) else found


@contextlib.asynccontextmanager
async def server_that_says(answer: bytes | None) -> Any:
    """Whatever it is asked; None: nothing. b"" closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(4)
            if answer is None:
                await reader.read(-1)
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()

    listening = bind(LOOPBACK, "listeners")
    server = await asyncio.start_server(serve, sock=listening)
    try:
        yield address_of(listening)
    finally:
        server.close()


def test_our_listeners_know_kraft_versions_0_and_1() -> None:
    async def main() -> None:
        async with served() as node:
            assert await asked(node.address) == (0, 1)
        async with served(use=ListenerUse.PEERS) as node:
            assert await asked(node.address) == (0, 1)

    run(main())


def test_a_listener_for_clients_alone_is_no_voters_address() -> None:
    """It answers, and would refuse every request for a vote."""

    async def main() -> None:
        async with served(use=ListenerUse.CLIENTS) as node:
            assert await asked(node.address) is FailureReason.DISCONNECTED

    run(main())


def test_where_nobody_listens_the_answer_is_a_failure() -> None:
    async def main() -> None:
        listening = bind(LOOPBACK, "listeners")
        address = address_of(listening)
        listening.close()
        assert await asked(address) is FailureReason.DISCONNECTED

    run(main())


def test_a_listener_that_says_nothing_is_given_up() -> None:
    async def main() -> None:
        async with server_that_says(None) as address:
            assert await asked(address, 0.05) is FailureReason.TIMED_OUT

    run(main())


def broken() -> Iterator[tuple[str, bytes]]:
    yield "closed", b""
    yield "half an answer", struct.pack(">ii", 100, 1)
    yield "too long", struct.pack(">i", ANSWER_BYTES_MAX + 1)
    yield "negative", struct.pack(">i", -5)
    yield "no protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n"
    yield "another question's", struct.pack(">iihihhh", 16, 7, 35, 1, 18, 0, 3)


@pytest.mark.parametrize("answer", [answer for _, answer in broken()], ids=[name for name, _ in broken()])
def test_an_answer_that_is_none_is_a_failure(answer: bytes) -> None:
    async def main() -> None:
        async with server_that_says(answer) as address:
            assert await asked(address) is FailureReason.DISCONNECTED

    run(main())


@pytest.mark.parametrize("host", ["", "a" * 300, "no..name", "\0"])
def test_a_host_that_is_no_name_is_a_failure(host: str) -> None:
    async def main() -> None:
        assert await asked(Endpoint(host, 1)) is FailureReason.DISCONNECTED

    run(main())


def test_who_does_not_speak_of_the_feature_knows_only_version_0() -> None:
    async def main() -> None:
        async with server_that_says(OLD) as address:
            assert await asked(address) == (0, 0)

    run(main())


def network(loop: asyncio.AbstractEventLoop) -> TcpNetwork:
    return TcpNetwork(
        loop=loop, node_id=1, peers={}, timing=RaftConfig(), codec=PeerCodec(node_id=1, peers={}),
        on_unreachable=lambda peer: None, response_bytes_max=1 << 20,
    )  # fmt: skip


def test_the_network_tells_the_answer_later_and_once() -> None:
    async def main() -> None:
        async with served() as node:
            told: list[KraftVersions | FailureReason] = []
            ours = network(asyncio.get_running_loop())
            ours.probe(node.address.host, node.address.port, told.append)
            assert not told
            await until(lambda: bool(told))
            assert told == [(0, 1)] and not ours._probes

    run(main())


def test_a_node_that_stops_is_told_nothing_more() -> None:
    async def main() -> None:
        async with server_that_says(None) as address:
            told: list[KraftVersions | FailureReason] = []
            ours = network(asyncio.get_running_loop())
            ours.probe(address.host, address.port, told.append)
            ours.close()
            await until(lambda: not ours._probes)
            assert not told

    run(main())
