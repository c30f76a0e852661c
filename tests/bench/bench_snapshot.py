"""A snapshot of a million keys while clients write: the longest pause of the event loop, as the nodes' own metric shows it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from http_load import HttpConnection, put_request
from load import Load, run_load
from measure import Result, rounded
from our_nodes import http_address, our_quorum, pids_of
from processes import wait_for_rest, wait_until
from raftlake import LocalQuorum

KEYS = 1_000_000
KEYS_PER_TXN = 500
VALUE = base64.b64encode(bytes(40)).decode()
#: The next snapshot comes after 20 MiB of log.
LARGE_VALUE = bytes(16 * 1024)
LARGE_PUTS = 200
#: The metric looks back 30 s: pauses that the loading made must be out of sight, where they are longer than this.
QUIET_MS = 15.0
TIMEOUT_S = 90.0


class TxnConnection(HttpConnection):
    """Transactions of many puts, each of keys that no other one has."""

    def __init__(self, load: Load, done: asyncio.Future[None]) -> None:
        super().__init__((b"", b""), 1, load, done)

    def begin(self) -> None:
        if not self.load.take():
            self.finish()
            return
        first = self.load.remaining * KEYS_PER_TXN
        ops = [{"put": {"key": f"bench/{number:08d}", "value": VALUE}} for number in range(first, first + KEYS_PER_TXN)]
        body = json.dumps({"ops": ops}).encode()
        self.sent_at = time.perf_counter()
        head = b"POST /v1/txn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % len(body) + body)


def measure(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "raftlake") as quorum:
        address = http_address(quorum, leader=True)
        run_load(address, TxnConnection, connections=4, requests=KEYS // KEYS_PER_TXN)
        wait_for_rest(pids_of(quorum))
        wait_until(lambda: max(loop_lags_ms(quorum)) < QUIET_MS, "a quiet loop", TIMEOUT_S, poll_s=0.5)
        before = newest_snapshots(quorum)
        put = partial(HttpConnection, put_request(LARGE_VALUE), 100)
        run_load(address, put, connections=4, requests=LARGE_PUTS)
        usual = loop_lags_ms(quorum)
        began = time.perf_counter()

        def have_all_a_new_one() -> bool:
            run_load(address, put, connections=4, requests=LARGE_PUTS)
            now = newest_snapshots(quorum)
            return all(now[node] > before[node] for node in now)

        wait_until(have_all_a_new_one, "a snapshot at every node", TIMEOUT_S)
        # The file is there before the node has deleted older ones and moved the log's start.
        wait_for_rest(pids_of(quorum))
        lags = loop_lags_ms(quorum)
        yield Result(
            name="longest pause of the loop, snapshot of 1,000,000 keys",
            value=max(lags),
            unit="ms",
            method="raftlake_loop_lag_ms_max, the largest of three nodes, while 4 clients put 16 KiB each until all have"
            f" made a snapshot ({time.perf_counter() - began:.0f} s); with the same puts and no snapshot: {max(usual):.0f} ms",
            at_most=50,
            details={"nodes": rounded(lags), "without_snapshot": rounded(usual)},
        )


def newest_snapshots(quorum: LocalQuorum) -> dict[int, str]:
    """The name of each node's newest snapshot of the metadata log; they sort by offset."""
    names = {}
    for node_id, node in quorum.nodes.items():
        found = sorted(path.name for path in (node.directory / "__cluster_metadata-0").glob("*.checkpoint"))
        names[node_id] = found[-1] if found else ""
    return names


def loop_lags_ms(quorum: LocalQuorum) -> list[float]:
    return [loop_lag_ms(quorum, node) for node in quorum.running()]


def loop_lag_ms(quorum: LocalQuorum, node_id: int) -> float:
    node = quorum.nodes[node_id]
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        found = re.search(rb"^raftlake_loop_lag_ms_max (\S+)$", connection.getresponse().read(), re.MULTILINE)
    finally:
        connection.close()
    assert found is not None, "the node shows no raftlake_loop_lag_ms_max"
    return float(found[1])
