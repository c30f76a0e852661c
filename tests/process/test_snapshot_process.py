"""Node processes and snapshots: a node that was away while the metadata log was trimmed, and one that restarts from its own."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import httpx
import pytest

import waitkit
from raftlake import LocalQuorum

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=40)

PATIENCE_SECONDS = 40
SETTINGS = {
    "log.segment.bytes": "16384",
    "metadata.log.max.record.bytes.between.snapshots": "40000",
    "quorum.fetch.snapshot.max.bytes": "4096",
}


def get(http: str, key: str) -> bytes | None:
    try:
        answer = httpx.get(f"http://{http}/v1/kv/{key}?consistency=stale", trust_env=False)
    except httpx.HTTPError:
        return None
    return answer.content if answer.status_code == 200 else None


def put(http: str, key: str, value: bytes) -> None:
    """Until it is acknowledged: a write of the same value again changes nothing."""

    def is_acknowledged() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.put(f"http://{http}/v1/kv/{key}", content=value, follow_redirects=True, trust_env=False)
            assert answer.status_code in (200, 503, 504), answer.text
            return answer.status_code == 200
        return False

    wait_until(is_acknowledged, f"{key} is acknowledged")


def first_segment(directory: Path) -> int:
    return min(int(path.stem) for path in (directory / "__cluster_metadata-0").glob("0*.log"))


def test_a_node_that_was_away_while_the_log_was_trimmed_catches_up_by_snapshot(tmp_path: Path) -> None:
    with LocalQuorum(3, data_dir=tmp_path, settings=SETTINGS) as quorum:
        addresses = quorum.http_servers.split(",")
        away = next(node for node in (1, 2, 3) if node != quorum.leader())
        there = addresses[quorum.leader() - 1]
        put(there, "before", b"1")
        quorum.kill(away)
        for number in range(150):
            put(there, f"key{number}", bytes(1_000))
        # Either of them may lead when the third one comes back.
        homes = [tmp_path / f"node-{node_id}" for node_id in quorum.running()]
        wait_until(lambda: all(first_segment(home) > 10 for home in homes), "the others' metadata logs are trimmed")
        put(there, "last", b"the end")
        quorum.start(away)
        wait_until(lambda: get(addresses[away - 1], "last") == b"the end", "the node that was away has caught up")
        wait_until(lambda: get(addresses[away - 1], "before") == b"1", "it has what went before it was away")
        wait_until(lambda: get(addresses[away - 1], "key149") == bytes(1_000), "it has what was written while it was away")
        assert first_segment(tmp_path / f"node-{away}") > 10
        # And from its own snapshot after a kill.
        quorum.kill(away)
        quorum.start(away)
        wait_until(lambda: get(addresses[away - 1], "last") == b"the end", "the node has restarted from its snapshot")
