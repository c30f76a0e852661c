"""What clients were promised, checked against what finally stands in the logs.

The oracle sees only what a client sees: what it asked, when, and what was answered. A request without an answer is
*unknown*: it may have happened, may still happen or may never; no check here assumes that an unknown write is absent. A write
that was *refused* promises the opposite: it is in no log.

Checked while the run goes on, because it needs the order of events:
- a linearizable read of a partition covers every append acknowledged, and every read answered, before it was asked;
- a key-value operation stands after every operation that was answered before it was asked (strict serializability: one
  state machine, so one floor for all keys);
- the high watermark that a node shows its clients never goes back while the node runs, a leader shows none below what it or
  any node of an epoch up to its own has shown before, no answer's lies below the position asked for, and records once seen
  stay.
Checked at the end against the committed logs: each acknowledged append is there exactly once, at its offset, in the order of
its producer; each answer of the key-value space is what a replay of the log gives at that position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raftlake.errors import ErrorCode
from raftlake.kv.commands import DeletePrefix, EndTxn, Put, Txn, decode
from raftlake.kv.keys import RESERVED_PREFIX, TRANSACTIONS_PREFIX
from raftlake.kv.machine import Entry, StateMachine, TxnResult
from raftlake.raft.types import NodeId
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.sim.histories.listing import KvList, check_lists
from raftlake.sim.histories.transactions import RetiredEpochs
from raftlake.sim.invariants.base import Violation
from raftlake.wire.batches import Record

#: Every command of a simulated client also writes this key, so that it can be found in the log.
MARK_PREFIX = "mark/"
#: What a partition says that has looked at a batch's sequence and does not take it (`producer_state`).
SEQUENCE_ERRORS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


@dataclass(slots=True)
class Append:
    """One batch of one producer. `sequence` counts the producer's records in this partition from 0, through all its epochs."""

    partition: int
    producer: str
    sequence: int
    values: tuple[bytes, ...]
    epoch: int = 0
    #: A plain producer goes on after an unknown outcome, so what it sent first may well be appended last.
    keeps_order: bool = True
    base_offset: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class KvRead:
    key: str
    entry: Entry | None
    #: The position in the metadata log (exclusive) whose state was read.
    position: int


@dataclass(frozen=True, slots=True)
class KvWrite:
    mark: bytes
    txn: Txn
    result: TxnResult


