"""Real consumers at a leader that cannot answer yet (OFFSET_NOT_AVAILABLE, as after an election): they ask again from where
they were, and neither fail, nor skip, nor begin anew."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from librdkit import create_topic
from raftlake.errors import ErrorCode
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.server import NodeServer
from raftlake.runtime.settings.settings import load_settings
from runtime_fakes import until

pytestmark = pytest.mark.process
#: The package's `fetch` is the function of that name.
fetch = importlib.import_module("raftlake.replica.apis.fetch")

REFUSALS = 3
VALUES = [b"a", b"b", b"c"]


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    """A server sets up logging and the garbage collector of its process; give both back."""
    root = logging.getLogger()
    handlers, level, thresholds = root.handlers[:], root.level, gc.get_threshold()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def librdkafka(bootstrap: str, topic: str, first: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, first)])
    try:
        messages = [message for message in (consumer.poll(30) for _ in VALUES) if message is not None]
        assert [message.error() for message in messages] == [None] * len(VALUES)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def kafka_python(bootstrap: str, topic: str, first: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", enable_auto_commit=False)
    partition = PythonTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, first)
    try:
        found: list[bytes] = []
        for _ in range(60):
            for records in consumer.poll(timeout_ms=500).values():
                found.extend(record.value for record in records)
            if len(found) >= len(VALUES):
                break
        return found
    finally:
        consumer.close()


def write(bootstrap: str) -> int:
    """A topic with the values; the offset of the first one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, "t", 1)
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in VALUES:
        producer.produce("t", value, partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(30) == 0
    return min(offsets)


@pytest.mark.parametrize("consume", [librdkafka, kafka_python])
def test_a_consumer_waits_for_what_is_not_available_yet(consume: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, http = (f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2))
    format_data_dir(tmp_path, 1, "the-cluster")
    given = {"node.id": "1", "quorum.voters": f"1@{listener}", "log.dirs": str(tmp_path), "http.listener": http}
    settings = load_settings(None, overrides=[f"{key}={value}" for key, value in given.items()])
    asked: list[int] = []
    honest = fetch._check_offset

    def refusing(remote_log: RemoteLog, partition: Partition, part: Any) -> ErrorCode:
        asked.append(part.fetch_offset)
        return ErrorCode.OFFSET_NOT_AVAILABLE if len(asked) <= REFUSALS else honest(remote_log, partition, part)

    async def main() -> None:
        server = NodeServer(settings, asyncio.get_running_loop())
        try:
            await server.start()
            await until(server.node.is_ready)
            first = await asyncio.to_thread(write, listener)
            monkeypatch.setattr(fetch, "_check_offset", refusing)
            monkeypatch.setattr(fetch.ParkedFetch, "_may_pass", lambda *_: False)
            assert await asyncio.to_thread(consume, listener, "t", first) == VALUES
            assert asked[: REFUSALS + 1] == [first] * (REFUSALS + 1)
        finally:
            server.close()

    asyncio.run(asyncio.wait_for(main(), 90))
