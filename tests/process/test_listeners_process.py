"""Nodes whose peers have a listener of their own: they form a quorum by it, and strangers at the other one change nothing."""

from __future__ import annotations

import importlib
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from raftlake import Client
from raftlake.replica.config import METADATA_TOPIC, METADATA_TOPIC_ID
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire import fetch, produce
from raftlake.wire.api import ApiKey
from splitkit import PATIENCE_S, SplitNode, ask, split_quorum
from waitkit import wait_until

pytestmark = pytest.mark.process

EPOCH = 500
NODE = peer_client_id(2)  # type: ignore[arg-type]


def vote(pre_vote: bool) -> Any:
    schema: Any = importlib.import_module("kio.schema.vote.v2.request")
    part = schema.PartitionData(
        partition_index=0, replica_epoch=EPOCH, replica_id=2, replica_directory_id=uuid.UUID(int=1), voter_directory_id=None,
        last_offset_epoch=EPOCH - 1, last_offset=10**12, pre_vote=pre_vote,
    )  # fmt: skip
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(part,))
    return schema.VoteRequest(cluster_id=None, voter_id=-1, topics=(topic,))


def begin() -> Any:
    schema: Any = importlib.import_module("kio.schema.begin_quorum_epoch.v1.request")
    part = schema.PartitionData(partition_index=0, voter_directory_id=None, leader_id=2, leader_epoch=EPOCH)
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(part,))
    return schema.BeginQuorumEpochRequest(cluster_id=None, voter_id=-1, topics=(topic,), leader_endpoints=())


def forged_fetch() -> fetch.FetchRequest:
    part = fetch.FetchPartition(index=0, current_leader_epoch=-1, fetch_offset=10**9, last_fetched_epoch=1, log_start_offset=0,
                                bytes_max=1000)  # fmt: skip
    topic = fetch.FetchTopic(None, METADATA_TOPIC_ID, [part])
    return fetch.FetchRequest(wait_ms_max=0, bytes_min=0, replica_id=2, topics=[topic])


def proposal() -> produce.ProduceRequest:
    topic = produce.ProduceTopic(METADATA_TOPIC, None, [produce.ProducePartition(0, b"not even a batch")])
    return produce.ProduceRequest(-1, 1000, None, [topic])


def settled(nodes: list[SplitNode]) -> tuple[int, int]:
    """The leader and its epoch, as all nodes see them."""

    def seen() -> Any:
        found = {(node.quorum()["leaderId"], node.quorum()["leaderEpoch"]) for node in nodes}
        return found.pop() if len(found) == 1 and min(found)[0] > 0 else None

    return wait_until(seen, "all nodes see one leader", 30)  # type: ignore[no-any-return]


def test_strangers_at_the_clients_listener_change_nothing(tmp_path: Path) -> None:
    with split_quorum(tmp_path) as nodes, Client([node.clients for node in nodes]) as client:
        client.create_topic("t", partitions=3)
        first = client.append("t", b"before", partition=0).offset
        before = settled(nodes)
        for node in nodes:
            for key, version, message in (
                (ApiKey.VOTE, 2, vote(False)),
                (ApiKey.VOTE, 2, vote(True)),
                (ApiKey.BEGIN_QUORUM_EPOCH, 1, begin()),
                (ApiKey.FETCH, 17, forged_fetch()),
            ):
                for client_id in ("stranger", NODE):
                    assert ask(node.clients, key, version, message, client_id) is None, (node, key)
            refused = ask(node.clients, ApiKey.PRODUCE, 12, proposal(), NODE)
            assert refused.topics[0].partitions[0].error != 0
        assert settled(nodes) == before
        assert client.append("t", b"after", partition=0).offset == first + 1
        # The same at the peers' listener is a peer's, as it has to be.
        assert ask(nodes[0].peers, ApiKey.VOTE, 2, vote(True), NODE) is not None


@pytest.mark.parametrize("command", [["remove", "2"], ["add", "9@127.0.0.1:1"]])
def test_voters_are_not_changed_by_a_command_at_the_listener_for_peers(tmp_path: Path, command: list[str]) -> None:
    """The leader took the change there; then the command failed, and an operator would have removed a second voter."""
    with split_quorum(tmp_path) as nodes:
        leader, _ = settled(nodes)
        asked = ["--bootstrap-server", nodes[leader - 1].peers, "--timeout-ms", "20000"]
        ran = subprocess.run(
            [sys.executable, "-m", "raftlake", "voters", *command, *asked],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
        )
        assert ran.returncode == 1
        assert "is a listener for peers: clients connect to the address that `listeners` names" in ran.stderr
        assert len(nodes[leader - 1].quorum()["currentVoters"]) == 3


def test_a_leader_is_lost_and_the_others_elect_by_their_own_listener(tmp_path: Path) -> None:
    with split_quorum(tmp_path) as nodes, Client([node.clients for node in nodes]) as client:
        leader, epoch = settled(nodes)
        nodes[leader - 1].process.kill()
        others = [node for node in nodes if node.node_id != leader]
        wait_until(lambda: settled(others)[1] > epoch, "the others elect one of them", 30)
        client.create_topic("t")
        client.append("t", b"after", partition=0)
        assert b"after" in [record.value for record in client.read("t", 0, 0)]
