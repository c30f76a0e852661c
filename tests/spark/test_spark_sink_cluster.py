"""The sink on a standalone cluster: each row is visible once, whoever is killed, and however many attempts a task has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectorkit import JAVA, PYTHON
from raftlake import Client
from spark.clusterstory import OF_THE_DRIVER, Story, cluster, directory, hooks, own_quorum
from sparkcluster import SparkCluster
from visiblekit import visible
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import LocalQuorum

__all__ = ["cluster", "directory", "hooks", "own_quorum"]
pytestmark = pytest.mark.cluster

JOB = Path(__file__).with_name("sink_cluster_job.py")
ROWS = 4_000
#: Batches to stop in, and some more; with slow tasks a few are enough.
BATCHES, SLOW_BATCHES = 16, 4
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


class Copy(Story):
    """`slow`: seconds that the first attempt of each batch's first task waits."""

    def __init__(
        self, name: str, directory: Path, quorum: LocalQuorum, cluster: SparkCluster, hooks: Path, format: str, slow: float
    ) -> None:
        self.attempts = directory / f"{name}-attempts"
        self.attempts.mkdir()
        batches = SLOW_BATCHES if slow else BATCHES
        facts = {"per_trigger": ROWS // batches, "format": format, "slow": slow, "attempts": str(self.attempts)}
        super().__init__(name, JOB, directory, quorum, cluster, hooks, SPECULATION if slow else {}, **facts)
        self.values = [f"v{number:05d}" for number in range(ROWS)]
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic(name, 3)
            client.create_topic(f"{name}-out", 2)
            client.append_many(name, [(value, value) for value in self.values])

    def require_exact(self) -> None:
        """All rows once, and nothing that would keep readers waiting."""
        with Client(self.quorum.bootstrap_servers) as client:
            assert sorted(visible(client, f"{self.name}-out")) == self.values
            wait_until(lambda: not client.open_transactions("raftlake-sink."), "the end of all transactions", 60)


@pytest.fixture
def story(
    directory: Path, own_quorum: LocalQuorum, cluster: SparkCluster, hooks: Path
) -> Iterator[Callable[[str, str, float], Copy]]:
    told: list[Copy] = []

    def begin(name: str, format: str, slow: float) -> Copy:
        told.append(Copy(name, directory, own_quorum, cluster, hooks, format, slow))
        return told[-1]

    yield begin
    for one in told:
        one.close()


@pytest.mark.parametrize("format", [JAVA, PYTHON], ids=["java", "python"])
@pytest.mark.parametrize(("name", "phases"), [("driver", OF_THE_DRIVER), ("tasks", ("rows",))])
def test_each_row_is_visible_once_whoever_is_killed(
    story: Callable[[str, str, float], Copy], name: str, phases: tuple[str, ...], format: str
) -> None:
    told = story(f"sink-{name}-{format}", format, 0)
    told.kill_whoever_in(phases)
    assert told.await_end(told.drivers[-1]) == ""
    told.require_exact()


@pytest.mark.parametrize("format", [JAVA, PYTHON], ids=["java", "python"])
def test_each_row_is_visible_once_with_speculation(story: Callable[[str, str, float], Copy], format: str) -> None:
    """The first attempt of a task is slow in each batch, so that Spark runs a second one beside it on the other host."""
    told = story(f"sink-slow-{format}", format, 4.0)
    assert told.await_end(told.start_driver(stops=False)) == ""
    assert list(told.attempts.iterdir()), "no task had a second attempt"
    told.require_exact()
