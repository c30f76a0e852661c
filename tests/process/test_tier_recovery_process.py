"""Node processes that go on behind a real Delta table: one that was away while local retention went on, and one that is new."""

from __future__ import annotations

import re
import socket
import subprocess
from functools import partial
from pathlib import Path

import httpx
import pytest

import waitkit
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.errors import ErrorCode
from raftlake.wire import produce
from raftlake.wire.api import ApiKey, decode_response, encode_request
from raftlake.wire.batches import Record, build_batch, iterate_headers
from votekit import PATIENCE_SECONDS, changed, log_of, start_node

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=120)
TOPIC = "orders"
PRODUCER = {"producer_id": 4_242, "producer_epoch": 0}


def settings(uri: Path) -> dict[str, str]:
    """Closed segments go from local disks as soon as the table shows them."""
    return {
        "tier.uri": str(uri),
        "tier.target.lag.ms": "1000",
        "tier.flush.bytes": "65536",
        "log.segment.bytes": "65536",
        "local.retention.bytes": "0",
    }


def produced(client: Client, sequence: int, value: bytes) -> int:
    """Append one record of an idempotent producer at the leader; its offset. The same sequence again is a retry."""
    batch = build_batch([Record(offset=0, value=value, timestamp_ms=1)], timestamp_ms=1, base_sequence=sequence, **PRODUCER)
    request = produce.ProduceRequest(
        -1, 30_000, None, [produce.ProduceTopic(TOPIC, None, [produce.ProducePartition(0, memoryview(batch))])]
    )
    frame = b"".join(encode_request(ApiKey.PRODUCE, 12, 1, "test", request))

    def answered() -> tuple[int] | None:
        leader = leader_of(client, TOPIC)
        try:
            place = client.describe_cluster().nodes[leader]
            with socket.create_connection((place.host, place.port), timeout=30) as connection:
                connection.sendall(frame)
                stream = connection.makefile("rb")
                size = int.from_bytes(stream.read(4), "big")
                _, response = decode_response(ApiKey.PRODUCE, 12, stream.read(size))
        except (OSError, KeyError):
            return None
        (result,) = response.topics[0].partitions
        return (result.base_offset,) if result.error is ErrorCode.NONE else None

    (offset,) = wait_until(answered, f"the append with sequence {sequence}")
    return int(offset)


def recoveries(http: str) -> int:
    """Of a node, since its start; -1 while it does not tell."""
    try:
        text = httpx.get(f"http://{http}/metrics", trust_env=False).text
    except httpx.HTTPError:
        return -1
    found = re.search(r"^raftlake_tier_recoveries_total (\d+)", text, re.MULTILINE)
    return -1 if found is None else int(found[1])


def first_segment(directory: Path) -> int:
    return min((int(path.stem) for path in (directory / f"{TOPIC}-0").glob("0*.log")), default=-1)


def fill(client: Client, directories: list[Path], above: int) -> None:
    """Append until all these logs begin above an offset."""

    def is_trimmed() -> bool:
        client.append(TOPIC, bytes(20_000))
        return all(first_segment(directory) > above for directory in directories)

    wait_until(is_trimmed, f"local logs that begin above {above}")


def log_bytes(client: Client, replica: int, start: int, end: int) -> bytes:
    """What a node has from one offset to another, as clients get it."""
    found = b""
    offset = start
    while offset < end:
        fetched = client.fetch_raw(TOPIC, 0, offset, limit_offset=end, replica=replica)
        found += b"".join(bytes(buffer) for buffer in fetched.buffers)
        offset = fetched.next_offset
    return found


def test_a_node_that_was_away_goes_on_behind_the_table(tmp_path: Path) -> None:
    with LocalQuorum(3, data_dir=tmp_path / "local", settings=settings(tmp_path / "tables")) as quorum:
        homes = {node: tmp_path / "local" / f"node-{node}" for node in (1, 2, 3)}
        with Client(quorum.bootstrap_servers, request_timeout_ms=60_000) as client:
            client.create_topic(TOPIC)
            first = produced(client, 0, b"first")
            away = next(node for node in (1, 2, 3) if node != leader_of(client, TOPIC))
            quorum.kill(away)
            second = produced(client, 1, b"second")
            fill(client, [homes[node] for node in (1, 2, 3) if node != away], second)
            quorum.start(away)
            http = quorum.nodes[away].http_address
            wait_until(lambda: recoveries(http) >= 1, "a recovery from the table")
            assert first_segment(homes[away]) > second
            fill_end = client.append(TOPIC, b"last").offset + 1
            start = max(first_segment(home) for home in homes.values())
            assert first < second < start < fill_end

            def is_equal() -> bool:
                return len({log_bytes(client, node, start, fill_end) for node in (1, 2, 3)}) == 1

            wait_until(is_equal, "the same records everywhere")

            def leads() -> bool:
                leader = leader_of(client, TOPIC)
                if leader != away:
                    quorum.kill(leader)
                    leader_of(client, TOPIC)
                    quorum.start(leader)
                return leader == away

            wait_until(leads, "the one that was away to lead")
            assert produced(client, 1, b"second") == second, "a retry from before its log is no new record"
            assert produced(client, 2, b"third") >= fill_end


def test_a_new_node_begins_behind_the_table_and_can_do_without_the_others(tmp_path: Path) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    more = settings(tmp_path / "tables")
    try:
        with LocalQuorum(1, data_dir=tmp_path / "local", settings=more) as quorum:
            with Client(quorum.bootstrap_servers, request_timeout_ms=60_000) as client:
                wait_until(lambda: all(each.directory_id for each in client.describe_quorum().voters), "a known disk")
                client.create_topic(TOPIC)
                second = [produced(client, number, b"v%d" % number) for number in range(2)][1]
                fill(client, [tmp_path / "local" / "node-1"], second)
                cluster_id = client.describe_cluster().cluster_id
                process, address = start_node(tmp_path / "node-2", 2, cluster_id, quorum.bootstrap_servers, **more)
                processes.append(process)
                assert changed(quorum.bootstrap_servers, "add", f"2@{address}") == [1, 2]
                assert first_segment(tmp_path / "node-2") > second
                assert changed(quorum.bootstrap_servers, "remove", "1") == [2]
                end = client.append(TOPIC, b"last").offset
                quorum.kill(1)
            with Client(address, request_timeout_ms=60_000) as client:
                assert leader_of(client, TOPIC) == 2
                assert produced(client, 1, b"v1") == second
                offset = produced(client, 2, b"v2")
                assert offset > end
                headers = list(iterate_headers(log_bytes(client, 2, end, offset + 1)))
                assert headers[0].base_offset == end and headers[-1].end_offset == offset + 1
            assert "begins at" in log_of(tmp_path / "node-2").read_text()
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        for each in processes:
            each.kill()
            each.wait()
