"""The sink under kills of its driver, failing tasks, a second driver and a killed leader: each row is visible once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driverprocess import DriverProcess

from connectorkit import JAVA, PYTHON
from raftlake import Client, LocalQuorum
from visiblekit import visible
from waitkit import wait_until

pytestmark = pytest.mark.cluster

JOB = Path(__file__).with_name("sink_job.py")
#: A driver on a busy machine, up to its first batch.
START_S = 120
#: A checkpoint in the quorum. Others lie on the local disk.
IN_QUORUM = "raftlake://killed/main"
#: The connectors of both drivers: a query may change between them. And where the checkpoint lies.
PAIRS = pytest.mark.parametrize(
    ("before", "after", "checkpoint"),
    [(PYTHON, PYTHON, None), (JAVA, JAVA, None), (PYTHON, JAVA, None), (JAVA, JAVA, IN_QUORUM)],
    ids=["python", "java", "python-java", "java-checkpoint-in-quorum"],
)


class Driver(DriverProcess):
    """A driver process, and what it has told."""

    def __init__(self, quorum: LocalQuorum, checkpoint: str, name_of_format: str, directory: Path) -> None:
        # No PYSPARK_PYTHON, and no activated environment: `configure` has to do.
        environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
        arguments = (quorum.bootstrap_servers, checkpoint, name_of_format)
        super().__init__(JOB, *arguments, directory=directory, environment=environment)

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
        self.checkpoint = str(directory / "checkpoint")
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
        self._drivers.append(Driver(self.quorum, self.checkpoint, name_of_format, self._directory / name))
        return self._drivers[-1]

    def committed(self) -> dict[str, Any]:
        query = self._drivers[0].text("query")
        entry = self.client.kv.get(f"/sinks/apps/{query}/batch") if query else None
        return {"batch": -1, "run": None} if entry is None else json.loads(entry.value or b"{}")

    def wait_for_run(self, driver: Driver) -> None:
        wait_until(lambda: self.committed()["run"] == driver.text("run") is not None, "a batch of this driver", START_S)

    def require_all(self, driver: Driver) -> None:
        """All rows once, also when the driver has stopped; and nothing is left open."""
        wait_until(lambda: len(visible(self.client, "out")) >= len(self.values), "all rows", START_S)
        assert driver.stop() == ""
        assert sorted(visible(self.client, "out")) == self.values
        wait_until(lambda: not self.client.open_transactions("raftlake-sink."), "the end of all transactions", 60)


@pytest.fixture
def story(own_quorum: LocalQuorum, tmp_path: Path, drivers: list[Driver]) -> Iterator[Story]:
    with Client(own_quorum.bootstrap_servers) as client:
        yield Story(own_quorum, client, tmp_path, drivers)


@PAIRS
def test_a_batch_whose_driver_dies_behind_its_commit_is_not_written_again(
    story: Story, before: str, after: str, checkpoint: str | None
) -> None:
    """Spark has not noted the batch down, and repeats it."""
    story.checkpoint = checkpoint or story.checkpoint
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
def test_a_driver_that_wakes_up_beside_a_newer_one_is_told_so(
    story: Story, before: str, after: str, checkpoint: str | None
) -> None:
    story.checkpoint = checkpoint or story.checkpoint
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
    ends = (
        f"no longer owns the sink of {first.text('query')}",
        "no longer owns this checkpoint",
        "CONCURRENT_STREAM_LOG_UPDATE",
    )
    assert any(each in told for each in ends), told
    story.append(20)
    story.require_all(second)
