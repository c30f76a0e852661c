"""The version of a table to restore, where the newest one ends too early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from contract.file_faults import without_sync
from contract.tier_contract import GROUP, LINEAGE, segment
from historykit import root_of
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.later_version import version_that_reaches
from raftlake.tier.topic_table import TopicTable
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    for request in (segment(0, "a"), segment(6, "b"), segment(12, "c")):
        assert isinstance(tier.copy(request), RemoteSegment)
    return settings


def version(settings: TierSettings, reach: int, incarnation: int = 0) -> int | None:
    table = TopicTable(settings, GROUP, may_create=False)
    table.refresh()
    return version_that_reaches(table, replace(LINEAGE, incarnation=incarnation), Offset(reach))


@pytest.mark.parametrize("reach", [1, 6, 7, 18])
def test_the_newest_version_before_the_change_counts(settings: TierSettings, reach: int) -> None:
    newest = DeltaTable(root_of(settings)).version()
    DeltaTable(root_of(settings)).restore(newest - 2)
    assert version(settings, reach) == newest


def test_of_two_changes_the_first_one_counts(settings: TierSettings) -> None:
    newest = DeltaTable(root_of(settings)).version()
    for _ in range(2):
        DeltaTable(root_of(settings)).restore(newest - 2)
    assert version(settings, 18) == newest


def test_no_version_reaches_behind_all_copies(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).restore(1)
    assert version(settings, 19) is None


def test_copies_of_another_history_do_not_count(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).restore(1)
    assert version(settings, 18, incarnation=1) is None


def test_a_commit_that_is_gone_ends_the_search(settings: TierSettings) -> None:
    table = TopicTable(settings, GROUP, may_create=False)
    newest = DeltaTable(root_of(settings)).version()
    DeltaTable(root_of(settings)).restore(1)
    table.refresh()
    (Path(root_of(settings)) / "_delta_log" / f"{newest:020}.json").unlink()
    assert version_that_reaches(table, LINEAGE, Offset(18)) is None