@dataclass(slots=True)
class Partition:
    """What clients know of one partition."""

    #: Every append acknowledged so far ends at or below this offset.
    acknowledged_end: int = 0
    #: The highest offset that a linearizable read returned.
    read_end: int = 0
    #: Records that a consumer has seen.
    seen: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The high watermark of one Fetch answer without an error, and which node gave it."""

    node_id: NodeId
    incarnation: int
    partition: int
    #: The newest epoch that the node knew of.
    epoch: int
    leads: bool
    high_watermark: int


class Oracle:
    """One per run."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [Partition() for _ in range(partitions)]
        self.appends: list[Append] = []
        self.kv_reads: list[KvRead] = []
        self.kv_lists: list[KvList] = []
        self.kv_writes: list[KvWrite] = []
        self.kv_refused: list[bytes] = []
        #: Every transaction that was sent, by its mark, whatever became of it.
        self._kv_sent: dict[bytes, Txn] = {}
        self._kv_floor = 0
        self._high_watermarks: dict[tuple[NodeId, int, int], int] = {}
        #: By partition, what was shown by nodes in each epoch: the highest.
        self._shown: list[dict[int, int]] = [{} for _ in range(partitions)]

    # --- appends ---

    def append_sent(
        self,
        partition: int,
        producer: str,
        sequence: int,
        values: tuple[bytes, ...],
        *,
        epoch: int = 0,
        keeps_order: bool = True,
    ) -> Append:
        """A producer is about to send a batch; retries of it are the same `Append`."""
        append = Append(partition, producer, sequence, values, epoch, keeps_order)
        self.appends.append(append)
        return append

    def append_acknowledged(self, append: Append, base_offset: int) -> None:
        if base_offset < 0:
            raise Violation("an acknowledged append has an offset", f"{append} was acknowledged at {base_offset}")
        append.base_offset = base_offset
        partition = self.partitions[append.partition]
        partition.acknowledged_end = max(partition.acknowledged_end, base_offset + len(append.values))

    def append_refused(self, append: Append) -> None:
        """The answer promises that the batch was not appended and never will be."""
        append.refused = True

    # --- reads of a partition ---

    def floor(self, partition: int) -> int:
        """What a linearizable read that is asked now must cover."""
        known = self.partitions[partition]
        return max(known.acknowledged_end, known.read_end)

    def read_answered(self, partition: int, floor: int, offset: int, where: str) -> None:
        """A linearizable read, asked when the floor was `floor`, returned `offset`."""
        if offset < floor:
            raise Violation(
                "a linearizable read covers all that was acknowledged before it",
                f"partition {partition} at {where}: read {offset}, but {floor} was acknowledged or read before it was asked",
            )
        known = self.partitions[partition]
        known.read_end = max(known.read_end, offset)

    def latest_answered(self, partition: int, floor: int, offset: int, where: str) -> None:
        """The newest leader told a client that `offset` is the latest one, asked when the floor was `floor`."""
        if offset < floor:
            raise Violation(
                "a leader that answers consumers has committed in its own epoch",
                f"partition {partition} at {where}: latest {offset}, but {floor} was acknowledged or read before it was asked",
            )

    def consumed_after_read(self, partition: int, read_offset: int, high_watermark: int, where: str) -> None:
        """A node that proved `read_offset` to a client then answered the client's fetch with this high watermark."""
        if high_watermark < read_offset:
            raise Violation(
                "a node that answers a linearizable read has reached its offset",
                f"partition {partition} at {where}: read {read_offset}, then fetched with high watermark {high_watermark}",
            )

    def high_watermark_seen(self, shown: Shown, position: int) -> None:
        """A client that fetched from `position` is given this high watermark; reported in the order in which answers are made.

        A deposed leader that does not know it yet is judged by what was shown up to its own epoch. What was shown in an epoch
        stands in the log of every later leader, below the end of its own first record.
        """
        node = shown.node_id, shown.incarnation, shown.partition
        by_epoch = self._shown[shown.partition]
        seen = self._high_watermarks.get(node, -1)
        if shown.leads:
            seen = max(seen, max((high for epoch, high in by_epoch.items() if epoch <= shown.epoch), default=-1))
        if shown.high_watermark < seen:
            raise Violation("the high watermark that clients see never goes back", f"{shown}, but {seen} was shown before")
        if shown.high_watermark < position:
            raise Violation("no high watermark below the position asked for is shown", f"{shown} to a fetch from {position}")
        self._high_watermarks[node] = shown.high_watermark
        by_epoch[shown.epoch] = max(by_epoch.get(shown.epoch, -1), shown.high_watermark)

    def append_repeated(self, append: Append, answered_offset: int, error: str) -> None:
        """An acknowledged batch of the last few came again: the answer is where it stands, be that trimmed or not."""
        if answered_offset != append.base_offset:
            detail = f"{append}, its repetition was answered {error} at {answered_offset}"
            raise Violation("a repeated batch is answered, not appended", detail)

    def misfit_sent(self, partition: int, producer: str, values: tuple[bytes, ...]) -> Append:
        """A batch that breaks the rules of sequences: whatever is answered, and if nothing is, no log may ever hold it."""
        append = self.append_sent(partition, producer, 0, values, keeps_order=False)
        append.refused = True
        return append

    def misfit_answered(self, append: Append, error: ErrorCode, expected: ErrorCode) -> None:
        """It may not have come so far that its sequence was looked at. If it was, `expected` is what Kafka says."""
        if error is not expected and (error is ErrorCode.NONE or error in SEQUENCE_ERRORS):
            detail = f"{append} must be answered {expected.name}, not {error.name}"
            raise Violation("a batch that breaks the rules of sequences is refused", detail)

    def next_refused(self, append: Append, error: ErrorCode, *, is_known: bool) -> None:
        """A producer's oldest batch under way was refused. `is_known`: one of its batches was acknowledged before."""
        if error in SEQUENCE_ERRORS and (is_known or error is not ErrorCode.LEADER_NOT_AVAILABLE):
            raise Violation("a log takes its producer's next batch", f"{append} is answered {error.name}")

    def record_seen(self, partition: int, offset: int, value: bytes, high_watermark: int) -> None:
        """A consumer was given a record in an answer that carried this high watermark."""
        if offset >= high_watermark:
            raise Violation("consumers see committed records only", f"partition {partition}: {offset} >= {high_watermark}")
        known = self.partitions[partition].seen.setdefault(offset, value)
        if known != value:
            raise Violation("a record once seen stays", f"partition {partition} offset {offset}: {known!r}, then {value!r}")

    # --- key-value space ---

    @property
    def kv_floor(self) -> int:
        """The position that an operation which is asked now must not stand before."""
        return self._kv_floor

    def kv_read_answered(self, key: str, entry: Entry | None, position: int, floor: int, where: str) -> None:
        """A linearizable get, asked when the floor was `floor`, was served from the state at `position`."""
        self._kv_state_shown(position, floor, f"key {key} at {where}")
        self.kv_reads.append(KvRead(key, entry, position))

    def kv_list_answered(self, listed: KvList, floor: int, where: str) -> None:
        """A list, asked when the floor was `floor`, was answered; a stale one may be as old as it likes (0)."""
        self._kv_state_shown(listed.position, floor, f"a list at {where}")
        self.kv_lists.append(listed)

    def _kv_state_shown(self, position: int, floor: int, what: str) -> None:
        if position < floor:
            raise Violation(
                "a linearizable get sees every change that was acknowledged before it",
                f"{what}: state of {position}, but {floor} was acknowledged or read before it was asked",
            )
        self._kv_floor = max(self._kv_floor, position)

    def kv_write_sent(self, mark: bytes, txn: Txn) -> None:
        self._kv_sent[mark] = txn

    def kv_write_answered(self, mark: bytes, txn: Txn, result: TxnResult, floor: int) -> None:
        """A transaction was answered with its result (its compares may have failed: that too is an answer)."""
        if result.offset < floor:
            raise Violation(
                "a change stands after everything that was acknowledged before it",
                f"{mark!r} stands at {result.offset}, but {floor} was acknowledged or read before it was asked",
            )
        self._kv_floor = max(self._kv_floor, result.offset + 1)
        self.kv_writes.append(KvWrite(mark, txn, result))

    def kv_write_refused(self, mark: bytes) -> None:
        """The answer promises that the transaction was not proposed."""
        self.kv_refused.append(mark)

    # --- the end ---

    def check_partition(self, index: int, records: Sequence[Record]) -> None:
        """Compare the promises about one partition with its final committed log (data records only)."""
        by_offset = {record.offset: record.value or b"" for record in records}
        offsets: dict[bytes, int] = {}
        for record in records:
            value = record.value or b""
            if value in offsets:
                raise Violation("nothing is appended twice", f"{value!r} stands at {offsets[value]} and {record.offset}")
            offsets[value] = record.offset
        appends = [append for append in self.appends if append.partition == index]
        self._check_appends(appends, by_offset, offsets)
        _check_order(appends, offsets)
        _check_gaps(appends, offsets)
        sent = {value for append in appends for value in append.values}
        for value, offset in offsets.items():
            if value not in sent:
                raise Violation("nothing is in the log that no client sent", f"partition {index} offset {offset}: {value!r}")
        for offset, value in self.partitions[index].seen.items():
            if by_offset.get(offset) != value:
                raise Violation("a record once seen stays", f"partition {index} offset {offset}: {value!r} was seen")

    def _check_appends(self, appends: Sequence[Append], by_offset: Mapping[int, bytes], offsets: Mapping[bytes, int]) -> None:
        for append in appends:
            if append.base_offset is not None:
                for position, value in enumerate(append.values):
                    found = by_offset.get(append.base_offset + position)
                    if found != value:
                        raise Violation(
                            "an acknowledged append is in the log at its offset",
                            f"{value!r} was acknowledged at {append.base_offset + position}, there stands {found!r}",
                        )
            elif append.refused:
                for value in append.values:
                    if value in offsets:
                        raise Violation("a refused append is in no log", f"{value!r} stands at {offsets[value]}")
            elif 0 < sum(value in offsets for value in append.values) < len(append.values):
                raise Violation("a batch is whole or absent", f"only a part of {append.values!r} is in the log")

    def check_kv(self, records: Sequence[Record]) -> None:
        """Compare the answers of the key-value space with a replay of the final metadata log."""
        results, marks, histories = replay(records)
        self._check_sent(records)
        check_lists(self.kv_lists, histories)
        for write in self.kv_writes:
            position = marks.get(write.mark)
            if position != write.result.offset:
                raise Violation(
                    "an acknowledged change stands at its version", f"{write.mark!r}: {write.result}, log {position}"
                )
            if results[position] != write.result:
                raise Violation("a result is that of the log", f"{write.mark!r}: {write.result}, replay {results[position]}")
        for mark in self.kv_refused:
            if mark in marks:
                raise Violation("a refused change is in no log", f"{mark!r} stands at {marks[mark]}")
        for read in self.kv_reads:
            expected: Entry | None = None
            for version, entry in histories.get(read.key, []):
                if version >= read.position:
                    break
                expected = entry
            if expected != read.entry:
                raise Violation("a get returns the state of its position", f"{read}, but a replay gives {expected}")

    def _check_sent(self, records: Sequence[Record]) -> None:
        """A transaction stands in the log as it was sent: its conditions hold there, not where it was asked for."""
        for record in records:
            txn = decode(record.value or b"")
            for operation in txn.ops:
                sent = self._kv_sent.get(operation.value) if isinstance(operation, Put) else None
                if sent is not None and sent != txn:
                    detail = f"offset {record.offset}: {txn}, but {sent} was sent"
                    raise Violation("the log holds what clients sent", detail)


