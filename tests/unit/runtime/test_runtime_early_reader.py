"""The worker that reads the tier for a node that joins: which nodes start it before they are imported themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlake.runtime import early_reader
from raftlake.runtime.early_reader import start_early_reader
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.tier.calls import TierSettings

TIER = {"tier.uri": "/tables", "tier.request.timeout.ms": "7000"}
JOINS = {"quorum.bootstrap.servers": "127.0.0.1:9"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[TierSettings]:
    """What workers were started with."""
    started: list[TierSettings] = []
    monkeypatch.setattr(early_reader, "WorkerProcess", started.append)
    return started


def settings_of(directory: Path, **more: str) -> Settings:
    given = {"node.id": "4", "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", **more}
    return load_settings(None, overrides=[f"{name}={value}" for name, value in given.items()])


def test_a_node_that_joins_with_a_tier_starts_its_reader(tmp_path: Path, started: list[TierSettings]) -> None:
    format_data_dir(tmp_path, 4, "the-cluster")
    start_early_reader(settings_of(tmp_path, **JOINS, **TIER))
    assert started == [TierSettings(uri="/tables", cluster_id="the-cluster", request_seconds=7.0)]


def test_other_nodes_start_none(tmp_path: Path, started: list[TierSettings]) -> None:
    format_data_dir(tmp_path / "joins", 4, "the-cluster")
    assert start_early_reader(settings_of(tmp_path / "joins", **JOINS)) is None
    voters = {"quorum.voters": "4@127.0.0.1:9"}
    assert start_early_reader(settings_of(tmp_path / "joins", **voters, **TIER)) is None
    format_data_dir(tmp_path / "unknown", 4, None)
    assert start_early_reader(settings_of(tmp_path / "unknown", **JOINS, **TIER)) is None
    assert start_early_reader(settings_of(tmp_path / "not formatted", **JOINS, **TIER)) is None
    (tmp_path / "joins" / "orders-0").mkdir()
    assert start_early_reader(settings_of(tmp_path / "joins", **JOINS, **TIER)) is None
    assert started == []


def test_a_reader_that_cannot_be_started_is_no_error_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    format_data_dir(tmp_path, 4, "the-cluster")

    def fail(settings: TierSettings) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(early_reader, "WorkerProcess", fail)
    assert start_early_reader(settings_of(tmp_path, **JOINS, **TIER)) is None
