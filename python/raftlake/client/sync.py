"""`Client`: the same client for programs without an event loop.

Each Client runs one event loop in one background thread, started with its first call; every method hands its work to that loop
and waits (`blocking`). A Client may be pickled, and it may be used after a fork: each process makes its own thread and
connections.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from raftlake.client.aio import TRANSACTION_TIMEOUT_MS, AsyncClient
from raftlake.client.blocking import blocking, iterating
from raftlake.client.loop_thread import LoopThread
from raftlake.client.producer import AsyncProducer
from raftlake.client.types import AppendResult, ClientConfig, FetchedBytes, default_servers, parse_servers

if TYPE_CHECKING:
    from raftlake.client.sync_kv import Kv
    from raftlake.client.transactions import AsyncTransactionalProducer
    from raftlake.client.types import EndTxn

P = TypeVar("P", bound=AsyncProducer)


class Client:
    """A client of one raftlake quorum, for any thread. Use as a context manager.

    `bootstrap_servers` is `"host:port,host:port"` or a sequence of `"host:port"`. Without it, RAFTLAKE_BOOTSTRAP_SERVERS of the
    environment names the nodes, else they are those of `raftlake local`. Further settings are the fields of `ClientConfig`.
    Nothing connects before the first call.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._bootstrap_servers = default_servers() if bootstrap_servers is None else bootstrap_servers
        self._settings = settings
        #: Checked now, so that a wrong setting is refused here and not at the first call.
        self.config = ClientConfig(bootstrap=parse_servers(self._bootstrap_servers), **settings)
        #: By process: a fork copies a lock as it is, perhaps held by a thread that the child does not have. A thread that holds
        #: one may run a handler of a signal, or a finalizer, that closes the client.
        self._locks: dict[int, threading.RLock] = {}
        self._running: LoopThread | None = None
        self._is_closed = False
        self._kv: Kv | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Client], tuple[Any, ...]]:
        return _unpickled, (type(self), self._bootstrap_servers, self._settings)

    def close(self) -> None:
        """Close every connection and stop the thread. Appends that were sent and not acknowledged end as UnknownOutcome.
        RuntimeError in that thread, as in a callback of a Future: the client stays open."""
        running = self._running
        if running is not None:
            running.require_other_thread()
        with self._lock:
            running, self._running, self._is_closed = self._running, None, True
        if running is not None and running.process_id == os.getpid():
            running.stop()

    # --- append ------------------------------------------------------------------------------------------------------

    append = blocking(AsyncClient.append)
    append_many = blocking(AsyncClient.append_many)
    append_each = blocking(AsyncClient.append_each)
    append_batches = blocking(AsyncClient.append_batches)

    def producer(self) -> Producer:
        """A new idempotent producer with strict order: several batches in flight, none doubled, none reordered."""
        running = self._require_running()
        return Producer(running, running.call(_made_producer(running.client)))

    def transactional_producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> TransactionalProducer:
        """A producer of one transaction, whose records become visible together. The nodes abort the transaction after
        `transaction_timeout_ms`. Of all producers with one `transactional_id` the newest goes on, and the others are fenced."""
        running = self._require_running()
        made = running.call(_made_transactional(running.client, transactional_id, transaction_timeout_ms))
        return TransactionalProducer(running, made)

    open_transactions = blocking(AsyncClient.open_transactions)
    settle_transactions = blocking(AsyncClient.settle_transactions)
    transactions = blocking(AsyncClient.transactions)
    describe_transaction = blocking(AsyncClient.describe_transaction)
    hanging_transactions = blocking(AsyncClient.hanging_transactions)
    abort_hanging = blocking(AsyncClient.abort_hanging)

    # --- read --------------------------------------------------------------------------------------------------------

    read = blocking(AsyncClient.read)
    fetch_raw = blocking(AsyncClient.fetch_raw)
    stream = iterating(AsyncClient.stream)

    def submit_fetch(
        self, topic: str, partition: int, offset: int, **arguments: Any
    ) -> concurrent.futures.Future[FetchedBytes]:
        """`fetch_raw` that runs while the caller works on what it fetched before."""
        running = self._require_running()
        return running.submit(running.client.fetch_raw(topic, partition, offset, **arguments))

    # --- offsets -----------------------------------------------------------------------------------------------------

    list_offsets = blocking(AsyncClient.list_offsets)
    read_offset = blocking(AsyncClient.read_offset)
    read_stable_offset = blocking(AsyncClient.read_stable_offset)

    # --- streaming queries of Spark ----------------------------------------------------------------------------------

    query_lags = blocking(AsyncClient.query_lags)
    forget_query = blocking(AsyncClient.forget_query)

    # --- topics and the cluster --------------------------------------------------------------------------------------

    partitions = blocking(AsyncClient.partitions)
    topics = blocking(AsyncClient.topics)
    describe_topic = blocking(AsyncClient.describe_topic)
    create_topic = blocking(AsyncClient.create_topic)
    delete_topic = blocking(AsyncClient.delete_topic)
    create_partitions = blocking(AsyncClient.create_partitions)
    delete_records = blocking(AsyncClient.delete_records)
    describe_cluster = blocking(AsyncClient.describe_cluster)
    describe_quorum = blocking(AsyncClient.describe_quorum)
    add_voter = blocking(AsyncClient.add_voter)
    remove_voter = blocking(AsyncClient.remove_voter)
    node_configs = blocking(AsyncClient.node_configs)
    topic_configs = blocking(AsyncClient.topic_configs)
    own_topic_configs = blocking(AsyncClient.own_topic_configs)
    alter_topic_configs = blocking(AsyncClient.alter_topic_configs)

    # --- keys --------------------------------------------------------------------------------------------------------

    @property
    def kv(self) -> Kv:
        """The key-value space, over HTTP."""
        if self._kv is None:
            from raftlake.client.sync_kv import Kv

            self._kv = Kv(self)
        return self._kv

    # --- the thread --------------------------------------------------------------------------------------------------

    def _reach(self) -> tuple[LoopThread, Callable[[], AsyncClient]]:
        running = self._require_running()
        return running, lambda: running.client

    @property
    def _lock(self) -> threading.RLock:
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def _of_this_process(self) -> LoopThread | None:
        """A fork copies the object, not the thread."""
        running = self._running
        return running if running is not None and running.process_id == os.getpid() else None

    def _require_running(self) -> LoopThread:
        """This process's thread, started when there is none yet."""
        running = self._of_this_process()
        if running is not None:
            return running
        if self._is_closed:
            raise RuntimeError("this client is closed")
        # No lock is held meanwhile: the collector may run a finalizer of the program, in either thread, that uses the client.
        made = LoopThread(lambda: AsyncClient(self._bootstrap_servers, **self._settings))
        with self._lock:
            if not self._is_closed and self._of_this_process() is None:
                self._running = made
                return made
        # Another call was faster, or the client was closed.
        made.stop()
        return self._require_running()