def replay(
    records: Sequence[Record],
) -> tuple[dict[int, TxnResult], dict[bytes, int], dict[str, list[tuple[int, Entry | None]]]]:
    """Apply a metadata log from its beginning: results by offset, offsets by mark, and each key's changes in order.

    Raises Violation when one mark stands twice, since a command was applied twice, and when a retired epoch is in use again.
    """
    machine = StateMachine(rules=ReservedRules)
    results: dict[int, TxnResult] = {}
    retired = RetiredEpochs()
    marks: dict[bytes, int] = {}
    histories: dict[str, list[tuple[int, Entry | None]]] = {}
    for record in records:
        command = record.value or b""
        result = results[record.offset] = machine.apply(record.offset, command)
        for operation in decode(command).ops:
            if isinstance(operation, Put) and operation.key.startswith(MARK_PREFIX):
                if operation.value in marks:
                    first = marks[operation.value]
                    raise Violation("nothing is applied twice", f"{operation.value!r} stands at {first} and {record.offset}")
                marks[operation.value] = record.offset
            if result.succeeded and isinstance(operation, EndTxn) and operation.retires_epoch:
                retired.ended(operation.producer_id, operation.epoch, record.offset)
            if isinstance(operation, DeletePrefix):
                if result.succeeded:
                    _note_deleted(histories, operation.prefix, record.offset)
            elif result.succeeded and not isinstance(operation, EndTxn):
                entry = Entry(operation.value, record.offset) if isinstance(operation, Put) else None
                if operation.key.startswith(RESERVED_PREFIX):
                    # Their rules may keep the value that stood there, under the new version.
                    entry = machine.get(operation.key)
                histories.setdefault(operation.key, []).append((record.offset, entry))
        # What the end of a producer's transaction changes is not in the command, but under the key of the transaction.
        for change in machine.changes_since(TRANSACTIONS_PREFIX, record.offset - 1):
            retired.stands(change.value or b"", record.offset)
            if change.value is not None and histories.get(change.key, [(-1, None)])[-1][0] != record.offset:
                histories.setdefault(change.key, []).append((record.offset, Entry(change.value, record.offset)))
    return results, marks, histories


