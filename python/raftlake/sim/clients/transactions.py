"""Transactional producers: a transaction over some partitions, committed, aborted, or left to its timeout.

Two clients share a transactional id, so that each fences the other. A client that was fenced, or whose transaction is gone,
asks for the id anew. What has no answer is sent again, the same request, until an answer says what became of it.

A command that ends a transaction beside a key is sometimes sent once more, long after its answer. It must not end the next
transaction of its producer. After such a command a producer asks for its next epoch, or goes on wrongly and is fenced. One of
transaction.version 2 always asks.

A producer of transaction.version 2 (KIP-890 part 2) adds no partitions: its batches do. Each end gives it the next epoch.
Sometimes its epochs are nearly used up. Sometimes an end is repeated after its answer, or a batch of the ended transaction
comes late, while the next one is under way. `histories.transactions` judges where such a batch stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, EndTxn, Put, Txn
from raftlake.kv.machine import TxnResult
from raftlake.ports.driver import Origin
from raftlake.raft.types import NodeId
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.replica.transaction_entry import EPOCH_EXHAUSTED, TransactionState, encode, transaction_key
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared, Target, wall_ms
from raftlake.sim.clients.calls import Ask, CallFailure
from raftlake.sim.clients.messages import ADDING_PRODUCE_VERSION, PRODUCE_VERSION, ask_produce, produced
from raftlake.sim.clients.transaction_messages import (
    added_errors,
    ask_add_partitions,
    ask_coordinator,
    ask_end,
    ask_end_and_raise,
    ask_init,
    coordinator_of,
    ended_error,
    granted,
)
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import stream
from raftlake.sim.histories.transactions import RAISED, Transaction
from raftlake.sim.invariants.base import Violation
from raftlake.sim.oracle import MARK_PREFIX, Append
from raftlake.wire.batches import build_batch

#: Clients of one transactional id.
SHARED_BY = 2
TIMEOUTS_MS = (1_500, 4_000)
BATCHES_MAX = 3
#: How long after its answer a command that ended a transaction comes once more.
LATE_MS_MAX = (100, 4_000)
#: So often a batch that comes late looks for the leader.
LATE_TRIES = 6
#: The epochs with which producers go on whose epochs are nearly used up.
AGED_FROM = EPOCH_EXHAUSTED - 4
#: Nothing is to be had under this epoch, or in this transaction, any more.
OVER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class TransactionalProducer(Client):
    """A step is one request; `_next` is the one to make, again and again until it is answered."""

    def __init__(self, shared: Shared, name: str, number: int, target: Target | None = None) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        self._id = f"id{number // SHARED_BY}" if target is None else f"{target.topic}{number // SHARED_BY}"
        self._is_first = number % SHARED_BY == 0
        self._timeout_ms = TIMEOUTS_MS[self.rng.randrange(len(TIMEOUTS_MS))]
        self._coordinator: NodeId | None = None
        self._leaders: dict[int, NodeId] = {}
        self._producer_id, self._epoch = -1, -1
        self._incarnations = self._begun = self._values_made = self._marks = 0
        #: Of this epoch, by partition: the next sequence; and the records of this incarnation.
        self._sequences: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self._transaction = Transaction("")
        #: Batches of the transaction that are not acknowledged, with their first sequence.
        self._to_send: list[tuple[Append, int]] = []
        self._next: Callable[[], None] = self._init
        #: Of commands beside keys: what they decide, what is done after them, and which come once more. All else is drawn as
        #: without them.
        self._commands_rng = stream(shared.settings.seed, f"{name} commands")
        #: The producer is of transaction.version 2; and what comes late of it, or comes once more.
        raising = shared.settings.raising_transactors if target is None else 0
        self._raises = raising == 2 or (raising == 1 and number % 2 == 1)
        self._late_rng = stream(shared.settings.seed, f"{name} late")

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
        elif self.shared.is_healed and not self._is_first:
            # Of those who fence one another one is left, which must be served.
            self.is_idle = self.is_done = True
        else:
            self._next()

    # --- the coordinator ---

    def _ask(self, ask: Ask, done: Callable[[Any], None]) -> None:
        """Ask the coordinator, which any node names. `done` gets an answer."""

        def on_found(answer: Any) -> None:
            found = None if isinstance(answer, CallFailure) else coordinator_of(answer)
            if found is None:
                self.give_up()
                return
            self._coordinator = found
            self._ask(ask, done)

        def on_answer(answer: Any) -> None:
            if isinstance(answer, CallFailure):
                self._coordinator = None
                self.give_up()
            else:
                done(answer)

        if self._coordinator is None:
            self.shared.calls.call(self.any_node(), ask_coordinator(self._id), on_found, CALL_TIMEOUT_MS)
        else:
            self.shared.calls.call(self._coordinator, ask, on_answer, CALL_TIMEOUT_MS)

    def _go_on_after(self, error: ErrorCode) -> None:
        """A request was not done: repeat it, or begin anew where that is of no use."""
        self.say(f"not done: {error.name}")
        if error in OVER:
            self.say(f"{self._transaction.name or self._id} is over: {error.name}")
            self.shared.operations.coverage.note(f"transaction over ({error.name})")
            self._next = self._init
        if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        self.give_up()

    # --- one transaction ---

    def _init(self) -> None:
        ask = ask_init(self._id, self._timeout_ms)

        def on_answer(answer: Any) -> None:
            error, producer_id, epoch = granted(answer)
            if error is not ErrorCode.NONE:
                self._go_on_after(error)
                return
            self.say(f"{self._id} is producer {producer_id} epoch {epoch}")
            self._producer_id, self._epoch = producer_id, epoch
            self._incarnations += 1
            self._sequences.clear()
            self._records.clear()
            if self._raises and self._epoch < AGED_FROM and self._late_rng.randrange(4) == 0:
                self._next = self._age
                self._age()
            else:
                self._begin_transaction()

        self._ask(ask, on_answer)

    def _age(self) -> None:
        """Count the epoch on, as thousands of transactions would. Then the producer asks for its id anew."""
        key, ours = transaction_key(self._id), (self._producer_id, self._epoch)
        aged = AGED_FROM + self._late_rng.randrange(EPOCH_EXHAUSTED - AGED_FROM)

        def change(node: ReplicaNode, reply: Callable[[object], None]) -> None:
            standing, entry = node.transactions.of(self._id), node.kv.machine.get(key)
            if standing is None or entry is None or (standing.producer_id, standing.epoch) != ours or not standing.is_idle:
                reply(None)
                return
            put = Put(key, encode(replace(standing, epoch=aged, state=TransactionState.EMPTY, is_raised=False)))
            node.kv.propose(Txn((Compare(key, entry.version),), (put,)), reply, Origin.SELF)

        def on_outcome(_answer: Any) -> None:
            self._next = self._init
            self.give_up()

        self.shared.calls.call(self._coordinator or self.any_node(), change, on_outcome, CALL_TIMEOUT_MS)

    def _begin_transaction(self) -> None:
        self._begun += 1
        self._transaction = Transaction(f"{self.name}.{self._begun}")
        self._target.transactions.append(self._transaction)
        count = self._target.partitions
        chosen = [index for index in range(count) if count == 1 or self.rng.randrange(3)] or [self.rng.randrange(count)]
        self._to_send = [self._new_batch(index) for index in chosen for _ in range(1 + self.rng.randrange(BATCHES_MAX))]
        self.rng.shuffle(chosen)
        self._next = self._produce if self._raises else partial(self._add, chosen)
        self._next()

    def _new_batch(self, index: int) -> tuple[Append, int]:
        size = 1 + self.rng.randrange(3)
        made, self._values_made = self._values_made, self._values_made + size
        values = tuple(f"{self.name}-{made + place}".encode() for place in range(size))
        records, sequence = self._records.get(index, 0), self._sequences.get(index, 0)
        producer = f"{self.name}.{self._incarnations}"
        append = self._target.oracle.append_sent(index, producer, records, values, epoch=self._epoch)
        self._records[index], self._sequences[index] = records + size, sequence + size
        self._transaction.sent.extend(values)
        return append, sequence

    def _add(self, partitions: list[int]) -> None:
        ask = ask_add_partitions(self._id, self._producer_id, self._epoch, self._target.topic, partitions)

        def on_answer(answer: Any) -> None:
            error = next((error for error in added_errors(answer) if error is not ErrorCode.NONE), ErrorCode.NONE)
            if error is not ErrorCode.NONE:
                self._go_on_after(error)
                return
            self._next = self._produce
            self._next()

        self._ask(ask, on_answer)

    def _produce(self) -> None:
        if not self._to_send:
            self._end_somehow()
            return
        append, sequence = self._to_send[0]
        node_id = self._leaders.get(append.partition, self.any_node())
        data = build_batch(
            [self._target.record(value) for value in append.values],
            timestamp_ms=wall_ms(self.shared),
            compression=self._target.compression(append.values[0]),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        ask = ask_produce(
            self._target.topic,
            append.partition,
            data,
            CALL_TIMEOUT_MS,
            transactional_id=self._id,
            version=ADDING_PRODUCE_VERSION if self._raises else PRODUCE_VERSION,
        )
        self.shared.calls.call(node_id, ask, partial(self._on_produced, append, node_id), CALL_TIMEOUT_MS)

    def _on_produced(self, append: Append, node_id: NodeId, answer: Any) -> None:
        self._leaders.pop(append.partition, None)
        if isinstance(answer, CallFailure):
            self.give_up()
            return
        result = produced(answer, node_id)
        if result.leader_id is not None:
            self._leaders[append.partition] = result.leader_id
        if result.error is not ErrorCode.NONE:
            self._go_on_after(result.error)
            return
        self._target.oracle.append_acknowledged(append, result.base_offset)
        self._transaction.acknowledged.setdefault(append.partition, []).extend(append.values)
        del self._to_send[0]
        self._next()

    # --- its end ---

    def _end_somehow(self) -> None:
        what = self.rng.randrange(10)
        if what < 7:
            self._next = self._end_by_key if what < 2 else partial(self._end, commit=what < 5)
            self._next()
        elif what == 7:
            # Only whoever comes next ends it.
            self._next = self._init
            self.succeed()
        else:
            # Nobody ends it but the timeout. A commit that comes too late must not be taken.
            self._next = partial(self._end, commit=True) if what == 8 else self._init
            self.succeed(rest_ms=2 * self._timeout_ms)

    def _end(self, *, commit: bool) -> None:
        transaction = self._transaction
        transaction.commit_was_asked = transaction.commit_was_asked or commit
        ask = (ask_end_and_raise if self._raises else ask_end)(self._id, self._producer_id, self._epoch, commit=commit)

        def on_answer(answer: Any) -> None:
            error = ended_error(answer)
            if error is not ErrorCode.NONE:
                self._go_on_after(error)
                return
            if self._raises:
                self._take_next_epoch(ask, granted(answer))
            transaction.outcome = commit
            self.say(f"{transaction.name} is {'committed' if commit else 'aborted'}")
            self.shared.operations.coverage.note("transaction committed" if commit else "transaction aborted")
            self._next = self._begin_transaction
            self.succeed()

        self._ask(ask, on_answer)

    def _take_next_epoch(self, ask: Ask, told: tuple[ErrorCode, int, int]) -> None:
        """The end gave the next epoch. What comes late or once more of the transaction that it ended must change nothing."""
        shared, rng = self.shared, self._late_rng
        before = self._producer_id, self._epoch
        _, self._producer_id, self._epoch = told
        if told[1] != before[0]:
            shared.operations.coverage.note("another producer id with the end of a transaction")
        if (self._producer_id, self._epoch) == before:
            raise Violation(RAISED, f"{self.name} {before} was told its own epoch")
        if rng.randrange(3) == 0:
            delay_us = rng.randrange(LATE_MS_MAX[rng.randrange(2)]) * US_PER_MS
            shared.scheduler.call_after(delay_us, self._end_late, ask, told)
        if rng.randrange(3) == 0 and self._sequences:
            index = sorted(self._sequences)[rng.randrange(len(self._sequences))]
            # Behind its last batch there, so that its number fits.
            data, late = self._late_batch(index, before)
            delay_us = rng.randrange(LATE_MS_MAX[rng.randrange(2)]) * US_PER_MS
            shared.scheduler.call_after(delay_us, self._produce_late, late, data, 0)
        self._incarnations += 1
        self._sequences.clear()
        self._records.clear()

    def _late_batch(self, index: int, producer: tuple[int, int]) -> tuple[bytes, Append]:
        name = f"{self.name}-late{self._begun}"
        value, epoch = name.encode(), producer[1]
        append = self._target.oracle.append_sent(index, name, 0, (value,), epoch=epoch)
        data = build_batch(
            [self._target.record(value)],
            timestamp_ms=wall_ms(self.shared),
            producer_id=producer[0],
            producer_epoch=epoch,
            base_sequence=self._sequences[index],
            transactional=True,
        )
        return bytes(data), append

    def _produce_late(self, append: Append, data: bytes, tries: int) -> None:
        """Beside whatever this client does now. Nobody waits for it."""
        shared = self.shared
        if shared.stopped or tries == LATE_TRIES:
            return
        node_id = shared.node_ids[self._late_rng.randrange(len(shared.node_ids))]
        ask = ask_produce(
            self._target.topic,
            append.partition,
            bytearray(data),
            CALL_TIMEOUT_MS,
            transactional_id=self._id,
            version=ADDING_PRODUCE_VERSION,
        )

        def on_answer(answer: Any) -> None:
            error = None if isinstance(answer, CallFailure) else produced(answer, node_id).error
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._produce_late(append, data, tries + 1)
            elif error is not None:
                shared.operations.coverage.note(f"batch of an ended transaction ({error.name})")

        shared.calls.call(node_id, ask, on_answer, CALL_TIMEOUT_MS)

    def _end_late(self, ask: Ask, told: tuple[ErrorCode, int, int]) -> None:
        """The same end once more. Raises Violation where another answer says that it is done."""
        shared = self.shared
        if shared.stopped or self._coordinator is None:
            return

        def on_answer(answer: Any) -> None:
            if isinstance(answer, CallFailure):
                return
            again = granted(answer)
            shared.operations.coverage.note(f"end of a transaction once more ({again[0].name})")
            if again[0] is ErrorCode.NONE and again != told:
                raise Violation(RAISED, f"{self.name} was told {told}, and later {again}")

        shared.calls.call(self._coordinator, ask, on_answer, CALL_TIMEOUT_MS)

    def _end_by_key(self) -> None:
        """End it beside a put of a key, in one command of the key-value space, at any node."""
        transaction, commit = self._transaction, self._commands_rng.randrange(4) > 0
        transaction.commit_was_asked = transaction.commit_was_asked or commit
        decision = EndTxn(self._producer_id, self._epoch, commit=commit)
        self._next = partial(self._command, decision, partial(self._on_commanded, transaction, decision), self.any_node)
        self._next()

    def _command(self, decision: EndTxn, done: Callable[[TxnResult | None], None], choose: Callable[[], NodeId]) -> None:
        """`done` is told the result, None where it is not known."""
        oracle = self.shared.oracle
        self._marks += 1
        mark, floor = f"{self.name}-{self._marks}".encode(), oracle.kv_floor
        txn = Txn(compares=(), ops=(Put(MARK_PREFIX + self.name, mark), decision))
        oracle.kv_write_sent(mark, txn)

        def on_outcome(answer: Any) -> None:
            if answer is CallFailure.REFUSED or (
                isinstance(answer, ProposeOutcome) and answer.status in (ProposeStatus.REFUSED, ProposeStatus.NOT_LEADER)
            ):
                oracle.kv_write_refused(mark)
            if not isinstance(answer, ProposeOutcome) or answer.status is not ProposeStatus.DONE or answer.result is None:
                done(None)
                return
            oracle.kv_write_answered(mark, txn, answer.result, floor)
            done(answer.result)

        self.shared.calls.call(choose(), lambda node, reply: node.kv.propose_anywhere(txn, reply), on_outcome, CALL_TIMEOUT_MS)

    def _on_commanded(self, transaction: Transaction, decision: EndTxn, result: TxnResult | None) -> None:
        if result is None:
            self.give_up()
            return
        rng = self._commands_rng
        if rng.randrange(2):
            delay_us = rng.randrange(LATE_MS_MAX[rng.randrange(2)]) * US_PER_MS
            self.shared.scheduler.call_after(delay_us, self._command_late, decision)
        if not result.succeeded:
            self._go_on_after(ErrorCode.INVALID_TXN_STATE)
            return
        transaction.outcome = decision.commit
        self.say(f"{transaction.name} is {'committed' if decision.commit else 'aborted'} beside a key")
        self.shared.operations.coverage.note(f"transaction {'committed' if decision.commit else 'aborted'} beside a key")
        # Whoever adds no partitions must ask: until the markers come, batches join the ended transaction.
        self._next = self._init if rng.randrange(2) or self._raises else self._begin_transaction
        self.succeed()

    def _command_late(self, decision: EndTxn) -> None:
        """Beside whatever this client does now. Nobody waits for it."""
        shared, rng = self.shared, self._commands_rng
        if shared.stopped:
            return

        def on_result(result: TxnResult | None) -> None:
            if result is not None:
                self.say(f"{decision} once more: {result}")
                shared.operations.coverage.note("end_txn came once more, " + ("taken" if result.succeeded else "refused"))

        self._command(decision, on_result, lambda: shared.node_ids[rng.randrange(len(shared.node_ids))])
