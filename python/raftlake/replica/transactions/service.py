"""What happens to transactions without being asked for: this module follows their keys and finds out who coordinates.

Owns which epoch this node coordinates in. Where a leadership begins, all keys are looked at, some at a time: what is decided is
delivered, and what is ongoing has its time from then on. From there on each change of a key is looked at as it is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raftlake.kv.history import Compacted
from raftlake.kv.keys import TRANSACTIONS_PREFIX
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.transaction_entry import Transaction, transaction_key
from raftlake.replica.transactions.coordinator import Coordinator
from raftlake.replica.transactions.deadlines import Deadlines
from raftlake.replica.transactions.delivery import MarkerDelivery

#: Keys that are looked at together where a leadership begins, and the pause between.
LOOKS_AT_ONCE = 500
PAUSE_MS = 1
#: Transactions that are decided and not complete are looked at again so often: that they are complete may not be committed.
LOOK_AGAIN_MS = 2_000


class Transactions:
    def __init__(
        self, engine: Engine, *, kv: KvService, coordinator: Coordinator, delivery: MarkerDelivery, deadlines: Deadlines
    ) -> None:
        self._engine = engine
        self._kv = kv
        self.coordinator = coordinator
        self.delivery = delivery
        self.deadlines = deadlines
        #: In which this node coordinates, as far as it has noticed.
        self._epoch: int | None = None
        self._seen_version = 0
        #: The keys that were there and are not looked at yet.
        self._rest: Iterator[str] | None = None
        self._next_look_ms = engine.now_ms
        kv.listeners.append(self._on_applied)

    # --- what is known ---

    def of(self, transactional_id: str) -> Transaction | None:
        return self._kv.state.transactions.by_key.get(transaction_key(transactional_id))

    def all(self) -> list[str]:
        """The keys of all: first those that are decided, then the ongoing ones."""
        index = self._kv.state.transactions
        return list(dict.fromkeys((*index.prepared, *index.ongoing, *index.by_key)))

    def unmarked(self, transaction: Transaction) -> frozenset[tuple[bytes, int]]:
        """Its partitions; of a decided one those that are not known to have its marker."""
        return self.delivery.missing(transaction_key(transaction.transactional_id), transaction)

    # --- who coordinates ---

    def _notice(self) -> None:
        epoch = self.coordinator.epoch
        if epoch == self._epoch:
            return
        self._epoch = epoch
        self.delivery.drop_all()
        self.deadlines.begin()
        self.coordinator.resign()
        self._rest = None
        if epoch is not None:
            self._seen_version = self._kv.machine.applied_offset - 1
            self._look_at([*self._decided, *self._kv.state.transactions.ongoing])

    def _look_at(self, keys: Iterable[str]) -> None:
        """What changes meanwhile is looked at as it changes."""
        is_new = self._rest is None
        self._rest = iter(tuple(keys))
        if is_new:
            self._look_on()

    @property
    def _decided(self) -> dict[str, None]:
        return dict.fromkeys((*self._kv.state.transactions.prepared, *self.delivery.keys))

    def _look_on(self) -> None:
        if self._rest is None or self._epoch is None:
            return
        for _ in range(LOOKS_AT_ONCE):
            key = next(self._rest, None)
            if key is None:
                self._rest = None
                break
            self._look(key)
        self.delivery.pump()
        if self._rest is not None:
            self._engine.timers.schedule(self._engine.now_ms + PAUSE_MS, self._look_on)

    # --- changes ---

    def _on_applied(self, applied_offset: int) -> None:
        self._notice()
        if self._epoch is None:
            return
        try:
            while changes := self._kv.machine.changes_since(TRANSACTIONS_PREFIX, self._seen_version):
                for change in changes:
                    self._seen_version = change.version
                    self._look(change.key)
                    self.coordinator.on_changed(change.key)
        except Compacted:
            self._look_at([*self._decided, *self._kv.state.transactions.ongoing])
        self._seen_version = max(self._seen_version, applied_offset - 1)
        self.delivery.pump()

    def _look(self, key: str) -> None:
        assert self._epoch is not None
        entry = self._kv.machine.get(key)
        transaction = self._kv.state.transactions.by_key.get(key)
        self.deadlines.look(key, transaction)
        self.delivery.look(key, 0 if entry is None else entry.version, transaction, self._epoch)

    def tick(self) -> None:
        """Called a few times a second."""
        self._notice()
        if self._epoch is None:
            return
        self.deadlines.tick()
        if self._engine.now_ms >= self._next_look_ms:
            self._next_look_ms = self._engine.now_ms + LOOK_AGAIN_MS
            if self._rest is None:
                self._look_at(self._decided)
