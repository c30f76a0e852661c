"""Peers that are not where the log says they are: `runtime.peers` looks where the settings say."""

from __future__ import annotations

from peerkit import Net, Peer, ask, begin, scripted
from raftlake.ports.peer_rpcs import ControlReply
from raftlake.raft.events import FailureReason
from raftlake.replica.config import Endpoint
from raftlake.runtime.sockets import bind
from runtime_fakes import LOOPBACK, address_of, settle, until


def closed_port() -> Endpoint:
    listening = bind(LOOPBACK, "listeners")
    address = address_of(listening)
    listening.close()
    return address


def test_a_peer_that_is_not_where_the_log_says_is_looked_for_where_the_settings_say() -> None:
    """Voters that had all moved could not reach each other, and so could not tell the log."""

    async def test(peer: Peer, net: Net) -> None:
        old = closed_port()
        net.network.meet(2, old.host, old.port)  # type: ignore[arg-type]
        failed = ask(net, begin())
        await until(lambda: bool(failed))
        assert failed == [FailureReason.DISCONNECTED]
        answered = ask(net, begin())
        await until(lambda: bool(answered))
        assert isinstance(answered[0], ControlReply)
        assert net.network.addresses[2] == old  # type: ignore[index]

    scripted(test)


def test_a_peer_that_says_where_it_was_found_keeps_its_connections() -> None:
    async def test(peer: Peer, net: Net) -> None:
        old = closed_port()
        net.network.meet(2, old.host, old.port)  # type: ignore[arg-type]
        first = ask(net, begin())
        await until(lambda: bool(first))
        waiting = ask(net, begin())
        await until(lambda: len(peer.requests) == 1)
        net.network.meet(2, peer.address.host, peer.address.port)  # type: ignore[arg-type]
        await settle()
        assert not waiting, "what is under way there goes on"
        peer.answer(0)
        await until(lambda: bool(waiting))
        assert isinstance(waiting[0], ControlReply) and len(peer.writers) == 1

    scripted(test, auto=False)


def test_a_peer_that_moved_away_from_a_connection_loses_it() -> None:
    async def test(peer: Peer, net: Net) -> None:
        waiting = ask(net, begin())
        await until(lambda: len(peer.requests) == 1)
        other = Peer()
        await other.start()
        net.network.meet(2, other.address.host, other.address.port)  # type: ignore[arg-type]
        await until(lambda: bool(waiting))
        assert waiting == [FailureReason.DISCONNECTED]
        answered = ask(net, begin())
        await until(lambda: bool(answered))
        assert len(other.requests) == 1
        other.stop()

    scripted(test, auto=False)
