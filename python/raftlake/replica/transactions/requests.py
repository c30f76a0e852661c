"""What the requests of transactional producers ask for, judged over one transaction. Pure: no time, no node, nothing waits.

Each request says what comes next (`Step`): an answer, a change to be committed, a new producer id, or a wait until the last
transaction of the id is complete. It is judged anew after each change of the transaction, until it is answered. The errors are
those of Kafka's TransactionCoordinator. EndTxn of version 5 on, which raises the epoch, is in `raising`. Who goes on with an
epoch that a command has retired is fenced: Kafka's clients give up then, and the next producer asks for its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from raftlake.errors import ErrorCode
from raftlake.kv.commands import EndTxn
from raftlake.replica.transaction_entry import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    PARTITIONS_MAX,
    Transaction,
    TransactionState,
)


@dataclass(frozen=True, slots=True)
class Answer:
    error: ErrorCode
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH
    #: Why, where the error does not say all; for the node's log.
    why: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Make the transaction this one. `answer` is what the producer is told then; None where the request is judged anew."""

    transaction: Transaction
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Decide:
    ending: EndTxn
    answer: Answer


@dataclass(frozen=True, slots=True)
class Wait:
    """Until the decided transaction is complete."""


@dataclass(frozen=True, slots=True)
class TakeId:
    """A producer id that nobody has had is needed first."""


Step = Answer | Write | Decide | Wait | TakeId

DONE = Answer(ErrorCode.NONE)
FENCED = Answer(ErrorCode.PRODUCER_FENCED)
UNMAPPED = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
NO_EPOCH_FOR_ANYONE = Answer(
    ErrorCode.PRODUCER_FENCED, why=f"no producer gets epoch {EPOCH_MAX}; make a new producer, which asks InitProducerId"
)


class Request(Protocol):
    @property
    def transactional_id(self) -> str: ...

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        """What comes next while this is the transaction of the id."""
        ...


