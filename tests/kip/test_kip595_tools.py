"""KIP-595, sentence by sentence: DescribeQuorum, FindQuorum, the cluster id, and the tool.

Each docstring quotes the sentence. Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows
Kafka's behaviour.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from clientkit import FakeQuorum, run
from raftkit.replica import Replica
from raftlake.cli import main as cli
from raftlake.cli import quorum as cli_quorum
from raftlake.client import AsyncClient, QuorumDescription, ReplicaDescription
from raftlake.errors import ErrorCode, RaftlakeError
from raftlake.kv.keys import CLUSTER_KEY
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import DescribeRpc
from raftlake.replica.config import METADATA_GROUP
from raftlake.wire.api import ApiKey
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.ids import id_from_text
from raftlake.wire.quorum import replication_facts, status_lines
from raftlake.wire.topic_lists import TopicPartitions
from replica_cluster import Cluster as NodeCluster

request = importlib.import_module("kio.schema.describe_quorum.v2.request")
response = importlib.import_module("kio.schema.describe_quorum.v2.response")
KioError = importlib.import_module("kio.schema.errors").ErrorCode

# --- DescribeQuorum -------------------------------------------------------------------------------------------------


def asked() -> Any:
    part = request.PartitionData(partition_index=0)
    return request.DescribeQuorumRequest(topics=(request.TopicData(topic_name="__cluster_metadata", partitions=(part,)),))


def described(cluster: NodeCluster) -> Any:
    """What the leader says of its quorum."""
    answer = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_QUORUM, asked(), version=2)
    return answer.topics[0].partitions[0]


def ask_follower(cluster: NodeCluster) -> Any:
    """What a follower says by itself, as to a node that passes a client's question on."""
    replies: list[Any] = []
    cluster.followers()[0].receive(PeerConnection(), DescribeRpc(request=asked()), replies.append)
    cluster.run(10, until=lambda: bool(replies))
    return replies[0].response.topics[0].partitions[0]


def test_describe_shows_the_lag_of_followers() -> None:
    """“The DescribeQuorum API is used by the admin client to show the status of the quorum. This includes showing the progress
    of a quorum reassignment and viewing the lag of followers and observers.”
    """
    cluster = NodeCluster()
    down = cluster.followers()[0].config.node_id
    cluster.run(1_000)
    cluster.stop(down)
    cluster.create_topic("t")
    ends = {int(replica.replica_id): int(replica.log_end_offset) for replica in described(cluster).current_voters}
    assert 0 <= ends[down] < max(ends.values())


def test_only_the_leader_knows_the_lag() -> None:
    """“This API must be sent to the leader, which is the only node that would have lag information for all of the voters.”"""
    leader = Replica.leader(epoch=6)
    leader.fetch(2, 1, 6)
    assert [status.key.id for status in leader.core.replica_progress()] == [1, 2, 3]
    assert Replica.follower(epoch=6).core.replica_progress() == ()


