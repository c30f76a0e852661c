"""An executor that takes over a partition of state: with a standby it reads the snapshot from its own disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.spark

JOB = Path(__file__).resolve().parents[1] / "kits/standbyjob.py"
KEYS, BEHIND, NEW = 50_000, 2, 1000


def lose_an_executor_and_the_snapshots(quorum: LocalQuorum, directory: Path, standby: int) -> dict[str, Any]:
    """The place of large files is moved away before the executor is: then snapshots are on disks of executors or nowhere."""
    blobs = directory / "blobs"
    facts = {
        "bootstrap": quorum.bootstrap_servers,
        "http": quorum.http_servers,
        "directory": str(directory / f"standby-{standby}"),
        "standby": standby,
        "keys": KEYS,
        "behind": BEHIND,
        "new": NEW,
        "lose": str(blobs),
        "settings": {"spark.hadoop.raftlake.fs.base.uri": f"file:{blobs}"},
    }
    done = subprocess.run(
        [sys.executable, str(JOB), json.dumps(facts)],
        cwd=directory,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_partition_is_taken_over_from_the_copies(quorum: LocalQuorum, tmp_path: Path) -> None:
    found = lose_an_executor_and_the_snapshots(quorum, tmp_path, 100_000_000)
    assert found["rows"] == KEYS + BEHIND * NEW + 5
    assert found["copied"] > 0
    assert found["replayed"] == BEHIND, "the versions behind the snapshot"


@pytest.mark.cluster
def test_without_a_standby_the_partition_comes_from_its_changes(quorum: LocalQuorum, tmp_path: Path) -> None:
    """Spark finds no snapshot that it can read, and replays all versions since the first: the test above can fail."""
    found = lose_an_executor_and_the_snapshots(quorum, tmp_path, 0)
    assert found["rows"] == KEYS + BEHIND * NEW + 5
    assert found["copied"] == 0
    assert found["replayed"] == 2 * BEHIND + 1
