"""One client per quorum and Python process.

Spark keeps its Python workers and gives them one task after another, so the second task of a worker finds open connections. The
client makes itself a new thread and new connections after a fork; here it is only remembered.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_raftlake.options import Quorum
    from raftlake.client import Client


@functools.cache
def client_of(quorum: Quorum) -> Client:
    """This process's client; nothing connects before its first call."""
    # Imported late: Spark imports this package in every Python process only to learn the name of the format.
    from raftlake.client import Client

    patience = quorum.patience
    settings: dict[str, Any] = {"request_timeout_ms": patience.ask_ms}
    if quorum.is_running:
        # This process may be new, and the nodes away.
        settings["unreachable_timeout_ms"] = patience.ask_ms
    if patience.request_ms is not None:
        settings["attempt_timeout_ms"] = patience.request_ms
    return Client(quorum.bootstrap_servers, client_id=quorum.client_id, **settings)
