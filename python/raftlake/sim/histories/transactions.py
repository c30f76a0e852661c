"""Transactions over several partitions: what clients were answered and shown, judged by the markers in the final logs.

The promises (KIP-98): a transaction whose commit was answered is visible, whole; one whose commit nobody asked for is visible
nowhere; any other one is visible in all of its partitions, or in none. What a `read_committed` reader was shown is visible, and
a reader that went on from batch to batch was shown all that is. A producer whose transaction was ended by a command beside keys
begins nothing more with its epoch: a command that comes once more finds no other transaction. Behind a marker that raised the
epoch no batch of the ended transaction stands (KIP-890 part 2).

Values must be unique over the whole history: they are how a record is known again. Knows bytes of logs only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raftlake.sim.invariants.base import Violation
from raftlake.wire.batches import decode_records, parse_header
from raftlake.wire.control import ControlType

#: What is promised, for the messages.
ALL_OR_NOTHING = "a transaction is visible in all of its partitions, or in none"
COMMIT_HOLDS = "a transaction whose commit was answered is visible"
ABORT_HOLDS = "a transaction that nobody asked to commit is visible nowhere"
COMMITTED_ONLY = "a read_committed reader is shown records of committed transactions only"
COMMITTED_ALL = "a read_committed reader is shown all that is visible, in order"
ENDS = "without faults every transaction ends"
RAISED = "behind the end of a transaction that raised the epoch nothing stands of that epoch"
RETIRED = "an epoch whose transaction was ended by a command begins no other one"

_CONTROL_KEY = struct.Struct(">hh")


@dataclass(slots=True)
class Transaction:
    """One transaction of one client. Batches without an answer may stand in the log or not."""

    name: str
    #: The values of acknowledged batches, by partition.
    acknowledged: dict[int, list[bytes]] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    #: Somebody asked to commit it, whatever became of the request.
    commit_was_asked: bool = False
    #: What was answered: True for committed, False for aborted.
    outcome: bool | None = None


@dataclass(slots=True)
class Shown:
    """What one reader was shown of one partition from `start` on, without a step over anything."""

    start: int
    position: int
    records: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Standing:
    """What finally stands in one partition."""

    #: By offset: all data records but those of aborted and open transactions.
    visible: Mapping[int, bytes]
    #: Values of transactions that no marker ends, by producer id.
    open: Mapping[int, tuple[bytes, ...]]
    #: By offset, values of transactions behind which their producer went on with a higher epoch, and no marker between.
    unmarked: Mapping[int, bytes] = field(default_factory=dict)


def standing(batches: Iterable[bytes]) -> Standing:
    """What the markers among `batches`, one committed batch each, say of the records before them. Raises Violation where a
    batch has an older epoch than what stands before it of the same producer."""
    visible: dict[int, bytes] = {}
    under_way: dict[int, list[tuple[int, bytes]]] = {}
    epochs: dict[int, int] = {}
    unmarked: dict[int, bytes] = {}
    for data in batches:
        header = parse_header(data, 0)
        if header.is_transactional:
            before = epochs.get(header.producer_id, header.producer_epoch)
            epochs[header.producer_id] = header.producer_epoch
            if header.producer_epoch < before:
                batch = f"offset {header.base_offset}: producer {header.producer_id} epoch {header.producer_epoch}"
                raise Violation(RAISED, f"{batch}, after {before}")
            if header.producer_epoch > before and not header.is_control:
                unmarked.update(under_way.get(header.producer_id, ()))
        if header.is_control:
            if header.is_transactional:
                (marker,) = decode_records(data, include_control=True)
                _, type_ = _CONTROL_KEY.unpack_from(marker.key or b"")
                records = under_way.pop(header.producer_id, [])
                visible.update(records if type_ == ControlType.COMMIT else ())
            continue
        found = [(record.offset, record.value or b"") for record in decode_records(data)]
        if header.is_transactional:
            under_way.setdefault(header.producer_id, []).extend(found)
        else:
            visible.update(found)
    left = {producer_id: tuple(value for _, value in records) for producer_id, records in under_way.items()}
    return Standing(dict(sorted(visible.items())), left, unmarked)


def check_transactions(
    transactions: Sequence[Transaction], partitions: Mapping[int, Standing], gone: Collection[bytes] = ()
) -> None:
    """Raises Violation for a transaction that is visible in part, or otherwise than it was answered. Values that are `gone`
    need not be visible: they were deleted before their transaction was decided."""
    visible = {value for partition in partitions.values() for value in partition.visible.values()}
    for transaction in transactions:
        acknowledged = [value for values in transaction.acknowledged.values() for value in values if value not in gone]
        shown = [value for value in transaction.sent if value in visible]
        if transaction.outcome is True and not visible.issuperset(acknowledged):
            missing = [value for value in acknowledged if value not in visible]
            raise Violation(COMMIT_HOLDS, f"{transaction.name} lacks {missing}")
        if shown and (transaction.outcome is False or not transaction.commit_was_asked):
            raise Violation(ABORT_HOLDS, f"{transaction.name} shows {shown}")
        if shown and not visible.issuperset(acknowledged):
            missing = [value for value in acknowledged if value not in visible]
            raise Violation(ALL_OR_NOTHING, f"{transaction.name} shows {shown} and lacks {missing}")


def check_shown(partition: int, reader: str, shown: Shown, final: Standing) -> None:
    """Raises Violation where a reader was shown anything but what is visible."""
    for offset, value in shown.records:
        if final.visible.get(offset) != value:
            raise Violation(COMMITTED_ONLY, f"{reader}: partition {partition} offset {offset}: {value!r}")
    expected = [offset for offset in final.visible if shown.start <= offset < shown.position]
    if [offset for offset, _ in shown.records] != expected:
        missing = sorted(set(expected) - {offset for offset, _ in shown.records})
        detail = f"{reader}: partition {partition} from {shown.start} to {shown.position} lacks the offsets {missing}"
        raise Violation(COMMITTED_ALL, detail)


def check_ended(partition: int, final: Standing) -> None:
    """Raises Violation where a transaction stays open."""
    if final.open:
        raise Violation(ENDS, f"partition {partition} has open ones: {dict(final.open)}")


class RetiredEpochs:
    """The producers and epochs that commands have used up, told of in the order of the metadata log."""

    def __init__(self) -> None:
        #: By producer id and epoch, the offset of the first such command.
        self._retired: dict[tuple[int, int], int] = {}

    def ended(self, producer_id: int, epoch: int, offset: int) -> None:
        """A command that took effect ended a transaction, and retires the epoch."""
        self._retired.setdefault((producer_id, epoch), offset)

    def stands(self, value: bytes, offset: int) -> None:
        """The key of a transactional id holds this from `offset` on. Raises Violation where a retired epoch is in use."""
        fields = json.loads(value or b"{}")
        retired_at = self._retired.get((fields.get("producer_id"), fields.get("epoch")))
        if retired_at is not None and fields["state"] == "Ongoing":
            raise Violation(RETIRED, f"offset {offset}: {value!r}, but a command ended that epoch at {retired_at}")
