"""raftlake: a small Raft quorum with Kafka-protocol logs, linearizable state and a Spark connector.

The names below are loaded when they are first used: a node does not import the client, a client no node code.

Reading order, from the algorithm up to the programs:

- `errors`: Kafka's error codes and the families of exceptions; it imports nothing of ours.
- `background`: a process beside a node stands back; it imports nothing of ours.
- `raft`: the algorithm, one Raft group as a pure state machine.
- `wire`: the bytes of the Kafka protocol and of record batches.
- `kv`: the key-value space, the one state machine.
- `ports`: what the driver of a node needs from the world, as protocols.
- `replica`: the driver of a node, over any implementation of `ports`.
- `storage`, `runtime`: the implementation for real nodes: files, sockets, threads, settings.
- `sim`: the implementation for simulated clusters, drawn from a seed.
- `arrow`: record batches as Arrow columns, for the Spark connector and the tier.
- `tier`: history of topics as Delta tables, written by a process beside the node.
- `client`: `Client` and `AsyncClient`.
- `checkpoints`: Spark's checkpoints at `raftlake://` as data, through a client.
- `local_settings`, `local_directories`, `local`: the settings and directories of `LocalQuorum`, and its child processes.
- `cli`, `quickstart`: the `raftlake` command and its tour; `__main__` is the command without its script.

Callers: programs of users, the script `raftlake`, and the connector `pyspark_raftlake`, which lies beside this package.

Invariants:

- Imports go one way, as the contracts of import-linter in pyproject.toml say.
- `raft`, `wire` and `kv` are pure and do not import one another.
- The import of this package loads no other module of raftlake.
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
