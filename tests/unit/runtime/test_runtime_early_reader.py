"""The worker that reads the tier for a node that joins: which nodes start it before they are imported themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from raftlake.runtime import early_reader
from raftlake.runtime.early_reader import start_early_reader
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.tier.calls import TierSettings

TIER = {"tier.uri": "/tables", "tier.request.timeout.ms": "7000"}
JOINS = {"quorum.bootstrap.servers": "127.0.0.1:9"}


class Reader:
    """What a worker was told, and whether it was killed."""

    started: ClassVar[list[Reader]] = []
    #: What its start, or its settings, raise.
    start_error: ClassVar[OSError | None] = None
    tell_error: ClassVar[OSError | None] = None

    def __init__(self) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.started.append(self)
        self.told: list[TierSettings] = []
        self.is_killed = False

    def tell(self, settings: TierSettings) -> None:
        if self.tell_error is not None:
            raise self.tell_error
        self.told.append(settings)

    def kill(self) -> None:
        self.is_killed = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    """The workers that were started."""
    monkeypatch.setattr(early_reader, "WorkerProcess", Reader)
    monkeypatch.setattr(Reader, "started", [])
    return Reader.started


def settings_of(directory: Path, **more: str) -> Settings:
    given = {"node.id": "4", "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", **more}
    return load_settings(None, overrides=[f"{name}={value}" for name, value in given.items()])


def test_a_node_that_joins_with_a_tier_starts_its_reader(tmp_path: Path, started: list[Reader]) -> None:
    format_data_dir(tmp_path, 4, "the-cluster")
    reader = start_early_reader(settings_of(tmp_path, **JOINS, **TIER))
    assert started == [reader] and not started[0].is_killed
    assert started[0].told == [TierSettings(uri="/tables", cluster_id="the-cluster", request_seconds=7.0)]


def test_other_nodes_start_none(tmp_path: Path, started: list[Reader]) -> None:
    format_data_dir(tmp_path / "joins", 4, "the-cluster")
    assert start_early_reader(settings_of(tmp_path / "joins", **JOINS)) is None
    voters = {"quorum.voters": "4@127.0.0.1:9"}
    assert start_early_reader(settings_of(tmp_path / "joins", **voters, **TIER)) is None
    assert start_early_reader(settings_of(tmp_path / "not there", **JOINS, **TIER)) is None
    (tmp_path / "joins" / "orders-0").mkdir()
    assert start_early_reader(settings_of(tmp_path / "joins", **JOINS, **TIER)) is None
    assert started == []


def test_where_no_cluster_is_known_yet_the_reader_ends(tmp_path: Path, started: list[Reader]) -> None:
    """Its tables would be refused as those of another cluster."""
    format_data_dir(tmp_path / "unknown", 4, None)
    assert start_early_reader(settings_of(tmp_path / "unknown", **JOINS, **TIER)) is None
    (tmp_path / "not formatted").mkdir()
    assert start_early_reader(settings_of(tmp_path / "not formatted", **JOINS, **TIER)) is None
    assert [(each.told, each.is_killed) for each in started] == [([], True)] * 2


@pytest.mark.parametrize(("what", "readers"), [("start_error", 0), ("tell_error", 1)])
def test_a_reader_that_cannot_be_started_is_no_error_yet(
    tmp_path: Path, started: list[Reader], monkeypatch: pytest.MonkeyPatch, what: str, readers: int
) -> None:
    format_data_dir(tmp_path, 4, "the-cluster")
    monkeypatch.setattr(Reader, what, OSError(11, "no more processes"))
    assert start_early_reader(settings_of(tmp_path, **JOINS, **TIER)) is None
    assert [each.is_killed for each in started] == [True] * readers


def test_the_reader_starts_before_storage_and_engine_are_imported() -> None:
    program = "import sys, raftlake.runtime.early_reader; print(list(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "'raftlake.runtime.tier_process'" in done.stdout
    assert not {"raftlake.storage", "raftlake.replica.engine", "numpy"} & set(done.stdout.split("'"))
