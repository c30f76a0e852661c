"""How long the event loops of two quorums let a client wait, measured in turns while something is done to one of them.

A question that needs nothing of a node but its loop is asked again and again. The longest wait is the longest time for which
the loop was held, and what the machine adds to it adds to the twin's as well.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from siegekit import Siege

from raftlake.wire.api import ApiKey, encode_request, request_type

#: A loop that is held for less than this is no finding on a busy machine.
HELD_S = 0.5
SLOWER_MAX = 5.0
TRIES = 4
PAUSE_S = 0.005
ANSWER_S = 60.0
_LENGTH = struct.Struct(">i")


class Pulse:
    """The waits of one connection, in seconds."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        message = request_type(ApiKey.API_VERSIONS, 0)()
        self._question = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 1, "pulse", message))
        self.waits: list[float] = []

    def beat(self) -> None:
        began = time.perf_counter()
        self._socket.sendall(self._question)
        (left,) = _LENGTH.unpack(self._take(_LENGTH.size))
        self._take(left)
        self.waits.append(time.perf_counter() - began)

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            assert piece, "the connection was closed"
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def felt(addresses: list[str]) -> Iterator[list[float]]:
    """The waits at these nodes while the body runs, each node asked by a thread of its own."""
    waits: list[float] = []
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        pulses = [Pulse(address) for address in addresses]
        for pulse in pulses:
            stack.callback(pulse.close)

        def beat(pulse: Pulse) -> None:
            while not stop.is_set():
                pulse.beat()
                stop.wait(PAUSE_S)

        threads = [threading.Thread(target=beat, args=(pulse,), daemon=True) for pulse in pulses]
        for thread in threads:
            thread.start()
        try:
            yield waits
        finally:
            stop.set()
            for thread in threads:
                thread.join(ANSWER_S)
                assert not thread.is_alive(), "a node does not answer"
            waits += [wait for pulse in pulses for wait in pulse.waits]


def require_a_free_loop(siege: Siege, attack: Callable[[], None]) -> None:
    """Runs `attack` until no node was held by it for long. Fails when that does not come about."""
    besieged = [node.address for node in siege.quorum.nodes.values()]
    in_peace = siege.in_peace.bootstrap.split(",")
    told = []
    for _ in range(TRIES):
        with felt(besieged) as waits, felt(in_peace) as quiet:
            attack()
        held, usual = max(waits), max(quiet)
        if held <= max(HELD_S, SLOWER_MAX * usual):
            return
        told.append(f"{held:.2f} s, {usual:.2f} s in peace")
    raise AssertionError(f"the loop of a node was held in each try: {'; '.join(told)}")
