"""The examples run as they stand, as separate programs, against real nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlake import LocalQuorum

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.process
def test_append_and_read(quorum: LocalQuorum) -> None:
    lines = run_example("append_and_read.py", quorum.bootstrap_servers)
    assert lines == ["appended at offset 1: on disk at a majority", "offset 1: b'example' -> b'hello'"]


@pytest.mark.process
def test_lease(quorum: LocalQuorum) -> None:
    lines = run_example("lease.py", quorum.bootstrap_servers, "worker-1")
    assert len(lines) == 2
    assert lines[0].startswith("worker-1 holds the lease, version ")
    assert lines[1] == "released"


@pytest.mark.process
def test_kafka_client(quorum: LocalQuorum) -> None:
    lines = run_example("kafka_client.py", quorum.bootstrap_servers)
    assert lines == [f"offset {number + 1}: message {number}" for number in range(10)]


@pytest.mark.spark
def test_spark_totals(quorum: LocalQuorum, tmp_path: Path) -> None:
    lines = run_example("spark_totals.py", quorum.bootstrap_servers, str(tmp_path / "checkpoint"))
    assert lines == ["alice: 20.00", "bob: 3.00"]
