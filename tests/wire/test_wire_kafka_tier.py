"""Kafka's own tools (4.3.1, Java) on a partition whose beginning is only in a Delta table."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import waitkit
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.java
wait_until = partial(waitkit.wait_until, seconds=90)

Tool = Callable[..., subprocess.CompletedProcess[str]]

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TOPIC = "orders"
SETTINGS = {"tier.target.lag.ms": "1000", "log.segment.bytes": "65536", "local.retention.bytes": "100000"}
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[tuple[LocalQuorum, list[str]]]:
    """A quorum that appends no more, with most of its records in the table alone; and all records."""
    values = [f"{number}-" + "x" * 400 for number in range(2_000)]
    settings = {"tier.uri": str(tmp_path / "tables"), **SETTINGS}
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings=settings) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=1)
        for first in range(0, len(values), 50):
            client.append_many(TOPIC, [value.encode() for value in values[first : first + 50]], partition=0)
        moved = lambda: client.list_offsets(TOPIC, {0: EARLIEST_LOCAL})[0] > 1_000  # noqa: E731
        wait_until(moved, "local disks have the recent part alone")
        yield quorum, values


def test_the_console_consumer_reads_from_the_table_on_into_the_log(
    tiered: tuple[LocalQuorum, list[str]], kafka_tool: Tool
) -> None:
    quorum, values = tiered
    read = kafka_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", quorum.bootstrap_servers, "--topic", TOPIC),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(len(values)), "--timeout-ms", "60000"),
    )
    assert read.stdout.splitlines() == values


def test_the_offset_shell_tells_where_table_and_local_log_begin_and_end(
    tiered: tuple[LocalQuorum, list[str]], kafka_tool: Tool
) -> None:
    quorum, values = tiered
    with Client(quorum.bootstrap_servers) as client:

        def told(time: str) -> int:
            found = kafka_tool(GET_OFFSETS, "--bootstrap-server", quorum.bootstrap_servers, "--topic", TOPIC, "--time", time)
            topic, partition, offset = found.stdout.strip().split(":")
            assert (topic, partition) == (TOPIC, "0")
            return int(offset)

        # All records are copied soon after the last one, and nothing moves from then on.
        end = client.list_offsets(TOPIC, {0: -1})[0]
        wait_until(lambda: client.list_offsets(TOPIC, {0: LATEST_TIERED})[0] == end - 1, "everything is copied")
        settled = client.list_offsets(TOPIC, {0: EARLIEST_LOCAL})[0]
        assert told("earliest") == 0
        assert told("latest-tiered") == end - 1
        assert told("latest") == end >= len(values)
        assert settled <= told("earliest-local") <= end
