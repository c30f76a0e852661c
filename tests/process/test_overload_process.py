"""Whole nodes under more than they can do: paused peers, a paused leader, floods of connections, clients that never read.

Asked of each: the majority goes on, nobody is told something wrong, and memory stays within the bounds of docs/bounds.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from raftlake import LocalQuorum
from raftlake.client import AsyncClient
from raftlake.errors import RaftlakeError, UnknownOutcome
from raftlake.wire.api import ApiKey, encode_request
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from raftlake.wire.topic_lists import TopicPartitions
from waitkit import ATTEMPTS

pytestmark = pytest.mark.process

MIB = 1 << 20
PATIENCE_SECONDS = 30


def memory_mib(quorum: LocalQuorum, node_id: int) -> float:
    pages = int(Path(f"/proc/{quorum.pid(node_id)}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


@contextlib.contextmanager
def paused(quorum: LocalQuorum, *node_ids: int) -> Iterator[None]:
    pids = [quorum.pid(node_id) for node_id in node_ids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def until(condition: Callable[[], Coroutine[Any, Any, bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def ends_of(client: AsyncClient, topic: str) -> dict[int, int]:
    """By node: how far it has the topic's partition 0, as the leader knows it."""
    described = await client.describe_quorum(topic, 0)
    return {replica.replica_id: replica.log_end_offset for replica in described.voters}


def test_a_paused_follower_slows_nobody_and_catches_up(tmp_path: Path) -> None:
    value = os.urandom(16 * 1024)
    seconds = 5.0

    async def append(client: AsyncClient, until_s: float, acknowledged: list[float]) -> None:
        while time.monotonic() < until_s:
            await client.append("t", value)
            acknowledged.append(time.monotonic())

    async def load(client: AsyncClient, duration_s: float) -> list[float]:
        acknowledged: list[float] = []
        until_s = time.monotonic() + duration_s
        await asyncio.gather(*(append(client, until_s, acknowledged) for _ in range(16)))
        return acknowledged

    async def main(quorum: LocalQuorum) -> None:
        async with AsyncClient(quorum.bootstrap_servers) as client:
            await client.create_topic("t")
            # One slow node in three must not be noticed. The machine may be, which others keep busy, but not each time.
            for _ in range(ATTEMPTS):
                before = await load(client, 2.0)
                leader = (await client.describe_quorum("t", 0)).leader_id
                slow = next(node_id for node_id in quorum.nodes if node_id != leader)
                memory_before = memory_mib(quorum, leader)
                with paused(quorum, slow):
                    began = time.monotonic()
                    during = await load(client, seconds)
                    memory = memory_mib(quorum, leader)
                rate_before, rate = len(before) / 2.0, len(during) / seconds
                gaps = [after - earlier for earlier, after in zip([began, *during], during, strict=False)]
                print(f"{rate_before:.0f} appends/s, then {rate:.0f}; longest pause {max(gaps):.2f} s; leader {memory:.0f} MiB")
                assert memory < memory_before + 64
                if rate > rate_before / 3 and max(gaps) < 1.5:
                    break
            else:
                raise AssertionError(f"appends stood still or were slow in each of {ATTEMPTS} pauses of a follower")

            async def caught_up() -> bool:
                ends = await ends_of(client, "t")
                return ends[slow] == ends[leader]

            await until(caught_up, "the follower did not catch up")

    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum:
        asyncio.run(main(quorum))


