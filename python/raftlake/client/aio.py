"""`AsyncClient`: the one implementation of the client, for asyncio (any loop).

It puts the parts together and turns loose arguments into values; what happens is in `producer`, `reader`, `admin` and `kv`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from raftlake.client import protocol
from raftlake.client.admin import Admin
from raftlake.client.cluster import Cluster
from raftlake.client.config_admin import ConfigAdmin
from raftlake.client.deadline import Deadline
from raftlake.client.partition_admin import PartitionAdmin
from raftlake.client.pool import ConnectionPool
from raftlake.client.producer import AsyncProducer
from raftlake.client.reader import Reader, Replica
from raftlake.client.types import (
    EARLIEST,
    LATEST,
    AppendRecord,
    AppendResult,
    ClientConfig,
    ClusterDescription,
    FetchedBytes,
    HangingTransaction,
    Header,
    IsolationLevel,
    OpenTransaction,
    QueryLag,
    Record,
    TopicDescription,
    TransactionDescription,
    default_servers,
    parse_servers,
    to_bytes,
    to_record,
)
from raftlake.client.voters import NotYet, VoterAdmin
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected
from raftlake.wire.quorum import QuorumDescription

if TYPE_CHECKING:
    from raftlake.client.kv import AsyncKv
    from raftlake.client.transaction_admin import TransactionAdmin
    from raftlake.client.transactions import AsyncTransactionalProducer, Coordinator

READ_BYTES_MAX = 1 << 20
#: How long a transaction may be open, unless its producer says otherwise.
TRANSACTION_TIMEOUT_MS = 60_000


class AsyncClient:
    """A client of one raftlake quorum. Use as `async with`, from one event loop.

    `bootstrap_servers` is `"host:port,host:port"` or a sequence of `"host:port"`. Without it, RAFTLAKE_BOOTSTRAP_SERVERS of the
    environment names the nodes, else they are those of `raftlake local`. Further settings are the fields of `ClientConfig`.
    Nothing connects before the first call.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        servers = default_servers() if bootstrap_servers is None else bootstrap_servers
        self.config = ClientConfig(bootstrap=parse_servers(servers), **settings)
        self._pool = ConnectionPool(self.config)
        self._cluster = Cluster(self.config, self._pool)
        self._reader = Reader(self._cluster)
        self._admin = Admin(self._cluster)
        self._producer = AsyncProducer(self._cluster, lanes_max=self.config.append_lanes_max)
        self._producers: list[AsyncProducer] = [self._producer]
        self._kv: AsyncKv | None = None
        self._coordinator: Coordinator | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Appends that were sent and not acknowledged end as UnknownOutcome."""
        for producer in self._producers:
            await producer.close()
        if self._kv is not None:
            await self._kv.close()
        await self._pool.close()

    # --- append ------------------------------------------------------------------------------------------------------

    async def append(
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
        """Append one record and return where it stands, once a majority of the nodes has it on disk.

        Raises RequestRejected when the record was not appended, UnknownOutcome when it may have been. Raises NoReachableNode
        when no node answered; the record was not appended then.
        """
        record = to_record(value)
        if key is not None:
            record = replace(record, key=to_bytes(key))
        if partition is not None:
            record = replace(record, partition=partition)
        if headers:
            record = replace(record, headers=_headers(headers))
        if timestamp_ms is not None:
            record = replace(record, timestamp_ms=timestamp_ms)
        return await self._producer.append(topic, record, timeout_ms)

    async def append_many(
        self,
        topic: str,
        records: Iterable[AppendRecord],
        *,
        partition: int | None = None,
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append records in as few batches as their sizes allow, in order within each partition; one result per batch.

        Raises the first failure after every batch has ended: other batches may have been appended.
        """
        if partition is not None:
            records = [replace(to_record(record), partition=partition) for record in records]
        return await self._producer.append_many(topic, records, timeout_ms)

    async def append_each(
        self, topic: str, records: Iterable[AppendRecord], *, timeout_ms: float | None = None
    ) -> tuple[AppendResult | RaftlakeError, ...]:
        """Append records in as few batches as their sizes allow, and return what became of each record.

        That is where the batch with the record was appended, or why it was not (UnknownOutcome where that is not known). Raises
        only where nothing was sent.
        """
        return await self._producer.append_each(topic, records, timeout_ms)

    async def append_batches(
        self,
        topic: str,
        partition: int,
        batches: Sequence[bytes | bytearray | memoryview],
        *,
        timeout_ms: float | None = None,
    ) -> tuple[AppendResult, ...]:
        """Append encoded record batches (format v2, one per element). For strict order use a `producer()`.

        The producer fields of the batches are overwritten: a `bytearray` in place, anything else in a copy. Raises the first
        failure after every batch has ended.
        """
        return await self._producer.append_batches(topic, partition, batches, timeout_ms)

    def producer(self) -> AsyncProducer:
        """A new idempotent producer with strict order: several batches in flight, none doubled, none reordered."""
        producer = AsyncProducer(self._cluster)
        self._producers.append(producer)
        return producer

    def transactional_producer(
        self, transactional_id: str, *, transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> AsyncTransactionalProducer:
        """A producer of one transaction, whose records become visible together. The nodes abort the transaction after
        `transaction_timeout_ms`. Of all producers with one `transactional_id` the newest goes on, and the others are fenced."""
        from raftlake.client.transactions import AsyncTransactionalProducer

        producer = AsyncTransactionalProducer(
            self._cluster, self._coordinated(), lambda: self.kv, transactional_id, transaction_timeout_ms
        )
        self._producers.append(producer)
        return producer

    async def open_transactions(self, prefix: str = "", *, timeout_ms: float | None = None) -> tuple[OpenTransaction, ...]:
        """The transactions that nobody has ended yet, of transactional ids that begin with `prefix`."""
        return await self._coordinated().open(prefix, self._deadline(timeout_ms))

    async def settle_transactions(self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None) -> bool:
        """Wait until the ends of these transactions are told to all of their partitions: who reads then is shown what was
        committed. False where the time is over before."""
        return await self._coordinated().settle(transactional_ids, self._deadline(timeout_ms))

    async def transactions(self, prefix: str = "", *, timeout_ms: float | None = None) -> tuple[TransactionDescription, ...]:
        """The transactions that are under way, of transactional ids that begin with `prefix`, the oldest first."""
        return await self._transaction_admin().under_way(prefix, self._deadline(timeout_ms))

    async def describe_transaction(self, transactional_id: str, *, timeout_ms: float | None = None) -> TransactionDescription:
        """RequestRejected(TRANSACTIONAL_ID_NOT_FOUND) where there is no such id."""
        return await self._transaction_admin().describe(transactional_id, self._deadline(timeout_ms))

    async def hanging_transactions(
        self, topic: str, partitions: Iterable[int], *, timeout_ms: float | None = None
    ) -> tuple[HangingTransaction, ...]:
        """The transactions that are open in these partitions, and that no coordinator will end there."""
        return await self._transaction_admin().hanging(topic, partitions, self._deadline(timeout_ms))

    async def abort_hanging(self, transaction: HangingTransaction, *, timeout_ms: float | None = None) -> None:
        """Abort it in its partition. RequestRejected(INVALID_TXN_STATE) where it does not hang."""
        await self._transaction_admin().abort_hanging(transaction, self._deadline(timeout_ms))

    def _transaction_admin(self) -> TransactionAdmin:
        from raftlake.client.transaction_admin import TransactionAdmin

        return TransactionAdmin(self._cluster, self._coordinated())

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    def _coordinated(self) -> Coordinator:
        """The way to the coordinator of transactions."""
        if self._coordinator is None:
            # Not at the top: most programs have no transactions, and these messages take time to import.
            from raftlake.client.transactions import Coordinator

            self._coordinator = Coordinator(self._cluster)
        return self._coordinator

    async def close_producer(self, producer: AsyncProducer) -> None:
        """Close a producer that `producer()` made, and forget it: one that lives longer than its producers needs this."""
        if producer in self._producers:
            self._producers.remove(producer)
        await producer.close()

    # --- read --------------------------------------------------------------------------------------------------------

    async def read(
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
        timeout_ms: float | None = None,
    ) -> list[Record]:
        """Records from `offset` on, perhaps none: whole batches of about `max_bytes`, at most `max_records`. Waits up to
        `max_wait_ms` for the first one.

        With READ_COMMITTED there is no record of a transaction that is aborted or not decided yet, and none behind the first
        of those that are not decided. `replica` is the node to read from: None for the leader, "any" for one after another, or
        a node id. Raises OffsetOutOfRange when the leader does not hold `offset`.
        """
        records, _ = await self._reader.read(
            topic,
            partition,
            offset,
            bytes_max=max_bytes,
            records_max=max_records,
            wait_ms=max_wait_ms,
            replica=replica,
            isolation=isolation,
            timeout_ms=timeout_ms,
        )
        return records

    async def fetch_raw(
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
        """Whole record batches as they lie in the log, from the one that holds `offset` on, about `bytes_max` bytes of them.

        Batches that begin at or after `limit_offset` are left out. When there is nothing yet, the node waits up to `wait_ms`.
        Raises OffsetOutOfRange when the leader does not hold `offset`, and RequestRejected(UNKNOWN_TOPIC_ID) when a `topic_id`
        is given and the topic of this name is another one by now.
        """
        return await self._reader.fetch_raw(
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
        )

    async def stream(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: int | Mapping[int, int] = LATEST,
        max_wait_ms: int = 500,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        replica: Replica = None,
    ) -> AsyncIterator[Record]:
        """Records for ever, in order within each partition, from EARLIEST, LATEST or an offset per partition on.

        Raises RequestRejected(UNKNOWN_TOPIC_ID) when the topic was deleted and created again: its offsets are others now.
        """
        named = None if partitions is None else list(partitions)
        described = await self._cluster.topic_with(topic, named or (), self._deadline(None), is_retry=True)
        asked = sorted(described.partitions) if named is None else named
        if isinstance(start, Mapping):
            positions = {partition: start[partition] for partition in asked}
        elif start in (EARLIEST, LATEST):
            positions = await self.list_offsets(
                topic, dict.fromkeys(asked, start), isolation=isolation, topic_id=described.topic_id
            )
        else:
            raise RequestRejected(ErrorCode.INVALID_REQUEST, "start is EARLIEST, LATEST or an offset for each partition")
        # One chunk per partition may wait to be taken: a slow reader holds the fetches up.
        chunks: asyncio.Queue[list[Record] | Exception] = asyncio.Queue(maxsize=1)

        async def follow(partition: int, offset: int) -> None:
            try:
                while True:
                    records, offset = await self._reader.read(
                        topic,
                        partition,
                        offset,
                        bytes_max=READ_BYTES_MAX,
                        records_max=None,
                        wait_ms=max_wait_ms,
                        replica=replica,
                        isolation=isolation,
                        topic_id=described.topic_id,
                    )
                    if records:
                        await chunks.put(records)
            except Exception as error:  # noqa: BLE001 -- handed to the reader, who raises it
                await chunks.put(error)

        followers = [asyncio.create_task(follow(partition, offset)) for partition, offset in positions.items()]
        try:
            while True:
                chunk = await chunks.get()
                if isinstance(chunk, Exception):
                    raise chunk
                for record in chunk:
                    yield record
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def list_offsets(
        self,
        topic: str,
        timestamps: Mapping[int, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, int]:
        """Offsets by partition for a timestamp in milliseconds each, or EARLIEST, LATEST, MAX_TIMESTAMP.

        With a `topic_id`, no node that names another topic is believed: RequestRejected(UNKNOWN_TOPIC_ID) when none names this
        one within the grace.
        """
        return await self._reader.list_offsets(topic, timestamps, isolation=isolation, topic_id=topic_id, timeout_ms=timeout_ms)

    async def read_offset(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, int]:
        """Linearizable end offsets, of all partitions by default: what was acknowledged before this call lies below them.
        `topic_id` is that of `list_offsets`."""
        asked = await self._partitions(topic, partitions, topic_id)
        return await self._reader.read_offset(topic, asked, topic_id=topic_id, timeout_ms=timeout_ms)

    async def read_stable_offset(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        *,
        topic_id: bytes | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, int]:
        """Linearizable end offsets for readers of what is committed. What was acknowledged before this call lies below them,
        unless a transaction is open that began before it: then they are where the first of those begins. `topic_id` is that of
        `list_offsets`."""
        asked = await self._partitions(topic, partitions, topic_id)
        return await self._reader.read_stable_offset(topic, asked, topic_id=topic_id, timeout_ms=timeout_ms)

    async def _partitions(self, topic: str, named: Iterable[int] | None, topic_id: bytes | None) -> list[int]:
        """Those that are named, else all."""
        if named is not None:
            return list(named)
        return [partition.partition for partition in (await self.describe_topic(topic, topic_id=topic_id)).partitions]

    # --- streaming queries of Spark ------------------------------------------------------------------------------------

    async def query_lags(
        self, query: str | None = None, topic: str | None = None, *, with_times: bool = False, timeout_ms: float | None = None
    ) -> tuple[QueryLag, ...]:
        """How far streaming queries are, by query, topic and partition. `query` is the id or the name of one. `with_times` asks
        for the time of the first record that waits in each partition, too; a time that cannot be had by `timeout_ms` is None.
        QueryMissing where no query is so."""
        from raftlake.client.query_lag import query_lags

        within_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await query_lags(self, query, topic, with_times=with_times, timeout_ms=within_ms)

    async def forget_query(self, query: str, *, timeout_ms: float | None = None) -> tuple[QueryLag, ...]:
        """Delete what the query with this id has written down, and return it, without ends. A query that still runs writes it
        down again. QueryMissing where there is nothing, KvConflict where it was written meanwhile."""
        from raftlake.client.query_lag import forget_query

        return await forget_query(self, query, self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    # --- topics and the cluster --------------------------------------------------------------------------------------

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, asked for anew."""
        return await self._partitions(topic, None, None)

    async def topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> tuple[TopicDescription, ...]:
        """Every topic, by name; or those of `names` that exist."""
        return await self._admin.topics(names, timeout_ms)

    async def describe_topic(self, topic: str, *, topic_id: bytes | None = None) -> TopicDescription:
        """One topic, asked for anew; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist. `topic_id` is that of
        `list_offsets`."""
        described = await self._cluster.topic_with(topic, (), self._deadline(None), topic_id=topic_id, is_retry=True)
        return described.describe()

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, exist_ok: bool = False
    ) -> TopicDescription:
        """Create a topic and wait until every partition has a leader. RequestRejected(INVALID_CONFIG) names the config, of
        `configs`, that is not accepted."""
        return await self._admin.create_topic(name, partitions, configs, exist_ok=exist_ok)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its data; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        await self._admin.delete_topic(name)

    async def delete_records(
        self, topic: str, offsets: Mapping[int, int], *, timeout_ms: float | None = None
    ) -> dict[int, int]:
        """Delete the records of partitions below an offset each; LATEST deletes all that are committed. Returns by partition
        where it begins then. OffsetOutOfRange, with what the partition holds, for an offset above the high watermark."""
        try:
            return await PartitionAdmin(self._cluster, self._admin).delete_records(topic, offsets, timeout_ms)
        except RequestRejected as rejected:
            told = None
            if rejected.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Where the range cannot be told, the refusal is told as it came.
                with contextlib.suppress(RaftlakeError):
                    told = await self._reader.above_end(topic, offsets, timeout_ms=timeout_ms)
            if told is None:
                raise
            raise told from rejected

    async def create_partitions(self, topic: str, count: int, *, timeout_ms: float | None = None) -> TopicDescription:
        """Let a topic have `count` partitions, more than it has, and wait until all of them have leaders."""
        return await PartitionAdmin(self._cluster, self._admin).create_partitions(topic, count, timeout_ms)

    async def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterDescription:
        """The cluster's id, its nodes, and the controller: the leader of the metadata log."""
        return await self._admin.describe_cluster(timeout_ms)

    async def describe_quorum(
        self, topic: str = protocol.METADATA_TOPIC, partition: int = 0, *, timeout_ms: float | None = None
    ) -> QuorumDescription:
        """The quorum as its leader sees it, by default that of the metadata log. Waits for a leader while there is none."""
        return await self._admin.describe_quorum(topic, partition, timeout_ms)

    async def add_voter(
        self,
        node_id: int,
        directory_id: bytes,
        host: str,
        port: int,
        *,
        timeout_ms: float | None = None,
        not_yet: NotYet | None = None,
    ) -> None:
        """Make an observer, a replica that fetches, a voter of the metadata log (KIP-853); the other groups follow.

        A leader that cannot do it yet is asked again, and `not_yet` is called with each reason, on the client's event loop.
        RequestRejected with the last one when the time is over."""
        await VoterAdmin(self._cluster, self._admin, not_yet).add(node_id, directory_id, host, port, timeout_ms)

    async def remove_voter(
        self,
        node_id: int,
        directory_id: bytes,
        *,
        timeout_ms: float | None = None,
        not_yet: NotYet | None = None,
    ) -> None:
        """Let a replica vote no longer; the other groups follow.

        A leader that cannot do it yet is asked again, and `not_yet` is called with each reason, on the client's event loop.
        RequestRejected with the last one when the time is over."""
        await VoterAdmin(self._cluster, self._admin, not_yet).remove(node_id, directory_id, timeout_ms)

    async def node_configs(self, node_id: int) -> dict[str, str]:
        """The settings of one node, from that node itself where it can be reached (others know only its addresses)."""
        await self._admin.describe_cluster()
        return await self._admin.node_configs(node_id)

    async def topic_configs(self, topic: str) -> dict[str, str]:
        """The settings of a topic; RequestRejected(UNKNOWN_TOPIC_OR_PARTITION) when it does not exist."""
        return await self._admin.topic_configs(topic)

    async def own_topic_configs(self, topics: Iterable[str], *, timeout_ms: float | None = None) -> dict[str, dict[str, str]]:
        """By topic, what it says over the settings of the nodes. Topics that do not exist are left out."""
        return await ConfigAdmin(self._cluster, self._admin).own(topics, timeout_ms)

    async def alter_topic_configs(
        self,
        topic: str,
        configs: Mapping[str, str] | None = None,
        *,
        delete: Iterable[str] = (),
        timeout_ms: float | None = None,
    ) -> None:
        """Set configs of a topic, and delete others, which then follow the nodes' settings; all of it or nothing.
        RequestRejected(INVALID_CONFIG) names what is not accepted."""
        await ConfigAdmin(self._cluster, self._admin).alter(topic, configs or {}, delete, timeout_ms)

    @property
    def kv(self) -> AsyncKv:
        """The key-value space, over HTTP."""
        if self._kv is None:
            # Not at the top: an HTTP client takes longer to import than everything else here, and most users need none.
            from raftlake.client.kv import AsyncKv

            self._kv = AsyncKv(self._cluster, self._admin)
        return self._kv


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> tuple[Header, ...]:
    return tuple((name, value) for name, value in headers)
