"""What the key of a transactional id holds: the producer that has the id, its epoch, and how far its transaction is.

Owns the form of the value. Invariants: no bytes make `decode` raise, and
its result depends on its arguments alone (`strict_json` of the package `kv`). What `encode` writes of a transaction `decode`
reads back as that transaction, if its id has no fault (`fault_of_id`). Fields that are not known are passed over.

The value is JSON: {"id", "producer_id", "epoch", "timeout_ms", "state", "partitions": {topic id: "0,1,2"}, "started_ms",
"updated_ms", "last_producer_id", "last_epoch", "next_producer_id", "ended", "retired", "raised"}. Partitions stand as text,
since brackets in a value are bounded. What is -1 (nobody, never) is left out, and "retired" and "raised" where they are false.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from raftlake.kv.keys import TRANSACTIONS_PREFIX
from raftlake.kv.strict_json import BRACKETS_MAX, Refused, integer, json_object, plain_text, read_or_refuse, whole_number
from raftlake.wire.ids import id_from_text, id_to_text

#: Bytes of the UTF-8 form of a transactional id. Kafka's log of transactions holds no longer one.
ID_BYTES_MAX = 32_767
#: Opening brackets in a transactional id: `decode` counts them with those of the value, which are its own and that of
#: "partitions" in any state. Topic ids and all else that a value says have none.
ID_BRACKETS_MAX = BRACKETS_MAX - 2
#: Longer ids stand under their hash.
NAMED_BYTES_MAX = 256
#: Partitions of one transaction. No setting: nodes that differ here would hold different transactions.
PARTITIONS_MAX = 2_000
#: An id of control characters alone takes six bytes for each, and each partition its topic's id at worst.
VALUE_BYTES_MAX = 512 * 1024
EPOCH_MAX = 32_767
#: The last epoch that a producer gets. Beyond it there is one for the marker that fences, and no further.
EPOCH_EXHAUSTED = 32_766
NO_PRODUCER = -1
NO_EPOCH = -1
NO_TIME = -1
_I32_MAX = 2**31 - 1
_I64_MAX = 2**63 - 1


class TransactionState(StrEnum):
    """As Kafka names them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class Outcome(StrEnum):
    """How the last transaction whose markers are all written has ended."""

    NONE = ""
    COMMIT = "commit"
    ABORT = "abort"


