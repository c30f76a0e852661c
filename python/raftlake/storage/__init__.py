"""Logs, election state and the identity of a node on real files, in Kafka's own formats.

`FileLogDirectory` and `FileElectionStore` implement `ports.LogDirectory` and `ports.ElectionStore`. May import `raft.types`,
`wire`, `ports` and `errors`; nothing of sockets or the event loop.
"""

from __future__ import annotations

from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import MetaProperties, format_directory, read_meta, require_meta, write_meta

__all__ = [
    "FileElectionStore",
    "FileLogDirectory",
    "MetaProperties",
    "format_directory",
    "read_meta",
    "require_meta",
    "write_meta",
]
