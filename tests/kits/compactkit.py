"""Logs to be compacted: batches one after the other, a pass over them, and what a naive reader makes of either."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batch_header import BatchHeader, iterate_headers, require_crc
from raftlake.wire.batches import EndMarker, Record, build_batch, decode_batch, end_marker_batch, leader_change_batch
from raftlake.wire.compaction import KeyMap, Rewriter

SALT = b"0123456789abcdef"
NOW_MS = 1_700_000_000_000
RETENTION_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as the wire modules see it."""

    until: int
    dirty_from: int = 0
    now_ms: int = NOW_MS
    delete_retention_ms: int = RETENTION_MS
    tombstones_below: int = 1 << 62
    aborted: tuple[AbortedTransaction, ...] = ()
    last_batches: frozenset[int] = frozenset()
    last_markers: frozenset[tuple[int, int]] = frozenset()
    unsettled: frozenset[int] = frozenset()
    keys_max: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    batches: list[bytes]
    clean_until: int
    records_removed: int
    next_horizon_ms: int | None


class LogInTheMaking:
    """Batches at contiguous offsets, in one leader epoch after another."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.epoch = 1
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}

    def data(self, *records: tuple[str | None, str | None] | Record, time_ms: int = NOW_MS, **fields: object) -> int:
        """Append a batch of (key, value) pairs. Returns its base offset."""
        made = [each if isinstance(each, Record) else _record(each) for each in records]
        producer = int(fields.get("producer_id", -1))  # type: ignore[call-overload]
        if fields.get("transactional"):
            self._open.setdefault(producer, self.end)
        batch = build_batch(made, base_offset=self.end, leader_epoch=self.epoch, timestamp_ms=time_ms, **fields)  # type: ignore[arg-type]
        return self._append(bytes(batch))

    def marker(self, producer_id: int, *, commit: bool, producer_epoch: int = 0, time_ms: int = NOW_MS) -> int:
        first = self._open.pop(producer_id, None)
        if first is not None and not commit:
            stable = min(self._open.values(), default=self.end + 1)
            self.aborted.append(AbortedTransaction(producer_id, first, self.end, stable))
        marker = EndMarker(producer_id=producer_id, epoch=producer_epoch, commit=commit, coordinator_epoch=0)
        return self._append(bytes(end_marker_batch(marker, time_ms, base_offset=self.end, leader_epoch=self.epoch)))

    def leader_change(self, epoch: int) -> int:
        self.epoch = epoch
        return self._append(bytes(leader_change_batch(self.end, epoch, NOW_MS, 1, [1, 2, 3], [1, 2])))

    def _append(self, batch: bytes) -> int:
        base, self.end = self.end, header_of(batch).end_offset
        self.batches.append(batch)
        return base


def _record(pair: tuple[str | None, str | None]) -> Record:
    key, value = (None if text is None else text.encode() for text in pair)
    return Record(key=key, value=value)


def header_of(batch: bytes) -> BatchHeader:
    (header,) = iterate_headers(batch)
    require_crc(memoryview(batch), header)
    return header


def compact(batches: Sequence[bytes], asked: Asked, *, segment_ends: Iterable[int] = ()) -> Passed:
    """One pass. Groups of segments end at `segment_ends`. All batches below `until` are rewritten, the others stay."""
    keys = KeyMap(asked, SALT)
    below = [batch for batch in batches if header_of(batch).base_offset < asked.until]
    for batch in below:
        if not keys.add(batch, header_of(batch)):
            break
    rewriter, ends, out = Rewriter(keys, asked), set(segment_ends), []
    for batch in below:
        out += rewriter.rewrite(batch, header_of(batch))
        if header_of(batch).end_offset in ends:
            out += rewriter.end_segment()
    out += rewriter.end_segment()
    return Passed(
        batches=out + list(batches[len(below) :]),
        clean_until=keys.clean_until,
        records_removed=rewriter.records_removed,
        next_horizon_ms=rewriter.next_horizon_ms,
    )


def records_in(batches: Iterable[bytes], *, include_control: bool = False) -> list[Record]:
    found: list[Record] = []
    for batch in batches:
        header = header_of(batch)
        if include_control or not header.is_control:
            found += decode_batch(batch, header)
    return found


def shown(batches: Iterable[bytes]) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of the data records."""
    return [
        (each.offset, None if each.key is None else each.key.decode(), None if each.value is None else each.value.decode())
        for each in records_in(batches)
    ]


def require_whole(before: Sequence[bytes], after: Sequence[bytes]) -> None:
    """Offsets are contiguous as before, and each offset has its epoch. `AssertionError` otherwise."""
    assert _epochs(before) == _epochs(after)
    ends = [header_of(batch).end_offset for batch in after]
    bases = [header_of(batch).base_offset for batch in after]
    assert bases[1:] == ends[:-1]


def _epochs(batches: Iterable[bytes]) -> dict[int, int]:
    found: dict[int, int] = {}
    for header in map(header_of, batches):
        found.update(dict.fromkeys(range(header.base_offset, header.end_offset), header.leader_epoch))
    return found
