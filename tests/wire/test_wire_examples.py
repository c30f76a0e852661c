"""The examples run as they stand, as separate programs, against real nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waitkit import wait_until

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
    # Control records of the partition's leader and voters stand before the first one.
    appended = re.fullmatch(r"appended at offset (\d+): on disk at a majority", lines[0])
    assert appended is not None
    assert lines[1:] == [f"offset {appended[1]}: b'example' -> b'hello'"]


@pytest.mark.process
def test_lease(quorum: LocalQuorum) -> None:
    lines = run_example("lease.py", quorum.bootstrap_servers, "worker-1")
    assert len(lines) == 2
    assert lines[0].startswith("worker-1 holds the lease, version ")
    assert lines[1] == "released"


@pytest.mark.process
def test_kafka_client(quorum: LocalQuorum) -> None:
    lines = run_example("kafka_client.py", quorum.bootstrap_servers)
    # In a row, but for the control record of a leader that comes in between.
    offsets = [int(line.removeprefix("offset ").partition(":")[0]) for line in lines]
    assert offsets == sorted(set(offsets))
    assert lines == [f"offset {offset}: message {number}" for number, offset in enumerate(offsets)]
    assert len(lines) == 10


@pytest.mark.spark
def test_spark_totals(quorum: LocalQuorum, tmp_path: Path) -> None:
    lines = run_example("spark_totals.py", quorum.bootstrap_servers, str(tmp_path / "checkpoint"))
    assert lines == ["alice: 20.00", "bob: 3.00"]


@pytest.mark.spark
def test_stateful_pipeline(quorum: LocalQuorum) -> None:
    first = run_example("stateful_pipeline.py", quorum.bootstrap_servers)
    assert first == ["batch 0: alice has 2 orders for 20.00", "batch 0: bob has 1 orders for 3.00"]
    # The state of the first run, whose process is gone, is the beginning of the second.
    second = run_example("stateful_pipeline.py", quorum.bootstrap_servers)
    assert second == ["batch 1: alice has 4 orders for 40.00", "batch 1: bob has 2 orders for 6.00"]


@pytest.mark.spark
def test_spark_history(tmp_path: Path) -> None:
    from raftlake import LocalQuorum

    jars = sorted((EXAMPLES.parent / ".cache" / "spark-delta-4.4.0").glob("*.jar"))
    assert jars, "run tools/fetch-kafka"
    settings = {"tier.uri": str(tmp_path / "tables"), "tier.target.lag.ms": "1000"}
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings=settings) as tiered:
        lines = run_example("spark_history.py", tiered.bootstrap_servers, str(tmp_path / "checkpoint"), *map(str, jars))
    assert lines == ["alice orders for 1.00, and for 20.00 before", "carol orders for 9.00, and for 0.00 before"]


@pytest.mark.cluster
def test_spark_exactly_once(tmp_path: Path) -> None:
    """Killed behind the first commit of the table, and so before or behind that of the topic; then started again."""
    from raftlake import LocalQuorum

    jars = sorted((EXAMPLES.parent / ".cache" / "spark-delta-4.4.0").glob("*.jar"))
    assert jars, "run tools/fetch-kafka"
    table = tmp_path / "table"
    with LocalQuorum(3, data_dir=tmp_path / "quorum") as quorum:
        arguments = [quorum.bootstrap_servers, str(tmp_path / "checkpoint"), str(table), *map(str, jars)]
        command = [sys.executable, str(EXAMPLES / "spark_exactly_once.py"), *arguments]
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_until(lambda: len(list(table.glob("_delta_log/*.json"))) >= 2, "the second commit of the table", 180)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
        lines = run_example("spark_exactly_once.py", *arguments)
    assert lines[-2:] == ["table: 200 payments, 200 different ones", "topic: 100 large payments, 100 different ones"]
