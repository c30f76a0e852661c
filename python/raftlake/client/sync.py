"""`Client`: the same client for programs without an event loop.

Each Client runs one event loop in one background thread, started with its first call; every method hands its work to that loop
and waits. A Client may be pickled, and it may be used after a fork: each process makes its own thread and connections.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from raftlake.client import protocol
from raftlake.client.aio import READ_BYTES_MAX, AppendRecord, AsyncClient, to_record
from raftlake.client.loop_thread import LoopThread
from raftlake.client.producer import AsyncProducer
from raftlake.client.reader import Replica
from raftlake.client.sync_kv import Kv
from raftlake.client.types import (
    LATEST,
    AppendResult,
    ClientConfig,
    ClusterDescription,
    FetchedBytes,
    IsolationLevel,
    Record,
    TopicDescription,
    parse_servers,
)
from raftlake.errors import RaftlakeError
from raftlake.wire.quorum import QuorumDescription

T = TypeVar("T")


class Client:
    """A client of one raftlake quorum, for any thread. Use as a context manager.

    `bootstrap_servers` is `"host:port,host:port"` or a sequence of `"host:port"`; further settings are the fields of
    `ClientConfig`. Nothing connects before the first call.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._settings = settings
        #: Checked now, so that a wrong setting is refused here and not at the first call.
        self.config = ClientConfig(bootstrap=parse_servers(bootstrap_servers), **settings)
        self._lock = threading.Lock()
        self._running: LoopThread | None = None
        self._is_closed = False
        self.kv = Kv(self._call, self._iterate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Client], tuple[Any, ...]]:
        return _unpickled, (type(self), self._bootstrap_servers, self._settings)

    def close(self) -> None:
        """Close every connection and stop the thread. Appends that were sent and not acknowledged end as UnknownOutcome."""
        with self._lock:
            running, self._running, self._is_closed = self._running, None, True
        if running is not None and running.process_id == os.getpid():
            running.stop()

    # --- append ------------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: AppendRecord | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        timeout_ms: float | None = None,
    ) -> AppendResult:
        """Append one record; see `AsyncClient.append`."""
        return self._call(
            lambda client: client.append(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
                timeout_ms=timeout_ms,
            )
        )

    def append_many(
        self,
        topic: str,
        records: Iterable[AppendRecord],
        *,
        partition: int | None = None,
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append records in as few batches as possible; one result per batch."""
        chosen = list(records)
        return self._call(lambda client: client.append_many(topic, chosen, partition=partition, timeout_ms=timeout_ms))

    def append_each(
        self, topic: str, records: Iterable[AppendRecord], *, timeout_ms: float | None = None
    ) -> tuple[AppendResult | RaftlakeError, ...]:
        """Append records in as few batches as possible; what became of each, see `AsyncClient.append_each`."""
        chosen = list(records)
        return self._call(lambda client: client.append_each(topic, chosen, timeout_ms=timeout_ms))

    def append_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        *,
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append encoded record batches; see `AsyncProducer.append_batches`. For strict order use a `producer()`."""
        return self._call(lambda client: client.append_batches(topic, partition, batches, timeout_ms=timeout_ms))

    def producer(self) -> Producer:
        """A new idempotent producer with strict order: several batches in flight, none doubled, none reordered."""
        running = self._require_running()
        return Producer(running, running.call(_made_producer(running.client)))

    # --- read --------------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = READ_BYTES_MAX,
        max_records: int | None = None,
        max_wait_ms: int = 500,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        replica: Replica = None,
    ) -> list[Record]:
        """Records from `offset` on, perhaps none; see `AsyncClient.read`."""
        return self._call(
            lambda client: client.read(
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_records=max_records,
                max_wait_ms=max_wait_ms,
                isolation=isolation,
                replica=replica,
            )
        )

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = READ_BYTES_MAX,
        wait_ms: int = 500,
        limit_offset: int | None = None,
        replica: Replica = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> FetchedBytes:
        """Whole record batches as they lie in the log; see `Reader.fetch_raw`."""
        return self.submit_fetch(
            topic,
            partition,
            offset,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            limit_offset=limit_offset,
            replica=replica,
            isolation=isolation,
            topic_id=topic_id,
            timeout_ms=timeout_ms,
        ).result()

    def submit_fetch(
        self, topic: str, partition: int, offset: int, **arguments: Any
    ) -> concurrent.futures.Future[FetchedBytes]:
        """`fetch_raw` that runs while the caller works on what it fetched before."""
        running = self._require_running()
        return running.submit(running.client.fetch_raw(topic, partition, offset, **arguments))

    def stream(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: int | Mapping[int, int] = LATEST,
        max_wait_ms: int = 500,
        replica: Replica = None,
    ) -> Iterator[Record]:
        """Records for ever, in order within each partition, from EARLIEST, LATEST or an offset per partition on."""
        asked = None if partitions is None else list(partitions)
        return self._iterate(
            lambda client: client.stream(topic, partitions=asked, start=start, max_wait_ms=max_wait_ms, replica=replica)
        )

    # --- offsets -----------------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        topic: str,
        timestamps: Mapping[int, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[int, int]:
        """Offsets by partition for a timestamp in milliseconds each, or EARLIEST, LATEST, MAX_TIMESTAMP."""
        return self._call(lambda client: client.list_offsets(topic, timestamps, isolation=isolation, timeout_ms=timeout_ms))

    def read_offset(
        self, topic: str, partitions: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, int]:
        """Linearizable end offsets, of all partitions by default: what was acknowledged before this call lies below them."""
        return self._call(lambda client: client.read_offset(topic, partitions, timeout_ms=timeout_ms))

    # --- topics and the cluster --------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[int]:
        return self._call(lambda client: client.partitions(topic))

    def topics(self, names: Iterable[str] | None = None) -> tuple[TopicDescription, ...]:
        """Every topic, by name; or those of `names` that exist."""
        return self._call(lambda client: client.topics(names))

    def describe_topic(self, topic: str) -> TopicDescription:
        return self._call(lambda client: client.describe_topic(topic))

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, exist_ok: bool = False
    ) -> TopicDescription:
        """Create a topic and wait until every partition has a leader."""
        return self._call(lambda client: client.create_topic(name, partitions, configs, exist_ok=exist_ok))

    def delete_topic(self, name: str) -> None:
        self._call(lambda client: client.delete_topic(name))

    def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterDescription:
        return self._call(lambda client: client.describe_cluster(timeout_ms=timeout_ms))

    def describe_quorum(
        self, topic: str = protocol.METADATA_TOPIC, partition: int = 0, *, timeout_ms: float | None = None
    ) -> QuorumDescription:
        """The quorum as its leader sees it, by default that of the metadata log."""
        return self._call(lambda client: client.describe_quorum(topic, partition, timeout_ms=timeout_ms))

    def add_voter(self, node_id: int, directory_id: bytes, host: str, port: int, *, timeout_ms: float | None = None) -> None:
        """Make an observer, a replica that fetches, a voter of the metadata log (KIP-853); the other groups follow."""
        self._call(lambda client: client.add_voter(node_id, directory_id, host, port, timeout_ms=timeout_ms))

    def remove_voter(self, node_id: int, directory_id: bytes, *, timeout_ms: float | None = None) -> None:
        """Let a replica vote no longer; the other groups follow."""
        self._call(lambda client: client.remove_voter(node_id, directory_id, timeout_ms=timeout_ms))

    def node_configs(self, node_id: int) -> dict[str, str]:
        return self._call(lambda client: client.node_configs(node_id))

    # --- the thread --------------------------------------------------------------------------------------------------

    def _require_running(self) -> LoopThread:
        """This process's thread, started when there is none yet (a fork copies the object, not the thread)."""
        running = self._running
        if running is not None and running.process_id == os.getpid():
            return running
        if running is not None:
            # After a fork the lock may have been copied while another thread held it.
            self._lock = threading.Lock()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this client is closed")
            running = self._running
            if running is None or running.process_id != os.getpid():
                running = LoopThread(lambda: AsyncClient(self._bootstrap_servers, **self._settings))
                self._running = running
            return running

    def _call(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        running = self._require_running()
        return running.call(work(running.client))

    def _iterate(self, make: Callable[[AsyncClient], AsyncIterator[T]]) -> Iterator[T]:
        running = self._require_running()
        iterator = make(running.client)
        try:
            while True:
                try:
                    yield running.call(_next(iterator))
                except StopAsyncIteration:
                    return
        finally:
            closing = _closed(iterator)
            try:
                running.call(closing)
            except RuntimeError:  # The client was closed first.
                closing.close()


def _unpickled(kind: type[Client], bootstrap_servers: str | Sequence[str], settings: Mapping[str, Any]) -> Client:
    return kind(bootstrap_servers, **settings)


async def _made_producer(client: AsyncClient) -> AsyncProducer:
    return client.producer()


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


async def _closed(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


class Producer:
    """A producer with strict order for programs without an event loop; made by `Client.producer`."""

    def __init__(self, running: LoopThread, producer: AsyncProducer) -> None:
        self._running = running
        self._producer = producer

    def append_many(
        self, topic: str, records: Iterable[AppendRecord], *, timeout_ms: float | None = None
    ) -> tuple[AppendResult, ...]:
        chosen = [to_record(record) for record in records]
        return self._running.call(self._producer.append_many(topic, chosen, timeout_ms))

    def append_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        *,
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append encoded record batches in order and wait for all; see `AsyncProducer.append_batches`."""
        return self.submit_batches(topic, partition, batches, timeout_ms=timeout_ms).result()

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
