"""History and log in one query: over the seam in batches and streams, while copies go on, with filters, with wrong places.

Frames are those of the connector in Python, streams those of the one in Java; tests/connector_contract has what both do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import waitkit
from connectorkit import PYTHON, register_python
from pyspark_raftlake.schema import source_schema
from pyspark_raftlake.source import DefaultSource
from raftlake.client import EARLIEST_LOCAL, LATEST_TIERED
from spark.streamkit import Append, Do, Expect, Scenario, Start, Stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark
wait_until = partial(waitkit.wait_until, seconds=90)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """A quorum whose records are in their tables within a second."""
    from raftlake import LocalQuorum

    place = tmp_path_factory.mktemp("history")
    settings = {"tier.uri": str(place / "tables"), "tier.target.lag.ms": "1000"}
    with LocalQuorum(3, data_dir=place / "quorum", settings=settings) as quorum:
        yield quorum


@pytest.fixture(scope="module")
def client(tiered: LocalQuorum) -> Iterator[Client]:
    from raftlake import Client

    with Client(tiered.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module")
def topics(client: Client) -> Callable[[], str]:
    numbers = itertools.count(1)

    def make() -> str:
        topic = f"history-{next(numbers)}"
        client.create_topic(topic, 2)
        return topic

    return make


@pytest.fixture(scope="module", autouse=True)
def python_connector(spark: SparkSession) -> None:
    register_python(spark)


def append(client: Client, topic: str, first: int, last: int) -> None:
    for number in range(first, last):
        client.append(topic, f"v{number:03d}", key=f"k{number}", partition=number % 2, headers=[("n", b"%d" % number)])


def wait_for_table(client: Client, topic: str) -> dict[int, int]:
    """Wait until the table shows all that is committed now; where it ends."""
    ends = client.read_offset(topic)

    def copied() -> dict[int, int]:
        return {number: last + 1 for number, last in client.list_offsets(topic, dict.fromkeys(ends, LATEST_TIERED)).items()}

    wait_until(lambda: all(copied()[number] >= end for number, end in ends.items()), f"a table of all of {topic}")
    return copied()


def frame(spark: SparkSession, quorum: LocalQuorum, topic: str, **options: str) -> DataFrame:
    at = {"kafka.bootstrap.servers": quorum.bootstrap_servers, "subscribe": topic}
    return spark.read.format(PYTHON).options(**at, **options).load()


def values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def text(first: int, last: int) -> list[str]:
    return [f"v{number:03d}" for number in range(first, last)]


def test_one_batch_query_over_table_and_log(
    spark: SparkSession, tiered: LocalQuorum, client: Client, topics: Callable[[], str]
) -> None:
    topic = topics()
    append(client, topic, 0, 60)
    seams = wait_for_table(client, topic)
    append(client, topic, 60, 80)
    options = {"kafka.bootstrap.servers": tiered.bootstrap_servers, "subscribe": topic}
    tasks = DefaultSource(options).reader(source_schema(include_headers=False)).partitions()
    planned = {number: [task for task in tasks if task.range.partition == number] for number in seams}  # type: ignore[attr-defined]
    for number, seam in seams.items():
        whole = [task for task in planned[number] if task.table.files is not None]
        assert whole and whole[0].range.start == 0 and whole[-1].range.end >= seam, "history is read from the table"
    assert values(frame(spark, tiered, topic)) == text(0, 80)
    everything = frame(spark, tiered, topic, includeHeaders="true").collect()
    local = frame(spark, tiered, topic, includeHeaders="true", tier="local").collect()
    assert sorted(everything) == sorted(local), "the same rows, whatever the source"
    assert len(values(frame(spark, tiered, topic, tier="remote"))) >= 60
    wait_for_table(client, topic)
    assert sorted(frame(spark, tiered, topic, includeHeaders="true", tier="remote").collect()) == sorted(local)


@pytest.mark.parametrize("is_pushed", [False, True])
def test_filters_change_no_answer(
    spark: SparkSession, tiered: LocalQuorum, client: Client, topics: Callable[[], str], is_pushed: bool
) -> None:
    """Spark refuses a reader that takes filters while its setting is off."""
    topic = topics()
    append(client, topic, 0, 30)
    wait_for_table(client, topic)
    append(client, topic, 30, 60)
    rows = frame(spark, tiered, topic)
    late = rows.where("value = 'v040'").select("timestamp").collect()[0][0]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_pushed).lower())
    try:
        for condition in ("partition = 1", "offset between 5 and 25", "partition in (0) and offset > 12", "offset = 7"):
            expected = values(rows.where(condition))
            assert values(frame(spark, tiered, topic).where(condition)) == expected and expected
        assert values(frame(spark, tiered, topic).where(f"timestamp >= timestamp'{late}'"))[-1] == "v059"
        assert values(frame(spark, tiered, topic).where("offset < 0")) == []
        # Each partition has a task at least. Spark makes one task of a plan without any.
        tasks = frame(spark, tiered, topic).where("partition = 7").rdd.getNumPartitions()
        assert tasks == 1 if is_pushed else tasks >= 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_over_the_seam_with_restarts_while_copies_go_on(
    spark: SparkSession, client: Client, topics: Callable[[], str], tmp_path: Path
) -> None:
    topic = topics()
    copied = Do(lambda: wait_for_table(client, topic))
    Scenario(spark, client, topic, tmp_path / "checkpoint", maxOffsetsPerTrigger="7").run(
        Append(text(0, 40)),
        copied,
        Append(text(40, 50)),
        Start(),
        Expect(text(0, 50)),
        Append(text(50, 60)),
        Stop(),
        copied,
        Append(text(60, 70)),
        Start(),
        Expect(text(0, 70)),
        copied,
        Append(text(70, 75)),
        Expect(text(0, 75)),
        Stop(),
        Start(available_now=True),
        Expect(text(0, 75)),
    )


def test_a_stream_of_the_table_alone(spark: SparkSession, client: Client, topics: Callable[[], str], tmp_path: Path) -> None:
    topic = topics()
    Scenario(spark, client, topic, tmp_path / "checkpoint", tier="remote").run(
        Append(text(0, 10)),
        Do(lambda: wait_for_table(client, topic)),
        Start(available_now=True),
        Expect(text(0, 10)),
        Append(text(10, 20)),
        Do(lambda: wait_for_table(client, topic)),
        Start(available_now=True),
        Expect(text(0, 20)),
    )


def test_a_wrong_place_names_the_option(
    spark: SparkSession, tiered: LocalQuorum, client: Client, topics: Callable[[], str], tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    topic = topics()
    append(client, topic, 0, 4)
    wait_for_table(client, topic)
    secret = {"tier.storage.aws_secret_access_key": "s3cr3t"}
    for options in ({"tier.uri": str(tmp_path / "nowhere")}, {"tier.uri": str(tmp_path / "nowhere"), "tier": "remote"}):
        with pytest.raises(PySparkException, match=r"Option 'tier\.uri' is '.*nowhere'") as raised:
            frame(spark, tiered, topic, **options, **secret).count()
        assert "s3cr3t" not in str(raised.value)


@pytest.fixture(scope="module")
def trimming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """A quorum whose local disks keep only what is not copied yet."""
    from raftlake import LocalQuorum

    place = tmp_path_factory.mktemp("trimming")
    settings = {"tier.uri": str(place / "tables"), "tier.target.lag.ms": "1000", "local.retention.bytes": "0"}
    with LocalQuorum(3, data_dir=place / "quorum", settings=settings) as quorum:
        yield quorum


def test_a_log_that_begins_later_than_its_history(spark: SparkSession, trimming: LocalQuorum, tmp_path: Path) -> None:
    from raftlake import Client

    with Client(trimming.bootstrap_servers) as client:
        client.create_topic("trimmed", 2)

        def local_starts() -> dict[int, int]:
            return client.list_offsets("trimmed", {0: EARLIEST_LOCAL, 1: EARLIEST_LOCAL})

        def wait_for_trim() -> None:
            ends = wait_for_table(client, "trimmed")
            wait_until(lambda: all(local_starts()[number] >= end for number, end in ends.items()), "a log without history")

        append(client, "trimmed", 0, 60)
        wait_for_trim()
        append(client, "trimmed", 60, 70)
        assert values(frame(spark, trimming, "trimmed")) == text(0, 70)
        assert set(values(frame(spark, trimming, "trimmed", tier="local"))) <= set(text(60, 70))
        Scenario(spark, client, "trimmed", tmp_path / "checkpoint", maxOffsetsPerTrigger="11").run(
            Start(),
            Expect(text(0, 70)),
            Stop(),
            Append(text(70, 80)),
            Do(wait_for_trim),
            Append(text(80, 90)),
            Start(),
            Expect(text(0, 90)),
        )
