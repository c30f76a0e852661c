"""Appends: latency one at a time, rate at 64 in flight, bulk rate through librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvloop
from confluent_kafka import Producer

from measure import Result, percentile
from raftlake.client import Client
from raw_producer import produce_request, run_load

if TYPE_CHECKING:
    from raftlake import LocalQuorum

VALUE = bytes(range(256)) * 4
ONE_IN_FLIGHT = 2_000
MANY_IN_FLIGHT = 100_000
BULK_BYTES = 400 << 20


def leader_address(client: Client, topic: str, partition: int) -> tuple[str, int]:
    leader = client.describe_topic(topic).partitions[partition].leader_id
    node = client.describe_cluster().nodes[leader]
    return node.host, node.port


def measure(quorum: LocalQuorum) -> Iterator[Result]:
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic("bench-append", partitions=1)
        client.create_topic("bench-bulk", partitions=4)
        address = leader_address(client, "bench-append", 0)
    frame = produce_request("bench-append", 0, VALUE)
    uvloop.run(run_load(address, frame, connections=1, in_flight=1, requests=500))  # connections and files are warm from here

    one = uvloop.run(run_load(address, frame, connections=1, in_flight=1, requests=ONE_IN_FLIGHT))
    method = f"1 KiB, prepared requests to the leader, one connection, {ONE_IN_FLIGHT:,} appends"
    yield Result(name="append p50, 1 in flight", value=percentile(one.latencies_ms, 50), unit="ms", method=method, at_most=1.5)
    yield Result(name="append p99, 1 in flight", value=percentile(one.latencies_ms, 99), unit="ms", method=method)

    began = time.perf_counter()
    many = uvloop.run(run_load(address, frame, connections=8, in_flight=8, requests=MANY_IN_FLIGHT))
    rate = MANY_IN_FLIGHT / (time.perf_counter() - began)
    method = f"1 KiB, 8 connections x 8 in flight, one record each, {MANY_IN_FLIGHT:,} appends, one partition"
    yield Result(name="appends, 64 in flight", value=rate, unit="1/s", method=method, at_least=10_000)
    yield Result(name="append p99, 64 in flight", value=percentile(many.latencies_ms, 99), unit="ms", method=method)

    yield bulk(quorum)


def bulk(quorum: LocalQuorum) -> Result:
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": quorum.bootstrap_servers,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 256_000,
        }
    )
    count = BULK_BYTES // len(VALUE)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce("bench-bulk", VALUE, partition=number % 4, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - began
    assert not failed, failed[:3]
    method = f"librdkafka, acks=all, 1 KiB, {BULK_BYTES >> 20} MiB over 4 partitions, linger 20 ms, no compression"
    return Result(name="bulk produce", value=BULK_BYTES / 1e6 / seconds, unit="MB/s", method=method, at_least=60)
