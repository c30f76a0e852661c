"""The sink under kills of its driver, failing tasks, a second driver and a killed leader: each row is visible once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlake import Client, LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("sink_job.py")
ROWS = 120
#: A driver on a busy machine, up to its first batch.
START_S = 180


class Driver:
    """A driver process, and what it has told."""

    def __init__(self, quorum: LocalQuorum, checkpoint: Path, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        self._output = (directory / "output").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(JOB), quorum.bootstrap_servers, str(checkpoint), str(directory)],
            cwd=directory,
            # No PYSPARK_PYTHON, and no activated environment: `configure` has to do.
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "PATH": "/usr/local/bin:/usr/bin:/bin"},
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def text(self, name: str) -> str | None:
        file = self.directory / name
        return file.read_text(encoding="utf-8") if file.exists() else None

    def signal(self, number: signal.Signals) -> None:
        """To the process and to its JVM."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def stop(self) -> str:
        """Why the query has ended; empty where it was told to."""
        (self.directory / "stop").touch()
        wait_until(lambda: self.text("error") is not None, "the end of the query", 60)
        return self.text("error") or ""


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as started:
        yield started


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def test_each_row_is_visible_once_whatever_is_killed(own_quorum: LocalQuorum, tmp_path: Path, drivers: list[Driver]) -> None:
    with Client(own_quorum.bootstrap_servers) as client:
        client.create_topic("in", 3)
        client.create_topic("out", 2)
        values = [f"v{number:04d}" for number in range(ROWS)]

        def append(first: int, end: int) -> None:
            client.append_many("in", [(value, value) for value in values[first:end]])

        def start(name: str) -> Driver:
            drivers.append(Driver(own_quorum, tmp_path / "checkpoint", tmp_path / name))
            return drivers[-1]

        def committed() -> dict[str, Any]:
            query = drivers[0].text("query")
            entry = client.kv.get(f"/sinks/apps/{query}/batch") if query else None
            return json.loads(entry.value or b"{}") if entry is not None else {"batch": -1}

        append(0, ROWS // 4)
        # 1. Paused while tasks have written, and nothing is committed.
        first = start("first")
        wait_until(lambda: committed()["batch"] >= 0, "a batch of the first driver", START_S)
        append(ROWS // 4, ROWS // 2)
        wait_until(lambda: bool(client.open_transactions("raftlake-sink.")), "rows that nobody has committed", 60)
        first.signal(signal.SIGSTOP)
        before = committed()["batch"]
        # 2. Killed as soon as a batch is committed in the quorum, before Spark has noted it down.
        append(ROWS // 2, ROWS * 3 // 4)
        second = start("second")
        wait_until(lambda: committed()["run"] == second.text("run"), "a batch of the second driver", START_S)
        second.kill()
        assert committed()["batch"] >= before
        # 3. The leader of the metadata log; then the first driver wakes up beside the third.
        third = start("third")
        append(ROWS * 3 // 4, ROWS)
        leader = own_quorum.leader()
        own_quorum.kill(leader)
        own_quorum.start(leader)
        wait_until(lambda: committed()["run"] == third.text("run"), "a batch of the third driver", START_S)
        first.signal(signal.SIGCONT)
        wait_until(lambda: first.text("error") is not None, "the end of the first driver", START_S)
        told = first.text("error") or ""
        assert f"no longer owns the sink of {first.text('query')}" in told or "CONCURRENT_STREAM_LOG_UPDATE" in told, told
        wait_until(lambda: sorted(visible(client)) == values, "all rows", START_S)
        assert third.stop() == ""
        assert sorted(visible(client)) == values
        wait_until(lambda: not client.open_transactions("raftlake-sink."), "the end of all transactions", 60)


def visible(client: Client) -> list[str]:
    """What readers of committed records are shown, in front of the ends as they are now."""
    found: list[str] = []
    for partition, end in client.read_stable_offset("out").items():
        offset = 0
        while offset < end:
            fetched = client.read("out", partition, offset, max_wait_ms=100)
            found += [(record.value or b"").decode() for record in fetched]
            if not fetched:
                break
            offset = fetched[-1].offset + 1
    return found
