"""Spark's own Kafka connector (kafka-clients 3.9.2) on our nodes: batch write, batch read, streaming read, as a drop-in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = pytest.mark.spark

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".cache" / "spark-kafka-4.2.0"


def test_spark_s_kafka_connector_works_unchanged(quorum: LocalQuorum, new_topic: Callable[..., str], tmp_path: Path) -> None:
    assert (JARS / "complete").exists(), "run tools/fetch-kafka first (make test-spark does)"
    arguments = [quorum.bootstrap_servers, new_topic(4), str(tmp_path / "checkpoint"), str(JARS)]
    command = [sys.executable, str(HERE / "spark_kafka_job.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False, cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    result = json.loads(done.stdout.splitlines()[-1])
    expected = result["expected"]
    assert result == {
        "rows": expected, "wrong": 0, "offsets": expected, "keys": expected, "streamed": expected,
        "batches": result["batches"], "expected": expected,
    }  # fmt: skip
    assert result["batches"] >= 4
