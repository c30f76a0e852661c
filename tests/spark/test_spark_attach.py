"""A session that gets the jar while it runs: the connector in Java takes over the name there, without another option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark
JOB = Path(__file__).with_name("attach_job.py")


def test_a_session_that_runs_already(quorum: LocalQuorum, client: Client, tmp_path: Path) -> None:
    for topic in ("attached", "copied", "updates"):
        client.create_topic(topic, 2)
    # The job has to find the nodes by what `attach` was told.
    unset = ("RAFTLAKE_BOOTSTRAP_SERVERS", "PYSPARK_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, str(JOB), quorum.bootstrap_servers, "attached", "copied", str(tmp_path)],
        cwd=tmp_path,
        env=environment | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["found"] == {"attached": list(range(20)), "copied": list(range(20))}
    assert told["before"] == "refused", "without the jar it is the connector in Python"
    assert told["after"] == "ended"
