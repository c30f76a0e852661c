"""The facts of a lineage where copies are many: what is asked, what is estimated, and lineages without rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, LINEAGE, data_batch, request_for, segment
from historykit import rewrite
from raftlake.ports.tier import CopyRequest, Lineage, LineageFacts, RemoteSegment
from raftlake.raft.types import Epoch, Offset
from raftlake.tier import lineage_facts
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.known_copies import KnownCopies
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.table_reads import TableReads
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


def fill(settings: TierSettings, *requests: CopyRequest) -> list[RemoteSegment]:
    tier = DeltaTier(settings)
    made = [tier.copy(request) for request in requests]
    assert all(isinstance(each, RemoteSegment) for each in made), made
    return [each for each in made if isinstance(each, RemoteSegment)]


def facts_of(settings: TierSettings, of: Any = LINEAGE) -> LineageFacts:
    found = TableReads(settings).facts(of)
    assert isinstance(found, LineageFacts), found
    return found


def test_few_copies_are_asked_and_the_bytes_of_the_others_are_estimated(
    settings: TierSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(settings, *(segment(3 * n, f"s{n:02}", count=3) for n in range(12)))
    monkeypatch.setattr(lineage_facts, "_ASKED_MAX", 3)
    monkeypatch.setattr(lineage_facts, "NEWEST", 2)
    asked: list[str] = []
    beside = KnownCopies.beside

    def counted(copies: KnownCopies, segment_id: str) -> Any:
        asked.append(segment_id)
        return beside(copies, segment_id)

    monkeypatch.setattr(KnownCopies, "beside", counted)
    found = facts_of(settings)
    assert asked == ["s00", "s04", "s08", "s11", "s10"]
    real = sum(each.log_bytes for each in made)
    assert (found.segments, found.newest) == (12, tuple(made[-2:]))
    assert abs(found.log_bytes - real) <= real // 20


def test_epochs_of_one_file_are_those_beside_it(settings: TierSettings) -> None:
    batches = [data_batch(3 * n, epoch) for n, epoch in enumerate((1, 2, 2, 5))]
    (made,) = fill(settings, request_for(b"".join(batches), "a", 6))
    Store(table_uri(settings.uri, GROUP), {}).discard([made.file])
    assert facts_of(settings).epochs == ((1, 0), (2, 3), (5, 9))


def test_the_epoch_of_a_batch_whose_beginning_is_gone_does_not_count(settings: TierSettings) -> None:
    """OPTIMIZE cut a file amid it, and retention ended what came before. A key with two epochs at one offset cannot be read."""
    batches = [data_batch(3 * n, epoch) for n, epoch in enumerate((1, 2, 4))]
    fill(settings, request_for(b"".join(batches), "a", 5))
    rewrite(settings, lambda rows: rows.slice(2))
    found = facts_of(settings)
    assert (found.start_offset, found.end_offset, found.epochs) == (3, 9, ((2, 3), (4, 6)))


def test_a_lineage_of_which_all_is_deleted_has_its_end(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"))
    assert DeltaTier(settings).delete(LINEAGE, Epoch(7), Offset(6)) == 6
    found = facts_of(settings, GROUP)
    assert (found.start_offset, found.end_offset, found.leader_epoch) == (6, 6, 7)
    assert (found.segments, found.size, found.log_bytes, found.epochs, found.newest) == (0, 0, 0, (), ())


def test_the_newest_incarnation_is_found_where_only_its_transaction_is_left(settings: TierSettings) -> None:
    third = Lineage(GROUP, 3)
    fill(settings, segment(0, "a"), segment(6, "b", lineage=third))
    assert DeltaTier(settings).delete(third, Epoch(5), Offset(12)) == 12
    assert facts_of(settings, GROUP).lineage == third


def test_incarnations_in_one_file_are_told_apart(settings: TierSettings) -> None:
    again = Lineage(GROUP, 1)
    fill(settings, segment(0, "a", epoch=2), segment(6, "b", epoch=3), segment(12, "c", epoch=8, lineage=again))
    DeltaTable(table_uri(settings.uri, GROUP)).optimize.compact()
    assert facts_of(settings).epochs == ((2, 0), (3, 6))
    assert facts_of(settings, again).epochs == ((2, 0), (3, 6), (8, 12))
