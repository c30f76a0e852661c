"""When a transaction has taken too long, and when a transactional id is used no more.

Owns the time of each ongoing transaction, counted by this node's own clock since this node saw it begin as its coordinator. A
new coordinator counts anew: a transaction may stay open longer over a change of the coordinator, and is never cut short by the
wall clock of a node.

An id expires by the wall clock, as at Kafka, for its time is longer than any node runs. What a wrong clock can do is bounded: a
coordinator looks for idle ids only after an hour in which its own clocks agreed. An id that was used in that hour has a time of
the same clock. At most ids that were idle for that hour go too early. Their producers get INVALID_PRODUCER_ID_MAPPING.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from raftlake.kv.keys import TRANSACTIONS_PREFIX
from raftlake.kv.strict_json import Refused
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.transaction_entry import Transaction, decode
from raftlake.replica.transactions.coordinator import Coordinator
from raftlake.replica.transactions.requests import Answer, TimeOut

#: Transactions that one tick aborts, and the time after which an abort that failed is tried again.
ABORTS_PER_TICK = 100
RETRY_MS = 1_000
#: Keys that one sweep looks at and deletes, and the time between two sweeps.
LOOKS_PER_SWEEP = 1_000
FORGOTTEN_PER_SWEEP = 100
SWEEP_INTERVAL_MS = 10_000
#: A coordinator looks for idle ids after so long, or after the time of expiry where that is shorter.
TRUST_MS = 3_600_000
#: Wall clock and monotonic clock agree when neither has gone further than the other by more.
DRIFT_MS_MAX = 60_000


@dataclass(slots=True)
class _Open:
    """An ongoing transaction. `identity` tells it from the one before."""

    identity: tuple[int, int, int]
    due_ms: int


class Deadlines:
    def __init__(self, engine: Engine, *, kv: KvService, coordinator: Coordinator) -> None:
        self._engine = engine
        self._kv = kv
        self._coordinator = coordinator
        self._open: dict[str, _Open] = {}
        #: When and which; an entry whose transaction has ended, or has another time, says nothing.
        self._heap: list[tuple[int, str]] = []
        self._begin_trust()
        self._next_sweep_ms = engine.now_ms + SWEEP_INTERVAL_MS
        self._swept: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    def begin(self) -> None:
        """This node is the coordinator from now on, or is so no longer."""
        self._open.clear()
        self._heap.clear()
        self._swept = None
        self._begin_trust()

    # --- ongoing transactions ---

    def look(self, key: str, transaction: Transaction | None) -> None:
        """The key of a transaction is this now."""
        if transaction is None or not transaction.is_ongoing:
            self._open.pop(key, None)
            return
        identity = (transaction.producer_id, transaction.epoch, transaction.started_ms)
        known = self._open.get(key)
        if known is None or known.identity != identity:
            self._open[key] = _Open(identity, 0)
            self._set(key, self._engine.now_ms + transaction.timeout_ms)

    def _set(self, key: str, due_ms: int) -> None:
        self._open[key].due_ms = due_ms
        heapq.heappush(self._heap, (due_ms, key))
        if len(self._heap) > 2 * len(self._open) + 1_000:
            self._heap = [(found.due_ms, name) for name, found in self._open.items()]
            heapq.heapify(self._heap)

    def tick(self) -> None:
        """Called a few times a second while this node is the coordinator."""
        aborted = 0
        while self._heap and self._heap[0][0] <= self._engine.now_ms and aborted < ABORTS_PER_TICK:
            due_ms, key = heapq.heappop(self._heap)
            found = self._open.get(key)
            transaction = self._kv.state.transactions.by_key.get(key)
            if found is None or found.due_ms != due_ms:
                continue
            if transaction is None or not transaction.is_ongoing:
                del self._open[key]
                continue
            aborted += 1
            # Tried again unless the abort is seen to be decided.
            self._set(key, self._engine.now_ms + RETRY_MS)
            self._abort(transaction)
        self._check_trust()
        if self._engine.now_ms >= self._next_sweep_ms:
            self._next_sweep_ms = self._engine.now_ms + SWEEP_INTERVAL_MS
            self._sweep()

    def _abort(self, transaction: Transaction) -> None:
        request = TimeOut(
            transactional_id=transaction.transactional_id, producer_id=transaction.producer_id, epoch=transaction.epoch
        )
        self._coordinator.submit(request, _unheard)

    # --- idle ids ---

    def _begin_trust(self) -> None:
        self._trusted_from_ms = self._engine.now_ms + min(TRUST_MS, self._engine.config.transactional_id_expiration_ms)
        self._between_clocks_ms = self._engine.clock.wall_ms() - self._engine.now_ms

    def _check_trust(self) -> None:
        between_ms = self._engine.clock.wall_ms() - self._engine.now_ms
        if abs(between_ms - self._between_clocks_ms) > DRIFT_MS_MAX:
            self._begin_trust()

    def _sweep(self) -> None:
        if self._engine.now_ms < self._trusted_from_ms:
            return
        before_ms = self._engine.clock.wall_ms() - self._engine.config.transactional_id_expiration_ms
        entries, has_more = self._kv.machine.rows(TRANSACTIONS_PREFIX, self._swept, LOOKS_PER_SWEEP)
        last, self._swept = self._swept, None
        forgotten = 0
        for key, _ in entries:
            if forgotten >= FORGOTTEN_PER_SWEEP:
                has_more = True
                break
            last = key
            entry = self._kv.machine.get(key)
            if entry is not None and self._is_unused(key, entry.value, before_ms):
                self._coordinator.forget(key, entry.version)
                forgotten += 1
        if has_more:
            self._swept = last

    def _is_unused(self, key: str, value: bytes, before_ms: int) -> bool:
        transaction = self._kv.state.transactions.by_key.get(key)
        if transaction is not None:
            return transaction.is_idle and transaction.updated_ms < before_ms
        # Earlier releases wrote ids that no node reads back (`fault_of_id`). Neither producers nor clients can end that.
        return isinstance(decode(key, value), Refused)


def _unheard(_answer: Answer) -> None:
    """A transaction that is still ongoing is found again."""
