"""Older releases of kafka-python against real nodes: they give each record of a control batch to the application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaderkit import record_offsets
from raftlake import Client, LocalQuorum
from waitkit import wait_until

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
TOPIC = "orders"
RELEASES = ("kafka-python-2.0.2", "kafka-python-ng-2.2.3")


@pytest.fixture(scope="module")
def releases() -> None:
    """Fetched once for all runs."""
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / "tools" / "fetch-kafka-python"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def led_twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """A partition with records of two leaders, and the control batch of each in front of them."""
    with (
        LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("led-twice")) as quorum,
        Client(quorum.bootstrap_servers) as client,
    ):
        client.create_topic(TOPIC)
        client.append_many(TOPIC, [b"a", b"b"], partition=0)
        first = leader(client)
        quorum.kill(first)
        client.append_many(TOPIC, [b"c"], partition=0)
        quorum.start(first)
        yield quorum


def leader(client: Client) -> int:
    """Of the partition, as soon as one is known."""

    def known() -> int:
        return client.describe_topic(TOPIC).partitions[0].leader_id

    return wait_until(lambda: (known(),) if known() >= 0 else None, "a leader of the partition", 60)[0]


def read(release: str, servers: str, position: int) -> list[list[object]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".cache" / release)}
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(Path(__file__).with_name("kafka_python_job.py")),
        servers,
        TOPIC,
        str(position),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen: list[list[object]] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("release", RELEASES)
def test_an_older_kafka_python_is_given_the_records_of_clients_alone(
    led_twice: LocalQuorum, releases: None, release: str
) -> None:
    if release == RELEASES[0] and sys.version_info >= (3, 12):
        pytest.skip("kafka-python 2.0.2 cannot be imported from Python 3.12 on")
    servers = led_twice.bootstrap_servers
    with Client(servers) as client:
        offsets = record_offsets(client, TOPIC)
    records = [[offset, None, value] for offset, value in zip(offsets, "abc", strict=True)]
    assert offsets[0] == 3 and offsets[2] > offsets[1] + 1, "each leader has a batch of its own"
    assert read(release, servers, 0) == records
    assert read(release, servers, offsets[1] + 1) == records[2:]
