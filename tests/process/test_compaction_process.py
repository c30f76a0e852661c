"""Compacted topics on real nodes: the last value of each key stays, whoever is killed, and deleted keys do not come back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import waitkit
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.local import LOG_FILE
from raftlake.wire.batches import decode_records, parse_header

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=60)

SETTINGS = {"log.cleaner.backoff.ms": "200"}
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.1"}
TOPIC = "latest"
KEYS = 40
VALUE_BYTES = 200


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path, settings=SETTINGS) as quorum:
        yield quorum


class Writer:
    """Puts and deletes keys, and knows what each of them holds."""

    def __init__(self, quorum: LocalQuorum, *, transactional_id: str | None = None) -> None:
        settings: dict[str, object] = {"bootstrap.servers": quorum.bootstrap_servers, "message.timeout.ms": 60_000}
        settings |= {"enable.idempotence": True} if transactional_id is None else {"transactional.id": transactional_id}
        self.producer = Producer({**settings, "linger.ms": 1})
        if transactional_id is not None:
            self.producer.init_transactions(60)
        self._random = random.Random(7)
        self._count = 0
        self.latest: dict[bytes, bytes | None] = {}

    def write(self, count: int, *, remember: bool = True) -> None:
        """So many changes of keys drawn at random, one in six a tombstone; all of them are acknowledged."""
        refused: list[KafkaError] = []
        for _ in range(count):
            self._count += 1
            key = b"key-%d" % self._random.randrange(KEYS)
            value = None if self._random.randrange(6) == 0 else b"%d " % self._count + bytes(VALUE_BYTES)
            if remember:
                self.latest[key] = value
            self.producer.produce(
                TOPIC, value, key, partition=0, on_delivery=lambda error, _message: refused.append(error) if error else None
            )
        assert self.producer.flush(60) == 0 and not refused


def read_all(quorum: LocalQuorum) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record in front of the end as it is now, as librdkafka reads them from the start."""
    consumer = Consumer(
        {
            "bootstrap.servers": quorum.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, bytes, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def has_ended() -> bool:
            for message in consumer.consume(500, 1.0):
                error = message.error()
                if error is None:
                    found.append((message.offset(), message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return True
                else:
                    raise KafkaException(error)
            return False

        wait_until(has_ended, "the partition is read")
    finally:
        consumer.close()
    return found


def state_of(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    """What each key holds after all of them."""
    offsets = [offset for offset, _, _ in records]
    assert offsets == sorted(set(offsets)), "in order, each once"
    return {key: value for _, key, value in records}


def alive(state: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in state.items() if value is not None}


def sizes(data_dir: Path) -> list[int]:
    """The bytes of the partition's log on each node."""
    return [sum(map(size, data_dir.glob(f"node-{node_id}/{TOPIC}-0/*.log"))) for node_id in (1, 2, 3)]


def size(file: Path) -> int:
    """0 where a pass took the file away just now."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def ends_of_batches(directory: Path) -> list[tuple[int, int]]:
    """First and last offset of each batch on a node's disk, in order."""
    found: list[tuple[int, int]] = []
    for file in sorted(directory.glob("*.log")):
        data, position = file.read_bytes(), 0
        # Behind the last batch of an open segment there may be room that is reserved.
        while position < len(data) and (header := parse_header(data, position)).magic:
            found.append((header.base_offset, header.end_offset))
            position = header.end_position
    return found


def await_small(writer: Writer, data_dir: Path) -> None:
    """Write on until all three nodes have compacted their logs. What a node fetched in one piece is one open segment, however
    large, until more comes."""

    def are_small() -> bool:
        writer.write(10)
        return max(sizes(data_dir)) < 150_000

    wait_until(are_small, "all three nodes have compacted their logs")


def create(quorum: LocalQuorum, **configs: str) -> None:
    asked = {**CONFIGS, **{name.replace("_", "."): value for name, value in configs.items()}}
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, configs=asked)


def test_the_last_values_stay_while_leaders_are_killed(own_quorum: LocalQuorum, tmp_path: Path) -> None:
    create(own_quorum)
    writer = Writer(own_quorum)
    for _ in range(3):
        writer.write(1_500)
        with Client(own_quorum.bootstrap_servers) as client:
            victim = leader_of(client, TOPIC)
        own_quorum.kill(victim)
        writer.write(1_500)
        own_quorum.start(victim)
    # 9,000 changes are 2 MB; the last ones of each key are 10 kB, and a segment or two are not closed or not due.
    await_small(writer, tmp_path)
    assert state_of(read_all(own_quorum)) == writer.latest
    own_quorum.stop()
    for node_id in (1, 2, 3):
        batches = ends_of_batches(tmp_path / f"node-{node_id}" / f"{TOPIC}-0")
        assert [base for base, _ in batches[1:]] == [end for _, end in batches[:-1]], "offsets have no gaps"
    with LocalQuorum(data_dir=tmp_path) as again:
        assert state_of(read_all(again)) == writer.latest
        more = Writer(again)
        more.latest = dict(writer.latest)
        more.write(200)
        assert state_of(read_all(again)) == more.latest


def test_a_voter_that_was_away_brings_no_deleted_key_back(own_quorum: LocalQuorum, tmp_path: Path) -> None:
    """delete.retention.ms is over at once. While the voter is away its tombstones wait for it."""
    create(own_quorum, delete_retention_ms="0")
    writer = Writer(own_quorum)
    writer.write(2_000)
    with Client(own_quorum.bootstrap_servers) as client:
        leader = leader_of(client, TOPIC)
    away = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    own_quorum.kill(away)
    writer.write(2_000)
    gone = sorted(alive(writer.latest))[:10]
    for key in gone:
        writer.producer.produce(TOPIC, None, key, partition=0)
        writer.latest[key] = None
    assert writer.producer.flush(60) == 0
    others = dict(alive(writer.latest).items())
    for _ in range(60):
        # The tombstones come to stand in closed segments.
        for key, value in others.items():
            writer.producer.produce(TOPIC, value, key, partition=0)
        assert writer.producer.flush(60) == 0
    running = [index for index, node_id in enumerate((1, 2, 3)) if node_id != away]
    wait_until(lambda: max(sizes(tmp_path)[index] for index in running) < 150_000, "the others have compacted their logs")
    own_quorum.start(away)

    def push() -> None:
        for key, value in others.items():
            writer.producer.produce(TOPIC, value, key, partition=0)
        assert writer.producer.flush(60) == 0

    def are_all_small() -> bool:
        push()
        return max(sizes(tmp_path)) < 150_000

    wait_until(are_all_small, "so has the one that was away")
    # Each of the nodes leads in turn.
    for victim in (1, 2, 3):
        assert alive(state_of(read_all(own_quorum))) == others
        own_quorum.kill(victim)
        assert alive(state_of(read_all(own_quorum))) == others
        own_quorum.start(victim)

    def are_forgotten() -> bool:
        push()
        return not set(gone) & set(state_of(read_all(own_quorum)))

    wait_until(are_forgotten, "once all have them, the tombstones go")


def records_of(directory: Path) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record of a node's log."""
    found: list[tuple[int, bytes, bytes | None]] = []
    for file in sorted(directory.glob("*.log")):
        data, position = file.read_bytes(), 0
        while position < len(data) and (header := parse_header(data, position)).magic:
            batch = data[position : header.end_position]
            found += [(record.offset, record.key or b"", record.value) for record in decode_records(batch)]
            position = header.end_position
    return found


def has_tombstone(directory: Path) -> bool:
    try:
        return any(value is None for _, _, value in records_of(directory))
    except FileNotFoundError:
        # A pass is under way: it took a file away just now.
        return True


def test_a_voter_that_was_away_when_the_policy_came_and_is_repaired_brings_no_deleted_key_back(
    own_quorum: LocalQuorum, tmp_path: Path
) -> None:
    """It never compacted its log. The tombstones are gone that stand behind its damage."""
    create(own_quorum, cleanup_policy="delete", delete_retention_ms="0")
    writer = Writer(own_quorum)
    for _ in range(10):
        writer.write(100)
    gone = sorted(alive(writer.latest))[:10]
    others = {key: value for key, value in alive(writer.latest).items() if key not in gone}

    def push() -> None:
        for key, value in others.items():
            writer.producer.produce(TOPIC, value, key, partition=0)
        assert writer.producer.flush(60) == 0

    with Client(own_quorum.bootstrap_servers) as client:
        behind_values = client.read_offset(TOPIC, [0])[0]
    for key in gone:
        writer.producer.produce(TOPIC, None, key, partition=0)
    for _ in range(8):
        push()
    with Client(own_quorum.bootstrap_servers) as client:
        end = client.read_offset(TOPIC, [0])[0]
        away = next(node_id for node_id in (1, 2, 3) if node_id != leader_of(client, TOPIC))
        logs = {node_id: tmp_path / f"node-{node_id}" / f"{TOPIC}-0" for node_id in (1, 2, 3)}
        wait_until(lambda: ends_of_batches(logs[away])[-1][1] >= end, "all of it is where it is to be damaged")
        own_quorum.kill(away)
        client.alter_topic_configs(TOPIC, {"cleanup.policy": "compact"})
        running = [node_id for node_id in (1, 2, 3) if node_id != away]

        def are_gone() -> bool:
            push()
            return not any(has_tombstone(logs[node_id]) for node_id in running)

        wait_until(are_gone, "the others have compacted their logs")
        # A leader sends from its memory what it appended last.
        for node_id in running:
            own_quorum.kill(node_id)
            own_quorum._spawn(node_id)
        damaged = max(file for file in logs[away].glob("*.log") if int(file.stem) < behind_values)
        assert int(damaged.stem) > behind_values // 2, "most of the values stand in front of the damage"
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 0x10
        damaged.write_bytes(data)
        properties = own_quorum.nodes[away].properties
        # The scrub is to find the damage, and no pass.
        properties.write_text(properties.read_text().replace("log.cleaner.backoff.ms=200", "log.cleaner.backoff.ms=3600000"))
        own_quorum.start(away)
        wait_until(lambda: list(logs[away].glob("damaged-*")), "the damage is found")
        wait_until(lambda: not (logs[away] / "impaired").exists(), "its log is whole")
    assert alive(state_of(records_of(logs[away]))) == alive(state_of(read_all(own_quorum))) == others
    assert "the leader has removed records" in (own_quorum.nodes[away].directory / LOG_FILE).read_text()


def test_aborted_records_are_never_the_last_value(own_quorum: LocalQuorum, tmp_path: Path) -> None:
    create(own_quorum, delete_retention_ms="0")
    writer = Writer(own_quorum, transactional_id="writer")
    for number in range(30):
        commits = number % 3 != 2
        writer.producer.begin_transaction()
        writer.write(100, remember=commits)
        (writer.producer.commit_transaction if commits else writer.producer.abort_transaction)(60)
        if number == 15:
            with Client(own_quorum.bootstrap_servers) as client:
                victim = leader_of(client, TOPIC)
            own_quorum.kill(victim)
            own_quorum.start(victim)

    def are_small() -> bool:
        writer.producer.begin_transaction()
        writer.write(10)
        writer.producer.commit_transaction(60)
        return max(sizes(tmp_path)) < 150_000

    wait_until(are_small, "all three nodes have compacted their logs")
    assert alive(state_of(read_all(own_quorum))) == alive(writer.latest)


def test_a_pass_that_is_killed_amid_its_work_costs_nothing(own_quorum: LocalQuorum, tmp_path: Path) -> None:
    """Nodes are killed again and again while they compact, and begin with what they had."""
    create(own_quorum)
    writer = Writer(own_quorum)
    for round_ in range(6):
        writer.write(1_500)
        own_quorum.kill(1 + round_ % 3)
        own_quorum.start(1 + round_ % 3)
    assert state_of(read_all(own_quorum)) == writer.latest
    await_small(writer, tmp_path)
    assert state_of(read_all(own_quorum)) == writer.latest

    def unfinished() -> list[str]:
        return [file.name for file in tmp_path.glob(f"node-*/{TOPIC}-0/*") if file.suffix in (".cleaned", ".swap")]

    # A pass may be at work now. What a killed one has left would stay.
    wait_until(lambda: not unfinished(), "no file of a pass is there")
