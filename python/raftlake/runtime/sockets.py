"""Listening sockets, bound before anything else starts so that a port in use is one clear line."""

from __future__ import annotations

import errno
import select
import socket

from raftlake.errors import ConfigError, MachineError
from raftlake.replica.config import Endpoint


def bind(endpoint: Endpoint, setting: str) -> socket.socket:
    """A listening socket. Raises ConfigError for an address that is not of this machine, MachineError for a port that cannot be
    had; both name the setting and the port."""
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
    except OSError as error:
        raise ConfigError(f"{setting}={endpoint}: no such address on this machine ({error.strerror})") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # A restarted node takes its port back although old connections linger; two living ones still cannot share it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not endpoint.host:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
        bound.listen(1024)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        kind_of_error = ConfigError if error.errno == errno.EADDRNOTAVAIL else MachineError
        raise kind_of_error(f"{setting}={endpoint}: cannot listen on port {endpoint.port}: {error.strerror}") from error
    return bound


def has_hung_up(descriptor: int) -> bool:
    """Whether the other side has closed, or half closed, a connection that is not read at the moment."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))
