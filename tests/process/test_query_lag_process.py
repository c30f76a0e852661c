"""How far streaming queries are, at node processes: `raftlake lag`, and the series of the partitions' leaders in `/metrics`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import waitkit
from pyspark_raftlake.position_writer import PositionWriter, SourceOfRun
from raftlake import Client, LocalQuorum
from raftlake.client import NewRecord
from raftlake.kv.query_positions import topic_key

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=60)

TOPIC, OTHER = "cli-lag", "cli-lag-other"
QUERY = "5d3f0c1e-cli-lag"


def raftlake(quorum: LocalQuorum, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", "lag", *arguments, "-b", quorum.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ok(quorum: LocalQuorum, *arguments: str) -> str:
    outcome = raftlake(quorum, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def series(quorum: LocalQuorum) -> dict[tuple[str, int], list[float]]:
    """What all nodes tell of the query, by topic and partition."""
    found: dict[tuple[str, int], list[float]] = {}
    for server in quorum.http_servers.split(","):
        page = httpx.get(f"http://{server}/metrics", timeout=20)
        assert page.status_code == 200
        for family in text_string_to_metric_families(page.text):
            for sample in family.samples:
                if sample.name == "raftlake_query_lag_records" and sample.labels["query"] == QUERY:
                    place = sample.labels["topic"], int(sample.labels["partition"])
                    found.setdefault(place, []).append(sample.value)
    return found


def test_a_query_is_told_of_until_it_is_forgotten(quorum: LocalQuorum) -> None:
    with Client(quorum.bootstrap_servers) as client:
        topic_id = client.create_topic(TOPIC, 2).topic_id
        client.create_topic(OTHER, 1)
        written_ms = round(time.time() * 1000) - 45_000
        for partition, count in ((0, 10), (1, 4)):
            records = [NewRecord(value=b"v", partition=partition, timestamp_ms=written_ms) for _ in range(count)]
            client.append_many(TOPIC, records)
        ends = client.list_offsets(TOPIC, {0: -1, 1: -1})
        source = SourceOfRun(query=QUERY, run="run-1", name="cli lag", reads=f"subscribe {TOPIC}", host="h", pid=1)
        writer = PositionWriter(client.kv, source, lambda: 0)
        now_ms = round(time.time() * 1000)
        writer.write({TOPIC: {0: ends[0] - 7, 1: ends[1]}, OTHER: {0: 0}}, now_ms, now_ms)
        client.kv.put(topic_key(QUERY, TOPIC), json.dumps({"topic_id": topic_id.hex()}).encode())

        told = {(each["topic"], each["partition"]): each for each in json.loads(ok(quorum, "--query", QUERY, "--json"))}
        assert {place: each["lag"] for place, each in told.items() if place[0] == TOPIC} == {(TOPIC, 0): 7, (TOPIC, 1): 0}
        first = told[TOPIC, 0]
        assert (first["position"], first["end"], first["waitingSinceMs"]) == (ends[0] - 7, ends[0], written_ms)
        assert first["name"] == "cli lag" and not first["isStale"]
        lines = [line.split("\t") for line in ok(quorum, "--query", "cli lag", "--topic", TOPIC).splitlines()]
        assert [cell.strip() for cell in lines[1][:4]] == [QUERY, "cli lag", TOPIC, "7"]
        assert 45 <= int(lines[1][4].split()[0]) < 110, lines

        wait_until(lambda: series(quorum).get((TOPIC, 0)) == [7], "the leader alone tells")
        assert series(quorum)[TOPIC, 1] == [0]
        client.append_many(TOPIC, [NewRecord(value=b"v", partition=1) for _ in range(3)])
        wait_until(lambda: series(quorum).get((TOPIC, 1)) == [3], "the log went on")
        writer.write({TOPIC: {0: ends[0], 1: ends[1] + 3}, OTHER: {0: 0}}, now_ms, now_ms)
        wait_until(lambda: series(quorum).get((TOPIC, 0)) == [0], "the query went on")

        client.delete_topic(OTHER)
        wait_until(lambda: (OTHER, 0) not in series(quorum), "a deleted topic has no series")
        gone = next(each for each in json.loads(ok(quorum, "--query", QUERY, "--json")) if each["topic"] == OTHER)
        assert (gone["end"], gone["lag"]) == (None, None)
        client.delete_topic(TOPIC)
        client.create_topic(TOPIC, 2)
        wait_until(lambda: not series(quorum), "nor has one that was created again")
        assert "topic is gone" in ok(quorum, "--query", QUERY, "--topic", TOPIC)

        refused = raftlake(quorum, "--query", "nobody")
        assert refused.returncode == 1 and "no streaming query has the id or the name 'nobody'" in refused.stderr
        assert "may still run" in raftlake(quorum, "forget", QUERY).stderr
        assert ok(quorum, "forget", QUERY, "--force").startswith(
            f"forgot {QUERY}: it had positions in 3 partitions, and was seen "
        )
        again = raftlake(quorum, "forget", QUERY)
        assert again.returncode == 1 and f"no streaming query has the id '{QUERY}'" in again.stderr
        assert not client.kv.list(f"/sources/{QUERY}/").entries
