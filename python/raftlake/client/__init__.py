"""The client of a quorum: `Client` for ordinary programs, `AsyncClient` for asyncio.

The client speaks the Kafka protocol to append, read and administer, and HTTP for the key-value space. `AsyncClient` is the one
implementation. A `Client` hands each call to an `AsyncClient` that lives on an event loop in a background thread.

Reading order:

- `types`, `errors`: the values and settings of a client; the errors that only clients raise.
- `aio`: `AsyncClient`, which puts the parts below together.
- `sync`, `sync_kv`: `Client` and its producers; its key-value space.
- `blocking`, `loop_thread`: methods that wait, made from asynchronous ones; the thread with the event loop.
- `cluster`, `routing`: the metadata cache with the leader of each partition; the retry loop through changes of leader.
- `connection`, `pool`: one connection to one node; the open connections by address and use.
- `protocol`: the requests of the cold APIs, built and taken apart.
- `deadline`, `shared_work`: the time limit of one operation, and the pauses between its attempts; work that callers share.
- `producer`, `partitioner`: `AsyncProducer`, which makes the batches; the partition of a record.
- `sender`, `produce_answer`: the appends to one partition, in order and retried; the meaning of each answer.
- `transactions`: producers of one transaction each, and the way to the coordinator. `transaction_admin`: what is open or hangs.
- `lanes`, `stall_watch`: producer ids and their sequences; the detection of a leader that answers no append.
- `reader`: raw batches, records and offsets, from the leader or from a follower. `aborted`: which batches it leaves out.
- `admin`, `partition_admin`, `voters`: topics and the cluster; partitions and deleted records; changes of voters (KIP-853).
- `config_admin`: the configs of topics, changed and read.
- `change`: a change that any node takes, tried until an answer decides it.
- `query_lag`, `query_positions`: how far streaming queries are; the keys in which their sources say so.
- `sink_keys`: the keys and transactional ids of exactly-once sinks.
- `kv`, `kv_answers`, `sse`: the key-value space over HTTP; the meaning of its answers; server-sent events.

Callers: programs of users, `cli`, `quickstart` and `pyspark_raftlake`. The client calls `wire`, `kv/commands.py`,
`kv/lenient_json.py`, `kv/query_positions.py` and `errors`, and no node code.

Invariants:

- A batch on its way ends with `AppendResult`, with `RequestRejected` (not in the log) or with `UnknownOutcome`.
- Within a lane, sequences have no gap. `lanes` retires a lane for good when its sequence may have a gap.
- `kv` sends a write again only after an answer or a refused connection that proves that no node has proposed the write.
- For one topic id, the leader epoch of a partition in the cache never goes back.
- `connection` completes each request exactly once, in the order of the sends.
"""

from __future__ import annotations

from raftlake.client.aio import AsyncClient
from raftlake.client.errors import (
    Disconnected,
    KvConflict,
    NoReachableNode,
    NoRoom,
    OffsetOutOfRange,
    QueryMissing,
    RangeTooLarge,
)
from raftlake.client.producer import AsyncProducer
from raftlake.client.sync import Client, Producer, TransactionalProducer
from raftlake.client.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Address,
    AppendRecord,
    AppendResult,
    ClientConfig,
    ClusterDescription,
    EndTxn,
    FetchedBytes,
    HangingTransaction,
    IsolationLevel,
    KvDeleted,
    KvEntry,
    KvEvent,
    KvPage,
    NewRecord,
    OpenTransaction,
    PartitionDescription,
    QueryLag,
    Record,
    TopicDescription,
    TransactionDescription,
)
from raftlake.kv.commands import Delete, DeletePrefix, Put
from raftlake.wire.quorum import QuorumDescription, ReplicaDescription

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
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
    "DeletePrefix",
    "Disconnected",
    "EndTxn",
    "FetchedBytes",
    "HangingTransaction",
    "IsolationLevel",
    "KvConflict",
    "KvDeleted",
    "KvEntry",
    "KvEvent",
    "KvPage",
    "NewRecord",
    "NoReachableNode",
    "NoRoom",
    "OffsetOutOfRange",
    "OpenTransaction",
    "PartitionDescription",
    "Producer",
    "Put",
    "QueryLag",
    "QueryMissing",
    "QuorumDescription",
    "RangeTooLarge",
    "Record",
    "ReplicaDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionalProducer",
]
