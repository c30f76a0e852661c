"""Reserved keys that are committed and mean harm: nodes go on and start again, and touch nothing outside their directories."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pytest
from forgekit import A_TOPIC_ID, EVIL_KEYS
from siegekit import PATIENCE_S, Siege

from raftlake import Client, LocalQuorum
from raftlake.kv.commands import Delete, Txn, put
from raftlake.local import LocalNode
from spoilkit import kill_with_equal_logs, spoil
from waitkit import wait_until

pytestmark = pytest.mark.process

#: From the directory of a node to each place above it that the test may watch.
WAYS_OUT = ("..", "../..", "../../..")
NAMES = [f"/raftlake/topics/{way}/{name}" for way in WAYS_OUT for name in ("made", "kept")]
TOPIC = b'{"id": "%s", "partitions": 1}' % A_TOPIC_ID


def outside(root: Path, quorum: Path) -> set[Path]:
    """All that lies beside the nodes' directories."""
    return {path for path in root.rglob("*") if not any(path.is_relative_to(quorum / f"node-{n}") for n in (1, 2, 3))}


def ignored(node: LocalNode) -> float:
    """How many committed entries the node has taken for meaningless."""
    with contextlib.suppress(httpx.HTTPError):
        text = httpx.get(f"http://{node.http_address}/metrics", trust_env=False).text
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("raftlake_ignored_keys_total "))
    return 0


def test_evil_keys_that_are_committed_stop_no_node_and_reach_no_file(tmp_path: Path, twin: LocalQuorum) -> None:
    place = tmp_path / "a" / "b" / "quorum"
    with LocalQuorum(nodes=3, data_dir=place) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("honest")
            client.append("honest", b"kept", partition=0)
        kill_with_equal_logs(quorum)
    # What a deleted topic would lose, were its name believed.
    for way in WAYS_OUT:
        kept = (place / "node-1" / way / "kept-0").resolve()
        kept.mkdir()
        (kept / "precious").write_text("mine")
    before = outside(tmp_path, place)
    spoil(
        [place / f"node-{node_id}" for node_id in (1, 2, 3)],
        *(put(key, value) for key, value in EVIL_KEYS),
        *(put(name, TOPIC) for name in NAMES),
        *(Txn((), (Delete(name),)) for name in NAMES),
    )
    with LocalQuorum(nodes=3, data_dir=place) as quorum:
        siege = Siege.of(quorum, twin)
        with siege.attack("committed reserved keys that mean harm"):
            for node in quorum.nodes.values():
                wait_until(lambda node=node: ignored(node) >= len(NAMES), "the node has met the keys", PATIENCE_S)
        with Client(quorum.bootstrap_servers) as client:
            assert sorted(topic.name for topic in client.topics()) == sorted(["honest", siege.honest.topic])
            values = [record.value for record in client.read("honest", 0, 0, max_bytes=1 << 20)]
            assert values == [b"kept"]
        for node_id in quorum.nodes:
            quorum.kill(node_id)
            quorum.start(node_id)
        assert quorum.leader() in quorum.nodes
    after = outside(tmp_path, place)
    assert after <= before, "nothing new"
    assert before <= after, "nothing is gone"
