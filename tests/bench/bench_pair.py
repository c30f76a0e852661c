"""Side by side with etcd, both quorums up, rounds alternating: appends, key-value gets and puts, memory.

Both sides get prepared requests from a client of the same kind in this process (see load.py); what a request costs it and
what it costs all three nodes in processor time is in each row's details.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from etcd_client import PUT, RANGE, Calls, EtcdConnection, put_message, range_message
from etcd_nodes import EtcdQuorum
from http_load import HttpConnection, get_request, put_request
from load import Load, NewConnection, run_load
from measure import Peer, Result, Rounds, median, percentile
from our_nodes import create_topic, http_address, our_quorum, partition_address, pids_of
from processes import cpu_seconds, resident_mib
from raftlake import LocalQuorum
from raw_producer import ProduceConnection, produce_request

VALUE = bytes(range(256)) * 4
KEYS = 1000
ROUNDS = 5
TOPIC = "bench-append"


class Side:
    """One system under load; remembers latencies and costs."""

    def __init__(self, pids: list[int], address: tuple[str, int], new: NewConnection, connections: int, requests: int) -> None:
        self._pids = pids
        self._address = address
        self._new = new
        self._connections = connections
        self._requests = requests
        self.p99s_ms: list[float] = []
        self.node_us: list[float] = []
        self.client_us: list[float] = []

    def run(self, requests: int | None = None) -> Load:
        before = cpu_seconds(self._pids)
        load = run_load(self._address, self._new, connections=self._connections, requests=requests or self._requests)
        self.node_us.append(1e6 * (cpu_seconds(self._pids) - before) / (requests or self._requests))
        self.client_us.append(load.client_us)
        self.p99s_ms.append(percentile(load.latencies_ms, 99))
        return load

    def warm(self) -> None:
        self.run(max(500, self._requests // 10))
        self.p99s_ms, self.node_us, self.client_us = [], [], []

    def rate(self) -> float:
        return self.run().rate

    def p50_ms(self) -> float:
        return percentile(self.run().latencies_ms, 50)

    def details(self, who: str) -> dict[str, object]:
        return {
            f"{who}_p99_ms": round(median(self.p99s_ms), 3),
            f"{who}_nodes_cpu_us_per_request": round(median(self.node_us)),
            f"{who}_client_cpu_us_per_request": round(median(self.client_us)),
        }


def compare(ours: Side, etcd: Side, *, name: str, method: str, latency: bool = False, **bounds: float) -> Result:
    ours.warm()
    etcd.warm()
    rounds = Rounds()
    if latency:
        rounds.alternate(ROUNDS, ours.p50_ms, etcd.p50_ms)
    else:
        rounds.alternate(ROUNDS, ours.rate, etcd.rate)
    details = {**ours.details("ours"), **etcd.details("etcd")}
    return rounds.result(
        name=name, unit="ms" if latency else "1/s", method=method, peer="etcd", details=details,
        ratio_at_most=bounds.get("ratio_at_most"), ratio_at_least=bounds.get("ratio_at_least"),
    )  # fmt: skip


def tail(ours: Side, etcd: Side, *, name: str, method: str) -> Result:
    """The 99th percentiles of the rounds that `compare` has just run, without a budget."""
    rounds = Rounds(ours=list(ours.p99s_ms), peers=list(etcd.p99s_ms))
    return rounds.result(name=name, unit="ms", method=method, peer="etcd")


def measure(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "raftlake") as quorum, EtcdQuorum(directory / "etcd") as etcd:
        create_topic(quorum, TOPIC, 1)
        yield from appends(quorum, etcd)
        yield from key_values(quorum, etcd)
        yield memory(quorum, etcd)


def appends(quorum: LocalQuorum, etcd: EtcdQuorum) -> Iterator[Result]:
    address, leader = partition_address(quorum, TOPIC), etcd.address(etcd.leader())
    frame, calls = produce_request(TOPIC, 0, VALUE), Calls(PUT, put_message(VALUE))

    def sides(connections: int, in_flight: int, ours: int, theirs: int) -> tuple[Side, Side]:
        return (
            Side(pids_of(quorum), address, partial(ProduceConnection, frame, in_flight), connections, ours),
            Side(etcd.pids, leader, partial(EtcdConnection, calls, KEYS, in_flight), connections, theirs),
        )

    one, theirs = sides(1, 1, 1000, 1000)
    method = "1 KiB to the leader, synced on a majority: Kafka Produce of one record / gRPC put; 1,000 a round"
    yield compare(one, theirs, name="append p50, 1 in flight", method=method, latency=True, ratio_at_most=0.8)
    yield tail(one, theirs, name="append p99, 1 in flight", method="of the same requests")
    yield compare(
        *sides(8, 8, 20_000, 5_000),
        name="appends, 64 in flight",
        method="the same from 8 connections x 8 in flight, one record each, one partition; 20,000 / 5,000 a round",
        ratio_at_least=2.0,
    )


def key_values(quorum: LocalQuorum, etcd: EtcdQuorum) -> Iterator[Result]:
    leads = etcd.leader()
    follows = next(node for node in range(3) if node != leads)
    shape = f"1 KiB values, {KEYS:,} keys, 64 connections with one request each: HTTP/1.1 / gRPC"

    def put_sides(leader: bool) -> tuple[Side, Side]:
        calls = Calls(PUT, put_message(VALUE))
        return (
            Side(
                pids_of(quorum),
                http_address(quorum, leader=leader),
                partial(HttpConnection, put_request(VALUE), KEYS),
                64,
                6_000,
            ),
            Side(etcd.pids, etcd.address(leads), partial(EtcdConnection, calls, KEYS, 1), 64, 5_000),
        )

    def get_sides(leader: bool) -> tuple[Side, Side]:
        calls = Calls(RANGE, range_message())
        return (
            Side(
                pids_of(quorum), http_address(quorum, leader=leader), partial(HttpConnection, get_request(), KEYS), 64, 10_000
            ),
            Side(etcd.pids, etcd.address(leads if leader else follows), partial(EtcdConnection, calls, KEYS, 1), 64, 10_000),
        )

    yield compare(*put_sides(True), name="key-value puts, 64 in flight", method=f"{shape}, at the leader", ratio_at_least=1.0)
    for leader, where in ((True, "leader"), (False, "follower")):
        yield compare(
            *get_sides(leader),
            name=f"linearizable gets at the {where}, 64 in flight",
            method=f"{shape}, at the {where}",
            ratio_at_least=1.0,
        )


def memory(quorum: LocalQuorum, etcd: EtcdQuorum) -> Result:
    ours = [resident_mib(pid) for pid in pids_of(quorum)]
    theirs = [resident_mib(pid) for pid in etcd.pids]
    return Result(
        name="memory per node after the rows above",
        value=max(ours),
        unit="MiB",
        method="resident memory, the largest of three nodes on each side",
        peer=Peer(name="etcd", value=max(theirs), ratio=max(ours) / max(theirs), at_most=1.0),
        details={"ours": [round(mib) for mib in ours], "peer": [round(mib) for mib in theirs]},
    )