def test_who_does_not_lead_answers_with_an_error() -> None:
    """“First check whether the node is the leader. If not, then return an error to let the client retry with Metadata.”
    A client that asks a follower is helped further: the follower passes the question on.
    """
    cluster = NodeCluster()
    assert int(ask_follower(cluster).error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    passed_on = cluster.ask(cluster.followers()[0], ApiKey.DESCRIBE_QUORUM, asked(), version=2)
    assert int(passed_on.topics[0].partitions[0].error_code) == ErrorCode.NONE


def test_who_does_not_lead_names_the_leader() -> None:
    """“If the current leader is known to the receiving node, then include the LeaderId and LeaderEpoch in the response.” Kafka
    leaves both 0; theirs are legal fields to fill.
    """
    cluster = NodeCluster()
    answer = ask_follower(cluster)
    leader = cluster.leader()
    epoch = leader.partitions[METADATA_GROUP].core.epoch
    assert (int(answer.leader_id), int(answer.leader_epoch)) == (leader.config.node_id, epoch)


def test_the_description_is_the_leader_s_own_book_keeping() -> None:
    """“Build the response using current assignment information and cached state about replication progress.”"""
    leader = Replica.leader(epoch=6)
    leader.fetch(2, 1, 6)
    leader.fetch(9, 0, 0)
    lines = [(status.key.id, status.log_end, status.is_voter) for status in leader.core.replica_progress()]
    assert lines == [(1, 1, True), (2, 1, True), (3, -1, True), (9, 0, False)]


def test_an_unknown_log_end_is_minus_one() -> None:
    """“The last known log end offset of the follower or -1 if it is unknown”"""
    leader = Replica.leader(epoch=6)
    assert {status.key.id: status.log_end for status in leader.core.replica_progress()} == {1: 1, 2: -1, 3: -1}


def describe_with(*scripts: Any, timeout_ms: float = 5_000) -> tuple[QuorumDescription, list[int]]:
    """A client's answer where the nodes 1, 2, ... answer its DescribeQuorum by `scripts`, and who was asked, in order."""
    found: list[QuorumDescription] = []
    order: list[int] = []

    async def test() -> None:
        async with FakeQuorum(len(scripts)) as quorum, AsyncClient(quorum.bootstrap) as client:

            def answer(node_id: int) -> Any:
                def script(header: object, message: object) -> Any:
                    order.append(node_id)
                    quorum.nodes[node_id].once(ApiKey.DESCRIBE_QUORUM, script)
                    error, leader = scripts[node_id - 1](order.count(node_id))
                    return description(error, leader)

                return script

            for node_id in quorum.nodes:
                quorum.nodes[node_id].once(ApiKey.DESCRIBE_QUORUM, answer(node_id))
            found.append(await client.describe_quorum(timeout_ms=timeout_ms))

    run(test())
    return found[0], order


def description(error: ErrorCode, leader_id: int) -> Any:
    replica = response.ReplicaState(
        replica_id=leader_id, replica_directory_id=None, log_end_offset=5, last_fetch_timestamp=-1, last_caught_up_timestamp=0
    )
    part = response.PartitionData(
        partition_index=0,
        error_code=KioError(int(error)),
        error_message=None,
        leader_id=leader_id,
        leader_epoch=3,
        high_watermark=5,
        current_voters=(replica,) if error is ErrorCode.NONE else (),
        observers=(),
    )
    topic = response.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    return response.DescribeQuorumResponse(error_code=KioError.none, error_message=None, topics=(topic,), nodes=())


def test_a_client_goes_on_to_the_leader() -> None:
    """“If the response indicates that the intended node is not the current leader, then check the response to see if
    the LeaderId has been set. If so, then attempt to retry the request with the new leader.” Ours asks the controller
    first, then the other nodes, at once.
    """
    refuse, answer = (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2), (ErrorCode.NONE, 2)
    found, order = describe_with(lambda _: refuse, lambda _: answer)
    assert (found.leader_id, order) == (2, [1, 2])


def test_a_client_asks_the_leader_first() -> None:
    """“This request is always sent to the leader node. We expect AdminClient to use the Metadata API in order to discover the
    current leader.” Kafka: DescribeCluster names the controller, which is the leader of the metadata log.
    """
    answer = (ErrorCode.NONE, 1)
    found, order = describe_with(lambda _: answer, lambda _: answer, lambda _: answer)
    assert (found.leader_id, order) == (1, [1])


def test_a_client_waits_for_a_leader() -> None:
    """“If the current leader is not defined in the response (which could be the case if there is an election in progress), then
    backoff and retry with Metadata.”
    """
    no_leader, answer = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, 1)
    found, order = describe_with(lambda times: answer if times > 2 else no_leader)
    assert (found.leader_id, order) == (1, [1, 1, 1])


def test_a_client_gives_up_in_the_end() -> None:
    """“Otherwise the response can be returned to the application, or the request eventually times out.”"""
    with pytest.raises(RaftlakeError):
        describe_with(lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), timeout_ms=60)


# --- cluster bootstrapping ------------------------------------------------------------------------------------------


def test_voters_find_each_other_by_their_configuration() -> None:
    """“When the cluster is initialized for the first time, the voters will find each other through the static quorum.voters
    configuration.”
    """
    cluster = NodeCluster()
    leader = cluster.leader()
    assert set(leader.config.voters) == set(leader.partitions[METADATA_GROUP].core.voters.ids) == {1, 2, 3}


def test_the_first_leader_makes_the_cluster_id() -> None:
    """“It is the job of the first elected leader (i.e. the first controller) to generate a UUID that will serve as a unique
    clusterId.” A quorum that was formatted with one keeps it.
    """
    cluster, other = NodeCluster(seed=1), NodeCluster(seed=2)
    for one in (cluster, other):
        one.run(3_000)
    made = cluster.leader().cluster_id
    assert made is not None
    assert len(id_from_text(made)) == 16
    assert made != other.leader().cluster_id
    formatted = NodeCluster(cluster_id="AAECAwQFBgcICQoLDA0ODw")
    formatted.run(3_000)
    assert {node.cluster_id for node in formatted.nodes.values()} == {"AAECAwQFBgcICQoLDA0ODw"}


def test_the_cluster_id_is_replicated_like_anything_else() -> None:
    """“This ID will be stored in the metadata log as a message and will be propagated to all brokers in the cluster through the
    replication protocol defined by this proposal.”
    """
    for formatted_for in (None, "AAECAwQFBgcICQoLDA0ODw"):
        cluster = NodeCluster(cluster_id=formatted_for)
        cluster.run(3_000)
        ids = {node.cluster_id for node in cluster.nodes.values()}
        entries = {node.kv.machine.get(CLUSTER_KEY) for node in cluster.nodes.values()}
        assert len(ids) == len(entries) == 1
        assert None not in ids | entries


