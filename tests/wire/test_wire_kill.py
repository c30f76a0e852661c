"""kill -9 of node processes under load: what was acknowledged is there afterwards, once and in order (promise 6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.client import NoReachableNode
from raftlake.errors import RequestRejected, UnknownOutcome
from raftlake.wire.batches import decode_records
from waitkit import wait_until

pytestmark = pytest.mark.process

TIMEOUT_S = 60.0


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as started:
        yield started


def read_values(client: Client, topic: str) -> list[int]:
    """All values of partition 0 up to its linearizable end, as numbers."""
    end = client.read_offset(topic, [0])[0]
    values: list[int] = []
    offset = 0
    while offset < end:
        fetched = client.fetch_raw(topic, 0, offset, limit_offset=end)
        values += [int(record.value or b"-1") for buffer in fetched.buffers for record in decode_records(buffer)]
        offset = fetched.next_offset
    return values


class Appender(threading.Thread):
    """Appends 0, 1, 2, ... one after the other; remembers which were acknowledged and which have an unknown outcome."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.client = Client(servers)
        self.topic = topic
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with self.client:
            while not self.stopping.is_set():
                try:
                    self.client.append(self.topic, b"%d" % number, partition=0)
                    self.acknowledged.append(number)
                except UnknownOutcome:
                    self.unknown.append(number)
                except (NoReachableNode, RequestRejected):
                    # Certainly not appended: no node was there for so long, or none led.
                    continue
                number += 1

    def wait_for(self, count: int) -> None:
        """Until `count` more appends were acknowledged."""
        wanted = len(self.acknowledged) + count

        def has_come() -> bool:
            assert self.is_alive(), "the appender gave up"
            return len(self.acknowledged) >= wanted

        wait_until(has_come, f"{wanted} acknowledged appends", TIMEOUT_S)

    def stop(self) -> None:
        self.stopping.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def require_exactly(values: list[int], appender: Appender) -> None:
    assert values == sorted(set(values)), "doubled or reordered"
    assert set(appender.acknowledged) <= set(values), "acknowledged and lost"
    assert set(values) <= set(appender.acknowledged) | set(appender.unknown), "never sent"


def test_one_leader_after_the_other_is_killed(own_quorum: LocalQuorum) -> None:
    with Client(own_quorum.bootstrap_servers) as client:
        client.create_topic("numbers", partitions=1)
        appender = Appender(own_quorum.bootstrap_servers, "numbers")
        appender.start()
        for _ in range(3):
            appender.wait_for(100)
            leader = leader_of(client, "numbers")
            own_quorum.kill(leader)
            appender.wait_for(100)
            own_quorum.start(leader)
        appender.wait_for(100)
        appender.stop()
        require_exactly(read_values(client, "numbers"), appender)


def test_all_nodes_are_killed_at_once(own_quorum: LocalQuorum) -> None:
    """The page cache survives kill -9, so this shows recovery of files and elections, not fdatasync (the simulator does)."""
    with Client(own_quorum.bootstrap_servers) as client:
        client.create_topic("numbers", partitions=1)
        version = client.kv.put("kept", b"yes")
        appender = Appender(own_quorum.bootstrap_servers, "numbers")
        appender.start()
        appender.wait_for(300)
        for node_id in (1, 2, 3):
            own_quorum.kill(node_id)
        with ThreadPoolExecutor() as pool:  # `start` waits until its node is ready, which takes a majority
            list(pool.map(own_quorum.start, (1, 2, 3)))
        appender.wait_for(100)
        appender.stop()
        require_exactly(read_values(client, "numbers"), appender)
        kept = client.kv.get("kept")
        assert kept is not None
        assert (kept.value, kept.version) == (b"yes", version)


def test_an_idempotent_producer_survives_failover_without_gap_or_double(own_quorum: LocalQuorum) -> None:
    """librdkafka retries what it does not know the fate of; the sequence numbers that the new leader replicated sort it out."""
    with Client(own_quorum.bootstrap_servers) as client:
        client.create_topic("numbers", partitions=1)
        settings = {"bootstrap.servers": own_quorum.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        producer = Producer(settings | {"batch.num.messages": 20, "message.timeout.ms": 60_000})
        delivered: list[int] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                delivered.append(message.offset())

        for number in range(30_000):
            if number == 10_000:
                wait_until(lambda: (producer.poll(0.1), len(delivered) >= 1000)[1], "a thousand deliveries", TIMEOUT_S)
                own_quorum.kill(leader_of(client, "numbers"))
            while True:
                try:
                    producer.produce("numbers", b"%d" % number, partition=0, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not errors, errors[:3]
        assert len(delivered) == 30_000
        assert read_values(client, "numbers") == list(range(30_000))


def test_a_stopped_quorum_goes_on_where_it_was(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as first, Client(first.bootstrap_servers) as client:
        client.create_topic("numbers", partitions=1)
        client.append_many("numbers", [b"%d" % number for number in range(1000)], partition=0)
        cluster_id = client.describe_cluster().cluster_id
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as second, Client(second.bootstrap_servers) as client:
        assert client.describe_cluster().cluster_id == cluster_id
        assert read_values(client, "numbers") == list(range(1000))
        client.append("numbers", b"1000", partition=0)
        assert read_values(client, "numbers") == list(range(1001))
