"""Histories of one partition of an append log: appends, reads of ranges and proven ends, checked against the final log.

Owns the promises of a log to its clients, each checked in sorted time (offsets give the order, so nothing is searched):
acknowledged appends stand once, whole, where the answer said, in real-time and in their producer's order; refused ones nowhere;
unknown ones once, whole, or nowhere. Reads show what stands in the log, without gaps, nothing before it was sent, and always
the same. A linearizable end covers all that was acknowledged or shown before it was asked. A high watermark that
a view (one node, one client of it) has shown does not go back.

Values must be unique over the whole history: they are how a record is known again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from raftlake.sim.histories.linearizability import Operation, Outcome

T = TypeVar("T")

#: Complaints of one kind beyond which no more are listed.
COMPLAINTS_MAX = 10


@dataclass(frozen=True, slots=True)
class Append:
    """One batch. `base_offset` where it was acknowledged. With `sequence`, the producer promises order: its appends with
    lower sequences stand before this one."""

    values: tuple[bytes, ...]
    base_offset: int | None = None
    producer: str | None = None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """What a read from `start` on brought: (offset, value) of each record, and the high watermark that came with it.

    `view` names what may not go back: the same node, asked by the same client.
    """

    start: int
    records: tuple[tuple[int, bytes], ...]
    high_watermark: int | None = None
    view: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """A linearizable read of the end of the log (exclusive). With `view`, the node has reached it: what that view shows later
    does not lie below."""

    offset: int
    view: str = ""


LogAction = Append | Read | End
LogOperation = Operation[LogAction]


@dataclass(slots=True)
class _Complaints:
    found: list[str] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= COMPLAINTS_MAX:
            self.found.append(f"{kind}: {text}")
        elif count == COMPLAINTS_MAX + 1:
            self.found.append(f"{kind}: and more of them")


class _Log:
    """The final log: which offset holds what, and which append that was."""

    def __init__(self, final: Mapping[int, bytes | None], appends: Sequence[Operation[Append]]) -> None:
        self.values = final
        self.offsets = sorted(offset for offset, value in final.items() if value is not None)
        self.start = min(final, default=0)
        self.end = max(final, default=-1) + 1
        self.sender = {value: operation for operation in appends for value in operation.action.values}
        self.offset_of = {final[offset]: offset for offset in reversed(self.offsets)}
        #: For each of `offsets`, the latest invocation among the appends up to there.
        self._invoked_before: list[int] = []
        latest = 0
        for offset in self.offsets:
            operation = self.sender.get(final[offset] or b"")
            latest = max(latest, operation.invoked_at if operation is not None else 0)
            self._invoked_before.append(latest)

    def invoked_below(self, end: int) -> int:
        """When the last of the appends below `end` was sent."""
        count = bisect_left(self.offsets, end)
        return self._invoked_before[count - 1] if count else 0

    def is_amid_batch(self, offset: int) -> bool:
        before, after = self.values.get(offset - 1), self.values.get(offset)
        return None not in (before, after) and self.sender.get(before or b"", 0) is self.sender.get(after or b"", 1)


def check_log(history: Iterable[LogOperation], final: Mapping[int, bytes | None]) -> list[str]:
    """What is wrong with the history of one partition, given all that finally stands there: the value at each offset, None for
    a record that is none of a client's (a control record). An empty list when all is well."""
    appends: list[Operation[Append]] = []
    reads: list[Operation[Read]] = []
    ends: list[Operation[End]] = []
    for operation in history:
        match operation.action:
            case Append():
                appends.append(operation)  # type: ignore[arg-type]
            case Read() if operation.outcome is Outcome.OK:
                reads.append(operation)  # type: ignore[arg-type]
            case End() if operation.outcome is Outcome.OK:
                ends.append(operation)  # type: ignore[arg-type]
    complaints = _Complaints()
    log = _Log(final, appends)
    _check_contents(log, complaints)
    standing = _check_appends(log, appends, complaints)
    _check_order(standing, complaints)
    _check_producers(standing, complaints)
    _check_reads(log, reads, complaints)
    _check_freshness(log, appends, reads, ends, complaints)
    _check_views(reads, ends, complaints)
    return complaints.found


def _check_contents(log: _Log, complaints: _Complaints) -> None:
    for offset in range(log.start, log.end):
        if offset not in log.values:
            complaints.add("gap", f"nothing stands at offset {offset}, between {log.start} and {log.end}")
    for offset in log.offsets:
        value = log.values[offset]
        assert value is not None
        if value not in log.sender:
            complaints.add("invented", f"{value!r} at offset {offset} was never sent")
        if log.offset_of[value] != offset:
            complaints.add(
                "doubled", f"{value!r} stands at offsets {log.offset_of[value]} and {offset}: {log.sender.get(value)}"
            )


def _check_appends(
    log: _Log, appends: Sequence[Operation[Append]], complaints: _Complaints
) -> list[tuple[int, Operation[Append]]]:
    """The appends that stand in the log, with their offsets, ascending."""
    standing: list[tuple[int, Operation[Append]]] = []
    for operation in appends:
        where = [log.offset_of.get(value) for value in operation.action.values]
        fault = _fault_of(log, operation, where)
        if fault is not None:
            complaints.add(fault, f"{operation} stands at {where}")
        if where[0] is not None:
            standing.append((where[0], operation))
    return sorted(standing, key=lambda row: row[0])


