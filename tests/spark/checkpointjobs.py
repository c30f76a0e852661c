"""Spark jobs with checkpoints, each in a process of its own: `checkpoint_job.py` until its input is read, and `fencing_job.py`
until it is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driverprocess import DriverProcess

if TYPE_CHECKING:
    from raftlake import LocalQuorum

JOB = Path(__file__).with_name("checkpoint_job.py")
FENCING_JOB = Path(__file__).with_name("fencing_job.py")


def run_job(quorum: LocalQuorum, provider: str, directory: Path, *locations: str) -> dict[str, Any]:
    results = directory / "results.json"
    command = [sys.executable, str(JOB), quorum.bootstrap_servers, quorum.http_servers, provider, str(results)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, str(directory / "input"), str(directory), *locations],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(results.read_text(encoding="utf-8")))


def write(directory: Path, name: str, words: str) -> None:
    (directory / name).write_text("\n".join(words.split()) + "\n", encoding="utf-8")


class Driver(DriverProcess):
    """A driver process, and what it has told."""

    def __init__(self, quorum: LocalQuorum, provider: str, location: str, source: Path, directory: Path) -> None:
        arguments = (quorum.bootstrap_servers, quorum.http_servers, provider, location, str(source))
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        super().__init__(FENCING_JOB, *arguments, directory=directory, environment=environment)

    @property
    def batches(self) -> list[tuple[int, dict[str, int]]]:
        lines = (line.split(" ", 1) for line in (self.text("batches") or "").splitlines())
        return [(int(number), json.loads(counts)) for number, counts in lines]
