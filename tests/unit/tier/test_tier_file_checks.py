"""The rules for the files of a partition, each alone: which can be read, and which are what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from historykit import SEGMENTS, fill, lineage, root_of
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.file_checks import FileChecks
from raftlake.tier.findings import Findings, Kind
from raftlake.tier.probe import Probe
from raftlake.tier.reader import TopicHistory
from tierkit import local_settings

PARTITION = 2


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    settings = local_settings(tmp_path)
    fill(settings, (PARTITION,))
    return settings


def path_of(number: int) -> str:
    return f"partition={PARTITION}/p{PARTITION}s{number}.parquet"


def checked(settings: TierSettings, *wanted: str) -> tuple[FileChecks, Findings, list[str]]:
    """After a look at all files: the checks, what they found, and which files were told of."""
    history = TopicHistory(str(root_of(settings)))
    findings = Findings(history.uri, PARTITION)
    told: list[str] = []
    with Probe(history.uri, history.storage_options) as probe:
        checks = FileChecks(history, findings, probe, wanted)
        checks.check(history.files(PARTITION), lambda file: told.append(file.path))
    return checks, findings, told


def test_files_as_they_were_written_are_good_and_each_is_told_of(settings: TierSettings) -> None:
    checks, findings, told = checked(settings)
    assert list(findings) == [] and checks.bad == [] and not checks.is_rewritten
    assert sorted(told) == sorted(file.path for file in checks.good) == [path_of(number) for number in range(len(SEGMENTS))]


def test_size_and_checksum_are_told_of_the_files_that_the_keys_name(settings: TierSettings) -> None:
    checks, _, _ = checked(settings, path_of(1), "partition=2/other.parquet")
    assert list(checks.shown) == [path_of(1)]
    assert checks.shown[path_of(1)].size == (root_of(settings) / path_of(1)).stat().st_size


@pytest.mark.parametrize("number", range(len(SEGMENTS)))
@pytest.mark.parametrize("how", ["gone", "shorter"])
def test_a_file_that_cannot_be_read_is_bad_and_the_others_stay_good(settings: TierSettings, number: int, how: str) -> None:
    file = root_of(settings) / path_of(number)
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    checks, findings, _ = checked(settings)
    assert [bad.path for bad in checks.bad] == [path_of(number)] and len(checks.good) == len(SEGMENTS) - 1
    (finding,) = findings
    assert (finding.kind, finding.file) == (Kind.FILE, path_of(number))


def test_a_file_without_the_facts_beside_it_is_told_and_still_read(settings: TierSettings) -> None:
    (root_of(settings) / f"_raftlake/p{PARTITION}s1.aux").unlink()
    checks, findings, _ = checked(settings)
    (finding,) = findings
    assert "is missing" in finding.what and finding.file == path_of(1)
    assert len(checks.good) == len(SEGMENTS) and not checks.is_rewritten


@pytest.mark.parametrize("also", ["", "the Parquet file too"])
def test_what_retention_removes_while_a_table_is_read_is_no_fault(settings: TierSettings, also: str) -> None:
    """Readers of old versions keep the Parquet file. What lies beside it goes at once: one look in three was a false alarm."""
    history = TopicHistory(str(root_of(settings)))
    files = history.files(PARTITION)
    tier = DeltaTier(settings)
    assert tier.delete(lineage(PARTITION), Epoch(50), Offset(SEGMENTS[1][0][0])) == SEGMENTS[1][0][0]
    (root_of(settings) / f"_raftlake/p{PARTITION}s0.aux").unlink(missing_ok=True)
    if also:
        (root_of(settings) / path_of(0)).unlink()
    findings = Findings(history.uri, PARTITION)
    with Probe(history.uri, history.storage_options) as probe:
        checks = FileChecks(history, findings, probe)
        checks.check(files, lambda _: None)
    assert list(findings) == []
    assert [file.path for file in checks.bad] == ([path_of(0)] if also else [])
