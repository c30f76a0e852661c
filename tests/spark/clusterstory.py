"""A query on a standalone cluster: its topic, its checkpoint in the quorum, and its drivers, one after the other.

Modules of tests take the fixtures `directory`, `own_quorum`, `cluster`, `hooks` and `close_all` from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcluster import Driver, SparkCluster, Stops, build_hooks
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import LocalQuorum

#: The phases of a micro-batch in which the driver works alone.
OF_THE_DRIVER = ("before-offsets", "after-offsets", "before-commits", "after-commits")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def own_quorum(directory: Path) -> Iterator[LocalQuorum]:
    """One whose leader may be killed."""
    from raftlake import LocalQuorum

    with LocalQuorum(nodes=3, data_dir=directory / "quorum") as started:
        yield started


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[SparkCluster]:
    with SparkCluster(directory / "spark") as started:
        yield started


@pytest.fixture(scope="module")
def hooks(directory: Path) -> Path:
    return build_hooks(directory)


class Story:
    """`facts` are those of the job, beside `topic`, `checkpoint` and `hooks`."""

    def __init__(
        self,
        name: str,
        job: Path,
        directory: Path,
        quorum: LocalQuorum,
        cluster: SparkCluster,
        hooks: Path,
        conf: Mapping[str, str],
        **facts: Any,
    ) -> None:
        self.name = name
        self.quorum = quorum
        self.cluster = cluster
        self.directory = directory / name
        self.directory.mkdir()
        self.stops = Stops(self.directory / "stops")
        self.drivers: list[Driver] = []
        self._job = job
        self._hooks = hooks
        self._conf = conf
        self._facts = facts

    def start_driver(self, *, stops: bool = True, master: str | None = None) -> Driver:
        facts = {
            "topic": self.name,
            "checkpoint": f"raftlake://{self.name}/main",
            "hooks": str(self.stops.directory) if stops else None,
            **self._facts,
        }
        self.drivers.append(
            Driver(
                self._job,
                self.directory / f"driver-{len(self.drivers)}",
                self.quorum,
                facts,
                master=master or self.cluster.url,
                conf=self._conf,
                hooks=self._hooks,
                stops=self.stops.directory if stops else None,
            )
        )
        return self.drivers[-1]

    def stop_at(self, phase: str) -> None:
        """Returns when somebody waits in that phase."""
        self.stops.want(phase)

        def reached() -> bool:
            driver = self.drivers[-1]
            assert driver.process.poll() is None and ended(driver) is None, f"{ended(driver)}\n{driver.output()[-4000:]}"
            return self.stops.is_reached()

        wait_until(reached, f"the phase {phase}", 150)

    def kill_whoever_in(self, phases: tuple[str, ...]) -> None:
        """In each phase of a micro-batch all executors and the quorum's leader die; in a later batch a worker and the driver
        do. A driver runs behind it."""
        self.start_driver()
        for phase in phases:
            self.stop_at(phase)
            self.cluster.kill_executors()
            leader = self.quorum.leader()
            self.quorum.kill(leader)
            self.stops.go_on()
            self.quorum.start(leader)
        for phase in phases:
            self.stop_at(phase)
            self.cluster.replace_worker()
            self.drivers[-1].end()
            self.stops.go_on()
            self.start_driver()

    def await_end(self, driver: Driver) -> str:
        """Why it ended: empty for the end of its input."""

        def told() -> bool:
            assert driver.process.poll() is None or ended(driver) is not None, driver.output()[-4000:]
            return ended(driver) is not None

        wait_until(told, "the end of the query", 200)
        driver.process.wait(timeout=60)
        return ended(driver) or ""

    def close(self) -> None:
        self.stops.give_up()
        for driver in self.drivers:
            driver.end()


def ended(driver: Driver) -> str | None:
    file = driver.directory / "ended"
    return file.read_text(encoding="utf-8") if file.exists() else None
