"""Clients that want all the room there is: keys without end, records without end, and a disk that somebody else fills."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from siegekit import Siege

from mountkit import MIB, fill, make_room, mounted
from raftlake import Client, LocalQuorum
from raftlake.errors import RaftlakeError
from raftlake.local import LocalNode
from waitkit import wait_until

pytestmark = pytest.mark.process

QUOTA = 16 * MIB
DISK_BYTES = 512 * MIB
LIMIT = 128 * MIB
CONNECTIONS = 8
VALUE = bytes(256 * 1024)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory, twin: LocalQuorum) -> Iterator[Siege]:
    """A small quota on a small disk."""
    settings = {"kv.quota.bytes": str(QUOTA), "log.dir.min.free.bytes": str(LIMIT)}
    with mounted(tmp_path_factory.mktemp("space") / "disk", DISK_BYTES) as disk:
        with LocalQuorum(nodes=3, data_dir=disk / "quorum", settings=settings) as quorum:
            yield Siege.of(quorum, twin)


def disk_of(siege: Siege) -> Path:
    return siege.quorum.data_dir.parent


def metric(node: LocalNode, name: str) -> float:
    text = httpx.get(f"http://{node.http_address}/metrics", trust_env=False, timeout=PATIENCE_S).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def in_parallel(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_connections_put_keys_until_there_is_no_room(siege: Siege) -> None:
    front = f"http://{siege.quorum.nodes[siege.quorum.leader()].http_address}/v1/kv/"
    statuses: list[list[int]] = [[] for _ in range(CONNECTIONS)]

    def put_without_end(number: int) -> None:
        with httpx.Client(trust_env=False, follow_redirects=True, timeout=PATIENCE_S) as client:
            for index in range(2 * QUOTA // len(VALUE)):
                statuses[number].append(client.put(f"{front}greedy/{number}/{index}", content=VALUE).status_code)
                if statuses[number].count(507) == 3:
                    return

    with siege.attack("keys without end"):
        in_parallel(put_without_end)
        assert all(found.count(507) == 3 for found in statuses), statuses
        for node in siege.quorum.nodes.values():
            assert metric(node, "raftlake_kv_bytes") <= QUOTA == metric(node, "raftlake_kv_quota_bytes")
        with httpx.Client(trust_env=False, follow_redirects=True, timeout=PATIENCE_S) as client:
            for number, found in enumerate(statuses):
                for index in range(len(found)):
                    assert client.delete(f"{front}greedy/{number}/{index}").status_code == 200


def test_producers_that_fill_the_disk_are_held_at_the_limit(siege: Siege) -> None:
    disk = disk_of(siege)
    with Client(siege.quorum.bootstrap_servers) as client:
        client.create_topic("greedy")
    refused = threading.Event()

    def append_without_end(_number: int) -> None:
        with Client(siege.quorum.bootstrap_servers) as client:
            while not refused.is_set():
                try:
                    client.append("greedy", VALUE, partition=0, timeout_ms=3_000)
                except RaftlakeError:
                    refused.set()

    with siege.attack("records without end"):
        # So much is left above the limit that the three nodes on it have some seconds' work.
        fill(disk, LIMIT + 64 * MIB)
        in_parallel(append_without_end)
        low = [node_id for node_id in siege.quorum.nodes if is_low(siege, node_id)]
        assert len(low) >= 2, "a majority is low"
        assert all(metric(node, "raftlake_disk_full") == 0 for node in siege.quorum.nodes.values()), "and nobody is full"
        with Client(siege.quorum.bootstrap_servers) as client:
            client.delete_topic("greedy")
        make_room(disk)
        wait_until(lambda: not any(is_low(siege, each) for each in siege.quorum.nodes), "nobody is low", PATIENCE_S)


def test_a_disk_that_is_full_to_the_last_byte_for_a_while(siege: Siege) -> None:
    disk = disk_of(siege)
    with siege.attack("a full disk"):
        fill(disk, 0)
        wait_until(lambda: all(is_low(siege, each) for each in siege.quorum.nodes), "all are low", PATIENCE_S)
        for node in siege.quorum.nodes.values():
            with contextlib.suppress(httpx.HTTPError):
                httpx.put(f"http://{node.http_address}/v1/kv/more", content=VALUE, trust_env=False, timeout=PATIENCE_S)
        fill(disk, 0)
        make_room(disk)
        wait_until(lambda: not any(is_low(siege, each) for each in siege.quorum.nodes), "nobody is low", PATIENCE_S)


def is_low(siege: Siege, node_id: int) -> bool:
    return metric(siege.quorum.nodes[node_id], "raftlake_disk_low") == 1
