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

from connectorkit import JAVA, PYTHON
from raftlake import Client, LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.cluster

JOB = Path(__file__).with_name("sink_job.py")
#: A driver on a busy machine, up to its first batch.
START_S = 120
#: The connectors of both drivers: a query may change between them.
PAIRS = pytest.mark.parametrize(
    ("before", "after"), [(PYTHON, PYTHON), (JAVA, JAVA), (PYTHON, JAVA)], ids=["python", "java", "python-java"]
)


class Driver:
    """A driver process, and what it has told."""

    def __init__(self, quorum: LocalQuorum, checkpoint: Path, directory: Path, name_of_format: str) -> None:
        directory.mkdir()
        self.directory = directory
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        self._output = (directory / "output").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(JOB), quorum.bootstrap_servers, str(checkpoint), str(directory), name_of_format],
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


class Story:
    """Topics, a checkpoint, drivers one after another, and what is visible."""

    def __init__(self, quorum: LocalQuorum, client: Client, directory: Path, drivers: list[Driver]) -> None:
        self.quorum = quorum
        self.client = client
        self._directory = directory
        self._drivers = drivers
        client.create_topic("in", 3)
        client.create_topic("out", 2)
        self.values: list[str] = []

    def append(self, count: int) -> None:
        more = [f"v{number:04d}" for number in range(len(self.values), len(self.values) + count)]
        self.client.append_many("in", [(value, value) for value in more])
        self.values += more

    def start(self, name: str, name_of_format: str) -> Driver:
        checkpoint, directory = self._directory / "checkpoint", self._directory / name
        self._drivers.append(Driver(self.quorum, checkpoint, directory, name_of_format))
        return self._drivers[-1]

    def committed(self) -> dict[str, Any]:
        query = self._drivers[0].text("query")
        entry = self.client.kv.get(f"/sinks/apps/{query}/batch") if query else None
        return {"batch": -1, "run": None} if entry is None else json.loads(entry.value or b"{}")

    def wait_for_run(self, driver: Driver) -> None:
        wait_until(lambda: self.committed()["run"] == driver.text("run") is not None, "a batch of this driver", START_S)

    def require_all(self, driver: Driver) -> None:
        """All rows once, also when the driver has stopped; and nothing is left open."""
        wait_until(lambda: len(visible(self.client)) >= len(self.values), "all rows", START_S)
        assert driver.stop() == ""
        assert sorted(visible(self.client)) == self.values
        wait_until(lambda: not self.client.open_transactions("raftlake-sink."), "the end of all transactions", 60)


@pytest.fixture
def story(own_quorum: LocalQuorum, tmp_path: Path, drivers: list[Driver]) -> Iterator[Story]:
    with Client(own_quorum.bootstrap_servers) as client:
        yield Story(own_quorum, client, tmp_path, drivers)


@PAIRS
def test_a_batch_whose_driver_dies_behind_its_commit_is_not_written_again(story: Story, before: str, after: str) -> None:
    """Spark has not noted the batch down, and repeats it."""
    story.append(60)
    first = story.start("first", before)
    wait_until(lambda: story.committed()["batch"] >= 1, "two batches of the first driver", START_S)
    first.kill()
    story.append(20)
    second = story.start("second", after)
    story.wait_for_run(second)
    leader = story.quorum.leader()
    story.quorum.kill(leader)
    story.append(20)
    story.quorum.start(leader)
    story.require_all(second)


@PAIRS
def test_a_driver_that_wakes_up_beside_a_newer_one_is_told_so(story: Story, before: str, after: str) -> None:
    story.append(20)
    first = story.start("first", before)
    story.wait_for_run(first)
    story.append(20)
    wait_until(lambda: bool(story.client.open_transactions("raftlake-sink.")), "rows that nobody has committed", 60)
    first.signal(signal.SIGSTOP)
    story.append(20)
    second = story.start("second", after)
    story.wait_for_run(second)
    first.signal(signal.SIGCONT)
    wait_until(lambda: first.text("error") is not None, "the end of the first driver", START_S)
    told = first.text("error") or ""
    assert f"no longer owns the sink of {first.text('query')}" in told or "CONCURRENT_STREAM_LOG_UPDATE" in told, told
    story.append(20)
    story.require_all(second)


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
