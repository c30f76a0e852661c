"""Which addresses a node may connect to as a peer: `peer.address.allow`.

Addresses of peers come from the settings, but also from voter sets, from other nodes' answers, and from clients that send an
AddRaftVoter. A name is resolved here, each address that it has is looked at, and the connection goes to that very address:
a name that means something else a moment later leads nowhere. Knows no peers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import TypeVar

from raftlake.replica.config import Endpoint

T = TypeVar("T")


class AddressRefused(OSError):
    """No address of a peer is in `peer.address.allow`; nothing was sent."""


class PeerAddresses:
    """Without `networks` every address is allowed."""

    def __init__(self, networks: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._networks = networks

    def allows(self, address: str) -> bool:
        if not self._networks:
            return True
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            # What cannot be read cannot be compared.
            return False
        # An IPv4 address has many spellings as an IPv6 address, and each leads to it.
        mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
        plain = mapped or parsed
        return any(plain in network for network in self._networks if network.version == plain.version)

    async def resolve(self, endpoint: Endpoint) -> list[str]:
        """The addresses to connect to. Raises AddressRefused, or another OSError for what is no name."""
        found = await _addresses_of(endpoint)
        allowed = [address for address in found if self.allows(address)]
        if not allowed:
            told = ", ".join(found)
            raise AddressRefused(f"{endpoint} ({told}) is not in peer.address.allow")
        return allowed


async def _addresses_of(endpoint: Endpoint) -> list[str]:
    try:
        ipaddress.ip_address(endpoint.host)
    except ValueError:
        pass
    else:
        return [endpoint.host]
    if not endpoint.host:
        raise OSError("no host is given")
    try:
        loop = asyncio.get_running_loop()
        rows = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except ValueError as error:
        raise OSError(f"{endpoint.host!r} is no host name") from error
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


async def connect_to_any(addresses: Sequence[str], connect: Callable[[str], Awaitable[T]]) -> T:
    """The first connection that is taken. Raises the OSError of the last one that is not."""
    *others, last = addresses
    for address in others:
        try:
            return await connect(address)
        except OSError:
            continue
    return await connect(last)
