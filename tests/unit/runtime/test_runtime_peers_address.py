"""Which addresses a node connects to as a peer, and what it tells of those to whom it names."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_network
from typing import Any

import pytest

from peerkit import Net, Peer, answered, ask, begin, scripted
from raftlake.errors import RaftlakeError
from raftlake.ports.peer_rpcs import ControlReply
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.driver import Driver
from raftlake.runtime.peers.address import AddressRefused, PeerAddresses, connect_to_any
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.peers.network import TcpNetwork
from raftlake.runtime.sockets import bind
from runtime_fakes import LOOPBACK, address_of, run, served, settle, until


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
        ("::ffff:10.1.2.3%x", True),
        ("::ffff:11.0.0.1%x", False),
        ("::FFFF:10.1.2.3", True),
        ("0:0:0:0:0:ffff:a01:203", True),
        ("::ffff:a9fe:a9fe", False),
        ("fd00::9%eth0.7", True),
        ("10.1.2.3%x", False),
        ("::ffff:10.1.2.3%", False),
        ("a name", False),
        ("", False),
    ],
)
def test_networks(address: str, is_allowed: bool) -> None:
    assert allow("10.0.0.0/8", "192.168.1.7", "fd00::/8").allows(address) is is_allowed
    assert PeerAddresses().allows(address)


@pytest.mark.parametrize(
    "address", ["::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "0::FFFF:169.254.169.254", "::ffff:a9fe:a9fe%1"]
)
def test_an_ipv4_address_needs_an_ipv4_network_however_it_is_spelled(address: str) -> None:
    assert not allow("::/0", "10.0.0.0/8").allows(address)
    assert allow("169.254.0.0/16").allows(address)


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


GLACIAL = RaftConfig(request_timeout_ms=600_000, retry_backoff_ms=300_000, retry_backoff_ms_max=300_000)
#: None of them is looked up in the DNS.
NO_NAMES = (
    "",
    ".",
    "a..b",
    ".a",
    "a" * 64,
    "a" * 64 + ".b",
    "a" * 300,
    "a." * 200,
    "a" * 32767,
    "\u00e4" * 64,
    "\0",
    "a\0b",
    "10.1.2.3%x",
    "[::1]",
    "\u200b",
)
#: Loops differ in whether they connect to these addresses.
ODD_ADDRESSES = (
    "::ffff:10.1.2.3%x",
    "::ffff:10.1.2.3%",
    "::ffff:10.1.2.3%\0",
    "::ffff:10.1.2.3%" + "9" * 300,
    "10.1.2.3\0",
    "::1%x",
    "fe80::1%\0",
    "fe80::1%",
)


@pytest.mark.parametrize("host", NO_NAMES, ids=lambda host: ascii(host)[:20])
def test_what_is_no_name_is_an_error_of_the_address(host: str) -> None:
    async def main() -> None:
        for allowed in (PeerAddresses(), allow("0.0.0.0/0", "::/0")):
            with pytest.raises(OSError):
                await allowed.resolve(Endpoint(host, 1))

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


class Broken(PeerAddresses):
    async def resolve(self, endpoint: Endpoint) -> list[str]:
        raise RuntimeError("can't start new thread")


def driver_of(loop: asyncio.AbstractEventLoop, stopped: list[RaftlakeError]) -> None:
    """What no caller catches stops the node."""
    Driver(loop, SystemClock(), stopped.append).attach(None)  # type: ignore[arg-type]


def test_no_host_that_a_client_can_name_ends_the_node() -> None:
    """AddRaftVoter names it, and its leader asks there."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopped: list[RaftlakeError] = []
        driver_of(loop, stopped)
        told: list[Any] = []
        ours = network(loop, allow("192.0.2.0/24"), 50)
        hosts = [*NO_NAMES, *ODD_ADDRESSES]
        for host in hosts:
            ours.probe(host, 9092, told.append)
        await until(lambda: stopped or len(told) == len(hosts))
        await settle()
        assert not stopped and len(told) == len(hosts) and all(isinstance(answer, FailureReason) for answer in told)

    run(main())


def test_whatever_asking_an_endpoint_brings_about_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The second question is answered as well, and the log is not filled with them."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopped: list[RaftlakeError] = []
        driver_of(loop, stopped)
        told: list[Any] = []
        ours = network(loop, Broken(), 50)
        for count in (1, 2):
            began = loop.time()
            ours.probe("n1.example", 9092, told.append)
            await until(lambda: stopped or len(told) == count)  # noqa: B023
            assert not stopped and told == [FailureReason.DISCONNECTED] * count
            assert round(loop.time() - began, 3) >= 0.05, "how long it took tells nothing either"

    run(main())
    assert [record.exc_info is not None for record in caplog.records if "unexpectedly" in record.message] == [True]
    assert caplog.text.count("endpoint of a voter not confirmed") == 2 and "can't start new thread" in caplog.text


@pytest.mark.parametrize("host", [*NO_NAMES, *ODD_ADDRESSES], ids=lambda host: ascii(host)[:20])
def test_a_peer_at_any_host_fails_at_once_and_is_tried_again_after_the_backoff(host: str) -> None:
    """A voter set or another node names it."""

    async def test(peer: Peer, net: Net) -> None:
        await fails_and_comes_back(peer, net, Endpoint(host, 9092), allow("192.0.2.0/24"))

    scripted(test, GLACIAL)


def test_a_connection_that_fails_unexpectedly_is_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    async def test(peer: Peer, net: Net) -> None:
        await fails_and_comes_back(peer, net, peer.address, Broken())

    scripted(test, GLACIAL)
    (told,) = [record for record in caplog.records if "connecting to a peer failed unexpectedly" in record.message]
    assert told.exc_info is not None


async def fails_and_comes_back(peer: Peer, net: Net, at: Endpoint, allowed: PeerAddresses) -> None:
    """The requests that wait for a connection fail long before their deadlines, and those behind them wait for the back-off."""
    net.network.allowed = allowed
    net.network.meet(NodeId(2), at.host, at.port)
    for got in (ask(net, begin()), ask(net, begin())):
        await until(lambda: bool(got))  # noqa: B023
        assert got == [FailureReason.DISCONNECTED]
    assert net.network.peers_in_touch() == [] and peer.writers == []
    for _ in range(2):
        behind = ask(net, begin())
        await settle()
        assert net.network.peers_in_touch() == [] and not behind
        net.network.notice_alive(NodeId(2))
        await until(lambda: bool(behind))  # noqa: B023
        assert behind == [FailureReason.DISCONNECTED]
    net.network.allowed = PeerAddresses()
    net.network.meet(NodeId(2), peer.address.host, peer.address.port)
    net.network.notice_alive(NodeId(2))
    assert isinstance(await answered(net, begin()), ControlReply)


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