def test_the_shell_hears_of_a_new_cluster_id_once() -> None:
    """“(From an implementation perspective, the Raft library will provide a hook for the initialization of the clusterId.)”"""
    cluster = NodeCluster()
    heard: list[str] = []
    for node in cluster.nodes.values():
        node.cluster_identity.writers.append(heard.append)
    cluster.run(5_000)
    assert len(heard) == 3
    assert set(heard) == {cluster.leader().cluster_id}


# --- FindQuorum and the tool ----------------------------------------------------------------------------------------


def test_any_node_tells_who_leads() -> None:
    """“observers can still fallback to FindQuorum request” [...] - Kafka never shipped it; ours is answered by every
    node, with the voters and where they are.
    """
    cluster = NodeCluster()
    cluster.run(1_000)
    for node in cluster.nodes.values():
        answer = cluster.ask(node, ApiKey.FIND_QUORUM, FindQuorumRequest(None, [TopicPartitions("__cluster_metadata", [0])]))
        (part,) = answer.topics[0].partitions
        assert part.leader_id == cluster.leader().config.node_id
        assert [voter.node_id for voter in part.voters] == [1, 2, 3]


def quorum(**changes: Any) -> QuorumDescription:
    """The figures of the KIP's example."""

    def replica(node_id: int, end: int, behind_ms: int) -> ReplicaDescription:
        return ReplicaDescription(
            replica_id=node_id,
            directory_id=bytes(16),
            log_end_offset=end,
            last_fetch_timestamp_ms=10_000 - behind_ms,
            last_caught_up_timestamp_ms=10_000 - behind_ms,
        )

    example = QuorumDescription(
        cluster_id="SomeClusterId",
        leader_id=0,
        leader_epoch=15,
        high_watermark=234130,
        voters=(replica(0, 234134, 0), replica(1, 234130, 10), replica(2, 234100, 15)),
        observers=(replica(3, 234124, 12), replica(4, 234130, 15)),
        listeners={},
    )
    return replace(example, **changes)


@pytest.mark.parametrize("arguments", [[], ["--status", "--replication"]])
def test_describe_has_two_options(arguments: list[str]) -> None:
    """“There will be two options available with -- describe” [...]: one of them has to be given."""
    outcome = CliRunner().invoke(cli.app, ["describe", *arguments])
    assert outcome.exit_code == 2
    assert "--status" in outcome.output
    assert "--replication" in outcome.output


@pytest.mark.parametrize("what", ["status", "replication"])
def test_describe_takes_the_spelling_of_the_kips_tool(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """“describe --describe status: a short summary of the quorum status” [...] Kafka: `describe --status`."""
    monkeypatch.setattr(cli_quorum, "connect", lambda *_: contextlib.nullcontext(SimpleNamespace(describe_quorum=quorum)))
    ours, the_kips = (CliRunner().invoke(cli.app, ["describe", *spelt]) for spelt in ([f"--{what}"], ["--describe", what]))
    assert (ours.exit_code, the_kips.exit_code, the_kips.output) == (0, 0, ours.output)
    assert ("LeaderEpoch:" in ours.output) == (what == "status")
    for wrong in (["--describe", "voters"], ["--describe", "status", "--replication"]):
        assert CliRunner().invoke(cli.app, ["describe", *wrong]).exit_code == 2


def test_describe_status_is_a_summary() -> None:
    """“a short summary of the quorum status” [...] The words are those of the example; the voters are shown as Kafka 4 does."""
    lines = status_lines(quorum())
    shown = {line.split(":", 1)[0]: line.split(":", 1)[1].strip() for line in lines}
    assert {name: shown[name] for name in list(shown)[:6]} == {
        "ClusterId": "SomeClusterId",
        "LeaderId": "0",
        "LeaderEpoch": "15",
        "HighWatermark": "234130",
        "MaxFollowerLag": "34",
        "MaxFollowerLagTimeMs": "15",
    }
    assert list(shown)[6:] == ["CurrentVoters", "CurrentObservers"]


def test_describe_replication_has_a_line_for_every_replica() -> None:
    """“provides detailed information about the status of replication”"""
    rows = [(row["nodeId"], row["logEndOffset"], row["lag"], row["status"]) for row in replication_facts(quorum())]
    assert rows == [
        (0, 234134, 0, "Leader"),
        (1, 234130, 4, "Follower"),
        (2, 234100, 34, "Follower"),
        (3, 234124, 10, "Observer"),
        (4, 234130, 4, "Observer"),
    ]
