"""Whether a producer's transaction may begin in a partition, and whether a marker is due there: judged by the quorum's keys
(KIP-890).

Kafka's leader asks the coordinator. Here each node applies the keys of all transactions, so mostly nothing is asked. What the
applied keys do not allow is looked up once by a linearizable read, since this node may not have applied the change yet. A
batch of Produce from version 12 on brings its partition with it: where the keys do not allow it, the partition is added to the
transaction first (`additions`).

Owns the one look that each leadership begins with. A leader's log may hold the end of a transaction which the keys that it has
applied still call ongoing: a late batch would begin that transaction anew, and nobody would end it. So nothing begins and no
marker is judged in a partition before a linearizable read of the keys that began in this leadership has ended. The leader of a
partition writes a marker only when it has applied the decision. Therefore the applied keys are never older than its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetResult
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.transaction_entry import Outcome, Transaction
from raftlake.replica.transactions.additions import PartitionId, Producer
from raftlake.replica.transactions.requests import Answer
from raftlake.replica.transactions.words import NEW_PRODUCER, told_fenced
from raftlake.wire.batches import EndMarker

#: The first versions of Produce that know TRANSACTION_ABORTABLE, and those whose clients repeat CONCURRENT_TRANSACTIONS.
ABORTABLE_FROM_VERSION = 11
CONCURRENT_FROM_VERSION = 12
#: The first version of Produce that adds its partitions to the transaction.
ADDS_FROM_VERSION = 12
#: What is told of a partition that cannot be added. Producers know no PRODUCER_FENCED beside their records.
_TOLD = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
#: Nothing is known of the transaction: the batch is to come again.
_UNKNOWN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}
)


class Keys(Protocol):
    """The quorum's keys, as this node has applied them (`KvService`)."""

    @property
    def state(self) -> TransactionKeys: ...

    @property
    def machine(self) -> AppliedTo: ...

    def read(self, linearizable: bool, done: Callable[[ReadOffsetResult], None]) -> None: ...


class Adder(Protocol):
    """See `Additions.add`."""

    def add(self, producer: Producer, part: PartitionId, done: Callable[[Answer], None]) -> None: ...


class AppliedTo(Protocol):
    @property
    def applied_offset(self) -> int: ...


class TransactionKeys(Protocol):
    def transaction_of(self, producer_id: int) -> Transaction | None: ...


