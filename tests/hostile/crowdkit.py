"""Very many transactional producers at one quorum, each with one open transaction of one record.

    crowd = Crowd(quorum, "t", partitions=3)
    with crowd.connected():
        opened = crowd.begin(10_000, timeout_ms=30_000)

A producer here is a transactional id and what InitProducerId told of it. Requests go over one connection to each node, with
`IN_FLIGHT` producers at a time. What may be asked again is asked again, as Kafka's clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_transactions.v1.request import ListTransactionsRequest
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta, i64

from raftlake.client.connection import Connection, open_connection
from raftlake.client.errors import Disconnected
from raftlake.client.types import ClientConfig, parse_servers
from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

if TYPE_CHECKING:
    from raftlake import LocalQuorum

IN_FLIGHT = 200
ATTEMPTS = 600
PAUSE_S = 0.05
CALL_MS = 20_000
#: Another node is to be asked, or the same one later.
PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Producer:
    transactional_id: str
    producer_id: int
    epoch: int
    partition: int
    value: bytes


class Crowd:
    """Calls block; they run in an event loop of the crowd's own."""

    def __init__(self, quorum: LocalQuorum, topic: str, partitions: int) -> None:
        self._quorum = quorum
        self._topic = topic
        self._partitions = partitions
        self._loop = asyncio.new_event_loop()
        self._connections: dict[int, Connection] = {}
        self._opening = asyncio.Lock()
        #: The node that did it last: of the coordinator's requests (-1), and of each partition's.
        self._served_by: dict[int, int] = {}
        self._made = 0

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        try:
            yield
        finally:
            for connection in self._connections.values():
                connection.close()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    # --- what a crowd does ---

    def begin(self, count: int, *, timeout_ms: int, id_bytes: int = 0) -> list[Producer]:
        """New producers, each with an open transaction that has its record. Their ids are as long as `id_bytes` says."""
        numbers = range(self._made, self._made + count)
        self._made += count
        return self._each(numbers, lambda number: self._begin(number, timeout_ms, id_bytes))

    def end(self, producers: Sequence[Producer], *, commit: bool) -> list[ErrorCode]:
        """What EndTxn is answered."""
        return self._each(producers, lambda producer: self._end(producer, commit))

    def states(self) -> dict[str, int]:
        """How many transactional ids are in which state, as the coordinator lists them."""

        async def ask() -> dict[str, int]:
            request = ListTransactionsRequest(state_filters=(), producer_id_filters=(), duration_filter=i64(-1))
            answer = await self._ask(-1, ApiKey.LIST_TRANSACTIONS, 1, request, lambda answer: ErrorCode(answer.error_code))
            found: dict[str, int] = {}
            for state in answer.transaction_states:
                found[state.transaction_state] = found.get(state.transaction_state, 0) + 1
            return found

        # Other nodes than the coordinator know of none, and say so without an error.
        self._served_by[-1] = self._quorum.leader()
        return self._loop.run_until_complete(ask())

    def _each(self, items: Sequence[Any], do: Callable[[Any], Awaitable[T]]) -> list[T]:
        async def run() -> list[T]:
            room = asyncio.Semaphore(IN_FLIGHT)

            async def one(item: Any) -> T:
                async with room:
                    return await do(item)

            return await asyncio.gather(*(one(item) for item in items))

        return self._loop.run_until_complete(run())

    # --- requests ---

    async def _begin(self, number: int, timeout_ms: int, id_bytes: int) -> Producer:
        transactional_id, partition = f"{self._topic}-{number}".ljust(id_bytes, "x"), number % self._partitions
        asked = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        )
        told = await self._ask(-1, ApiKey.INIT_PRODUCER_ID, 4, asked, lambda answer: ErrorCode(answer.error_code))
        value = transactional_id.encode()
        producer = Producer(transactional_id, int(told.producer_id), int(told.producer_epoch), partition, value)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(transactional_id),
            v3_and_below_producer_id=ProducerId(producer.producer_id),
            v3_and_below_producer_epoch=i16(producer.epoch),
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=TopicName(self._topic), partitions=(i32(partition),)),),
        )
        await self._ask(-1, ApiKey.ADD_PARTITIONS_TO_TXN, 3, add, _added)
        data = build_batch(
            [Record(value=value)],
            timestamp_ms=1_700_000_000_000,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        topics = [ProduceTopic(self._topic, None, [ProducePartition(partition, memoryview(data))])]
        await self._ask(partition, ApiKey.PRODUCE, 11, ProduceRequest(-1, 10_000, transactional_id, topics), _produced)
        return producer

    async def _end(self, producer: Producer, commit: bool) -> ErrorCode:
        asked = EndTxnRequest(
            transactional_id=TransactionalId(producer.transactional_id),
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i16(producer.epoch),
            committed=commit,
        )
        answer = await self._ask(-1, ApiKey.END_TXN, 3, asked, lambda answer: ErrorCode(answer.error_code), may_fail=True)
        return ErrorCode(answer.error_code)

    async def _ask(
        self,
        role: int,
        key: ApiKey,
        version: int,
        message: object,
        error_of: Callable[[Any], ErrorCode],
        *,
        may_fail: bool = False,
    ) -> Any:
        """Ask who coordinates (-1), or leads that partition, until the answer has no passing error."""
        for _ in range(ATTEMPTS):
            node_id = self._served_by.setdefault(role, min(self._quorum.nodes))
            try:
                connection = await self._connection(node_id)
                answer = await connection.request(key, version, message, CALL_MS)
            except Disconnected:
                error = ErrorCode.NETWORK_EXCEPTION
            else:
                error = error_of(answer)
                if error is ErrorCode.NONE or (may_fail and error not in PASSING):
                    return answer
                assert error in PASSING, f"{key.name} is answered {error.name}"
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS and self._served_by[role] == node_id:
                nodes = sorted(self._quorum.nodes)
                self._served_by[role] = nodes[(nodes.index(node_id) + 1) % len(nodes)]
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{key.name} is answered {error.name} in {ATTEMPTS} tries")

    async def _connection(self, node_id: int) -> Connection:
        async with self._opening:
            found = self._connections.get(node_id)
            if found is None or not found.is_open:
                bootstrap = parse_servers(self._quorum.nodes[node_id].address)
                found = await open_connection(bootstrap[0], ClientConfig(bootstrap=bootstrap))
                self._connections[node_id] = found
            return found


def _added(answer: Any) -> ErrorCode:
    (topic,) = answer.results_by_topic_v3_and_below
    (partition,) = topic.results_by_partition
    return ErrorCode(partition.partition_error_code)


def _produced(answer: Any) -> ErrorCode:
    error: ErrorCode = answer.topics[0].partitions[0].error
    return error
