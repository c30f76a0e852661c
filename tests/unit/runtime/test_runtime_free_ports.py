"""Ports for servers that come and go: free, different, and not among those of outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from raftlake.runtime import free_ports as module
from raftlake.runtime.free_ports import FIRST, free_ports

HOST = "127.0.0.1"


def outgoing_from(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ip_local_port_range"
    path.write_text(f"{first}\t60999\n")
    monkeypatch.setattr(module, "OUTGOING", path)


def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_ones(_: random.SystemRandom, ports: Sequence[int], count: int) -> list[int]:
        return list(ports[:count])

    monkeypatch.setattr(random.SystemRandom, "sample", first_ones)


def test_they_differ_and_no_outgoing_connection_gets_one() -> None:
    ports = free_ports(HOST, 50)
    assert len(set(ports)) == 50
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as outgoing:
        assert max(ports) < module._outgoing_first() <= outgoing.getsockname()[1]


def test_those_in_use_and_those_taken_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_order(monkeypatch)
    (first,) = free_ports(HOST, 1)
    assert first >= FIRST
    with socket.create_server((HOST, first)):
        (second,) = free_ports(HOST, 1)
        assert second > first
        assert not {first, second} & set(free_ports(HOST, 3, taken=[second]))


def test_no_port_is_given_twice_while_its_server_has_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of one quorum got the same port from two calls: the second node could not start."""
    in_order(monkeypatch)
    given = [port for _ in range(10) for port in free_ports(HOST, 2)]
    assert len(set(given)) == 20


def test_two_processes_with_one_seed_choose_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run in two processes at once begin with the same seed, and their servers took each other's ports."""
    chosen = []
    for _ in range(2):
        random.seed(1)
        monkeypatch.setattr(module, "_given", set())
        chosen.append(free_ports(HOST, 20))
    assert chosen[0] != chosen[1]


@pytest.mark.parametrize("text", ["", "no numbers\n"])
def test_where_the_system_does_not_say_the_usual_range_is_kept_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(module, "OUTGOING", tmp_path / "absent")
    assert max(free_ports(HOST, 20)) < 32_768
    monkeypatch.setattr(module, "OUTGOING", tmp_path / "odd")
    (tmp_path / "odd").write_text(text)
    assert max(free_ports(HOST, 20)) < 32_768


@pytest.mark.parametrize("outgoing_first", [1024, FIRST, FIRST + 2])
def test_where_too_few_are_left_the_system_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outgoing_first: int
) -> None:
    outgoing_from(outgoing_first, tmp_path, monkeypatch)
    ports = free_ports(HOST, 5)
    assert len(set(ports)) == 5 and len([port for port in ports if port >= outgoing_first]) >= 3