def _unpickled(kind: type[Client], bootstrap_servers: str | Sequence[str], settings: Mapping[str, Any]) -> Client:
    return kind(bootstrap_servers, **settings)


async def _made_producer(client: AsyncClient) -> AsyncProducer:
    return client.producer()


async def _made_transactional(client: AsyncClient, transactional_id: str, timeout_ms: int) -> AsyncTransactionalProducer:
    return client.transactional_producer(transactional_id, transaction_timeout_ms=timeout_ms)


class _Appending(Generic[P]):
    """What producers for programs without an event loop have in common."""

    def __init__(self, running: LoopThread, producer: P) -> None:
        self._running = running
        self._producer = producer

    append = blocking(AsyncProducer.append)
    append_many = blocking(AsyncProducer.append_many)
    append_each = blocking(AsyncProducer.append_each)
    append_batches = blocking(AsyncProducer.append_batches)

    def submit_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        *,
        timeout_ms: float | None = None,
    ) -> concurrent.futures.Future[tuple[AppendResult, ...]]:
        """As `append_batches`, but returns at once. Batches keep the order of the submissions."""
        return self._running.submit(self._producer.append_batches(topic, partition, batches, timeout_ms))

    def close(self) -> None:
        """Give up what is not acknowledged yet: what was sent ends as UnknownOutcome."""
        self._running.call(self._running.client.close_producer(self._producer))

    def _reach(self) -> tuple[LoopThread, Callable[[], P]]:
        return self._running, lambda: self._producer


class Producer(_Appending[AsyncProducer]):
    """A producer with strict order for programs without an event loop; made by `Client.producer`."""


class TransactionalProducer(_Appending["AsyncTransactionalProducer"]):
    """One transaction, for programs without an event loop; made by `Client.transactional_producer`. Nothing that it appends is
    visible to readers of what is committed before the transaction commits."""

    def begin(self, timeout_ms: float | None = None) -> None:
        """Fence whoever has the transactional id, and abort what it has left open. The first append does so, too."""
        self._running.call(self._producer.begin(timeout_ms))

    def end(self, *, commit: bool) -> EndTxn:
        """The end of this transaction, for a `client.kv.txn` beside changes of keys. Nothing can be appended afterwards.

        RequestRejected(INVALID_TXN_STATE) where nothing was appended: there is nothing to end.
        """
        return self._producer.end(commit=commit)

    @property
    def has_begun(self) -> bool:
        """Whether there is a transaction to end."""
        return self._producer.has_begun

    def commit(self, timeout_ms: float | None = None) -> None:
        """Make all that was appended visible. KvConflict where the transaction was aborted before, by its time limit or by
        another producer of its id."""
        self._running.call(self._producer.commit(timeout_ms))

    def abort(self, timeout_ms: float | None = None) -> None:
        """Take all that was appended out of the sight of readers of what is committed."""
        self._running.call(self._producer.abort(timeout_ms))