def _note_deleted(histories: dict[str, list[tuple[int, Entry | None]]], prefix: str, offset: int) -> None:
    """Every key that begins with the prefix is gone."""
    for key, history in histories.items():
        if key.startswith(prefix) and history[-1][1] is not None:
            history.append((offset, None))


def _check_order(appends: Sequence[Append], offsets: Mapping[bytes, int]) -> None:
    """The records of an idempotent producer stand in the order in which it sent them."""
    last: dict[str, tuple[int, int]] = {}
    for append in sorted((append for append in appends if append.keeps_order), key=lambda append: append.sequence):
        for position, value in enumerate(append.values):
            offset = offsets.get(value)
            if offset is None:
                continue
            before = last.get(append.producer)
            if before is not None and offset <= before[1]:
                raise Violation(
                    "a producer's records keep their order",
                    f"{append.producer}: record {append.sequence + position} at {offset}, record {before[0]} at {before[1]}",
                )
            last[append.producer] = (append.sequence + position, offset)


def _check_gaps(appends: Sequence[Append], offsets: Mapping[bytes, int]) -> None:
    """Of what an idempotent producer sent in one epoch the log holds a beginning, without a batch left out."""
    missing: dict[tuple[str, int], Append] = {}
    for append in sorted((append for append in appends if append.keeps_order), key=lambda append: append.sequence):
        before = missing.get((append.producer, append.epoch))
        if append.values[0] not in offsets:
            missing.setdefault((append.producer, append.epoch), append)
        elif before is not None:
            detail = f"{append} stands at {offsets[append.values[0]]}, and not what was sent before it: {before}"
            raise Violation("no batch of a producer stands without those before it", detail)
