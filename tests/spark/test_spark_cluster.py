"""A stateful query on a standalone cluster while executors, workers, drivers and the quorum's leader are killed.

Its checkpoint is in the quorum. The kills come in each phase of a micro-batch, and the result is compared exactly with what
plain Python computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.clusterstory import OF_THE_DRIVER, Story, cluster, directory, hooks, own_quorum
from sparkcluster import SparkCluster, bare_submit

if TYPE_CHECKING:
    from raftlake import LocalQuorum

__all__ = ["cluster", "directory", "hooks", "own_quorum"]
pytestmark = pytest.mark.cluster

JOB, LIVE_JOB = (Path(__file__).with_name(name) for name in ("cluster_job.py", "live_job.py"))
PARTITIONS = 3
STATE_PARTITIONS = 8
KEYS = 200
ROWS = 12_000
#: Batches to stop in, and some more.
PER_TRIGGER = ROWS // 15
CONF = {"spark.sql.shuffle.partitions": str(STATE_PARTITIONS)}
#: The phases of a micro-batch between those of the driver: of tasks and of the sink.
OF_TASKS = ("before-state", "after-state", "sink")


class Counts(Story):
    """What the query's batches held, and what they had to hold."""

    def __init__(self, name: str, directory: Path, quorum: LocalQuorum, cluster: SparkCluster, hooks: Path) -> None:
        self.batches = directory / f"{name}-batches"
        self.batches.mkdir()
        facts = {"batches": str(self.batches), "per_trigger": PER_TRIGGER}
        super().__init__(name, JOB, directory, quorum, cluster, hooks, CONF, **facts)
        self.expected = new_topic_with_rows(quorum, name)

    def require_exact(self) -> None:
        """All rows are counted once, and batches that ran twice were the same."""
        numbers = sorted(int(file.name) for file in self.batches.iterdir() if file.name.isdigit())
        assert numbers == list(range(len(numbers)))
        assert not [file.name for file in self.batches.iterdir() if file.name.startswith("differs")]
        found: dict[str, tuple[int, int]] = {}
        for number in numbers:
            for key, rows, total in json.loads((self.batches / str(number)).read_text(encoding="utf-8")):
                found[key] = (rows, total)
        assert found == self.expected


def append_rows(quorum: LocalQuorum, topic: str, expected: dict[str, tuple[int, int]]) -> None:
    """Append to a topic, and add (rows, sum of the values) by key to `expected`, as plain Python counts them."""
    from confluent_kafka import Producer

    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": quorum.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20})
    for number in range(ROWS):
        # Some keys are in every batch, and some in few.
        key = f"key-{number * number % KEYS if number % 3 else number % 7}"
        value = (number * 7919) % 10_007 - 5_000
        rows, total = expected.get(key, (0, 0))
        expected[key] = (rows + 1, total + value)
        producer.produce(
            topic, key=key, value=str(value), on_delivery=lambda error, _: refused.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not refused, refused[:3]


def new_topic_with_rows(quorum: LocalQuorum, topic: str) -> dict[str, tuple[int, int]]:
    from confluent_kafka.admin import AdminClient

    from librdkit import create_topic

    create_topic(AdminClient({"bootstrap.servers": quorum.bootstrap_servers}), topic, PARTITIONS)
    expected: dict[str, tuple[int, int]] = {}
    append_rows(quorum, topic, expected)
    return expected


@pytest.fixture
def story(directory: Path, own_quorum: LocalQuorum, cluster: SparkCluster, hooks: Path) -> Iterator[Callable[[str], Counts]]:
    told: list[Counts] = []

    def begin(name: str) -> Counts:
        told.append(Counts(name, directory, own_quorum, cluster, hooks))
        return told[-1]

    yield begin
    for one in told:
        one.close()


@pytest.mark.parametrize(("name", "phases"), [("driver-killed", OF_THE_DRIVER), ("tasks-killed", OF_TASKS)])
def test_the_result_is_exact_whoever_is_killed_in_whatever_phase(
    story: Callable[[str], Counts], name: str, phases: tuple[str, ...]
) -> None:
    told = story(name)
    told.kill_whoever_in(phases)
    assert told.await_end(told.drivers[-1]) == ""
    told.require_exact()


def test_nothing_of_the_older_driver_and_its_executors_survives_the_takeover(story: Callable[[str], Counts]) -> None:
    """Its task waits with a version of state, while a driver on another host takes the checkpoint and reads to the end."""
    from raftlake import Client

    told = story("taken-over")
    older = told.start_driver()
    told.stop_at("before-state")
    newer = told.start_driver(stops=False, master="local[2]")
    assert told.await_end(newer) == ""
    told.require_exact()
    with Client(told.quorum.bootstrap_servers) as client:

        def versions() -> dict[str, int]:
            pages = [client.kv.list(f"{root}/{told.name}/", limit=10_000) for root in ("/fs", "/fs-owner")]
            assert not any(page.more for page in pages)
            return {entry.key: entry.version for page in pages for entry in page.entries}

        before = versions()
        assert any("/state/" in key for key in before)
        told.stops.go_on()
        error = told.await_end(older)
        assert "no longer owns this checkpoint" in error, error
        assert (newer.directory / "run").read_text(encoding="utf-8") in error
        assert versions() == before
    told.require_exact()


def test_a_session_that_runs_gets_the_jar_for_transform_with_state(
    directory: Path, own_quorum: LocalQuorum, cluster: SparkCluster
) -> None:
    """By `attach`, on driver and executors. Spark takes no other provider than its own for transformWithState."""
    topic = "transformed"
    expected = new_topic_with_rows(own_quorum, topic)
    checkpoint = f"raftlake://{topic}/main"
    batches: list[int] = []
    for number in range(2):
        results = directory / f"{topic}-{number}.json"
        facts = {"bootstrap": own_quorum.bootstrap_servers, "topic": topic, "checkpoint": checkpoint, "results": str(results)}
        bare_submit(cluster, LIVE_JOB, directory / f"live-{number}", facts, CONF)
        told = json.loads(results.read_text(encoding="utf-8"))
        assert {key: tuple(values) for key, values in told["found"].items()} == expected
        batches += told["batches"]
        append_rows(own_quorum, topic, expected)
    # The second driver went on: its sums are those of the whole topic, from its own batches alone.
    assert batches == list(range(len(batches))) and len(batches) >= 2 * ROWS / 4000
