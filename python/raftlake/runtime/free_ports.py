"""Ports for servers on this machine where none was chosen: free ones, out of the way of outgoing connections.

The system gives the ports of one range to connections as they are opened. Any of them may be taken while its server is down,
and the server would not come back.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

#: Below are the ports of well-known servers.
FIRST = 10_000
#: How often a port is tried before the system chooses one.
TRIES_MAX = 1_000
#: What this process was given before. Its servers may not run yet, so each such port still looks free.
_given: set[int] = set()
#: First and last port that the system gives to outgoing connections, where it is Linux; elsewhere they begin higher.
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_FIRST = 32_768


def free_ports(host: str, count: int, taken: Collection[int] = ()) -> list[int]:
    """Ports that are free now, none of `taken`. They differ from each other and from those of earlier calls in this process."""
    found: list[int] = []
    candidates = _candidates()
    with contextlib.ExitStack() as held:
        while len(found) < count:
            unused = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                unused.bind((host, next(candidates)))
                port = unused.getsockname()[1]
                if port not in taken and port not in _given:
                    found.append(port)
    _given.update(found)
    return found


def _candidates() -> Iterator[int]:
    ports = range(FIRST, _outgoing_first())
    # Not of the seed that a program may have set: two processes with one seed would choose the same ports.
    yield from random.SystemRandom().sample(ports, min(TRIES_MAX, len(ports)))
    while True:
        yield 0


def _outgoing_first() -> int:
    try:
        return int(OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _OUTGOING_FIRST