def test_a_paused_leader_is_deposed_and_says_nothing_stale_when_it_wakes(tmp_path: Path) -> None:
    """Requests reach it while it sleeps and lie in its sockets: they are the first thing that it sees, long before it hears
    that another one leads. None of them may be answered from what it knew, nor change anything."""

    async def main(quorum: LocalQuorum) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS, follow_redirects=False) as http:
            puts: list[tuple[int, str, httpx.Response]] = []

            async def written_by_the_leader() -> bool:
                leader = quorum.leader()
                url = f"http://{quorum.nodes[leader].http_address}/v1/kv/k"
                puts.append((leader, url, await http.put(url, content=b"old")))
                return puts[-1][2].status_code == 200

            await until(written_by_the_leader, "no leader took a write")
            sleeper, url, written = puts[-1]
            # Connections that exist already, so that the requests are in the sleeper's buffers at once.
            await asyncio.gather(*(http.get(url) for _ in range(20)))
            with paused(quorum, sleeper):
                answers = [asyncio.create_task(http.get(url)) for _ in range(10)]
                stale_etag = {"if-match": written.headers["etag"]}
                late = [asyncio.create_task(http.put(url, content=b"late", headers=stale_etag)) for _ in range(5)]
                others = [node for node_id, node in quorum.nodes.items() if node_id != sleeper]

                async def overwritten() -> bool:
                    for node in others:
                        with contextlib.suppress(httpx.HTTPError):
                            answer = await http.put(f"http://{node.http_address}/v1/kv/k", content=b"new", timeout=2)
                            if answer.status_code == 200:
                                return True
                    return False

                await until(overwritten, "no other node took over")
            answers += [asyncio.create_task(http.get(url)) for _ in range(10)]
            for answer in await asyncio.gather(*answers):
                assert answer.status_code in (200, 503), answer.text
                assert answer.status_code == 503 or answer.content == b"new", "a stale read"
            for answer in await asyncio.gather(*late):
                assert answer.status_code in (307, 412, 503, 504), "a compare-and-set against an overwritten version"

            async def is_readable() -> bool:
                final = await http.get(f"http://{others[0].http_address}/v1/kv/k")
                assert final.status_code == 503 or final.content == b"new"
                return final.status_code == 200

            await until(is_readable, "the key could not be read in the end")

    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum:
        asyncio.run(main(quorum))


def connect(quorum: LocalQuorum, node_id: int) -> socket.socket:
    node = quorum.nodes[node_id]
    return socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_SECONDS)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_flood_of_connections_is_refused_and_the_quorum_goes_on(tmp_path: Path) -> None:
    async def main(quorum: LocalQuorum) -> None:
        async with AsyncClient(quorum.bootstrap_servers) as client:
            leader = (await client.create_topic("t")).partitions[0].leader_id
            await client.append("t", b"before")
            memory_before = memory_mib(quorum, leader)
            flood = [connect(quorum, leader) for _ in range(500)]
            try:

                async def refused() -> bool:
                    return sum(map(is_closed, flood)) >= 400

                await until(refused, "more connections are open than max.connections allows")
                await client.append("t", b"during")
                memory = memory_mib(quorum, leader)
                print(f"{sum(map(is_closed, flood))} of 500 refused, {memory - memory_before:.0f} MiB more")
                assert memory < memory_before + 64
            finally:
                for connection in flood:
                    connection.close()
        async with AsyncClient(quorum.bootstrap_servers) as client:
            await client.append("t", b"after")

    with LocalQuorum(nodes=3, data_dir=tmp_path, settings={"max.connections": "100"}) as quorum:
        asyncio.run(main(quorum))


