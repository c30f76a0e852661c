"""The process that opens doubtful files first: it survives what is no Parquet, and begins anew where a file has ended it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raftlake.tier.probe import Probe


def test_a_probe_survives_files_of_any_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"offset": [1, 2]}), tmp_path / "good.parquet")
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with Probe(str(tmp_path), {}) as probe:
        assert all(probe.survives(name) for name in ("good.parquet", "other.parquet", "text.parquet", "nothing.parquet"))
        process = probe._process
    assert process is not None and process.returncode is not None


def test_a_file_that_ends_the_process_is_told_and_the_next_one_is_opened(tmp_path: Path) -> None:
    pq.write_table(pa.table({"offset": [1, 2]}), tmp_path / "good.parquet")
    with Probe(str(tmp_path), {}, "tier_ending_probe") as probe:
        said = [probe.survives(name) for name in ("good.parquet", "deadly.parquet", "deadly.parquet", "good.parquet")]
    assert said == [True, False, False, True]


def test_a_store_that_cannot_be_opened_is_no_process_that_waits(tmp_path: Path) -> None:
    with Probe(str(tmp_path / "nowhere"), {}) as probe:
        assert not probe.survives("x.parquet")


def test_options_of_the_store_stand_on_no_command_line(tmp_path: Path) -> None:
    """Every user of a machine may read those."""
    with Probe(str(tmp_path), {"secret_access_key": "pa55"}) as probe:
        probe.survives("x.parquet")
        assert probe._process is not None
        line = Path(f"/proc/{probe._process.pid}/cmdline").read_bytes()
    assert b"raftlake.tier.probe" in line and b"pa55" not in line


def test_no_process_is_started_without_need(tmp_path: Path) -> None:
    with Probe(str(tmp_path), {}) as probe:
        pass
    assert probe._process is None
