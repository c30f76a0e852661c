"""Who may hold a connection of the Kafka listener: clients up to a limit, and apart from them the quorum's own nodes.

Nothing proves who is at the other end, so a claim to be a node is worth little: it takes a place only where a voter or a known
observer bears that number, each has a few, and clients have their own. A connection that comes when clients have no room left
is kept for a moment: its first request may be a voter's. When too many are kept so, the one that has kept silent the longest
goes, since a node speaks at once; those that come from where a voter lives have a row of their own.

Knows no sockets and no clock. Invariant: each connection that was taken in has one standing until it is closed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from raftlake.raft.types import NodeId

#: Connections that may wait with their first request above the limits, of strangers, and of each host where a voter lives.
PENDING_MAX = 64
#: Of one node: four to a peer that it knows by its number, four by its address, and new ones while old ones are still dying.
PLACES_PER_NODE = 12
#: Of all observers together: anybody who fetches is one.
OBSERVERS_MAX = 128
#: More than all of these together, in a quorum of usual size.
OTHERS_MAX = 1024


class Standing(Enum):
    CLIENT = "client"
    PENDING = "pending"
    VOTER = "voter"
    OBSERVER = "observer"


class Guest(Protocol):
    """A connection."""

    is_peer: bool

    @property
    def host(self) -> str: ...

    @property
    def heard_at(self) -> float: ...


class Peers(Protocol):
    """The other nodes, as `KnownPeers` tells."""

    def is_voter(self, node_id: NodeId) -> bool: ...

    def is_observer(self, node_id: NodeId) -> bool: ...

    def is_home_of(self, node_id: NodeId, host: str) -> bool: ...

    def is_home(self, host: str) -> bool: ...


class AddressLimit:
    """`max.connections.per.ip`: how many connections come from one address."""

    def __init__(self, per_address_max: int, *, spares_loopback: bool = False) -> None:
        self._max = per_address_max
        self._spares_loopback = spares_loopback
        self._counts: dict[str, int] = {}

    @property
    def setting(self) -> str:
        return f"max.connections.per.ip={self._max}"

    def has_room(self, host: str) -> bool:
        is_spared = self._spares_loopback and is_loopback(host)
        return is_spared or self._counts.get(plain_address(host), 0) < self._max

    def take(self, host: str) -> None:
        host = plain_address(host)
        self._counts[host] = self._counts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        host = plain_address(host)
        count = self._counts.pop(host) - 1
        if count:
            self._counts[host] = count


@dataclass(slots=True)
class _Place:
    standing: Standing
    #: The node that it says it is.
    claimed: NodeId | None = None


class Admission:
    """`turn_away` is called with a connection that has to go for another one, and the setting that says so. Without `peers` a
    listener is for clients alone. Beside clients there are at most `others_max`: this process has no more descriptors for
    them."""

    def __init__(
        self,
        *,
        connections_max: int,
        others_max: int = OTHERS_MAX,
        addresses: AddressLimit,
        peers: Peers | None,
        turn_away: Callable[[Guest, str], None],
    ) -> None:
        self._connections_max = connections_max
        #: Connections of all kinds.
        self._guests_max = connections_max + others_max
        self._addresses = addresses
        self._peers = peers
        self._turn_away = turn_away
        self._places: dict[Guest, _Place] = {}
        self._clients = 0
        #: By host where a voter lives; those of all others together under "". The longest silent first.
        self._pending: dict[str, dict[Guest, None]] = {}
        self._of_node: dict[NodeId, dict[Guest, None]] = {}
        self._observers = 0

    @property
    def setting(self) -> str:
        return f"max.connections={self._connections_max}"

    def open(self, guest: Guest) -> str | None:
        """Take a connection in, or tell the setting that refuses it."""
        refusal = self._refusal(guest.host)
        if refusal is None:
            self._enter(guest, _Place(Standing.CLIENT))
            return None
        is_home = self._peers is not None and self._peers.is_home(guest.host)
        if self._peers is None or (refusal != self.setting and not is_home):
            return refusal
        row = self._pending.get("") or self._pending.get(guest.host)
        if len(self._places) >= self._guests_max:
            if not row:
                return refusal
            longest_silent = next(iter(row))
            self._dismiss(longest_silent, refusal)
        self._enter(guest, _Place(Standing.PENDING))
        row = self._pending.setdefault(guest.host if is_home else "", {})
        row[guest] = None
        if len(row) > PENDING_MAX:
            self._dismiss(next(iter(row)), refusal)
        return None

    def _refusal(self, host: str) -> str | None:
        """The setting that keeps a client out."""
        if not self._addresses.has_room(host):
            return self._addresses.setting
        is_full = self._clients >= self._connections_max or len(self._places) >= self._guests_max
        return self.setting if is_full else None

    def is_pending(self, guest: Guest) -> bool:
        """It came when there was no room for clients, and has no place of a node."""
        place = self._places.get(guest)
        return place is not None and place.standing is Standing.PENDING

    def claim(self, guest: Guest, node_id: NodeId) -> bool:
        """A request says that it is a node's. Whether the connection has a node's place from now on."""
        place = self._places.get(guest)
        if place is None or guest.is_peer:
            return guest.is_peer
        place.claimed = node_id
        standing = self._standing_of(node_id)
        if standing is Standing.VOTER:
            self._make_room(guest, node_id)
        return self._take_place(guest, place, standing)

    def close(self, guest: Guest) -> None:
        """The connection is gone."""
        if guest in self._places:
            self._leave(guest, self._places.pop(guest))

    def settle(self) -> None:
        """Called now and then: nodes become known, and are no longer known."""
        for guest, place in list(self._places.items()):
            if guest not in self._places or place.claimed is None:
                continue
            standing = self._standing_of(place.claimed)
            if guest.is_peer and standing is place.standing:
                continue
            # An observer that votes now goes from place to place: there may be no room for it as a client in between.
            if not self._take_place(guest, place, standing) and guest.is_peer:
                self._demote(guest, place)

    def _standing_of(self, node_id: NodeId) -> Standing:
        if self._peers is not None and self._peers.is_voter(node_id):
            return Standing.VOTER
        is_observer = self._peers is not None and self._peers.is_observer(node_id)
        return Standing.OBSERVER if is_observer else Standing.CLIENT

    def _take_place(self, guest: Guest, place: _Place, standing: Standing) -> bool:
        assert place.claimed is not None
        others = self._of_node.get(place.claimed, {}).keys() - {guest}
        is_full = len(others) >= PLACES_PER_NODE
        if standing is Standing.CLIENT or is_full or (standing is Standing.OBSERVER and self._observers >= OBSERVERS_MAX):
            return False
        self._leave(guest, place)
        place.standing = standing
        self._enter(guest, place)
        return True

    def _make_room(self, guest: Guest, node_id: NodeId) -> None:
        """The newest connection of a voter goes before the one that has been silent the longest, which may be dead; but one
        from elsewhere never before one that comes from where the voter lives."""
        row = self._of_node.get(node_id, {})
        if len(row) < PLACES_PER_NODE:
            return

        def is_at_home(each: Guest) -> bool:
            return self._peers is not None and self._peers.is_home_of(node_id, each.host)

        last = min(row, key=lambda each: (is_at_home(each), each.heard_at))
        if is_at_home(guest) >= is_at_home(last):
            self._demote(last, self._places[last])

    def _demote(self, guest: Guest, place: _Place) -> None:
        """A client from now on, as far as there is room."""
        refusal = self._refusal(guest.host)
        if refusal is not None:
            self._dismiss(guest, refusal)
            return
        self._leave(guest, place)
        place.standing = Standing.CLIENT
        self._enter(guest, place)

    def _dismiss(self, guest: Guest, setting: str) -> None:
        self.close(guest)
        guest.is_peer = False
        self._turn_away(guest, setting)

    def _enter(self, guest: Guest, place: _Place) -> None:
        self._places[guest] = place
        guest.is_peer = place.standing in (Standing.VOTER, Standing.OBSERVER)
        if guest.is_peer:
            assert place.claimed is not None
            self._of_node.setdefault(place.claimed, {})[guest] = None
            self._observers += place.standing is Standing.OBSERVER
            return
        self._addresses.take(guest.host)
        self._clients += place.standing is Standing.CLIENT

    def _leave(self, guest: Guest, place: _Place) -> None:
        if place.standing in (Standing.VOTER, Standing.OBSERVER):
            assert place.claimed is not None
            row = self._of_node[place.claimed]
            del row[guest]
            if not row:
                del self._of_node[place.claimed]
            self._observers -= place.standing is Standing.OBSERVER
            return
        self._addresses.leave(guest.host)
        self._clients -= place.standing is Standing.CLIENT
        for name, waiting in list(self._pending.items()):
            waiting.pop(guest, None)
            if not waiting:
                del self._pending[name]


def plain_address(host: str) -> str:
    """An address as it is compared: without a scope, and an IPv4 address that came in over an IPv6 socket as that address."""
    host = host.partition("%")[0]
    return host.removeprefix("::ffff:") if "." in host else host


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(plain_address(host)).is_loopback
    except ValueError:
        return False