def test_clients_who_never_read_their_answers_hold_a_bounded_part_of_a_node(tmp_path: Path) -> None:
    topics = [TopicPartitions(f"{'unknown' * 30}{number}", [0]) for number in range(250)]
    request = b"".join(encode_request(ApiKey.FIND_QUORUM, 0, 1, "greedy", FindQuorumRequest(None, topics)))
    with LocalQuorum(nodes=1, data_dir=tmp_path) as quorum:
        memory_before = memory_mib(quorum, 1)
        greedy = [connect(quorum, 1) for _ in range(8)]
        sent = 0
        for connection in greedy:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(0.3)
            # Until the node takes no more; 64 MiB of answers to one connection would be no bound.
            with contextlib.suppress(TimeoutError):
                while sent < 8 * 64 * MIB:
                    connection.sendall(request)
                    sent += len(request)
        memory = memory_mib(quorum, 1)
        print(f"{sent / MIB:.0f} MiB of requests taken, {memory - memory_before:.0f} MiB more in memory")
        assert sent < 8 * 64 * MIB
        assert memory < memory_before + 128
        health = f"http://{quorum.nodes[1].http_address}/health/ready"
        assert httpx.get(health, trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
        for connection in greedy:
            connection.close()


def test_appends_that_cannot_commit_make_producers_wait_and_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Both followers sleep, and 200 producers offer 1.6 GB. The leader takes what its bound allows and no more."""
    batch = build_batch([Record(offset=0, timestamp_ms=-1, key=None, value=os.urandom(MIB))], timestamp_ms=1_700_000_000_000)
    part = ProducePartition(0, memoryview(batch))

    def frame(number: int) -> bytes:
        message = ProduceRequest(acks=-1, timeout_ms=600_000, transactional_id=None, topics=[ProduceTopic("t", None, [part])])
        return b"".join(encode_request(ApiKey.PRODUCE, 9, number, "flood", message))

    async def offer(address: tuple[str, int], taken: list[int]) -> None:
        _, writer = await asyncio.open_connection(*address)
        try:
            for number in range(8):
                writer.write(frame(number))
                await writer.drain()
                taken.append(number)
            await asyncio.Event().wait()
        finally:
            writer.transport.abort()

    async def main(quorum: LocalQuorum) -> None:
        async with AsyncClient(quorum.bootstrap_servers, request_timeout_ms=20_000) as client:
            leader = (await client.create_topic("t")).partitions[0].leader_id
            others = [node_id for node_id in quorum.nodes if node_id != leader]
            memory_before = memory_mib(quorum, leader)
            taken: list[int] = []
            with paused(quorum, *others):
                offers = [asyncio.create_task(offer(("127.0.0.1", quorum.nodes[leader].port), taken)) for _ in range(200)]
                highest = 0.0
                seen = -1
                while seen != len(taken):
                    seen = len(taken)
                    for _ in range(8):
                        await asyncio.sleep(0.1)
                        highest = max(highest, memory_mib(quorum, leader))
                for task in offers:
                    task.cancel()
                await asyncio.wait(offers)
            print(
                f"{len(taken)} of 1600 MiB taken from the producers, {highest - memory_before:.0f} MiB in the leader's memory"
            )
            # 256 MiB of started requests, and a first megabyte of the next one of each of 200 connections.
            assert highest < memory_before + 256 + 200 + 100

            async def writes() -> bool:
                try:
                    await client.append("t", b"after", timeout_ms=5_000)
                except (RaftlakeError, UnknownOutcome):
                    return False
                return True

            await until(writes, "the quorum did not come back")

    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum:
        asyncio.run(main(quorum))


def test_unfinished_requests_of_all_connections_hold_a_bounded_part_of_a_node_and_producers_go_on(tmp_path: Path) -> None:
    """24 connections each send nearly all of 16 MiB and then nothing: 360 MiB, of which the node takes what it may."""
    unfinished = (16 * MIB).to_bytes(4, "big") + bytes(15 * MIB)

    async def withhold(port: int, connected: list[asyncio.StreamWriter]) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        connected.append(writer)
        try:
            writer.write(unfinished)
            await asyncio.Event().wait()
        finally:
            writer.transport.abort()

    async def main(quorum: LocalQuorum) -> None:
        async with AsyncClient(quorum.bootstrap_servers) as client:
            leader = (await client.create_topic("t")).partitions[0].leader_id
            node = quorum.nodes[leader]
            await client.append("t", os.urandom(MIB))
            memory_before = memory_mib(quorum, leader)
            connected: list[asyncio.StreamWriter] = []
            hostile = [asyncio.create_task(withhold(node.port, connected)) for _ in range(24)]
            seen = left = -1
            # Until the node takes no more of what is offered.
            while len(connected) < 24 or seen != (left := sum(each.transport.get_write_buffer_size() for each in connected)):
                seen = left if len(connected) == 24 else -1
                await asyncio.sleep(0.3)
            latencies = []
            for _ in range(20):
                began = time.monotonic()
                await client.append("t", os.urandom(MIB))
                latencies.append(time.monotonic() - began)
            memory = memory_mib(quorum, leader)
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as http:
                metrics = (await http.get(f"http://{node.http_address}/metrics")).text
                ready = await http.get(f"http://{node.http_address}/health/ready")
            (queued,) = [line for line in metrics.splitlines() if line.startswith("raftlake_queued_request_bytes ")]
            print(f"{memory - memory_before:.0f} MiB more, appends of 1 MiB {max(latencies):.2f} s at most; {queued}")
            assert len(connected) == 24 and seen > 250 * MIB, "the node took what it cannot hold"
            assert 0 < float(queued.split()[1]) <= 32 * MIB and ready.status_code == 200
            assert memory < memory_before + 32 + 30
            for task in hostile:
                task.cancel()
            await asyncio.wait(hostile)
            await client.append("t", os.urandom(7 * MIB))

    bounds = {"queued.max.request.bytes": str(32 * MIB), "socket.request.max.bytes": str(16 * MIB)}
    with LocalQuorum(nodes=3, data_dir=tmp_path, settings=bounds) as quorum:
        asyncio.run(main(quorum))
