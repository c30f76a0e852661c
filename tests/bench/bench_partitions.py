"""A thousand partitions on three nodes: what they cost at rest, and how long all of them take to fail over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from measure import Result, median, rounded
from our_nodes import create_topic, our_quorum, pids_of
from processes import cpu_seconds, resident_mib, wait_for_rest, wait_until
from raftlake import LocalQuorum
from raftlake.client import Client

PARTITIONS = 1000
IDLE_S = 10.0
ROUNDS = 3
TOPIC = "bench-many"


def measure(directory: Path) -> Iterator[Result]:
    shape = f"{PARTITIONS:,} partitions of one topic, every one with a record"
    with our_quorum(directory / "raftlake") as quorum:
        began = time.perf_counter()
        create_topic(quorum, TOPIC, PARTITIONS)
        yield Result(
            name="creation of 1,000 partitions", value=time.perf_counter() - began, unit="s", method="until all have leaders"
        )
        write_to_each(quorum)
        wait_for_rest(pids_of(quorum))
        yield idle_cpu(quorum, shape)
        yield from failover(quorum, shape)
        yield Result(
            name="memory per node, 1,000 partitions",
            value=max(resident_mib(pid) for pid in pids_of(quorum)),
            unit="MiB",
            method=f"{shape}; resident, the largest of three nodes, after the failovers",
            at_most=400,
        )


def idle_cpu(quorum: LocalQuorum, shape: str) -> Result:
    each = []
    pids = pids_of(quorum)
    before, began = [cpu_seconds([pid]) for pid in pids], time.perf_counter()
    time.sleep(IDLE_S)
    seconds = time.perf_counter() - began
    each = [100 * (cpu_seconds([pid]) - earlier) / seconds for pid, earlier in zip(pids, before, strict=True)]
    return Result(
        name="idle CPU per node, 1,000 partitions",
        value=max(each),
        unit="% of a core",
        method=f"{shape}; processor time over {IDLE_S:g} s without requests, the largest of three nodes",
        at_most=10,
        details={"nodes": rounded(each)},
    )


def failover(quorum: LocalQuorum, shape: str) -> Iterator[Result]:
    known, written = [], []
    for _ in range(ROUNDS):
        victim = most_leading(quorum)
        survivors = ",".join(node.address for node_id, node in quorum.nodes.items() if node_id != victim)
        began = time.perf_counter()
        quorum.kill(victim)
        with Client(survivors) as client:
            wait_until(lambda: all_led_by_others(client, victim), "leaders of all partitions", poll_s=0.02)  # noqa: B023
        known.append(time.perf_counter() - began)
        write_to_each(quorum)
        written.append(time.perf_counter() - began)
        quorum.start(victim)
        with Client(quorum.nodes[victim].address) as client:
            wait_until(lambda: all_have_leaders(client), "the restarted node's view of all partitions")
        wait_for_rest(pids_of(quorum))
    yield Result(
        name="failover of 1,000 partitions",
        value=median(written),
        unit="s",
        method=f"{shape}; kill -9 of the node that leads most, until librdkafka has appended to every one; median of {ROUNDS}",
        at_most=3.0,
        details={"rounds": rounded(written), "leaders_known": rounded(known)},
    )


def most_leading(quorum: LocalQuorum) -> int:
    with Client(quorum.bootstrap_servers) as client:
        leaders = [partition.leader_id for partition in client.describe_topic(TOPIC).partitions]
    return max(quorum.running(), key=leaders.count)


def all_have_leaders(client: Client) -> bool:
    return all_led_by_others(client, -1)


def all_led_by_others(client: Client, victim: int) -> bool:
    return all(partition.leader_id not in (-1, victim) for partition in client.describe_topic(TOPIC).partitions)


def write_to_each(quorum: LocalQuorum) -> None:
    """One acknowledged record in every partition."""
    failed: list[str] = []
    servers = ",".join(quorum.nodes[node].address for node in quorum.running())
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 5, "retry.backoff.ms": 20, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(
            TOPIC, b"x", partition=partition, on_delivery=lambda error, _: None if error is None else failed.append(str(error))
        )
    assert producer.flush(60) == 0, "records without an answer"
    assert not failed, failed[:3]
