"""Producers whose records become visible together, by a command of keys (KIP-98, with `end_txn` of `client.kv.txn`).

Owns the way to the coordinator of transactions, and the identity of a transactional producer. One producer object is one
transaction: its first append begins it, `commit`, `abort` or an `EndTxn` in a transaction of keys ends it. The end retires the
epoch, so whoever goes on asks for the next producer. Partitions join the transaction with the batches (Produce 12).

Invariant: a producer object has one producer id and epoch for good. A batch that fails ends its partition, so no later batch of
the transaction stands where an earlier one is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.types import ProducerId as KioProducerId
from kio.schema.types import TransactionalId
from kio.static.primitive import i8, i16, i32Timedelta

from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected, KvConflict, NoReachableNode, closed_error
from raftlake.client.lanes import ProducerId, ProducerIds
from raftlake.client.producer import AsyncProducer
from raftlake.client.protocol import INIT_PRODUCER_ID_VERSION
from raftlake.client.routing import RETRIABLE
from raftlake.client.types import Address, EndTxn, OpenTransaction
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, code_of, unknown_outcome
from raftlake.wire.api import ApiKey

if TYPE_CHECKING:
    from raftlake.client.kv import AsyncKv

_FIND_COORDINATOR_VERSION = 3
_LIST_VERSION = _DESCRIBE_VERSION = 0
_TRANSACTION_KEY = 1
#: Markers take a few milliseconds.
_SETTLE_BACKOFF_MS, _SETTLE_BACKOFF_MS_MAX = 2, 50
#: Ids that one request describes, as many as nodes allow.
_DESCRIBED_MAX = 100
#: Why there is no producer.
_NOT_TAKEN = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the limit is above transaction.max.timeout.ms of the nodes, or below 1",
    ErrorCode.INVALID_REQUEST: "the id is empty or too long",
    ErrorCode.POLICY_VIOLATION: "the nodes take no more ids, and their log says why",
}
#: Answers after which the same may succeed later, perhaps at another node.
_PASSING = RETRIABLE | {ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}


class Coordinator:
    """The node that coordinates transactions, wherever it is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._address: Address | None = None

    async def ask(
        self,
        api_key: ApiKey,
        version: int,
        message: object,
        deadline: Deadline,
        what: str,
        error_of: Callable[[Any], int] = lambda answer: answer.error_code,
    ) -> Any:
        """The answer without an error. RequestRejected for one that does not pass, or when the time is over."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, self._cluster.config.retry_backoff_ms_max)
        while True:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            address = self._address or await self._find(deadline)
            if address is not None:
                try:
                    connection = await self._cluster.pool.get(address)
                    answer = await self._cluster.request(connection, api_key, version, message, deadline)
                    code = code_of(error_of(answer))
                except Disconnected:
                    code = ErrorCode.NETWORK_EXCEPTION
                else:
                    if code is ErrorCode.NONE:
                        self._address = address
                        return answer
            self._address = None
            if code not in _PASSING or deadline.is_over():
                raise RequestRejected(code, what)
            await backoff.pause(deadline)

    async def _find(self, deadline: Deadline) -> Address | None:
        request = FindCoordinatorRequest(key="any", key_type=i8(_TRANSACTION_KEY))
        answer, _ = await self._cluster.ask_any(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, request, deadline)
        return Address(answer.host, int(answer.port)) if answer.error_code == 0 else None

    async def init(self, transactional_id: str, transaction_timeout_ms: int, deadline: Deadline) -> ProducerId:
        """The next epoch of a transactional id. A transaction of it that is open is aborted first."""
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=transaction_timeout_ms)),
            producer_id=KioProducerId(-1),
            producer_epoch=i16(-1),
        )
        what = f"no producer for the transactional id {transactional_id!r} with a time limit of {transaction_timeout_ms} ms"
        try:
            answer = await self.ask(ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, request, deadline, what)
        except RequestRejected as error:
            if error.code not in _NOT_TAKEN:
                raise
            # InitProducerId has no room for the reason, which the node's log tells.
            raise RequestRejected(error.code, f"{what}: {_NOT_TAKEN[error.code]}") from None
        return ProducerId(int(answer.producer_id), int(answer.producer_epoch))

    async def open(self, prefix: str, deadline: Deadline) -> tuple[OpenTransaction, ...]:
        """The open transactions of all transactional ids that begin so, by id."""
        names = await self.listed(deadline, states=("Ongoing",))
        return await self.describe([name for name in names if name.startswith(prefix)], deadline)

    async def listed(self, deadline: Deadline, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()) -> list[str]:
        """The transactional ids in one of these states, and with one of these producer ids, sorted; of all, where none is
        named. One answer holds 10,000 at most: those that are decided come first, and then the ongoing ones."""
        filters = tuple(KioProducerId(producer_id) for producer_id in producer_ids)
        # A node that was replaced, and does not know it yet, knows of no transaction: ask who coordinates now.
        self._address = None
        listing = ListTransactionsRequest(state_filters=tuple(states), producer_id_filters=filters)
        answer = await self.ask(ApiKey.LIST_TRANSACTIONS, _LIST_VERSION, listing, deadline, "no list of transactions")
        return sorted(str(found.transactional_id) for found in answer.transaction_states)

    async def describe(self, transactional_ids: Iterable[str], deadline: Deadline) -> tuple[OpenTransaction, ...]:
        """Those of the ids that have an open transaction."""
        return tuple(
            OpenTransaction(
                transactional_id=str(row.transactional_id), producer_id=int(row.producer_id), epoch=int(row.producer_epoch)
            )
            for row in await self.rows(transactional_ids, deadline)
            if row.transaction_state == "Ongoing"
        )

    async def settle(self, transactional_ids: Iterable[str], deadline: Deadline) -> bool:
        """Wait until what is decided of these ids is told to all partitions; False where the time is over before."""
        names = list(transactional_ids)
        backoff = Backoff(_SETTLE_BACKOFF_MS, _SETTLE_BACKOFF_MS_MAX)
        while True:
            rows = await self.rows(names, deadline)
            # Of a decided transaction the coordinator lists the partitions without their marker.
            unsettled = [row for row in rows if row.transaction_state.startswith("Prepare") and row.topics]
            names = [str(row.transactional_id) for row in unsettled]
            if not names or deadline.is_over():
                return not names
            await backoff.pause(deadline)

    async def rows(self, transactional_ids: Iterable[str], deadline: Deadline) -> list[Any]:
        """What the coordinator tells of the ids that exist."""
        names = list(transactional_ids)
        found: list[Any] = []
        for start in range(0, len(names), _DESCRIBED_MAX):
            asked = tuple(TransactionalId(name) for name in names[start : start + _DESCRIBED_MAX])
            answer = await self.ask(
                ApiKey.DESCRIBE_TRANSACTIONS,
                _DESCRIBE_VERSION,
                DescribeTransactionsRequest(transactional_ids=asked),
                deadline,
                "no description of transactions",
                _described_error,
            )
            found += [row for row in answer.transaction_states if row.error_code == 0]
        return found


def _described_error(answer: Any) -> int:
    """Of one id that does not exist the others are told all the same."""
    codes = [int(row.error_code) for row in answer.transaction_states]
    return next((code for code in codes if code not in (0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)), 0)


class TransactionalIds(ProducerIds):
    """The one identity of a transactional producer."""

    def __init__(self, cluster: Cluster, coordinator: Coordinator, transactional_id: str, transaction_timeout_ms: int) -> None:
        super().__init__(cluster)
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._coordinator = coordinator
        self._taken: ProducerId | None = None

    @property
    def taken(self) -> ProducerId | None:
        """None before the first append."""
        return self._taken

    async def fresh(self, deadline: Deadline) -> ProducerId:
        """The first time only: another one would be another transaction."""
        if self._taken is not None:
            raise RequestRejected(ErrorCode.INVALID_TXN_STATE, f"the transaction of {self.transactional_id!r} misses a batch")
        self._taken = await self._coordinator.init(self.transactional_id or "", self._timeout_ms, deadline)
        return self._taken


class AsyncTransactionalProducer(AsyncProducer):
    """One transaction. Nothing that it appends is visible to readers of what is committed before the transaction commits.

    Wait for the outcome of all appends first: an end knows nothing of a batch that is under way.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        get_kv: Callable[[], AsyncKv],
        transactional_id: str,
        timeout_ms: int,
    ) -> None:
        self._transaction = TransactionalIds(cluster, coordinator, transactional_id, timeout_ms)
        super().__init__(cluster, ids=self._transaction)
        self._get_kv = get_kv
        self._is_ended = False

    @property
    def has_begun(self) -> bool:
        """Whether there is a transaction to end."""
        return self._transaction.taken is not None and bool(self._senders)

    async def begin(self, timeout_ms: float | None = None) -> None:
        """Fence whoever has the transactional id, and abort what it has left open. The first append does so, too."""
        await self._ids.shared(0, self._deadline(timeout_ms))

    def end(self, *, commit: bool) -> EndTxn:
        """The end of this transaction, for a `client.kv.txn` beside changes of keys. Nothing can be appended afterwards.

        RequestRejected(INVALID_TXN_STATE) where nothing was appended: there is nothing to end.
        """
        taken = self._transaction.taken
        if taken is None or not self.has_begun:
            raise RequestRejected(ErrorCode.INVALID_TXN_STATE, "nothing was appended, so there is no transaction to end")
        self._is_ended = True
        return EndTxn(taken.id, taken.epoch, commit)

    async def commit(self, timeout_ms: float | None = None) -> None:
        """Make all that was appended visible. KvConflict where the transaction was aborted before, by its time limit or by
        another producer of its id. UnknownOutcome where it may be visible all the same."""
        await self._decide(self.end(commit=True), timeout_ms)

    async def abort(self, timeout_ms: float | None = None) -> None:
        """Take all that was appended out of the sight of readers of what is committed."""
        if self.has_begun:
            await self._decide(self.end(commit=False), timeout_ms)

    async def _decide(self, ending: EndTxn, timeout_ms: float | None) -> None:
        """A decision that comes once more changes nothing, so it is repeated until an answer tells its outcome. A refusal of
        the repetition tells nothing of the try before it, which may have decided."""
        deadline = self._deadline(timeout_ms)
        config = self._cluster.config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        is_unknown = False
        while True:
            try:
                if is_unknown:
                    await backoff.pause(deadline)
                await self._get_kv().txn({}, [ending], timeout_ms=deadline.remaining_ms())
                return
            except UnknownOutcome:
                is_unknown = True
                if deadline.is_over() or self._is_closed:
                    raise
            except (RequestRejected, NoReachableNode, KvConflict) as error:
                if not is_unknown:
                    raise
                raise _undecided(error) from error
            except (asyncio.CancelledError, RuntimeError) as error:
                # What is closed ends its calls so.
                if not (is_unknown and self._is_closed):
                    raise
                raise _undecided(closed_error()) from error

    def _require_open(self) -> None:
        if self._is_ended:
            raise RequestRejected(ErrorCode.INVALID_TXN_STATE, "this transaction is ended: make another producer")


def _undecided(error: Exception) -> UnknownOutcome:
    what = f"the end of the transaction was sent, and no answer decides (the last try ended with: {error})"
    return unknown_outcome(what, "read what is committed, then decide")
