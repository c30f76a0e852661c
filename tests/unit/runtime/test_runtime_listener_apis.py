"""Where peers have a listener of their own: what replicas say is taken there only, and clients are told nothing else."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import pytest

from raftlake.client import protocol
from raftlake.ports.driver import ListenerUse
from raftlake.ports.peer_rpcs import ControlRpc, FetchRpc, FetchSnapshotRpc, ProposeRpc, ReadOffsetRpc, VoterRpc
from raftlake.runtime.listener.apis import listed
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire import fetch_snapshot, produce, read_offset
from raftlake.wire.api import ApiKey
from runtime_fakes import Wire, api_versions, begin_quorum_epoch, connect, fetch_of, run, served, settle, until

NODE = peer_client_id(2)  # type: ignore[arg-type]


def schema(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def vote() -> Any:
    return schema("vote", 0).VoteRequest(cluster_id=None, topics=())


def end_quorum_epoch() -> Any:
    return schema("end_quorum_epoch", 1).EndQuorumEpochRequest(cluster_id=None, topics=(), leader_endpoints=())


def snapshot() -> Any:
    return fetch_snapshot.FetchSnapshotRequest(None, 2, 1000, [])


def update_voter() -> Any:
    of = schema("update_raft_voter", 0)
    feature = of.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    return of.UpdateRaftVoterRequest(
        cluster_id=None,
        current_leader_epoch=1,
        voter_id=2,
        voter_directory_id=None,
        listeners=(),
        k_raft_version_feature=feature,
    )


def add_voter() -> Any:
    of = schema("add_raft_voter", 1)
    return of.AddRaftVoterRequest(
        cluster_id=None, timeout=datetime.timedelta(seconds=1), voter_id=4, voter_directory_id=None, listeners=()
    )


def remove_voter() -> Any:
    return schema("remove_raft_voter", 0).RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=None)


def describe_quorum() -> Any:
    return schema("describe_quorum", 2).DescribeQuorumRequest(topics=())


def describe_cluster() -> Any:
    return protocol.describe_cluster_request()


def metadata() -> Any:
    return schema("metadata", 1).MetadataRequest(topics=())


def proposal() -> Any:
    topic = produce.ProduceTopic("__cluster_metadata", None, [produce.ProducePartition(0, b"batch")])
    return produce.ProduceRequest(-1, 0, None, [topic])


def read() -> Any:
    return read_offset.ReadOffsetRequest(None, 0, [])


def kinds(on: Any) -> list[type]:
    return [type(call.message) for call in on.node.calls]


#: What replicas alone say, whatever client id they give: the key, the version, the message, and what it is where it is taken.
OF_REPLICAS = [
    (ApiKey.VOTE, 0, vote, ControlRpc),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, begin_quorum_epoch, ControlRpc),
    (ApiKey.END_QUORUM_EPOCH, 1, end_quorum_epoch, ControlRpc),
    (ApiKey.FETCH, 17, lambda: fetch_of(replica_id=2), FetchRpc),
    (ApiKey.FETCH, 17, lambda: fetch_of(replica_id=0), FetchRpc),
    (ApiKey.FETCH_SNAPSHOT, 1, snapshot, FetchSnapshotRpc),
    (ApiKey.UPDATE_RAFT_VOTER, 0, update_voter, VoterRpc),
]


@pytest.mark.parametrize("client_id", ["someone", NODE, None])
@pytest.mark.parametrize(("key", "version", "make", "rpc"), OF_REPLICAS)
def test_what_replicas_say_ends_a_connection_to_the_clients_listener(
    key: ApiKey, version: int, make: Any, rpc: type, client_id: str | None
) -> None:
    """As at the listener of Kafka's brokers. Another connection goes on."""

    async def main() -> None:
        async with served(use=ListenerUse.CLIENTS) as on:
            other, wire = await connect(on.address), await connect(on.address)
            wire.send(key, version, make(), client_id=client_id)
            assert await wire.is_closed()
            assert on.node.calls == [] and on.alive == []
            other.send(ApiKey.FETCH, 17, fetch_of(replica_id=-1))
            await until(lambda: len(on.node.calls) == 1)
            for each in (other, wire):
                each.close()

    run(main())


@pytest.mark.parametrize("use", [ListenerUse.SHARED, ListenerUse.PEERS])
@pytest.mark.parametrize(("key", "version", "make", "rpc"), OF_REPLICAS)
def test_what_replicas_say_is_taken_where_peers_ask(key: ApiKey, version: int, make: Any, rpc: type, use: ListenerUse) -> None:
    async def main() -> None:
        async with served(use=use) as on:
            wire = await connect(on.address)
            wire.send(key, version, make(), client_id=NODE)
            await until(lambda: len(on.node.calls) == 1)
            assert kinds(on) == [rpc]
            connection = on.node.calls[0].connection
            assert connection is not None and connection.listener is use
            wire.close()

    run(main())


