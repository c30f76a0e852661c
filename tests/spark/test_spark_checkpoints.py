"""Checkpoints at `raftlake://` through Spark's default file manager: the same as a local one, restarts included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkpointjobs import run_job, write

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("provider", ["RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"])
def test_a_stateful_query_goes_on_from_the_quorum(quorum: LocalQuorum, client: Client, tmp_path: Path, provider: str) -> None:
    pipeline = provider.lower()
    ours, local = f"raftlake://{pipeline}/main", str(tmp_path / "checkpoint")
    files = tmp_path / "input"
    files.mkdir()
    write(files, "1.txt", "a b a")
    write(files, "2.txt", "b c")
    first = run_job(quorum, provider, tmp_path, ours, local)
    assert first[ours]["counts"] == {"a": 2, "b": 2, "c": 1}
    assert first[ours] == first[local]
    write(files, "3.txt", "c c d")
    write(files, "4.txt", "a")
    again = run_job(quorum, provider, tmp_path, ours, local)
    # Only new batches ran, on the state of the old ones.
    assert again[ours]["counts"] == {"a": 3, "b": 2, "c": 3, "d": 1}
    assert again[ours] == again[local]
    assert not set(again[ours]["batches"]) & set(first[ours]["batches"])
    keys = [entry.key for entry in client.kv.list(f"/fs/{pipeline}/main/").entries]
    names = {key.removeprefix(f"/fs/{pipeline}/main/") for key in keys}
    assert {"metadata", "offsets/0", "commits/3", "offsets/3", "sources/0/0", "state/0/0"} <= names, names
    assert not [name for name in names if ".tmp" in name], "temporary files are left"