_PREPARED = {TransactionState.PREPARE_COMMIT: Outcome.COMMIT, TransactionState.PREPARE_ABORT: Outcome.ABORT}
_COMPLETE = {TransactionState.COMPLETE_COMMIT: Outcome.COMMIT, TransactionState.COMPLETE_ABORT: Outcome.ABORT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """`partitions` are (topic id, index). Times are milliseconds of wall clocks, for people: nothing is decided by
    `started_ms`. `last_producer_id` and `last_epoch` are who the producer was before; -1 for nobody. `is_retired`: a command
    ended the transaction of this epoch, and the epoch begins no other one. `is_raised`: the decision was about the epoch
    before, and this epoch had no transaction yet (KIP-890 part 2). `next_producer_id` is who the producer is once a
    transaction is complete whose decision had no further epoch; -1 where the producer stays."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[tuple[bytes, int]] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    last_producer_id: int = NO_PRODUCER
    last_epoch: int = NO_EPOCH
    ended: Outcome = Outcome.NONE
    is_retired: bool = False
    is_raised: bool = False
    next_producer_id: int = NO_PRODUCER

    @property
    def is_ongoing(self) -> bool:
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        """It is decided how it ends, and not all of its partitions are known to have a marker."""
        return self.state in _PREPARED

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return not self.is_ongoing and not self.is_prepared

    @property
    def decision(self) -> Outcome:
        """How the transaction ends (Prepare*) or has ended (Complete*)."""
        return _PREPARED.get(self.state) or _COMPLETE.get(self.state) or Outcome.NONE

    def decided(self, commit: bool) -> Transaction:
        """The decision over an ongoing one."""
        return replace(self, state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)

    def raised(self, commit: bool, next_producer_id: int = NO_PRODUCER) -> Transaction:
        """The decision over an ongoing one, with the next epoch; and who the producer is then, where epochs are used up."""
        return replace(
            self.decided(commit),
            epoch=self.epoch + 1,
            last_producer_id=self.producer_id,
            last_epoch=self.epoch,
            is_raised=True,
            next_producer_id=next_producer_id,
        )

    @property
    def successor(self) -> tuple[int, int]:
        """The producer id and the epoch that go on once the transaction is complete."""
        return (self.producer_id, self.epoch) if self.next_producer_id == NO_PRODUCER else (self.next_producer_id, 0)

    def retired(self) -> Transaction:
        """A decided or complete one whose epoch is used up. Nobody gets this epoch from InitProducerId once more."""
        return replace(self, is_retired=True, last_producer_id=NO_PRODUCER, last_epoch=NO_EPOCH)

    def completed(self) -> Transaction:
        """What a prepared one becomes when all partitions have their markers."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        producer_id, epoch = self.successor
        return replace(
            self,
            producer_id=producer_id,
            epoch=epoch,
            next_producer_id=NO_PRODUCER,
            state=state,
            partitions=frozenset(),
            ended=self.decision,
        )


def transaction_key(transactional_id: str) -> str:
    """The key of an id. No two ids have one key."""
    encoded = transactional_id.encode()
    if len(encoded) > NAMED_BYTES_MAX:
        return f"{TRANSACTIONS_PREFIX}~{hashlib.sha256(encoded).hexdigest()}"
    return TRANSACTIONS_PREFIX + quote(encoded, safe="").replace("~", "%7E")


def fault_of_id(transactional_id: str) -> str | None:
    """Why `decode` reads no transaction of this id; None where it reads each."""
    size = len(transactional_id.encode())
    if not 1 <= size <= ID_BYTES_MAX:
        return f"a transactional id has 1 to {ID_BYTES_MAX} bytes, not {size}"
    brackets = transactional_id.count("[") + transactional_id.count("{")
    if brackets > ID_BRACKETS_MAX:
        return f"a transactional id has at most {ID_BRACKETS_MAX} opening brackets, not {brackets}"
    return None


def encode(transaction: Transaction) -> bytes:
    value: dict[str, object] = {
        "id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "epoch": transaction.epoch,
        "timeout_ms": transaction.timeout_ms,
        "state": transaction.state.value,
        "partitions": _partitions_to_json(transaction.partitions),
        "ended": transaction.ended.value,
    }
    unsaid = {
        "started_ms": transaction.started_ms,
        "updated_ms": transaction.updated_ms,
        "last_producer_id": transaction.last_producer_id,
        "last_epoch": transaction.last_epoch,
        "next_producer_id": transaction.next_producer_id,
    }
    value |= {name: number for name, number in unsaid.items() if number >= 0}
    if transaction.is_retired:
        value["retired"] = True
    if transaction.is_raised:
        value["raised"] = True
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def decode(key: str, value: bytes) -> Transaction | Refused:
    """The transaction under a key of TRANSACTIONS_PREFIX."""

    def read() -> Transaction:
        fields = json_object(value, VALUE_BYTES_MAX)
        transactional_id = fields["id"]
        if not isinstance(transactional_id, str) or not 1 <= len(transactional_id.encode()) <= ID_BYTES_MAX:
            raise ValueError(f"a transactional id is a text of 1 to {ID_BYTES_MAX} bytes")
        if transaction_key(transactional_id) != key:
            raise ValueError("the transactional id stands under another key")
        state = TransactionState(plain_text(fields["state"]))
        return Transaction(
            transactional_id=transactional_id,
            producer_id=integer(fields["producer_id"], 0, _I64_MAX),
            epoch=integer(fields["epoch"], 0, EPOCH_MAX),
            timeout_ms=integer(fields["timeout_ms"], 1, _I32_MAX),
            state=state,
            partitions=_partitions(fields["partitions"]),
            started_ms=_or_none(fields, "started_ms", _I64_MAX),
            updated_ms=_or_none(fields, "updated_ms", _I64_MAX),
            last_producer_id=_or_none(fields, "last_producer_id", _I64_MAX),
            last_epoch=_or_none(fields, "last_epoch", EPOCH_MAX),
            ended=Outcome(plain_text(fields.get("ended", ""))),
            is_retired=_is_of_an_end(fields, "retired", state),
            is_raised=_is_of_an_end(fields, "raised", state),
            next_producer_id=_next_producer_id(fields, state),
        )

    return read_or_refuse(read)


def _partitions_to_json(partitions: frozenset[tuple[bytes, int]]) -> dict[str, str]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return {id_to_text(topic_id): ",".join(map(str, indexes)) for topic_id, indexes in by_topic.items()}


def _partitions(found: object) -> frozenset[tuple[bytes, int]]:
    if not isinstance(found, dict):
        raise ValueError("partitions are an object")
    partitions: list[tuple[bytes, int]] = []
    for topic, indexes in found.items():
        topic_id = id_from_text(topic)
        partitions += ((topic_id, integer(whole_number(index), 0, _I32_MAX)) for index in plain_text(indexes).split(","))
    if len(partitions) > PARTITIONS_MAX:
        raise ValueError(f"{len(partitions)} partitions, a transaction has at most {PARTITIONS_MAX}")
    return frozenset(partitions)


def _is_of_an_end(fields: dict[str, Any], name: str, state: TransactionState) -> bool:
    found = fields.get(name, False)
    if type(found) is not bool or (found and state not in _PREPARED and state not in _COMPLETE):
        raise ValueError(f"an epoch is {name}, true or false, where its transaction has ended")
    return found


def _next_producer_id(fields: dict[str, Any], state: TransactionState) -> int:
    found = _or_none(fields, "next_producer_id", _I64_MAX)
    if found != NO_PRODUCER and state not in _PREPARED:
        raise ValueError("another producer id follows a transaction that is decided and not complete")
    return found


def _or_none(fields: dict[str, Any], name: str, high: int) -> int:
    """-1 where nothing is said."""
    return integer(fields[name], 0, high) if name in fields else -1
