"""Formatting a data directory: idempotent, and never over another node's data."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlake.errors import ConfigError, StorageError, WrongState
from raftlake.runtime.format import format_data_dir


def test_formats_once(tmp_path: Path) -> None:
    directory = tmp_path / "node-1"
    first = format_data_dir(directory, 1, "the-cluster")
    content = (directory / "meta.properties").read_text()
    assert "node.id=1" in content and "cluster.id=the-cluster" in content
    assert format_data_dir(directory, 1, "the-cluster") == format_data_dir(directory, 1) == first
    assert (directory / "meta.properties").read_text() == content


def test_refuses_a_foreign_directory(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1, "mine")
    before = (tmp_path / "meta.properties").read_bytes()
    with pytest.raises(WrongState, match=r"for node\.id=1; it cannot become node\.id=2"):
        format_data_dir(tmp_path, 2, "mine")
    with pytest.raises(WrongState, match=r"for cluster\.id=mine; it cannot become cluster\.id=other"):
        format_data_dir(tmp_path, 1, "other")
    assert (tmp_path / "meta.properties").read_bytes() == before


def test_a_directory_without_a_cluster_keeps_the_one_that_its_quorum_will_choose(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1)
    with pytest.raises(WrongState, match="for no cluster yet"):
        format_data_dir(tmp_path, 1, "late")


@pytest.mark.parametrize("cluster_id", ["", "with space", "x" * 65, "a\nb=c"])
def test_refuses_a_cluster_id_that_cannot_be_written(tmp_path: Path, cluster_id: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.id=.*accepted are 1 to 64"):
        format_data_dir(tmp_path / "x", 1, cluster_id)
    assert not (tmp_path / "x").exists()


def test_refuses_an_impossible_node_id(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.id=-1: out of range"):
        format_data_dir(tmp_path, -1)


def test_says_which_file_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    with pytest.raises(StorageError, match=r"meta\.properties cannot be used: version is '9'"):
        format_data_dir(tmp_path, 1)


def test_a_path_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot look at .*File name too long"):
        format_data_dir(tmp_path / ("a" * 5_000), 1)
