"""Tables of any segments, rewritten or not, and one fault in each: `verify` finds it, and nothing where there is none."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import strategies as st

from contract.file_faults import without_sync
from contract.tier_contract import data_batch, request_for
from historykit import all_rows, at_rest, keys_of, lineage, rewrite, root_of, verify, with_value
from raftlake.ports.tier import RemoteSegment
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.findings import Kind
from tierkit import local_settings

#: For each copy the batches: their records, and by how much the epoch is higher than before.
copies = st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=4), min_size=1, max_size=4)
rewrites = st.sampled_from(("as written", "compact", "z_order offset", "z_order timestamp"))


def fill(settings: TierSettings, copies: list[list[tuple[int, int]]]) -> list[RemoteSegment]:
    tier, base, epoch, made = DeltaTier(settings), 0, 1, []
    for number, batches in enumerate(copies):
        content = b""
        for count, step in batches:
            epoch += step
            content += data_batch(base, epoch, count=count)
            base += count
        segment = tier.copy(request_for(content, f"s{number}", 50, lineage()))
        assert isinstance(segment, RemoteSegment)
        made.append(segment)
    return made


def optimize(settings: TierSettings, how: str) -> None:
    optimizer = DeltaTable(root_of(settings)).optimize
    if how == "compact":
        optimizer.compact()
    elif how != "as written":
        optimizer.z_order([how.split()[1]])


def keep(rows: Any, row: int) -> Any:
    return rows.filter(pa.array([number != row for number in range(rows.num_rows)]))


def plant(settings: TierSettings, fault: str, row: int) -> None:
    """Somebody does something to the row or to its file."""
    match fault:
        case "gap":
            rewrite(settings, lambda rows: keep(rows, row))
        case "twice":
            rewrite(settings, lambda rows: pa.concat_tables([rows, rows.slice(row, 1)]))
        case "removed by SQL":
            DeltaTable(root_of(settings)).delete(f'"offset" = {row}')
        case "value":
            flipped = bytearray(all_rows(settings)["value"][row].as_py())
            flipped[-1] ^= 1
            rewrite(settings, lambda rows: with_value(rows, "value", row, bytes(flipped)))
        case "epoch":
            rewrite(settings, lambda rows: with_value(rows, "leader_epoch", row, 0))
        case "missing file" | "flipped byte":
            paths = sorted(root_of(settings) / Path(uri).relative_to(root_of(settings)) for uri in uris(settings))
            path = paths[row % len(paths)]
            content = bytearray(path.read_bytes())
            content[row * 7919 % len(content)] ^= 0x20
            path.unlink()
            if fault == "flipped byte":
                path.write_bytes(content)


def uris(settings: TierSettings) -> list[str]:
    return DeltaTable(root_of(settings)).file_uris()


#: The first row of the table is missed by its batch.
ROW_REMOVED = {Kind.GAP, Kind.BATCH, Kind.END, Kind.KEYS, Kind.CHANGED}
EXPECTED = {
    "gap": ROW_REMOVED,
    "removed by SQL": ROW_REMOVED,
    "twice": {Kind.TWICE},
    "value": {Kind.CRC},
    "epoch": {Kind.EPOCH, Kind.BATCH, Kind.KEYS, Kind.CHANGED},
    "missing file": {Kind.FILE},
    "flipped byte": {Kind.FILE},
}


@pytest.mark.parametrize("fault", EXPECTED)
@hypothesis.settings(max_examples=6, deadline=None)
@hypothesis.given(copies=copies, how=rewrites, data=st.data())
def test_a_fault_in_any_table_is_found(fault: str, copies: list[list[tuple[int, int]]], how: str, data: st.DataObject) -> None:
    if fault == "flipped byte":
        # The bytes of a file that somebody rewrote are nobody's promise; its rows are, and its CRCs.
        how = "as written"
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        without_sync(patch)
        settings = local_settings(Path(place))
        keys = at_rest(keys_of(fill(settings, copies)))
        optimize(settings, how)
        assert verify(settings, keys) == []
        rows = all_rows(settings).num_rows
        row = data.draw(st.integers(0, rows - 1))
        plant(settings, fault, row)
        found = verify(settings, keys)
        assert {finding.kind for finding in found} & EXPECTED[fault], found
        assert all(finding.partition == 2 and finding.table == str(root_of(settings)) for finding in found)
        if fault in ("value", "twice"):
            assert any(finding.offset is not None and finding.offset <= row < finding.offset + 5 for finding in found)
