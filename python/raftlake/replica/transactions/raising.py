"""EndTxn from version 5 on: each end of a transaction raises the epoch of its producer (KIP-890 part 2). Pure, as `requests`
is.

The decision and the next epoch are one change of the key. The answer tells the next epoch, and the markers carry it. So no
batch of the ended transaction is taken into the next one. Where epochs are used up, the decision names another producer id,
and the answer tells that one with epoch 0.

A request that comes again names the epoch before. It is answered as the first time, while no other transaction has begun. Kafka
knows a repetition by the epoch alone. Here the key says too that the decision raised the epoch (`Transaction.is_raised`): the
epoch may have been given to another producer by InitProducerId.

Where a command has ended the transaction and retired its epoch, the same end succeeds and gives the next epoch, as
InitProducerId does. The old epoch must not be told: the producer would count its batches from 0, and they would be taken for
repeated ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raftlake.errors import ErrorCode
from raftlake.replica.transaction_entry import EPOCH_EXHAUSTED, NO_PRODUCER, Outcome, Transaction
from raftlake.replica.transactions.requests import FENCED, UNMAPPED, Answer, Step, TakeId, Wait, Write

INVALID = Answer(ErrorCode.INVALID_TXN_STATE)


@dataclass(slots=True, kw_only=True)
class EndAndRaise:
    """It is answered once it is decided, with the producer's next identity; the markers follow."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    #: A producer id that nobody has had, once there is one.
    new_id: int | None = None

    def judge(self, standing: Transaction | None, wall_ms: int) -> Step:
        if standing is None or self.producer_id < 0:
            return UNMAPPED
        asked = (self.producer_id, self.epoch)
        if standing.is_raised and self.epoch >= 0 and asked in _raised_from(standing):
            return self._repeated(standing)
        if self.producer_id not in (standing.producer_id, standing.successor[0]):
            return UNMAPPED
        if asked != standing.successor or self.epoch > EPOCH_EXHAUSTED:
            return FENCED
        if standing.is_retired and not self._is_as_decided(standing):
            return INVALID
        if standing.is_prepared:
            return Wait()
        if standing.is_idle and self.commit and not standing.is_retired:
            return INVALID
        if self.epoch == EPOCH_EXHAUSTED and self.new_id is None:
            return TakeId()
        next_id = NO_PRODUCER if self.new_id is None or self.epoch < EPOCH_EXHAUSTED else self.new_id
        decided = replace(standing.raised(self.commit, next_id), updated_ms=wall_ms)
        if standing.is_ongoing:
            return Write(decided, _told(decided))
        # Nothing was done in it, or a command has ended it. So no partition needs a marker, and this is what markers leave.
        empty = replace(decided, is_retired=False, started_ms=wall_ms).completed()
        return Write(empty, _told(empty))

    def _repeated(self, standing: Transaction) -> Step:
        if standing.successor[1] > EPOCH_EXHAUSTED:
            return FENCED
        return _told(standing) if self._is_as_decided(standing) else INVALID

    def _is_as_decided(self, standing: Transaction) -> bool:
        return standing.decision is (Outcome.COMMIT if self.commit else Outcome.ABORT)


def _raised_from(standing: Transaction) -> tuple[tuple[int, int], ...]:
    """Whose transaction the decision was about, before the epoch was raised."""
    return (standing.producer_id, standing.epoch - 1), (standing.last_producer_id, standing.last_epoch)


def _told(standing: Transaction) -> Answer:
    return Answer(ErrorCode.NONE, *standing.successor)
