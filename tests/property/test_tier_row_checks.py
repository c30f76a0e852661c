"""The rules for rows: whole segments of any kind break none, however they are cut into pieces, and each fault is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from raftlake.arrow.records import KernelLoader, decode_segment, segment_schema
from raftlake.tier.findings import Finding, Findings
from raftlake.tier.ordered_rows import Rows
from raftlake.tier.row_checks import PartitionCheck
from raftlake.wire.batches import Record, build_batch, parse_header
from raftlake.wire.compression import Compression
from recordways import COMPILED, PLAIN

payloads = st.one_of(st.none(), st.binary(max_size=6))
headers = st.lists(st.tuples(st.text(max_size=2), st.one_of(st.none(), st.binary(max_size=2))), max_size=2).map(tuple)
records = st.lists(st.builds(Record, st.just(0), st.integers(0, 1 << 41), payloads, payloads, headers), min_size=1, max_size=6)


@st.composite
def histories(draw: st.DrawFn, *, plain: bool = False) -> Any:
    """The rows of consecutive segments of one partition."""
    offset, epoch, tables = draw(st.integers(0, 1 << 40)), draw(st.integers(1, 5)), []
    for number in range(draw(st.integers(1, 3))):
        batches: list[bytearray] = []
        for content in draw(st.lists(records, min_size=1, max_size=4)):
            epoch += draw(st.integers(0, 2))
            batches.append(
                build_batch(
                    content,
                    base_offset=offset,
                    leader_epoch=epoch,
                    timestamp_ms=-1,
                    compression="none" if plain else draw(st.sampled_from([codec.name.lower() for codec in Compression])),
                    control=draw(st.booleans()),
                    log_append_time=draw(st.booleans()),
                    producer_id=draw(st.integers(-1, 5)),
                )
            )
            offset += len(content)
        ends = parse_header(batches[0]).base_offset, parse_header(batches[-1]).end_offset
        rows = decode_segment(
            b"".join(batches),
            topic="t",
            partition=3,
            segment_id=f"s{number}",
            incarnation=0,
            base_offset=ends[0],
            end_offset=ends[1],
            loader=PLAIN,
        )
        tables.append(pa.Table.from_batches(rows, segment_schema()))
    return pa.concat_tables(tables).combine_chunks()


cuts = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def check(rows: Any, sizes: Sequence[int], loader: KernelLoader = PLAIN, wanted: Sequence[str] = ()) -> PartitionCheck:
    found = PartitionCheck("t", Findings("table", 3), wanted, loader)
    start, index = 0, 0
    while start < rows.num_rows:
        piece = rows.slice(start, sizes[index % len(sizes)])
        (batch,) = piece.combine_chunks().to_batches()
        # Files change within pieces and between them.
        origins = np.arange(start, start + batch.num_rows) // 5 % 2
        found.add(Rows(batch, ("a", "b"), origins))
        start, index = start + batch.num_rows, index + 1
    found.finish()
    return found


@pytest.mark.parametrize("newest", [0, 1, 2])
@pytest.mark.parametrize("size", [2, 10])
def test_an_incarnation_goes_back_only_where_a_later_one_brought_rows_back(newest: int, size: int) -> None:
    """Offsets 2 and 3 are of incarnation 1, those around them of incarnation 0."""
    batches = [
        build_batch([Record(value=b"v")] * 2, base_offset=base, leader_epoch=1, timestamp_ms=5) for base in range(0, 6, 2)
    ]
    decoded = [
        rows
        for number, batch in enumerate(batches)
        for rows in decode_segment(
            bytes(batch), topic="t", partition=3, segment_id=f"s{number}", incarnation=number % 2, base_offset=2 * number,
            end_offset=2 * number + 2, loader=PLAIN,
        )
    ]  # fmt: skip
    rows = pa.Table.from_batches(decoded, segment_schema())
    found = PartitionCheck("t", Findings("table", 3), newest_incarnation=newest)
    for start in range(0, rows.num_rows, size):
        (batch,) = rows.slice(start, size).combine_chunks().to_batches()
        found.add(Rows(batch, ("a",)))
    found.finish()
    told = [(each.kind.word, each.offset) for each in findings(found)]
    assert told == ([] if newest == 2 else [("epoch", 4)])


def findings(found: PartitionCheck) -> list[Finding]:
    return list(found._findings)


def firsts(found: PartitionCheck) -> dict[str, int | None]:
    """The lowest offset of each kind of finding."""
    told = sorted(findings(found), key=lambda finding: -(finding.offset or 0))
    return {finding.kind.word: finding.offset for finding in told}


@hypothesis.given(histories(), cuts, st.sampled_from((PLAIN, COMPILED)))
def test_whole_histories_break_no_rule(rows: Any, sizes: list[int], loader: KernelLoader) -> None:
    names = rows["segment_id"].unique().to_pylist()
    found = check(rows, sizes, loader, names)
    assert findings(found) == []
    offsets, bases = rows["offset"].to_pylist(), rows["batch_base_offset"].unique().to_pylist()
    assert (found.rows, found.first, found.next) == (len(offsets), offsets[0], offsets[-1] + 1)
    assert (found.batches, found.segments, found.last_of) == (len(bases), len(names), {0: offsets[-1]})
    codecs = dict(zip(rows["batch_base_offset"].to_pylist(), rows["batch_attributes"].to_pylist(), strict=True))
    assert found.checked_batches == sum(not attributes & (7 | 1 << 16) for attributes in codecs.values())
    for name in names:
        own = rows.filter(pa.compute.equal(rows["segment_id"], name))
        span = found.spans[name]
        assert (span.first, span.last) == (own["offset"][0].as_py(), own["offset"][-1].as_py())
        epochs = dict(zip(reversed(own["leader_epoch"].to_pylist()), reversed(own["offset"].to_pylist()), strict=True))
        assert sorted(span.epochs) == sorted(epochs.items())


def removed(rows: Any, row: int) -> Any:
    return pa.concat_tables([rows.slice(0, row), rows.slice(row + 1)])


def doubled(rows: Any, row: int) -> Any:
    return pa.concat_tables([rows.slice(0, row + 1), rows.slice(row)])


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    def apply(rows: Any, row: int) -> Any:
        values = rows[name].to_pylist()
        values[row] = change(values[row])
        place = rows.schema.get_field_index(name)
        return rows.set_column(place, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))

    return apply


FAULTS: dict[str, tuple[Callable[[Any, int], Any], set[str]]] = {
    "removed": (removed, {"gap"}),
    "doubled": (doubled, {"twice"}),
    "value": (changed("value", lambda value: (value or b"") + b"x"), {"crc"}),
    "value null": (changed("value", lambda value: None if value is not None else b""), {"crc"}),
    "key": (changed("key", lambda key: b"y" + (key or b"")), {"crc"}),
    "header": (changed("headers", lambda found: [*(found or []), {"key": "z", "value": None}]), {"crc"}),
    "crc": (changed("batch_crc", lambda crc: crc ^ 1), {"crc", "batch"}),
    "epoch": (changed("leader_epoch", lambda epoch: 0), {"epoch", "batch"}),
    "producer": (changed("producer_id", lambda producer: producer ^ 64), {"crc", "batch"}),
    "base": (changed("batch_base_offset", lambda base: base + 1000), {"batch"}),
    "kind": (changed("kind", lambda kind: 1 - kind), {"batch"}),
    "topic": (changed("topic", lambda topic: "u"), {"foreign"}),
    "null": (changed("base_sequence", lambda sequence: None), {"foreign"}),
    "incarnation": (changed("incarnation", lambda incarnation: -1), {"epoch", "batch"}),
}


@pytest.mark.parametrize("what", FAULTS)
@hypothesis.settings(max_examples=25)
@hypothesis.given(rows=histories(plain=True), cuts=st.tuples(cuts, cuts), data=st.data())
def test_each_fault_is_found_however_rows_are_cut(
    what: str, rows: Any, cuts: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    plant, kinds = FAULTS[what]
    # What the first row says is compared with nothing, and the number of the last one with the table's `txn`.
    ends = (what in ("removed", "epoch", "incarnation"), rows.num_rows - 1 - (what == "removed"))
    hypothesis.assume(ends[0] <= ends[1])
    row = data.draw(st.integers(*ends))
    offset, base = rows["offset"][row].as_py(), rows["batch_base_offset"][row].as_py()
    damaged = plant(rows, row)
    found = firsts(check(damaged, cuts[0]))
    assert set(found) & kinds, f"nothing found of {what} in row {row}"
    assert all(base <= each <= offset + 1 for each in found.values() if each is not None)
    assert firsts(check(damaged, cuts[1])) == found == firsts(check(damaged, [10_000]))


@pytest.mark.parametrize("at", [3, 5])
def test_an_excused_range_is_no_gap(at: int) -> None:
    batches = [
        build_batch([Record(value=b"v")] * 2, base_offset=base, leader_epoch=1, timestamp_ms=5) for base in range(0, 10, 2)
    ]
    decoded = decode_segment(
        b"".join(batches), topic="t", partition=3, segment_id="s", incarnation=0, base_offset=0, end_offset=10, loader=PLAIN
    )
    rows = pa.Table.from_batches(decoded, segment_schema())
    found = PartitionCheck("t", Findings("table", 3))
    found.excused += [(4, 5), (2, 3)]
    (first,) = rows.slice(0, 2).to_batches()
    (rest,) = rows.slice(at + 1).to_batches()
    found.add(Rows(first, ("a",)))
    found.add(Rows(rest, ("b",)))
    found.finish()
    assert findings(found) == []
    assert found.is_excused(2, 5) and not found.is_excused(1, 5) and not found.is_excused(2, 6)


def test_nothing_at_all_breaks_no_rule() -> None:
    found = PartitionCheck("t", Findings("table", 3))
    found.add(Rows(pa.RecordBatch.from_pylist([], segment_schema()), ("a",)))
    found.finish()
    assert findings(found) == [] and (found.first, found.next, found.rows) == (None, None, 0)
