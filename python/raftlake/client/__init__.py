"""The client of a quorum: `Client` for ordinary programs, `AsyncClient` for asyncio.

Speaks the Kafka protocol to append, read and administer, and HTTP for the key-value space. Knows the wire, the key-value
commands and the errors; no node code.
"""

from __future__ import annotations

from raftlake.client.aio import AppendRecord, AsyncClient
from raftlake.client.errors import KvConflict, NoReachableNode, NoRoom, OffsetOutOfRange
from raftlake.client.producer import AsyncProducer
from raftlake.client.sync import Client, Producer
from raftlake.client.types import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Address,
    AppendResult,
    ClientConfig,
    ClusterDescription,
    FetchedBytes,
    IsolationLevel,
    KvEntry,
    KvEvent,
    KvPage,
    NewRecord,
    PartitionDescription,
    Record,
    TopicDescription,
)
from raftlake.kv.commands import Delete, Put
from raftlake.wire.quorum import QuorumDescription, ReplicaDescription

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Address",
    "AppendRecord",
    "AppendResult",
    "AsyncClient",
    "AsyncProducer",
    "Client",
    "ClientConfig",
    "ClusterDescription",
    "Delete",
    "FetchedBytes",
    "IsolationLevel",
    "KvConflict",
    "KvEntry",
    "KvEvent",
    "KvPage",
    "NewRecord",
    "NoReachableNode",
    "NoRoom",
    "OffsetOutOfRange",
    "PartitionDescription",
    "Producer",
    "Put",
    "QuorumDescription",
    "Record",
    "ReplicaDescription",
    "TopicDescription",
]