async def answers_of(on: Any, wire: Wire, asked: list[tuple[ApiKey, int, Any]], client_id: str) -> None:
    for key, version, message in asked:
        before = len(on.node.calls)
        wire.send(key, version, message, client_id=client_id)
        await until(lambda: len(on.node.calls) == before + 1)  # noqa: B023


def test_a_nodes_client_id_makes_nobody_a_node_at_the_clients_listener() -> None:
    """Proposals are forwarded as Produce, under a node's client id: there they are a client's Produce, which is refused."""

    async def main() -> None:
        asked = [
            (ApiKey.PRODUCE, 12, proposal()),
            (ApiKey.DESCRIBE_QUORUM, 2, describe_quorum()),
            (ApiKey.ADD_RAFT_VOTER, 1, add_voter()),
            (ApiKey.REMOVE_RAFT_VOTER, 0, remove_voter()),
            (ApiKey.READ_OFFSET, 0, read()),
        ]
        async with served(use=ListenerUse.CLIENTS) as on:
            await answers_of(on, wire := await connect(on.address), asked, NODE)
            *others, read_call = on.node.calls
            assert [call.connection for call in others] == [None] * 4
            assert {call.client.listener for call in others} == {ListenerUse.CLIENTS}
            assert [call.header.api_key for call in others] == [key for key, _, _ in asked[:-1]]
            # Clients read offsets too; a follower passes only theirs on.
            assert read_call.message.replica_id == -1
            wire.close()
        async with served() as on:
            await answers_of(on, wire := await connect(on.address), asked[:1] + asked[-1:], NODE)
            assert kinds(on) == [ProposeRpc, ReadOffsetRpc] and on.node.calls[1].message.replica_id == 2
            wire.close()

    run(main())


def test_the_peers_listener_serves_what_kafkas_quorum_tool_asks_controllers() -> None:
    """`--bootstrap-controller`, and Java controllers that change their own vote. Nothing else of a client's."""

    async def main() -> None:
        asked = [
            (ApiKey.DESCRIBE_CLUSTER, protocol.DESCRIBE_CLUSTER_VERSION, describe_cluster()),
            (ApiKey.DESCRIBE_QUORUM, 2, describe_quorum()),
            (ApiKey.ADD_RAFT_VOTER, 1, add_voter()),
            (ApiKey.REMOVE_RAFT_VOTER, 0, remove_voter()),
            (ApiKey.UPDATE_RAFT_VOTER, 0, update_voter()),
        ]
        async with served(use=ListenerUse.PEERS) as on:
            await answers_of(on, wire := await connect(on.address), asked, "kafka-metadata-quorum")
            assert [call.header.api_key for call in on.node.calls if call.header] == [key for key, _, _ in asked]
            wire.close()
            for key, version, message in (
                (ApiKey.METADATA, 1, metadata()),
                (ApiKey.PRODUCE, 12, proposal()),
                (ApiKey.FETCH, 17, fetch_of(replica_id=-1)),
            ):
                wire = await connect(on.address)
                wire.send(key, version, message, client_id="someone")
                assert await wire.is_closed()
                wire.close()
            await settle()
            assert len(on.node.calls) == len(asked)

    run(main())


@pytest.mark.parametrize(
    ("use", "absent", "present"),
    [
        (ListenerUse.SHARED, set(), {0, 1, 3, 52, 53, 54, 55, 59, 80, 81, 82}),
        (ListenerUse.CLIENTS, {52, 53, 54, 59, 82}, {0, 1, 3, 55, 60, 80, 81}),
        (ListenerUse.PEERS, {0, 2, 3, 19, 20, 22}, {1, 18, 52, 53, 54, 55, 59, 60, 80, 81, 82}),
    ],
)
def test_api_versions_names_what_is_served_at_that_listener(use: ListenerUse, absent: set[int], present: set[int]) -> None:
    async def main() -> None:
        async with served(use=use) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.API_VERSIONS, 3, api_versions())
            _, answer = await wire.receive(ApiKey.API_VERSIONS, 3)
            told = {api.api_key for api in answer.api_keys}
            assert told >= present and not told & absent
            wire.send(ApiKey.API_VERSIONS, 4, api_versions(4))
            _, newest = await wire.receive(ApiKey.API_VERSIONS, 4)
            # What `FakeNode` says.
            assert [feature.max_version_level for feature in newest.finalized_features] == [1, 2]
            assert newest.finalized_features_epoch == 7
            # A newer client asks in a version that is not known here, and goes on from that answer.
            wire.writer.write(b"\x00\x00\x00\x0c\x00\x12\x00\x4d\x00\x00\x00\x07\x00\x02me")
            _, unsupported = await wire.receive(ApiKey.API_VERSIONS, 3)
            assert {api.api_key for api in unsupported.api_keys} == told == {api.key for api in listed(use)}
            wire.close()

    run(main())
