"""Partitions that their leaders add to transactions: a batch of Produce from version 12 on brings its partition with it
(KIP-890 part 2).

Kafka's leader asks the coordinator. Here the leader of the partition changes the key of the transaction itself, by the same
compare-and-set as the coordinator, and judged alike (`requests.AddPartitions`). The command is forwarded to the leader of the
metadata log, whose gate lets a node begin a transaction, or let it grow, and nothing else (`kv.proposals`). On the coordinator
the request joins the others of its transactional id, so that the next transaction may take the place of Complete*.

Owns the requests of this node that are not answered. Invariants: of one producer and epoch one request is under way, and what
comes meanwhile goes together in the next one. An answer rests on a command that took effect, or on a linearizable read. This
node has then applied what the answer says. A wait for the transaction before takes `HOLD_MS` at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.kv.commands import ABSENT, Compare, Put, Txn
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.timers import Timer
from raftlake.replica.transaction_entry import Transaction, encode, transaction_key
from raftlake.replica.transactions.coordinator import HOLD_MS, Coordinator
from raftlake.replica.transactions.requests import AddPartitions, Answer, Wait, Write
from raftlake.replica.transactions.words import explained

#: A topic id and an index.
PartitionId = tuple[bytes, int]
#: Transactional id, producer id, epoch.
Producer = tuple[str, int, int]
Done = Callable[[Answer], None]


@dataclass(slots=True, eq=False)
class _Gathered:
    """Of one producer: what is under way, and what goes with the next request."""

    is_busy: bool = False
    next: list[tuple[PartitionId, Done]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Asked:
    """One request, on a node that does not coordinate."""

    request: AddPartitions
    done: Done
    #: The keys here are not older than the request.
    is_proven: bool = False
    #: At which version the transaction was seen that has to be complete first, while that is waited for.
    waits_at: int | None = None
    timer: Timer | None = None


class Additions:
    def __init__(self, engine: Engine, *, kv: KvService, coordinator: Coordinator) -> None:
        self._engine = engine
        self._kv = kv
        self._coordinator = coordinator
        self._gathered: dict[Producer, _Gathered] = {}
        self._waiting: list[_Asked] = []
        kv.listeners.append(self._on_applied)

    def __len__(self) -> int:
        """Producers with a request that is not answered."""
        return len(self._gathered)

    def add(self, producer: Producer, part: PartitionId, done: Done) -> None:
        """Make a partition part of the ongoing or the next transaction. `done` is told the answer of AddPartitionsToTxn, later.

        COORDINATOR_NOT_AVAILABLE: ask again.
        """
        gathered = self._gathered.get(producer)
        if gathered is None:
            gathered = self._gathered[producer] = _Gathered()
            # All that comes in this turn goes together.
            self._engine.timers.schedule(self._engine.now_ms, partial(self._go_on, producer, gathered))
        gathered.next.append((part, done))

    def _go_on(self, producer: Producer, gathered: _Gathered) -> None:
        if gathered.is_busy:
            return
        if not gathered.next:
            del self._gathered[producer]
            return
        asked, gathered.next = gathered.next, []
        gathered.is_busy = True
        transactional_id, producer_id, epoch = producer
        request = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=frozenset(part for part, _ in asked),
        )

        def on_answer(answer: Answer) -> None:
            gathered.is_busy = False
            for _, done in asked:
                done(answer)
            self._go_on(producer, gathered)

        self._ask(request, on_answer)

    def _ask(self, request: AddPartitions, done: Done) -> None:
        self._engine.begin_input()
        if self._coordinator.why_not is ErrorCode.NONE:
            self._coordinator.submit(request, done)
        else:
            self._attempt(_Asked(request, done))

    # --- where another node coordinates ---

    def _attempt(self, asked: _Asked) -> None:
        key = transaction_key(asked.request.transactional_id)
        version, standing = self._view(key)
        match asked.request.judge(standing, self._engine.clock.wall_ms()):
            case Answer() as answer:
                if asked.is_proven:
                    asked.done(explained(answer, asked.request, standing))
                else:
                    self._kv.read(True, partial(self._on_proven, asked))
            case Write(transaction=transaction):
                txn = Txn((Compare(key, version),), (Put(key, encode(transaction)),))
                self._kv.propose_anywhere(txn, partial(self._on_written, asked))
            case Wait():
                self._wait(asked, version)
            case step:
                raise AssertionError(f"partitions are not added by {step}")

    def _view(self, key: str) -> tuple[int, Transaction | None]:
        entry = self._kv.machine.get(key)
        return (ABSENT, None) if entry is None else (entry.version, self._kv.state.transactions.by_key.get(key))

    def _on_proven(self, asked: _Asked, result: ReadOffsetResult) -> None:
        if result.error is not ErrorCode.NONE:
            asked.done(Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        asked.is_proven = True
        self._attempt(asked)

    def _on_written(self, asked: _Asked, outcome: ProposeOutcome) -> None:
        if outcome.status is ProposeStatus.DONE and outcome.result is not None and not outcome.result.ignored:
            # Where another change came first, the request is judged anew; else it is found to be done.
            asked.is_proven = True
            self._attempt(asked)
        elif outcome.status is ProposeStatus.REFUSED and outcome.reason and not outcome.is_passing:
            asked.done(Answer(outcome.error, why=outcome.reason))
        else:
            asked.done(Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # --- waiting for the transaction before ---

    def _wait(self, asked: _Asked, version: int) -> None:
        asked.waits_at = version
        self._waiting.append(asked)
        at_ms = self._engine.now_ms + HOLD_MS
        asked.timer = self._engine.timers.schedule(at_ms, partial(self._give_up, asked))

    def _on_applied(self, _applied_offset: int) -> None:
        for asked in tuple(self._waiting):
            version, _ = self._view(transaction_key(asked.request.transactional_id))
            if version != asked.waits_at:
                self._end_wait(asked)
                self._attempt(asked)

    def _end_wait(self, asked: _Asked) -> None:
        self._waiting.remove(asked)
        assert asked.timer is not None
        asked.timer.cancel()

    def _give_up(self, asked: _Asked) -> None:
        self._end_wait(asked)
        asked.done(_CONCURRENT)


_CONCURRENT = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
