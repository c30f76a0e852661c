"""How soon a node with history serves again: 1 GB of log and 100,000 keys, after kill -9 and after a graceful stop."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench_bulk import PARTITIONS, produce
from etcd_client import key_of
from http_load import HttpConnection, put_request
from load import run_load
from measure import Result, median, rounded
from our_nodes import create_topic, http_address, our_quorum
from processes import wait_until
from raftlake import LocalQuorum
from raftlake.client import Client

LOG_BYTES = 1_000_000_000
KEYS = 100_000
ROUNDS = 3
TOPIC = "bench-restart"
VALUE = bytes(100)


def measure(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "raftlake") as quorum:
        create_topic(quorum, TOPIC, PARTITIONS)
        produce(quorum.bootstrap_servers, TOPIC, LOG_BYTES)
        run_load(
            http_address(quorum, leader=True), partial(HttpConnection, put_request(VALUE), KEYS), connections=64, requests=KEYS
        )
        method = (
            f"{LOG_BYTES / 1e9:g} GB in {PARTITIONS} partitions, {KEYS:,} puts of as many keys; from the process's start until"
            f" it answers a linearizable get and describes the topic; median of {ROUNDS}"
        )
        for name, sign in (("after kill -9", signal.SIGKILL), ("after a graceful stop", signal.SIGTERM)):
            taken = [restart(quorum, sign) for _ in range(ROUNDS)]
            yield Result(
                name=f"restart with 1 GB and 100,000 keys, {name}",
                value=median(taken),
                unit="s",
                method=method,
                at_most=3.0,
                details={"rounds": rounded(taken)},
            )


def restart(quorum: LocalQuorum, sign: signal.Signals) -> float:
    """Seconds until the metadata log's leader serves again after it was ended: it has the same data as any other."""
    victim = quorum.leader()
    os.kill(quorum.pid(victim), sign)
    wait_until(lambda: victim not in quorum.running(), "the node's end")
    began = time.perf_counter()
    quorum.start(victim)
    wait_until(lambda: get_status(quorum.nodes[victim].http_port, KEYS - 1) == 200, "a linearizable get")
    with Client(quorum.nodes[victim].address) as client:
        assert len(client.describe_topic(TOPIC).partitions) == PARTITIONS
    return time.perf_counter() - began


def get_status(port: int, key: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", f"/v1/kv/{key_of(key).decode()}")
        return connection.getresponse().status
    finally:
        connection.close()
