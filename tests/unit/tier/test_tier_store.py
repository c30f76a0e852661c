"""Files beside a table: sizes and checksums, what is missing, what is synced on a local path, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c

from raftlake.tier.store import Store, local_path, sink


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/data/tier", "/data/tier"),
        ("file:///data/a%20b", "/data/a b"),
        ("s3://bucket/tier", None),
        ("abfss://c@a.dfs.core.windows.net/x", None),
    ],
)
def test_local_paths(uri: str, path: str | None) -> None:
    assert local_path(uri) == (None if path is None else Path(path))


def test_files_come_back(tmp_path: Path) -> None:
    store = Store(str(tmp_path), {})
    store.write("_raftlake/a.aux", b"content")
    assert (store.read("_raftlake/a.aux"), store.size("_raftlake/a.aux")) == (b"content", 7)
    assert store.checksum("_raftlake/a.aux") == crc32c(b"content")
    assert (store.read("none"), store.size("none"), store.size("_raftlake")) == (None, None, None)
    store.discard(["_raftlake/a.aux", "none"])
    assert store.read("_raftlake/a.aux") is None


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    store = Store(str(tmp_path), {})
    file = store.create("partition=0/a.parquet")
    written = sink(file)
    written.write(b"some")
    written.write(pa.py_buffer(b" bytes"))
    written.close()
    assert (file.size, file.crc, file.closed) == (10, crc32c(b"some bytes"), True)
    assert store.read("partition=0/a.parquet") is None
    file.finish()
    assert store.read("partition=0/a.parquet") == b"some bytes"


def test_a_file_and_the_directories_above_it_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"file://{tmp_path}", {})
    store.write("a/b", b"x")
    store.write("c", b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    store.sync(["a/b"], where_there=["c", "d"])
    paths = [tmp_path / "a/b", tmp_path / "c", tmp_path, tmp_path / "a", tmp_path, tmp_path.parent]
    assert synced[:2] == [str(path) for path in paths[:2]]
    assert set(synced) == {str(path) for path in paths}
    with pytest.raises(FileNotFoundError):
        store.sync(["d"])


def test_an_object_store_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("memory:///x", {})
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("synced"))
    store.sync(["a"])
