"""What part of a process's file descriptors its connections may take, and what part its files.

A node needs some at any moment: for its own files, for the other nodes, for snapshots. So clients get at most half of what is
left after those. Where that is less than `max.connections`, it is the limit that holds, and a node says so once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from raftlake.errors import ConfigError
from raftlake.runtime.log import event
from raftlake.runtime.settings.settings import Settings
from raftlake.storage.files import DESCRIPTORS_MAX

logger = logging.getLogger("raftlake.node")

#: With less a node does not start.
LIMIT_MIN = 256
#: Listeners, the loop, the lock, the election files, the spares, the way out to other nodes, what is open for a moment.
OWN_MAX = 128
#: Connections that are accepted beside the clients': of nodes, and those whose first request may be a node's.
PEERS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorShares:
    """Together at most `limit`."""

    limit: int
    own: int
    peers: int
    #: Of clients, at each listener.
    connections: int
    #: Segments of logs.
    files: int

    @classmethod
    def of(cls, limit: int, *, listeners: int, wanted: int) -> DescriptorShares:
        """`wanted` clients at each of so many listeners, or fewer. Raises ConfigError where too little is left for any."""
        if limit < LIMIT_MIN:
            raise ConfigError(
                f"this process may have {limit} files and connections open (ulimit -n, systemd's LimitNOFILE); a node needs "
                f"{LIMIT_MIN} or more, and {_needed(listeners, wanted)} to serve max.connections={wanted} clients at each "
                "listener"
            )
        own, peers = min(OWN_MAX, limit // 4), min(PEERS_MAX, limit // 5)
        left = limit - own - peers
        connections = min(wanted, left // 2 // listeners)
        files = min(left - listeners * connections, DESCRIPTORS_MAX)
        return cls(limit=limit, own=own, peers=peers, connections=connections, files=files)

    def held_to(self, settings: Settings) -> Settings:
        """The settings with the `max.connections` that holds; the log says where that is another one."""
        if self.connections < settings.connections_max:
            event(
                logger, logging.WARNING, "fewer connections than max.connections: raise ulimit -n (LimitNOFILE)",
                node=settings.node_id, each_listener=self.connections, asked=settings.connections_max, limit=self.limit,
            )  # fmt: skip
        return replace(settings, connections_max=self.connections)


def shares_of(settings: Settings, limit: int) -> DescriptorShares:
    """Raises ConfigError."""
    return DescriptorShares.of(limit, listeners=_listeners(settings), wanted=settings.connections_max)


def shortage(settings: Settings, limit: int) -> str | None:
    """A line for who starts a node with these settings and `limit` descriptors, if clients will be fewer than
    `max.connections`. Raises ConfigError where the node will not start."""
    shares = shares_of(settings, limit)
    if shares.connections == settings.connections_max:
        return None
    return (
        f"a node serves {shares.connections} clients at each listener and not max.connections={settings.connections_max}: a "
        f"process may have {limit} files and connections open (ulimit -n); {settings.connections_max} take "
        f"{_needed(_listeners(settings), settings.connections_max)}"
    )


def _needed(listeners: int, wanted: int) -> int:
    """The limit that leaves `wanted` clients at each listener."""
    return OWN_MAX + PEERS_MAX + 2 * listeners * wanted


def _listeners(settings: Settings) -> int:
    optional = (settings.controller_listener, settings.http_ops_listener)
    return 2 + sum(listener is not None for listener in optional)
