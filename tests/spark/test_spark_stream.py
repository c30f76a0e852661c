"""Streaming queries over a real quorum, as lists of steps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.streamkit import Append, Do, Expect, ExpectBatches, ExpectBatchesOf, Scenario, Start, Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client

pytestmark = pytest.mark.spark

Make = Callable[..., Scenario]


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"stream-{number}" for number in itertools.count(1))


@pytest.fixture
def scenario(spark: SparkSession, client: Client, names: Iterator[str], tmp_path: Path) -> Make:
    def make(partitions: int = 2, **options: str) -> Scenario:
        topic = next(names)
        client.create_topic(topic, partitions)
        return Scenario(spark, client, topic, tmp_path / "checkpoint", **options)

    return make


def text(first: int, last: int) -> list[str]:
    return [f"v{number:03d}" for number in range(first, last)]


def test_a_query_goes_on_where_it_was(scenario: Make) -> None:
    scenario().run(
        Append(text(0, 5)),
        Start(),
        Expect(text(0, 5)),
        Append(text(5, 7)),
        Expect(text(0, 7)),
        Stop(),
        Append(text(7, 9)),
        Start(),
        Expect(text(0, 9)),
        Append(text(9, 10)),
        Expect(text(0, 10)),
    )


def test_a_query_from_latest_sees_what_comes_after_it(scenario: Make) -> None:
    late = scenario(startingOffsets="latest")
    late.run(
        Append(text(0, 3)),
        Start(),
        Do(lambda: late.query and late.query.processAllAvailable()),
        Append(text(3, 6)),
        Expect(text(3, 6)),
        Stop(),
        Append(text(6, 8)),
        Start(),
        Expect(text(3, 8)),
    )


def test_available_now_reads_in_limited_batches_and_ends(scenario: Make) -> None:
    scenario(maxOffsetsPerTrigger="4", minPartitions="4").run(
        Append(text(0, 10)),
        Start(available_now=True),
        Expect(text(0, 10)),
        # Two offsets of each partition at a time; control records of leaders have some of them.
        ExpectBatchesOf(4),
        Append(text(10, 12)),
        Start(available_now=True),
        Expect(text(0, 12)),
        ExpectBatchesOf(4),
    )


def test_topics_of_a_pattern_are_found_while_the_query_runs(scenario: Make) -> None:
    found = scenario(partitions=1)
    del found.options["subscribe"]
    found.options["subscribePattern"] = f"{found.topic}.*"

    def grow() -> None:
        found.topic += "-more"
        found.client.create_topic(found.topic, 1)

    found.run(Append(text(0, 2)), Start(), Expect(text(0, 2)), Do(grow), Append(text(2, 5)), Expect(text(0, 5)))


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("runs", [True, False])
def test_partitions_that_are_added_are_read_from_their_beginning(scenario: Make, starting: str, runs: bool) -> None:
    """What is appended there before the query looks again is read too, also where the query began at the end of the log."""
    found = scenario(partitions=1, startingOffsets=starting)
    found.run(
        Start(),
        Do(lambda: found.query and found.query.processAllAvailable()),
        Append(text(0, 2), partition=0),
        Expect(text(0, 2)),
        *([] if runs else [Stop()]),
        Do(lambda: found.client.create_partitions(found.topic, 3)),
        Append(text(2, 5), partition=2),
        Append(text(5, 6), partition=1),
        *([] if runs else [Start()]),
        Expect(text(0, 6)),
    )


def test_a_checkpoint_of_sparks_kafka_connector_is_continued(scenario: Make) -> None:
    """It writes the same offsets without blanks; otherwise the checkpoints are alike."""
    moved = scenario()

    def write_as_kafka_does() -> None:
        for path in (moved.checkpoint / "offsets").iterdir():
            if path.name.endswith(".crc"):
                path.unlink()
            else:
                *head, offsets = path.read_text().split("\n")
                path.write_text("\n".join([*head, json.dumps(json.loads(offsets), separators=(",", ":"))]))

    moved.run(
        Append(text(0, 5)),
        Start(available_now=True),
        Expect(text(0, 5)),
        Do(write_as_kafka_does),
        Append(text(5, 8)),
        Start(available_now=True),
        Expect(text(0, 8)),
        ExpectBatches([5, 3]),
    )


def test_a_linearizable_batch_holds_every_append_acknowledged_before(scenario: Make) -> None:
    """AvailableNow plans its end when it starts: what was acknowledged before must be in it, with no second try."""
    exact = scenario(partitions=3, consistency="linearizable")
    for round_ in range(4):
        exact.run(Append(text(7 * round_, 7 * round_ + 7)), Start(available_now=True), Expect(text(0, 7 * round_ + 7)))


def test_a_deleted_topic_ends_the_query_or_not_as_it_was_asked(scenario: Make) -> None:
    from pyspark.errors import StreamingQueryException

    strict = scenario()

    def delete() -> None:
        strict.client.delete_topic(strict.topic)

    def fails() -> None:
        assert strict.query is not None
        with pytest.raises(StreamingQueryException, match=r"are gone\. Some data may have been missed.*failOnDataLoss"):
            strict.query.awaitTermination(60)

    strict.run(Append(text(0, 3)), Start(), Expect(text(0, 3)), Do(delete), Do(fails))


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 2)])
def test_a_topic_that_is_created_again_is_read_from_its_beginning(scenario: Make, before: int, after: int) -> None:
    tolerant = scenario(partitions=before, failOnDataLoss="false")

    def recreate() -> None:
        tolerant.client.delete_topic(tolerant.topic)
        tolerant.client.create_topic(tolerant.topic, after)
        tolerant.batches.clear()

    new = [f"new{number:03d}" for number in range(40)]
    tolerant.run(Append(text(0, 20)), Start(), Expect(text(0, 20)), Do(recreate), Append(new), Expect(new))
