"""/v1/quorum: the leader's view at every node, and what a node says that gets none."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse, PartitionData, ReplicaState, TopicData
from kio.schema.errors import ErrorCode as KioError
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from quorumkit import described_quorum, described_replica
from raftlake.ports.peer_rpcs import DescribeReply, DescribeRpc
from raftlake.raft.events import FailureReason
from raftlake.runtime.http import ops as http_ops
from raftlake.wire.quorum import describe_quorum_request, replication_facts, status_facts
from runtime_fakes import run
from runtime_http_fakes import http_front


def test_quorum() -> None:
    async def main() -> None:
        async with http_front() as on:
            quorum = (await on.client.get("/v1/quorum")).json()
            facts = {**status_facts(on.node.described), "replicas": replication_facts(on.node.described)}
            assert quorum == facts | {"nodeId": 1, "leaderHttp": "10.0.0.2:8092"}
            assert list(quorum)[:9] == [
                "clusterId", "leaderId", "leaderEpoch", "highWatermark", "maxFollowerLag", "maxFollowerLagTimeMs",
                "currentVoters", "currentObservers", "replicas",
            ]  # fmt: skip
            assert (quorum["maxFollowerLag"], quorum["maxFollowerLagTimeMs"]) == (12, 600)
            assert quorum["currentVoters"][0] == {"id": 1, "endpoints": ["CONTROLLER://g:9092"]}
            assert quorum["replicas"][2] == {
                "nodeId": 3, "directoryId": "A" * 22, "logEndOffset": 30, "lag": 12, "lastFetchTimestamp": 900,
                "lastCaughtUpTimestamp": 400, "status": "Follower",
            }  # fmt: skip
            assert on.node.sent == []
            on.node.described = described_quorum(-1)
            assert (await on.client.get("/v1/quorum")).json()["leaderHttp"] is None
            assert (await on.client.get("/v1/quorum?topic=t&partition=0")).status_code == 404
            assert (await on.client.get("/v1/quorum?partition=-1")).status_code == 400

    run(main())


def quorum_answer(error: KioError = KioError.none) -> DescribeReply:
    """What node 2 says of its quorum."""
    replica = ReplicaState(
        replica_id=BrokerId(2),
        replica_directory_id=None,
        log_end_offset=i64(77),
        last_fetch_timestamp=i64(-1),
        last_caught_up_timestamp=i64(5),
    )
    partition = PartitionData(
        partition_index=i32(0),
        error_code=error,
        error_message=None,
        leader_id=BrokerId(2),
        leader_epoch=i32(8),
        high_watermark=i64(70),
        current_voters=(replica,),
        observers=(),
    )
    topic = TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    return DescribeReply(
        response=DescribeQuorumResponse(error_code=KioError.none, error_message=None, topics=(topic,), nodes=())
    )


def test_a_follower_shows_the_quorum_as_the_leader_sees_it() -> None:
    async def main() -> None:
        async with http_front() as on:
            unseen = [described_replica(node_id, -1, -1) for node_id in (1, 2, 3)]
            on.node.described = described_quorum(2, *unseen)

            async def ask(answer: object) -> dict[str, object]:
                asking = asyncio.create_task(on.client.get("/v1/quorum"))
                while not on.node.sent:
                    await asyncio.sleep(0)
                ((peer, rpc, done),) = on.node.sent
                on.node.sent.clear()
                assert peer == 2
                assert rpc == DescribeRpc(request=describe_quorum_request("__cluster_metadata", 0))
                done(answer)
                return dict((await asking).json())

            as_led = await ask(quorum_answer())
            assert (as_led["leaderEpoch"], as_led["highWatermark"]) == (8, 70)
            assert as_led["replicas"] == [
                {
                    "nodeId": 2, "directoryId": "A" * 22, "logEndOffset": 77, "lag": 0, "lastFetchTimestamp": -1,
                    "lastCaughtUpTimestamp": 5, "status": "Leader",
                }
            ]  # fmt: skip
            assert (as_led["nodeId"], as_led["leaderHttp"]) == (1, "10.0.0.2:8092")
            # Whom it takes for the leader is none any more, is not there, or does not describe itself.
            java = DescribeQuorumResponse(error_code=KioError.unknown_server_error, error_message=None, topics=(), nodes=())
            for useless in (
                quorum_answer(KioError.not_leader_or_follower),
                FailureReason.DISCONNECTED,
                DescribeReply(response=java),
            ):
                alone = await ask(useless)
                assert (alone["leaderEpoch"], alone["maxFollowerLag"], alone["replicas"]) == (7, -1, [])
                assert alone["currentVoters"] == status_facts(on.node.described)["currentVoters"]

    run(main())


def test_a_follower_waits_for_a_silent_leader_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with http_front() as on:
            unseen = [described_replica(node_id, -1, -1) for node_id in (1, 2, 3)]
            on.node.described = described_quorum(2, *unseen)
            answer = await on.client.get("/v1/quorum")
            assert (answer.status_code, answer.json()["replicas"], answer.json()["leaderId"]) == (200, [], 2)
            assert len(on.node.sent) == 1
            # Nobody is asked where there is no leader, or it is this very node, which has just resigned.
            for leader_id in (-1, 1):
                on.node.described = described_quorum(leader_id, *unseen)
                assert (await on.client.get("/v1/quorum")).json()["replicas"] == []
            assert len(on.node.sent) == 1

    monkeypatch.setattr(http_ops, "LEADER_SECONDS", 0.01)
    run(main())
