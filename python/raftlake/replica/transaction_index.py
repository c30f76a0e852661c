"""The transactions that the keys describe, and which put of such a key takes effect: a part of the judge of reserved keys.

Owns the transactions by key and by producer. Invariants, whatever is committed: no producer id stands under two keys. The epoch
of a producer id never goes back under its key. A decision is final: what is decided only becomes complete, or the next
transaction, by the same producer in the same way. A partition leaves a transaction only with its end. With an epoch that a
command has retired nothing begins any more.

A decision may go together with the next epoch (`Transaction.is_raised`). Nodes of releases before transaction.version 2 ignore
such a change. Therefore none is proposed before all nodes know of it (`Membership.transaction_version`). What those nodes took
is taken here too, so that an older log leaves the same keys.

What is judged follows from the applied commands alone, so all nodes hold the same transactions at one offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from raftlake.kv.commands import EndTxn
from raftlake.kv.keyspace import Entry
from raftlake.kv.rules import Decided
from raftlake.kv.strict_json import Refused
from raftlake.replica.transaction_entry import NO_PRODUCER, Transaction, TransactionState, decode, encode

_S = TransactionState
#: What may follow a state. A decision is followed by its own end alone, which is asked for beside.
_NEXT: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT, _S.ONGOING, _S.EMPTY}),
    _S.PREPARE_ABORT: frozenset({_S.PREPARE_ABORT, _S.COMPLETE_ABORT, _S.ONGOING, _S.EMPTY}),
    _S.COMPLETE_COMMIT: frozenset({_S.COMPLETE_COMMIT, _S.ONGOING, _S.EMPTY}),
    _S.COMPLETE_ABORT: frozenset({_S.COMPLETE_ABORT, _S.ONGOING, _S.EMPTY}),
}


class TransactionIndex:
    def __init__(self) -> None:
        self._by_key: dict[str, Transaction] = {}
        self._keys: dict[int, str] = {}
        #: In the order in which they came, for who works at some of them at a time.
        self._prepared: dict[str, None] = {}
        self._ongoing: dict[str, None] = {}

    @property
    def by_key(self) -> Mapping[str, Transaction]:
        return self._by_key

    @property
    def prepared(self) -> Collection[str]:
        """The keys of those that are decided and not complete."""
        return self._prepared.keys()

    @property
    def ongoing(self) -> Collection[str]:
        return self._ongoing.keys()

    def key_of(self, producer_id: int) -> str | None:
        return self._keys.get(producer_id)

    def of(self, producer_id: int) -> Transaction | None:
        """Of the transactional id that has this producer id now."""
        key = self._keys.get(producer_id)
        return None if key is None else self._by_key[key]

    # --- what happens to the keys ---

    def take(self, key: str, value: bytes) -> str | None:
        """As `kv.rules.Rules.take`."""
        before, found = self._by_key.get(key), decode(key, value)
        if isinstance(found, Refused):
            return None if before is None else found.reason
        if self._keys.get(found.producer_id, key) != key:
            return f"the producer id {found.producer_id} is that of another transactional id"
        fault = None if before is None else fault_of_change(found, before)
        if fault is None:
            self._note(key, found)
        return fault

    def drop(self, key: str) -> None:
        before = self._by_key.pop(key, None)
        if before is not None:
            del self._keys[before.producer_id]
            self._prepared.pop(key, None)
            self._ongoing.pop(key, None)

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        """As `kv.rules.Rules.restore`. No node has written one producer id under two keys; of such the older one counts."""
        found = decode(key, entry.value)
        if isinstance(found, Refused):
            return None
        other = self._keys.get(found.producer_id)
        if other is not None and (version_of(other), other) < (entry.version, key):
            return key
        if other is not None:
            self.drop(other)
        self._note(key, found)
        return other

    def judge_end(self, ending: EndTxn) -> Decided | str:
        """As `kv.rules.Rules.judge_end`."""
        key = self._keys.get(ending.producer_id)
        if key is None:
            return f"no transactional id has the producer id {ending.producer_id}"
        standing = self._by_key[key]
        if standing.epoch != ending.epoch:
            return f"the producer {ending.producer_id} has the epoch {standing.epoch}, not {ending.epoch}"
        if standing.is_raised:
            return f"the producer {ending.producer_id} has no transaction of the epoch {ending.epoch} yet"
        decided = standing.decided(ending.commit)
        if standing.is_ongoing:
            return Decided((key, encode(decided.retired() if ending.retires_epoch else decided)))
        if standing.decision is decided.decision:
            is_same = standing.is_retired or not ending.retires_epoch
            return Decided() if is_same else Decided((key, encode(standing.retired())))
        return f"the transaction of the producer {ending.producer_id} is {standing.state.value}"

    def _note(self, key: str, found: Transaction) -> None:
        before = self._by_key.get(key)
        if before is not None and before.producer_id != found.producer_id:
            del self._keys[before.producer_id]
        self._by_key[key] = found
        self._keys[found.producer_id] = key
        for members, is_one in ((self._prepared, found.is_prepared), (self._ongoing, found.is_ongoing)):
            if is_one:
                members.setdefault(key)
            else:
                members.pop(key, None)


def fault_of_change(found: Transaction, before: Transaction) -> str | None:
    """Why a transaction may not become what is put over it; None where it may."""
    if found.is_raised and not before.is_prepared and (found.is_prepared or _has_moved(found, before)):
        return _fault_of_raise(found, before)
    if found.state not in _NEXT[before.state]:
        return f"no transaction that is {before.state.value} becomes {found.state.value}"
    if before.is_prepared and not found.is_prepared and found.ended is not before.decision:
        return f"the transaction ends by {before.decision.value}, and nothing follows that says another end"
    if before.is_prepared and not found.is_prepared and before.next_producer_id != NO_PRODUCER:
        return None if found.producer_id == before.next_producer_id else "the next producer id is told by the decision"
    if found.producer_id != before.producer_id:
        is_new = found.state is TransactionState.EMPTY and found.last_producer_id == before.producer_id
        return (
            None if is_new else "a transactional id gets another producer id where nothing is under way, and tells the last one"
        )
    if found.epoch < before.epoch:
        return f"the producer {before.producer_id} has the epoch {before.epoch} already"
    return _fault_of_step(found, before)


def _fault_of_step(found: Transaction, before: Transaction) -> str | None:
    """The same for one producer id."""
    steps = found.epoch - before.epoch
    if before.is_ongoing:
        allowed = 1 if found.state is TransactionState.PREPARE_ABORT else 0
        if steps > allowed:
            return "the epoch of an ongoing transaction goes on only with its abort, by one"
        keeps = found.partitions == before.partitions if found.is_prepared else found.partitions >= before.partitions
        return None if keeps else "a partition leaves a transaction only with its end"
    if before.is_retired and not steps and not found.is_retired:
        return f"the epoch {before.epoch} of the producer {before.producer_id} is retired"
    if before.is_prepared and found.is_prepared:
        is_same = (steps, found.partitions) == (0, before.partitions)
        is_same = is_same and (found.is_raised, found.next_producer_id) == (before.is_raised, before.next_producer_id)
        return None if is_same else "what is decided stays as it is"
    if found.state is not TransactionState.EMPTY and steps:
        return "a producer that gets its next epoch has nothing under way"
    return None


def _has_moved(found: Transaction, before: Transaction) -> bool:
    return (found.producer_id, found.epoch) != (before.producer_id, before.epoch)


def _fault_of_raise(found: Transaction, before: Transaction) -> str | None:
    """The same for an end with the next epoch: a decision, or the abort of a transaction in which nothing was done."""
    is_next = (found.producer_id, found.epoch) == (before.producer_id, before.epoch + 1)
    if before.is_ongoing:
        keeps = found.is_prepared and found.partitions == before.partitions
        return None if is_next and keeps else "a decision raises the epoch by one and keeps the partitions"
    told = (found.last_producer_id, found.last_epoch) == (before.producer_id, before.epoch)
    is_new = found.producer_id != before.producer_id and found.epoch == 0 and told
    # A retired epoch is followed by the next one, however its transaction ended.
    is_end = found.state is (before.state if before.is_retired else TransactionState.COMPLETE_ABORT)
    fits = is_end and not found.partitions and not found.is_retired
    return None if fits and (is_next or is_new) else "where nothing is under way the epoch is raised by an empty abort"