class Verification:
    def __init__(self, engine: Engine, keys: Keys, additions: Adder) -> None:
        self._engine = engine
        self._keys = keys
        self._additions = additions

    # --- batches ---

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        """NONE: the batch may begin its transaction. None: that has to be looked up. Else why it may not, as Kafka's leader
        says it."""
        epoch = partition.core.epoch
        if pending.not_added is not None:
            return pending.not_added
        if partition.keys_known_in != epoch:
            return None
        transaction = self._keys.state.transaction_of(pending.headers[0].producer_id)
        error = refusal(transaction, partition.group, pending)
        return error if error is ErrorCode.NONE or pending.looked_up_in == epoch else None

    def why(self, partition: Partition, pending: PendingAppend, error: ErrorCode) -> str:
        """The error of `judge`, or of `may_append`, in words."""
        header = pending.headers[0]
        if not header.is_transactional:
            return f"producer {header.producer_id} has an open transaction in {partition.group}, and this batch is none of it"
        if pending.not_added is not None:
            return pending.why_not_added
        return told(self._keys.state.transaction_of(header.producer_id), partition.group, pending, error)

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        """Have the batch, which the partition holds, judged anew by the keys as of now. Its partition is added to the
        transaction first where the version of the request says so."""
        if pending.version >= ADDS_FROM_VERSION and pending.transactional_id is not None:
            self._add(partition, pending, pending.transactional_id)
        else:
            self._look_up(partition, pending)

    def _add(self, partition: Partition, pending: PendingAppend, transactional_id: str) -> None:
        header, epoch = pending.headers[0], partition.core.epoch

        def on_answer(answer: Answer) -> None:
            is_leader = partition.core.is_leader and partition.core.epoch == epoch
            if not is_leader or answer.error in _UNKNOWN:
                partition.refuse_held(header.producer_id)
            elif answer.error is ErrorCode.NONE and partition.keys_known_in != epoch:
                self._look_up(partition, pending)
            else:
                if answer.error is not ErrorCode.NONE:
                    pending.not_added, pending.why_not_added = _TOLD.get(answer.error, answer.error), answer.why
                pending.looked_up_in = epoch
                if partition.end_hold(header.producer_id):
                    self._engine.mark_appending(partition)

        producer = (transactional_id, header.producer_id, header.producer_epoch)
        self._additions.add(producer, (partition.group.topic_id, partition.group.partition), on_answer)

    def _look_up(self, partition: Partition, pending: PendingAppend) -> None:
        def on_read(is_known: bool) -> None:
            producer_id = pending.headers[0].producer_id
            if not is_known:
                partition.refuse_held(producer_id)
                return
            pending.looked_up_in = partition.keys_known_in
            if partition.end_hold(producer_id):
                self._engine.mark_appending(partition)

        self.keys_as_of_now(partition, on_read)

    def keys_as_of_now(self, partition: Partition, done: Callable[[bool], None]) -> None:
        """Call `done`, now or later, with whether all that the keys said when this was called is applied here. This node has
        to lead the partition in one epoch meanwhile."""
        epoch = partition.core.epoch

        def on_read(result: ReadOffsetResult) -> None:
            is_known = result.error is ErrorCode.NONE and partition.core.is_leader and partition.core.epoch == epoch
            if is_known:
                partition.keys_known_in = epoch
            done(is_known)

        self._keys.read(True, on_read)

    # --- markers ---

    def is_due(self, marker: EndMarker) -> bool:
        """The keys say that this end of the producer's transaction is decided, and not known to be everywhere. A marker that
        comes late may find the producer's next transaction, and must not end that one."""
        found = self._keys.state.transaction_of(marker.producer_id)
        return found is not None and found.is_prepared and found.epoch == marker.epoch and _decides(found, marker)

    def is_hanging(self, group: GroupId, marker: EndMarker) -> bool:
        """No transaction that the keys know will be ended in another way in this partition."""
        found = self._keys.state.transaction_of(marker.producer_id)
        if found is None or (group.topic_id, group.partition) not in found.partitions:
            return True
        return found.is_prepared and _decides(found, marker)


def _decides(transaction: Transaction, marker: EndMarker) -> bool:
    return transaction.decision is (Outcome.COMMIT if marker.commit else Outcome.ABORT)


def refusal(transaction: Transaction | None, group: GroupId, pending: PendingAppend) -> ErrorCode:
    """What Kafka's leader answers to a batch that would begin a transaction in a partition; NONE where it may begin. What it
    says of a transaction that is being ended, or does not have the partition, depends on the version of the request."""
    header = pending.headers[0]
    if transaction is None or transaction.transactional_id != pending.transactional_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != header.producer_epoch or transaction.is_retired:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if transaction.is_prepared:
        is_known = pending.version >= CONCURRENT_FROM_VERSION
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_known else ErrorCode.NOT_ENOUGH_REPLICAS
    if not transaction.is_ongoing or (group.topic_id, group.partition) not in transaction.partitions:
        is_known = pending.version >= ABORTABLE_FROM_VERSION
        return ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE


def told(transaction: Transaction | None, group: GroupId, pending: PendingAppend, error: ErrorCode) -> str:
    """What `refusal` answers, in words."""
    header = pending.headers[0]
    if transaction is None or error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return f"producer {header.producer_id} is not that of transactional id {pending.transactional_id!r}; {NEW_PRODUCER}"
    if error is ErrorCode.INVALID_PRODUCER_EPOCH:
        return told_fenced(transaction, header.producer_id, header.producer_epoch)
    if transaction.is_prepared:
        return f"the transaction before of producer {header.producer_id} is being ended; nothing was appended"
    return (
        f"{group} is not part of a transaction of producer {header.producer_id} epoch {header.producer_epoch}, whose state is "
        f"{transaction.state.value}: abort, and begin again"
    )
