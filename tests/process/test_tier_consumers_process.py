"""Consumers of old offsets through real nodes: from the beginning, over the seam of table and local logs, while it moves."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.client.reader import records_from
from raftlake.errors import ErrorCode, RequestRejected

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=90)
SETTINGS = {"tier.target.lag.ms": "1000", "tier.flush.bytes": "65536", "local.retention.bytes": "100000"}
TOPIC = "orders"
EARLIEST_LOCAL = -4


class Appender:
    """Appends until it is told to stop; knows what was acknowledged, in its order."""

    def __init__(self, quorum: LocalQuorum) -> None:
        self._quorum = quorum
        self._stop = threading.Event()
        self.values: list[bytes] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Client(self._quorum.bootstrap_servers) as client:
            for number in range(1 << 30):
                values = [b"%d-%d-" % (number, n) + bytes(500) for n in range(10)]
                client.append_many(TOPIC, values, partition=0)
                self.values += values
                if self._stop.wait(0.01):
                    return


def local_start(client: Client) -> int:
    return client.list_offsets(TOPIC, {0: EARLIEST_LOCAL})[0]


def workers_of(quorum: LocalQuorum, node_id: int) -> list[int]:
    """The tier's processes beside a node."""
    pid = quorum.pid(node_id)
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"raftlake.tier.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def metric(quorum: LocalQuorum, node_id: int, name: str) -> float:
    """A counter of the node."""
    return _sample(quorum, node_id, f"{name}_total ")


def has_read(client: Client, quorum: LocalQuorum, node_id: int) -> bool:
    """Whether the node has given batches of the table to consumers; asks it for some."""
    client.fetch_raw(TOPIC, 0, 0, bytes_max=200_000, wait_ms=500, replica=node_id)
    return metric(quorum, node_id, "raftlake_tier_reads") > 0 and metric(quorum, node_id, "raftlake_tier_read_bytes") > 100_000


def own_start(quorum: LocalQuorum, node_id: int) -> float:
    """Where the log on the node's own disk begins."""
    return _sample(quorum, node_id, f'raftlake_log_start_offset{{partition="0",topic="{TOPIC}"}} ')


def _sample(quorum: LocalQuorum, node_id: int, series: str) -> float:
    connection = http.client.HTTPConnection(quorum.nodes[node_id].http_address, timeout=5)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return next(float(line.split()[1]) for line in lines if line.startswith(series))


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    settings = {"tier.uri": str(tmp_path / "tables"), **SETTINGS}
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings=settings) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic(TOPIC, partitions=1)
        yield quorum


def test_a_consumer_reads_from_the_beginning_over_the_seam_while_it_moves(quorum: LocalQuorum) -> None:
    with Client(quorum.bootstrap_servers) as client, Appender(quorum) as appender:
        wait_until(lambda: local_start(client) > 500, "the local log is trimmed")
        for node_id in quorum.running():
            wait_until(lambda node_id=node_id: own_start(quorum, node_id) > 500, f"the log of node {node_id} is trimmed")
            seen: list[bytes] = []
            position, killed = 0, 0
            end = client.read_offset(TOPIC, [0])[0]
            while position < end:
                # Killed before the first read, and between two reads.
                if killed < 2 and position >= killed * 200:
                    for pid in workers_of(quorum, node_id):
                        os.kill(pid, signal.SIGKILL)
                    killed += 1
                fetched = client.fetch_raw(TOPIC, 0, position, bytes_max=200_000, wait_ms=500, replica=node_id)
                records = list(records_from(fetched, TOPIC, 0, position))
                assert [record.offset for record in records] == sorted({record.offset for record in records})
                seen += [record.value or b"" for record in records]
                position = fetched.next_offset
            wait_until(lambda seen=seen: len(appender.values) >= len(seen), "what was read is acknowledged")
            assert len(seen) > 500 and seen == appender.values[: len(seen)]
            # A client asks another node where this one, with its worker killed, has no answer in time.
            wait_until(lambda node_id=node_id: has_read(client, quorum, node_id), f"reads of the table by node {node_id}")


def test_a_loop_of_reads_ends_at_the_end_also_where_history_is_not_in_memory(quorum: LocalQuorum) -> None:
    """The loop of docs/client.md, right after a node came back: the first piece of the table is not there in time."""
    with Client(quorum.bootstrap_servers) as client, Appender(quorum) as appender:
        wait_until(lambda: local_start(client) > 300, "the local log is trimmed")
        appender.stop()
        for node_id in quorum.running():
            quorum.kill(node_id)
        quorum.start(*quorum.nodes)
        end = client.read_stable_offset(TOPIC)[0]
        seen: list[bytes] = []
        position = 0
        while position < end and (records := client.read(TOPIC, 0, position, max_bytes=20_000, max_wait_ms=0)):
            seen += [record.value or b"" for record in records]
            position = records[-1].offset + 1
        assert seen == appender.values


def test_a_kafka_client_reads_what_only_the_table_has(quorum: LocalQuorum) -> None:
    with Client(quorum.bootstrap_servers) as client, Appender(quorum) as appender:
        wait_until(lambda: local_start(client) > 300, "the local log is trimmed")
        appender.stop()
        consumer = Consumer({"bootstrap.servers": quorum.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        seen: list[bytes] = []

        def read_on() -> bool:
            for message in consumer.consume(1_000, 0.1):
                assert message.error() is None, message.error()
                seen.append(message.value() or b"")
            return len(seen) == len(appender.values)

        wait_until(read_on, "all records")
        consumer.close()
        assert seen == appender.values


def test_a_file_that_is_gone_is_named_and_what_lies_behind_it_is_read(quorum: LocalQuorum, tmp_path: Path) -> None:
    with Client(quorum.bootstrap_servers) as client, Appender(quorum) as appender:
        wait_until(lambda: local_start(client) > 500, "the local log is trimmed")
        appender.stop()
        leader_id = client.describe_topic(TOPIC).partitions[0].leader_id
        oldest = min((tmp_path / "tables").glob("*/partition=0/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        oldest.unlink()

        def refusal() -> ErrorCode | None:
            try:
                fetched = client.fetch_raw(TOPIC, 0, 5, bytes_max=1_000, wait_ms=500, replica=leader_id, timeout_ms=2_000)
            except RequestRejected as refused:
                return refused.code
            assert not fetched.buffers
            return None

        assert wait_until(refusal, "an answer of the tier's worker") is ErrorCode.KAFKA_STORAGE_ERROR
        log = (quorum.nodes[leader_id].directory / "node.log").read_text()
        lines = [line for line in log.splitlines() if oldest.name in line and "cannot be read from the tier" in line]
        assert len(lines) == 1, "the file is named once"
        assert metric(quorum, leader_id, "raftlake_tier_read_failures") >= 1
        behind = local_start(client) - 1
        records = client.read(TOPIC, 0, behind, max_bytes=1_000, max_wait_ms=5_000, replica=leader_id)
        assert records[0].offset == behind and records[0].value in appender.values
