"""What a consumer's Fetches bring through a node: offsets that only the remote tier has, beside those of the local log.

Both are parts of one partition. One client fetches both and does not look into the records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from measure import Peer, Result, median, rounded
from our_nodes import create_topic, our_quorum
from processes import wait_until
from raftlake.client import Client

VALUE = bytes(range(100))
RECORDS = 2_000_000
ROUNDS = 3
#: As Kafka's consumers by default.
FETCH_BYTES = 1 << 20
TOPIC = "bench-history"
EARLIEST_LOCAL = -4
#: A third of the records, and the segment that they begin in: a fast producer makes large ones.
LOCAL_BYTES = 75_000_000


def measure(directory: Path) -> Iterator[Result]:
    settings = {
        "tier.uri": str(directory / "tables"),
        "tier.target.lag.ms": "1000",
        "tier.flush.bytes": str(16 << 20),
        "local.retention.bytes": str(LOCAL_BYTES),
    }
    with our_quorum(directory / "raftlake", settings) as quorum, Client(quorum.bootstrap_servers) as client:
        create_topic(quorum, TOPIC, 1)
        produce(quorum.bootstrap_servers)
        seam = settled_start(client)
        end = client.read_offset(TOPIC, [0])[0]
        old = [read(client, 0, seam) for _ in range(ROUNDS)]
        hot = [read(client, seam, end) for _ in range(ROUNDS)]
        yield Result(
            name="consumer of old offsets through a node",
            value=median(old),
            unit="records/s",
            method=(
                f"{seam:,} records of {len(VALUE)} B that only the table has, in Fetches of 1 MiB one by one; beside them"
                f" {end - seam:,} of the local log; median of {ROUNDS}, the first starts the node's reading process"
            ),
            peer=Peer(name="the local log", value=median(hot), ratio=median(old) / median(hot)),
            details={"old": rounded(old), "hot": rounded(hot)},
        )


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 1_000_000})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0, "records without an answer"


def settled_start(client: Client) -> int:
    """Where the local log begins when all that may go has gone."""
    seen: list[int] = []

    def settled() -> bool:
        seen.append(client.list_offsets(TOPIC, {0: EARLIEST_LOCAL})[0])
        # Retention looks each five seconds.
        return seen[-1] > 0 and len(seen) > 30 and len(set(seen[-30:])) == 1

    wait_until(settled, "the local log is trimmed", timeout_s=300, poll_s=0.5)
    return seen[-1]


def read(client: Client, start: int, end: int) -> float:
    """Records a second."""
    began, following = time.perf_counter(), start
    while following < end:
        fetched = client.fetch_raw(TOPIC, 0, following, bytes_max=FETCH_BYTES, wait_ms=500)
        following = fetched.next_offset
    return (following - start) / (time.perf_counter() - began)
