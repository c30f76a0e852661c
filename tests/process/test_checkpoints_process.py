"""`raftlake checkpoints` against real nodes: a checkpoint with large files goes in, is copied, comes out, and is deleted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import checkpointkit as kit

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.process

MAIN, FORK, MOVED = (f"raftlake://processed/{name}" for name in ("main", "fork", "moved"))


def run(quorum: LocalQuorum, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", "checkpoints", *arguments, "-b", quorum.bootstrap_servers, "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def told(quorum: LocalQuorum, *arguments: str) -> Any:
    done = run(quorum, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_checkpoint_with_large_files(quorum: LocalQuorum, tmp_path: Path) -> None:
    from raftlake import Client

    files = kit.stateful(6, snapshots=(3, 6)) | {"state/0/0/large": bytes(range(256)) * 6000, "state/0/1/middle": bytes(80_000)}
    directory = kit.to_directory(files, tmp_path / "in")
    assert told(quorum, "import", str(directory), MAIN)["batch"] == 5
    assert told(quorum, "fork", MAIN, FORK, "--batch", "2")["batch"] == 2
    assert told(quorum, "rewind", FORK, "--batch", "1")["files"] > 0
    assert told(quorum, "rename", MAIN, MOVED)["files"] == len(files)
    assert [row["path"] for row in told(quorum, "list", "raftlake://processed")] == [FORK, MOVED]
    shown = told(quorum, "show", MOVED)
    assert shown["blobs"] == 2
    assert shown["bytes"] == sum(map(len, files.values()))
    told(quorum, "export", MOVED, str(tmp_path / "out"))
    assert kit.from_directory(tmp_path / "out") == files
    refused = run(quorum, "fork", MOVED, "raftlake://processed/none", "--batch", "6")
    assert refused.returncode == 1
    assert refused.stderr.startswith("raftlake: raftlake://processed/moved: a query cannot go on behind batch 6")
    for path in (MOVED, FORK):
        told(quorum, "delete", path, "--yes")
    with Client(quorum.bootstrap_servers) as client:
        assert not client.kv.list("/fs/processed").entries
        assert not client.kv.list("/fs-blobs/processed").entries
        records = [
            record
            for partition in client.partitions("__raftlake-blobs")
            for record in client.read("__raftlake-blobs", partition, 0, max_wait_ms=0, max_bytes=64 << 20)
        ]
    # Of each chunk, of both copies, a record and its tombstone.
    written = {record.key for record in records if record.value is not None}
    assert written == {record.key for record in records if record.value is None}
    assert len(written) == 2 * (3 + 1)
