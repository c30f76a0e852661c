"""`raftlake tier undo`: what it says before and after, and that it changes nothing without a yes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from contract.file_faults import without_sync
from historykit import fill, root_of, verify
from raftlake.cli import main as cli
from raftlake.tier.calls import TierSettings
from raftlake.tier.store_log import LEVELS, VARIABLE
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    settings = local_settings(tmp_path)
    fill(settings)
    return settings


def undo(settings: TierSettings, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["tier", "undo", str(root_of(settings)), *arguments])


def version(settings: TierSettings) -> int:
    return DeltaTable(root_of(settings)).version()


def test_what_is_to_be_done_is_told_and_a_yes_does_it(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete("offset = 9")
    asked = undo(settings)
    assert asked.exit_code != 0 and version(settings) == 5
    assert "partition 2, changed since version 5, DELETE, 20" in asked.stdout
    assert "goes: partition=2/" in asked.stdout and "comes back: partition=2/p2s1.parquet" in asked.stdout
    assert verify(settings) != []
    done = undo(settings, "--yes")
    assert done.exit_code == 0 and "taken back" in done.stdout
    assert verify(settings) == []


def test_a_table_that_nobody_changed(settings: TierSettings) -> None:
    told = undo(settings, "--yes")
    assert told.exit_code == 0 and told.stdout.startswith("nothing to take back") and version(settings) == 4


def test_many_files_are_counted(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.cli.tier_undo._NAMED_MAX", 2)
    DeltaTable(root_of(settings)).delete()
    assert "comes back: 2 more files" in undo(settings).stdout


def test_a_place_without_a_table_is_an_error(tmp_path: Path) -> None:
    told = CliRunner().invoke(cli.app, ["tier", "undo", str(tmp_path)])
    assert told.exit_code != 0 and "no Delta table" in str(told.exception) and "below it" not in str(told.exception)


def test_the_place_of_all_tables_is_no_table(settings: TierSettings) -> None:
    told = CliRunner().invoke(cli.app, ["tier", "undo", settings.uri])
    assert told.exit_code != 0 and "there are tables below it: give one of them" in str(told.exception)


def test_delta_rs_is_told_to_be_quiet(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    undo(settings)
    assert os.environ.pop(VARIABLE) == LEVELS
