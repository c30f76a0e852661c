"""What all nodes show over kill -9 of all of them at once: no partition ends early, and nothing that was deleted comes back.

Each node is asked all the time for where partitions begin and end, from its first answer after a start on. What is shown once,
and what was acknowledged, bounds all later answers. For beginnings that holds once all nodes have noted them: retention waits
for no follower.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.client.connection import open_connection
from raftlake.client.types import ClientConfig, parse_servers
from raftlake.errors import ErrorCode, RaftlakeError
from raftlake.storage.noted_starts import FILE_NAME
from raftlake.wire.api import ApiKey

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=120)

PARTITIONS = 2
ROUNDS = 3
#: Small, so that retention deletes all the time.
CONFIGS = {"segment.bytes": "16384", "retention.bytes": "40000"}
EARLIEST, LATEST = -2, -1
#: (timestamp, isolation level): where a log begins, where it ends, where its stable part ends.
QUESTIONS = [(EARLIEST, 0), (LATEST, 0), (LATEST, 1)]
PAUSE_S = 0.02
Place = tuple[int, int, int]


class Watch:
    """Asks each node for its offsets, and writes records meanwhile. `shown` is the highest answer by question and partition."""

    def __init__(self, quorum: LocalQuorum) -> None:
        self._quorum = quorum
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self.shown: dict[Place, int] = {}
        self.answers = 0
        self.acknowledged = self.committed = 0
        self.wrong: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._guarded, args=(self._ask, node_id)) for node_id in self._quorum.nodes]
        threads += [threading.Thread(target=self._guarded, args=(self._write, index)) for index in range(PARTITIONS)]
        threads.append(threading.Thread(target=self._guarded, args=(self._transact,)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()
        assert not self.wrong, "\n".join(self.wrong[:10])

    def _guarded(self, work: object, *args: object) -> None:
        try:
            work(*args)  # type: ignore[operator]
        except BaseException as error:
            self.wrong.append(f"{work} ended: {error!r}")
            raise

    def _show(self, place: Place, offset: int, bound: int, where: str) -> None:
        with self._lock:
            self.answers += 1
            self.shown[place] = max(self.shown.get(place, 0), offset)
            if offset < bound:
                self.wrong.append(f"{where} answers {offset} to {place}, and {bound} was known before")

    def forget_starts_above(self, noted: Mapping[int, int]) -> None:
        """All nodes are down. What a leader had shown of its retention, and no follower has noted, may come back."""
        with self._lock:
            for index, start in noted.items():
                place = EARLIEST, 0, index
                self.shown[place] = min(self.shown.get(place, 0), start)

    # --- reading ---

    def _ask(self, node_id: int) -> None:
        asyncio.run(self._ask_on(node_id))

    async def _ask_on(self, node_id: int) -> None:
        (address,) = parse_servers(self._quorum.nodes[node_id].address)
        while not self._is_over.is_set():
            with contextlib.suppress(OSError, RaftlakeError):
                connection = await open_connection(address, ClientConfig(bootstrap=(address,)))
                try:
                    while not self._is_over.is_set():
                        for timestamp, isolation in QUESTIONS:
                            bounds = {index: self.shown.get((timestamp, isolation, index), 0) for index in range(PARTITIONS)}
                            answer = await connection.request(ApiKey.LIST_OFFSETS, 7, _question(timestamp, isolation), 5_000)
                            for told in answer.topics[0].partitions:
                                if told.error_code == ErrorCode.NONE:
                                    index = int(told.partition_index)
                                    place = timestamp, isolation, index
                                    self._show(place, int(told.offset), bounds[index], f"node {node_id}")
                        await asyncio.sleep(PAUSE_S)
                finally:
                    connection.close()
            await asyncio.sleep(PAUSE_S)

    # --- writing ---

    def _write(self, index: int) -> None:
        with Client(self._quorum.bootstrap_servers) as client:
            while not self._is_over.is_set():
                try:
                    offset = client.append("t", bytes(1_000), partition=index).offset
                except RaftlakeError:
                    self._is_over.wait(PAUSE_S)
                    continue
                # All that is acknowledged is shown from now on.
                self._show((LATEST, 0, index), offset + 1, 0, "an append")
                self.acknowledged += 1

    def _transact(self) -> None:
        settings = {
            "bootstrap.servers": self._quorum.bootstrap_servers,
            "transactional.id": "all",
            "linger.ms": 0,
            "log_level": 0,
        }
        producer: Producer | None = None
        while not self._is_over.is_set():
            try:
                if producer is None:
                    producer = Producer(settings | {"transaction.timeout.ms": 10_000})
                    producer.init_transactions(10)
                producer.begin_transaction()
                for index in range(PARTITIONS):
                    producer.produce("t", bytes(500), partition=index)
                producer.commit_transaction(10)
                self.committed += 1
            except KafkaException:
                producer = None
                self._is_over.wait(PAUSE_S)


def _question(timestamp: int, isolation: int) -> ListOffsetsRequest:
    asked = tuple(
        ListOffsetsPartition(partition_index=i32(index), current_leader_epoch=i32(-1), timestamp=i64(timestamp))
        for index in range(PARTITIONS)
    )
    topic = ListOffsetsTopic(name=TopicName("t"), partitions=asked)
    return ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(isolation), topics=(topic,))


def kill_all(quorum: LocalQuorum) -> None:
    for node_id in quorum.nodes:
        os.kill(quorum.pid(node_id), signal.SIGKILL)
    wait_until(lambda: not quorum.running(), "all nodes have ended")


def noted_starts(quorum: LocalQuorum) -> dict[int, int]:
    """By partition: where its log begins for good, by the files of all nodes. A leader notes nothing, it has deleted."""
    return {index: min(_noted_start(node.directory, index) for node in quorum.nodes.values()) for index in range(PARTITIONS)}


def _noted_start(directory: Path, index: int) -> int:
    noted = directory / FILE_NAME
    lines = [line.split() for line in noted.read_text().splitlines()[2:]] if noted.exists() else []
    starts = [int(offset) for topic, partition, offset in lines if (topic, partition) == ("t", str(index))]
    segments = [int(path.stem) for path in (directory / f"t-{index}").glob("*.log")]
    return max([*starts, min(segments, default=0)])


def one_round(quorum: LocalQuorum, watch: Watch) -> None:
    """Much happens, then all nodes are killed and started."""
    acknowledged, committed, noted = watch.acknowledged, watch.committed, noted_starts(quorum)
    wait_until(lambda: watch.acknowledged >= acknowledged + 50, "records are written")
    wait_until(lambda: watch.committed >= committed + 3, "transactions are committed")
    wait_until(lambda: all(start > noted[index] for index, start in noted_starts(quorum).items()), "all nodes note deletions")
    kill_all(quorum)
    watch.forget_starts_above(noted_starts(quorum))
    quorum.start(*quorum.nodes)
    answers = watch.answers
    wait_until(lambda: watch.answers >= answers + 50, "nodes answer again")


def test_no_partition_ends_early_and_nothing_deleted_comes_back(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("t", partitions=PARTITIONS, configs=CONFIGS)
        watch = Watch(quorum)
        with watch.running():
            for _ in range(ROUNDS):
                one_round(quorum, watch)
        assert sum(noted_starts(quorum).values()) > 0