def _fault_of(log: _Log, operation: Operation[Append], where: Sequence[int | None]) -> str | None:
    base = operation.action.base_offset
    present = [offset for offset in where if offset is not None]
    if operation.outcome is Outcome.FAILED:
        return "refused, yet there" if present else None
    if (base is not None and base < log.start) or (where[0] is None and present and present[0] == log.start > 0):
        # Retention took it, or its beginning.
        return None
    if not present:
        return "lost" if operation.outcome is Outcome.OK else None
    first = present[0]
    if list(where) != list(range(first, first + len(where))):
        return "torn"
    return "not where it was acknowledged" if base is not None and base != first else None


def _check_order(standing: Sequence[tuple[int, Operation[Append]]], complaints: _Complaints) -> None:
    """What was acknowledged before another append was sent stands before it."""
    latest: Operation[Append] | None = None
    for offset, operation in standing:
        if latest is not None and operation.outcome is Outcome.OK and operation.returned_at < latest.invoked_at:
            complaints.add("reordered", f"{operation} stands at {offset}, behind {latest} which was sent after its answer")
        if latest is None or operation.invoked_at > latest.invoked_at:
            latest = operation


def _check_producers(standing: Sequence[tuple[int, Operation[Append]]], complaints: _Complaints) -> None:
    last_of: dict[str, Operation[Append]] = {}
    for offset, operation in standing:
        producer = operation.action.producer
        if producer is None:
            continue
        last = last_of.get(producer)
        if last is not None and last.action.sequence >= operation.action.sequence:
            complaints.add("producer's order", f"{operation} stands at {offset}, behind {last}")
        last_of[producer] = operation


def _check_reads(log: _Log, reads: Sequence[Operation[Read]], complaints: _Complaints) -> None:
    for operation in reads:
        read = operation.action
        for offset, value in read.records:
            if offset >= log.start and log.values.get(offset) != value:
                complaints.add("another record", f"{value!r} was read at {offset}, where {log.values.get(offset)!r} stands")
            if offset < read.start or (read.high_watermark is not None and offset >= read.high_watermark):
                complaints.add("not asked for", f"offset {offset} in {operation}")
            sender = log.sender.get(value)
            if sender is not None and sender.invoked_at > operation.returned_at:
                complaints.add("read before it was sent", f"{value!r} at {offset}: {operation}, {sender}")
        if not read.records or read.start < log.start:
            continue
        first = bisect_left(log.offsets, read.start)
        shown = [offset for offset, _ in read.records]
        if shown != log.offsets[first : first + len(shown)]:
            complaints.add("records left out", f"offsets {shown[0]} to {shown[-1]} of {operation}")


def _check_freshness(
    log: _Log,
    appends: Sequence[Operation[Append]],
    reads: Sequence[Operation[Read]],
    ends: Sequence[Operation[End]],
    complaints: _Complaints,
) -> None:
    """A linearizable end covers every append acknowledged, every end proven and every high watermark shown before it was
    asked, and nothing that was sent only after it was answered."""
    facts: list[tuple[int, int, object]] = [
        (append.returned_at, append.action.base_offset + len(append.action.values), append)
        for append in appends
        if append.outcome is Outcome.OK and append.action.base_offset is not None
    ]
    facts += [(end.returned_at, end.action.offset, end) for end in ends]
    facts += [(read.returned_at, read.action.high_watermark or 0, read) for read in reads]

    def check(end: Operation[End], floor: int, by: object) -> None:
        if end.action.offset < floor:
            complaints.add("stale", f"{end}, but {floor} had been reached before it was asked: {by}")
        if end.action.offset > log.end:
            complaints.add("beyond the log", f"{end}, but the log ends at {log.end}")
        if log.is_amid_batch(end.action.offset):
            complaints.add("amid a batch", f"{end}")
        if log.invoked_below(min(end.action.offset, log.end)) > end.returned_at:
            complaints.add("from the future", f"{end} covers appends that were sent after it was answered")

    _sweep(facts, ends, check)


def _check_views(reads: Sequence[Operation[Read]], ends: Sequence[Operation[End]], complaints: _Complaints) -> None:
    facts: dict[str, list[tuple[int, int, object]]] = {}
    by_view: dict[str, list[Operation[Read]]] = {}
    for end in ends:
        facts.setdefault(end.action.view, []).append((end.returned_at, end.action.offset, end))
    for read in reads:
        if read.action.high_watermark is not None:
            facts.setdefault(read.action.view, []).append((read.returned_at, read.action.high_watermark, read))
            by_view.setdefault(read.action.view, []).append(read)

    def check(read: Operation[Read], floor: int, by: object) -> None:
        if (read.action.high_watermark or 0) < floor:
            complaints.add("high watermark went back", f"{read.action.view}: {floor} in {by}, then {read}")

    for view, shown in by_view.items():
        if view:
            _sweep(facts[view], shown, check)


def _sweep(
    facts: Sequence[tuple[int, int, object]], asked: Sequence[Operation[T]], check: Callable[[Operation[T], int, object], None]
) -> None:
    """Call `check` for each operation with the highest of the facts (time, offset, why) from before it was asked."""
    ordered = sorted(facts, key=lambda fact: fact[0])
    floor, upto, by = 0, 0, object()
    for operation in sorted(asked, key=lambda operation: operation.invoked_at):
        while upto < len(ordered) and ordered[upto][0] < operation.invoked_at:
            if ordered[upto][1] > floor:
                _, floor, by = ordered[upto]
            upto += 1
        check(operation, floor, by)
