"""raftlake: a small Raft quorum with Kafka-protocol logs, linearizable state and a Spark connector.

The names below are loaded when they are first used: a node does not import the client, a client no node code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlake.client import AsyncClient, Client
    from raftlake.local import LocalQuorum

__all__ = ["AsyncClient", "Client", "LocalQuorum"]

_HOMES = {"AsyncClient": "raftlake.client", "Client": "raftlake.client", "LocalQuorum": "raftlake.local"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