@dataclass(slots=True, kw_only=True)
class InitProducer:
    """InitProducerId. `expected` is who the producer says that it is (KIP-360). Asked again it is answered alike, unless
    another one has got the id meanwhile."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None = None
    #: A producer id that nobody has had, once there is one.
    new_id: int | None = None

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        if standing is None:
            return self._begin(wall_ms)
        is_current = self.expected in (None, standing.successor)
        is_retry = self.expected is not None and self.expected == (standing.last_producer_id, standing.last_epoch)
        if not is_current and not is_retry:
            return FENCED
        if standing.is_prepared:
            return Wait()
        if is_retry and standing.epoch <= EPOCH_EXHAUSTED:
            # Also after its transaction was fenced: its markers have told all partitions of the next epoch.
            return Answer(ErrorCode.NONE, standing.producer_id, standing.epoch)
        if standing.is_ongoing:
            return Write(self._fence(standing, wall_ms), None)
        if standing.epoch >= EPOCH_EXHAUSTED:
            return self._rotate(standing, wall_ms)
        return self._written(self._next(standing, wall_ms), standing.producer_id, standing.epoch + 1)

    def _begin(self, wall_ms: int) -> Step:
        if self.new_id is None:
            return TakeId()
        first = Transaction(
            transactional_id=self.transactional_id,
            producer_id=self.new_id,
            epoch=0,
            timeout_ms=self.timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=wall_ms,
        )
        return self._written(first, self.new_id, 0)

    def _fence(self, standing: Transaction, wall_ms: int) -> Transaction:
        """Abort what is ongoing. The next epoch keeps its producer from writing on."""
        if standing.epoch == EPOCH_MAX:
            return _aborted_in_last_epoch(standing, wall_ms)
        last_id, last_epoch = self._last(standing)
        return replace(
            standing.decided(False),
            epoch=standing.epoch + 1,
            updated_ms=wall_ms,
            last_producer_id=last_id,
            last_epoch=last_epoch,
        )

    def _rotate(self, standing: Transaction, wall_ms: int) -> Step:
        """The epochs of the producer id are used up."""
        if self.new_id is None:
            return TakeId()
        told = self.expected[1] if self.expected is not None else NO_EPOCH
        found = replace(self._next(standing, wall_ms), last_producer_id=standing.producer_id, last_epoch=told)
        return self._written(found, self.new_id, 0)

    def _next(self, standing: Transaction, wall_ms: int) -> Transaction:
        last_id, last_epoch = self._last(standing)
        return replace(
            standing,
            timeout_ms=self.timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            updated_ms=wall_ms,
            last_producer_id=last_id,
            last_epoch=last_epoch,
            is_retired=False,
            is_raised=False,
        )

    def _last(self, standing: Transaction) -> tuple[int, int]:
        """By what a retry of this request is known."""
        return (NO_PRODUCER, NO_EPOCH) if self.expected is None else (standing.producer_id, standing.epoch)

    def _written(self, transaction: Transaction, producer_id: int, epoch: int) -> Write:
        return Write(replace(transaction, producer_id=producer_id, epoch=epoch), Answer(ErrorCode.NONE, producer_id, epoch))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """AddPartitionsToTxn, and what the leader of a partition asks for a batch of Produce from version 12 on. The first one
    begins the transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[tuple[bytes, int]] = field(default_factory=frozenset)

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        if standing is None:
            return UNMAPPED
        producer_id, epoch = standing.successor
        if producer_id != self.producer_id:
            return UNMAPPED
        if epoch != self.epoch or standing.is_retired:
            return FENCED
        if epoch > EPOCH_EXHAUSTED:
            # It is for the marker that fences. An abort of what would begin here could raise the epoch no more.
            return NO_EPOCH_FOR_ANYONE
        if standing.is_prepared:
            return Wait()
        known = standing.partitions if standing.is_ongoing else frozenset()
        if standing.is_ongoing and self.partitions <= known:
            return DONE
        together = known | self.partitions
        if len(together) > PARTITIONS_MAX:
            return Answer(ErrorCode.POLICY_VIOLATION, why=f"a transaction has at most {PARTITIONS_MAX} partitions")
        return Write(
            replace(
                standing,
                state=TransactionState.ONGOING,
                partitions=together,
                is_raised=False,
                started_ms=standing.started_ms if standing.is_ongoing else wall_ms,
                updated_ms=wall_ms,
            ),
            DONE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """EndTxn below version 5. It is answered once it is decided; the markers follow."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        del wall_ms
        if standing is None or standing.producer_id != self.producer_id:
            return UNMAPPED
        if standing.epoch != self.epoch:
            return FENCED
        if standing.is_ongoing:
            return Decide(EndTxn(self.producer_id, self.epoch, self.commit, retires_epoch=False), DONE)
        is_so = standing.decision is standing.decided(self.commit).decision
        return DONE if is_so else Answer(ErrorCode.INVALID_TXN_STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOut:
    """The time of one transaction is over: abort it, and keep its producer from writing on. Nobody waits for an answer."""

    transactional_id: str
    producer_id: int
    epoch: int

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        if (
            standing is None
            or not standing.is_ongoing
            or (standing.producer_id, standing.epoch) != (self.producer_id, self.epoch)
        ):
            return DONE
        if standing.epoch == EPOCH_MAX:
            return Write(_aborted_in_last_epoch(standing, wall_ms), DONE)
        # Nobody has the next epoch. A producer that knows EndTxn of version 5 gets it by aborting, and so hears of the abort.
        fenced = replace(standing.raised(False), updated_ms=wall_ms)
        return Write(replace(fenced, last_producer_id=NO_PRODUCER, last_epoch=NO_EPOCH), DONE)


def _aborted_in_last_epoch(standing: Transaction, wall_ms: int) -> Transaction:
    """Earlier releases began transactions in this epoch. No other one follows it, so it is retired."""
    return replace(standing.decided(False).retired(), updated_ms=wall_ms)
