"""Which addresses a node connects to as a peer, and what it tells of those to whom it names."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_network
from typing import Any

import pytest

from peerkit import Net, Peer, ask, begin, scripted
from raftlake.ports.peer_rpcs import ControlReply
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.runtime.peers.address import AddressRefused, PeerAddresses, connect_to_any
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.peers.network import TcpNetwork
from raftlake.runtime.sockets import bind
from runtime_fakes import LOOPBACK, address_of, run, served, until


def allow(*networks: str) -> PeerAddresses:
    return PeerAddresses([ip_network(each) for each in networks])


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.0.0.1", False),
        ("192.168.1.7", True),
        ("192.168.1.8", False),
        ("fd00::9", True),
        ("fe80::1%eth0", False),
        ("169.254.169.254", False),
        ("127.0.0.1", False),
    ],
)
def test_networks(address: str, is_allowed: bool) -> None:
    assert allow("10.0.0.0/8", "192.168.1.7", "fd00::/8").allows(address) is is_allowed
    assert PeerAddresses().allows(address)


def test_a_name_is_resolved_and_each_of_its_addresses_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(0, 0, 0, "", (address, 1)) for address in ("169.254.169.254", "10.0.0.2", "10.0.0.2", "fd00::2")]

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def resolved(*_: Any, **__: Any) -> Any:
            return rows

        monkeypatch.setattr(type(loop), "getaddrinfo", resolved)
        endpoint = Endpoint("three.example", 1)
        assert await PeerAddresses().resolve(endpoint) == ["169.254.169.254", "10.0.0.2", "fd00::2"]
        assert await allow("10.0.0.0/8").resolve(endpoint) == ["10.0.0.2"]
        with pytest.raises(AddressRefused, match=r"three\.example:1 \(169.* is not in peer\.address\.allow"):
            await allow("127.0.0.0/8").resolve(endpoint)

    # uvloop's class cannot be patched.
    asyncio.run(main())


@pytest.mark.parametrize("host", ["", "a" * 300, "no..name"])
def test_what_is_no_name_is_an_error_of_the_address(host: str) -> None:
    async def main() -> None:
        with pytest.raises(OSError):
            await PeerAddresses().resolve(Endpoint(host, 1))

    run(main())


def test_the_next_address_is_tried() -> None:
    tried: list[str] = []

    async def connect(address: str) -> str:
        tried.append(address)
        if address != "c":
            raise ConnectionRefusedError(address)
        return address

    async def main() -> None:
        assert await connect_to_any(["a", "b", "c", "d"], connect) == "c"
        with pytest.raises(ConnectionRefusedError, match="b"):
            await connect_to_any(["a", "b"], connect)

    run(main())
    assert tried == ["a", "b", "c", "a", "b"]


def test_a_peer_outside_of_the_networks_is_never_connected_to(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that the log, or another node, names: the request fails as if nobody were there, and the log says why."""

    async def test(peer: Peer, net: Net) -> None:
        net.network.allowed = allow("10.0.0.0/8")
        got = ask(net, begin())
        await until(lambda: bool(got))
        assert got == [FailureReason.DISCONNECTED] and peer.writers == [] and net.unreachable == []
        net.network.allowed = allow("127.0.0.0/8")
        net.network.notice_alive(NodeId(2))
        got = ask(net, begin())
        await until(lambda: bool(got))
        assert isinstance(got[0], ControlReply)
        assert net.network.reached_at == {2: "127.0.0.1"}

    scripted(test)
    assert "not connecting to a peer peer=2" in caplog.text and "peer.address.allow" in caplog.text


def network(loop: asyncio.AbstractEventLoop, allowed: PeerAddresses, timeout_ms: int) -> TcpNetwork:
    return TcpNetwork(
        loop=loop, node_id=1, peers={}, timing=RaftConfig(request_timeout_ms=timeout_ms),
        codec=PeerCodec(node_id=1, peers={}), on_unreachable=lambda peer: None, response_bytes_max=1 << 20,
        allowed=allowed,
    )  # type: ignore[arg-type]  # fmt: skip


def test_an_endpoint_outside_of_the_networks_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as node:
            told: list[Any] = []
            ours = network(asyncio.get_running_loop(), allow("10.0.0.0/8"), 50)
            ours.probe(node.address.host, node.address.port, told.append)
            await until(lambda: bool(told))
            assert isinstance(told[0], FailureReason) and node.listener.connection_count == 0

    run(main())
    assert "endpoint of a voter not confirmed" in caplog.text and "peer.address.allow" in caplog.text


def test_how_long_an_endpoint_takes_to_fail_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A closed port fails at once, and the answer comes no sooner than where nothing answers at all. The log has the reason."""

    async def main() -> None:
        listening = bind(LOOPBACK, "listeners")
        closed = address_of(listening)
        listening.close()
        loop = asyncio.get_running_loop()
        told: list[float] = []
        began = loop.time()
        network(loop, PeerAddresses(), 200).probe(closed.host, closed.port, lambda answer: told.append(loop.time()))
        await until(lambda: bool(told))
        # The loop counts whole milliseconds, whose differences as floats may fall short of 0.2.
        assert round(told[0] - began, 3) >= 0.2

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "endpoint of a voter not confirmed" in caplog.text and "refused" in caplog.text.lower()
