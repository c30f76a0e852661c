"""Who may hold a connection: clients up to their limits, nodes in places of their own, and strangers who say they are nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from raftlake.runtime.admission import (
    OBSERVERS_MAX,
    OTHERS_MAX,
    PENDING_MAX,
    PLACES_PER_NODE,
    AddressLimit,
    Admission,
    is_loopback,
    plain_address,
)
from runtime_fakes import FakePeers

VOTER, STRANGER, OBSERVER = 2, 77, 9


@dataclass(eq=False)
class Guest:
    host: str = "10.9.9.9"
    heard_at: float = 0.0
    is_peer: bool = False


class Door:
    def __init__(
        self,
        connections_max: int = 4,
        per_address: int = 1000,
        peers: Any = None,
        *,
        spares: bool = False,
        others_max: int = OTHERS_MAX,
    ) -> None:
        self.gone: list[tuple[Guest, str]] = []
        self.peers = peers if peers is not None else FakePeers(observers={OBSERVER})
        self.addresses = AddressLimit(per_address, spares_loopback=spares)
        self.admission = Admission(
            connections_max=connections_max,
            others_max=others_max,
            addresses=self.addresses,
            peers=self.peers,
            turn_away=lambda guest, setting: self.gone.append((guest, setting)),  # type: ignore[arg-type]
        )

    def come(self, count: int = 1, **facts: Any) -> list[Guest]:
        """Connections, all of which are taken in."""
        guests = [Guest(**facts) for _ in range(count)]
        assert [self.admission.open(guest) for guest in guests] == [None] * count
        return guests

    def nodes(self, count: int, node_id: int, **facts: Any) -> list[Guest]:
        guests = self.come(count, **facts)
        for guest in guests:
            self.admission.claim(guest, node_id)  # type: ignore[arg-type]
        return guests

    def count(self) -> dict[str, int]:
        return dict(self.addresses._counts)


# --- one address -------------------------------------------------------------------------------------------------------------


def test_one_address_has_an_end_and_others_have_room() -> None:
    door = Door(connections_max=100, per_address=3)
    first = door.come(3, host="10.0.0.1")
    assert door.admission.open(Guest("10.0.0.1")) == "max.connections.per.ip=3"
    assert door.admission.open(Guest("::ffff:10.0.0.1")) == "max.connections.per.ip=3"
    door.come(3, host="10.0.0.2")
    door.admission.close(first[1])
    door.come(1, host="10.0.0.1")
    assert door.admission.open(Guest("10.0.0.1")) == "max.connections.per.ip=3"


def test_an_address_whose_connections_are_gone_is_forgotten() -> None:
    """The table of addresses is no place to fill either."""
    door = Door()
    for guest in [*door.come(2, host="10.0.0.1"), *door.come(1, host="::1")]:
        door.admission.close(guest)
        door.admission.close(guest)
    assert door.count() == {}


def test_loopback_is_spared_only_by_default() -> None:
    door = Door(connections_max=10, per_address=1, spares=True)
    door.come(3, host="127.0.0.1")
    door.come(2, host="::1")
    door.come(1, host="10.0.0.1")
    assert door.admission.open(Guest("10.0.0.1")) == "max.connections.per.ip=1"
    given = Door(connections_max=10, per_address=1)
    given.come(1, host="127.0.0.1")
    assert given.admission.open(Guest("127.0.0.1")) == "max.connections.per.ip=1"


@pytest.mark.parametrize(
    ("host", "plain", "loopback"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::ffff:127.8.8.8", "127.8.8.8", True),
        ("::1", "::1", True),
        ("fe80::1%eth0", "fe80::1", False),
        ("::1%lo", "::1", True),
        ("::ffff:127.0.0.1%lo", "127.0.0.1", True),
        ("::ffff:10.0.0.1%eth0.7", "10.0.0.1", False),
        ("::ffff:10.0.0.1%", "10.0.0.1", False),
        ("fe80::1%eth0.7", "fe80::1", False),
        ("10.0.0.1", "10.0.0.1", False),
        ("", "", False),
    ],
)
def test_addresses_as_they_are_compared(host: str, plain: str, loopback: bool) -> None:
    assert (plain_address(host), is_loopback(host)) == (plain, loopback)


# --- claims ------------------------------------------------------------------------------------------------------------------


def test_a_voter_finds_a_place_where_clients_have_none_left() -> None:
    door = Door(connections_max=4)
    door.come(4)
    (guest,) = door.come(1)
    assert door.admission.is_pending(guest)
    assert door.admission.claim(guest, VOTER)  # type: ignore[arg-type]
    assert guest.is_peer and not door.admission.is_pending(guest)


@pytest.mark.parametrize("claimed", [STRANGER, 1, -2])
def test_a_claim_to_be_a_node_that_is_not_known_is_worth_nothing(claimed: int) -> None:
    """2,060 connections that said so kept all others out, and idled for ever."""
    door = Door(connections_max=4)
    claimers = door.nodes(4, claimed)
    assert not any(guest.is_peer for guest in claimers)
    late = door.nodes(1, claimed)[0]
    assert door.admission.is_pending(late) and not late.is_peer


def test_one_voters_number_gives_few_places_and_the_rest_are_clients() -> None:
    door = Door(connections_max=4)
    forged = door.nodes(PLACES_PER_NODE + 4, VOTER, host="10.6.6.6")
    assert sum(guest.is_peer for guest in forged) == PLACES_PER_NODE
    # The others count as clients, so there is an end.
    assert door.admission.is_pending(door.come(1)[0])
    assert door.count() == {"10.6.6.6": 4, "10.9.9.9": 1}


def test_another_voter_has_places_of_its_own() -> None:
    door = Door(connections_max=4)
    door.nodes(PLACES_PER_NODE + 4, VOTER, host="10.6.6.6")
    assert door.nodes(1, 3)[0].is_peer


def test_the_newest_connection_of_a_voter_goes_before_the_longest_silent() -> None:
    """It came back after a power failure, and its old connections are not known to be dead."""
    door = Door(connections_max=100)
    old = [door.nodes(1, VOTER, heard_at=float(second))[0] for second in range(PLACES_PER_NODE)]
    old[0].heard_at = 99.0
    assert door.nodes(1, VOTER, heard_at=100.0)[0].is_peer
    assert [guest.is_peer for guest in old] == [True, False] + [True] * (PLACES_PER_NODE - 2)


def test_a_stranger_never_takes_the_place_of_who_comes_from_where_the_voter_lives() -> None:
    door = Door(connections_max=100, peers=FakePeers(homes={VOTER: "10.0.0.2"}))
    real = door.nodes(4, VOTER, host="10.0.0.2", heard_at=1.0)
    forged = door.nodes(PLACES_PER_NODE * 3, VOTER, host="10.6.6.6", heard_at=50.0)
    assert all(guest.is_peer for guest in real)
    assert sum(guest.is_peer for guest in forged) == PLACES_PER_NODE - 4
    again = door.nodes(PLACES_PER_NODE - 4, VOTER, host="10.0.0.2", heard_at=51.0)
    assert all(guest.is_peer for guest in [*real, *again]) and not any(guest.is_peer for guest in forged)
    assert not any(guest.is_peer for guest in door.nodes(1, VOTER, host="10.6.6.6", heard_at=99.0))


def test_who_loses_its_place_goes_where_clients_have_no_room() -> None:
    door = Door(connections_max=2)
    old = door.nodes(PLACES_PER_NODE, VOTER, host="10.0.0.2")
    door.come(2)
    assert door.nodes(1, VOTER, heard_at=9.0)[0].is_peer
    assert door.gone == [(old[0], "max.connections=2")]
    # Its end is heard of later, and counts once.
    door.admission.close(old[0])
    assert not door.admission.claim(old[0], VOTER)  # type: ignore[arg-type]
    assert door.count() == {"10.9.9.9": 2}


def test_observers_have_places_as_far_as_they_go() -> None:
    many = FakePeers(observers=set(range(1000, 2000)))
    door = Door(connections_max=2000, peers=many)
    guests = [door.nodes(1, node_id)[0] for node_id in range(1000, 1000 + OBSERVERS_MAX + 5)]
    assert sum(guest.is_peer for guest in guests) == OBSERVERS_MAX
    door.admission.close(guests[0])
    assert door.nodes(1, 1999)[0].is_peer
    assert door.nodes(1, VOTER)[0].is_peer


def test_a_replica_that_becomes_known_and_is_forgotten() -> None:
    """An observer is known by its first Fetch. A voter that was removed is a client from then on."""
    door = Door(connections_max=100)
    (guest,) = door.nodes(1, STRANGER)
    door.peers.observers.add(STRANGER)
    door.admission.settle()
    assert guest.is_peer and door.count() == {}
    door.peers.observers.clear()
    door.peers.voters.add(STRANGER)
    door.admission.settle()
    assert guest.is_peer
    door.peers.voters.clear()
    door.admission.settle()
    assert not guest.is_peer and door.count() == {"10.9.9.9": 1}
    door.admission.close(guest)
    assert door.count() == {}


@pytest.mark.parametrize("count", [1, PLACES_PER_NODE])
def test_an_observer_that_is_promoted_keeps_its_connections_where_clients_have_no_room(count: int) -> None:
    door = Door(connections_max=3)
    guests = door.nodes(count, OBSERVER)
    door.come(3)
    door.peers.observers.clear()
    door.peers.voters.add(OBSERVER)
    door.admission.settle()
    assert all(guest.is_peer for guest in guests) and not door.gone
    # It has left the observers' places, and back.
    door.nodes(1, VOTER)
    assert door.admission._observers == 0
    door.peers.voters.discard(OBSERVER)
    door.peers.observers.add(OBSERVER)
    door.admission.settle()
    assert all(guest.is_peer for guest in guests) and door.admission._observers == count
    door.peers.observers.clear()
    door.admission.settle()
    assert {guest for guest, _ in door.gone} == set(guests), "who is no node any more needs room as a client"
    assert door.admission._observers == 0


# --- while the first request is awaited --------------------------------------------------------------------------------------


def test_of_too_many_silent_ones_the_longest_silent_goes() -> None:
    """A voter that comes speaks at once; who holds the row is silent."""
    door = Door(connections_max=1)
    door.come(1)
    silent = door.come(PENDING_MAX)
    (voter,) = door.come(1)
    assert door.gone == [(silent[0], "max.connections=1")]
    assert door.admission.claim(voter, VOTER)  # type: ignore[arg-type]


def test_who_comes_from_where_a_voter_lives_waits_in_a_row_of_its_own() -> None:
    door = Door(connections_max=1, per_address=1, peers=FakePeers(homes={VOTER: "10.0.0.2"}))
    door.come(1, host="10.0.0.2")
    (voter,) = door.come(1, host="10.0.0.2")
    assert door.admission.is_pending(voter)
    for number in range(PENDING_MAX * 2):
        door.come(1, host=f"10.1.{number // 250}.{number % 250}")
    assert voter not in [guest for guest, _ in door.gone] and len(door.gone) == PENDING_MAX
    assert door.admission.claim(voter, VOTER)  # type: ignore[arg-type]
    # An address that is full is told so by its own setting.
    silent = door.come(PENDING_MAX + 1, host="10.0.0.2")
    assert door.gone[-1] == (silent[0], "max.connections.per.ip=1")


def test_a_listener_for_clients_keeps_nobody_waiting() -> None:
    door = Door(connections_max=2)
    alone = Admission(connections_max=2, addresses=AddressLimit(9), peers=None, turn_away=lambda guest, setting: None)
    for guest in (Guest(), Guest()):
        assert alone.open(guest) is None and not alone.claim(guest, VOTER)  # type: ignore[arg-type]
    assert alone.open(Guest()) == door.admission.setting == "max.connections=2"


# --- few descriptors ---------------------------------------------------------------------------------------------------------


def test_all_together_have_an_end_where_descriptors_are_few() -> None:
    """Strangers that wait with their first request go for the newest one, and a node's own connections stay."""
    door = Door(connections_max=4, others_max=6)
    nodes = door.nodes(3, VOTER, host="10.0.0.2")
    door.come(4)
    strangers = door.come(3)
    late = door.come(1)[0]
    assert door.gone == [(strangers[0], "max.connections=4")]
    assert door.admission.claim(late, 3) and all(guest.is_peer for guest in nodes)  # type: ignore[arg-type]
    for number in (1, 2):
        door.come(1)
        assert door.gone[number:] == [(strangers[number], "max.connections=4")]
    assert len(door.admission._places) == 10


def test_a_client_is_refused_where_nodes_hold_all_that_is_left() -> None:
    door = Door(connections_max=4, others_max=2)
    door.nodes(6, VOTER, host="10.0.0.2")
    assert door.admission.open(Guest()) == "max.connections=4"
    assert door.gone == [] and len(door.admission._places) == 6


def test_who_comes_from_where_a_voter_lives_goes_before_strangers() -> None:
    door = Door(connections_max=1, others_max=2, peers=FakePeers(homes={VOTER: "10.0.0.2"}))
    door.come(1)
    home, stranger = door.come(1, host="10.0.0.2")[0], door.come(1)[0]
    again = door.come(1, host="10.0.0.2")[0]
    assert [guest for guest, _ in door.gone] == [stranger]
    door.come(1, host="10.0.0.2")
    assert [guest for guest, _ in door.gone] == [stranger, home]
    assert door.admission.is_pending(again)
    assert door.admission.open(Guest()) == "max.connections=1", "no stranger waits, and those from home stay"
