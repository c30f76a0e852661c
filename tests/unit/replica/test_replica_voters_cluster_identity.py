"""Which cluster a node is of: nodes of one quorum that were formatted with an id and without, and nodes of another cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, THREE, TWO, Ground, Noted
from raftlake.errors import DiskFull, StorageError, TooManyFiles
from raftlake.kv.keys import CLUSTER_KEY
from raftlake.ports.driver import ListenerUse, PeerConnection
from raftlake.ports.peer_rpcs import ControlRpc, FetchRpc, FetchSnapshotRpc, MarkersRpc, PeerMessage, PeerRpc, ReadOffsetRpc
from raftlake.raft.events import CampaignRequested
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from raftlake.raft.roles import Leader, ReplicaProgress
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import Endpoint
from raftlake.replica.quorum import Quorum
from raftlake.replica.voters.cluster_identity import (
    CLAIMS_WAIT_MS,
    STRANGERS_MAX,
    TELL_INTERVAL_MS,
    WARNING_MS,
    WRITE_INTERVAL_MS,
    ClusterIdentity,
)
from raftlake.replica.voters.membership import cluster_value
from replica_cluster import Cluster

A, B = "AAECAwQFBgcICQoLDA0ODw", "BAECAwQFBgcICQoLDA0ODw"
FOUR = NodeId(4)


# --- quorums of nodes with an id and without ---


def mixed(*formatted_for: str | None, leader: NodeId) -> Cluster:
    """Nodes 1, 2 … that were formatted for these clusters; `leader` is to campaign first."""
    cluster = Cluster(len(formatted_for))
    for node_id, cluster_id in enumerate(formatted_for, 1):
        cluster.stop(node_id)
        cluster.start(node_id, cluster_id=cluster_id)
    engine = cluster.nodes[leader].engine
    engine.step(engine.partitions[METADATA_GROUP], CampaignRequested())
    return cluster


def ids(cluster: Cluster) -> list[str | None]:
    return [node.cluster_id for node in cluster.nodes.values()]


@pytest.mark.parametrize("name", [A, "prod"])
@pytest.mark.parametrize("leader", [ME, THREE])
def test_a_node_without_an_id_learns_that_of_the_others_whoever_leads_first(name: str, leader: NodeId) -> None:
    """A node that was formatted without an id made one up when it led first, and was refused by its followers for ever. Behind
    another leader it learned none, and told no client where it is."""
    cluster = mixed(name, name, None, leader=leader)
    written: list[str] = []
    cluster.nodes[THREE].cluster_identity.writers.append(written.append)
    cluster.run(3_000)
    assert cluster.leader().config.node_id == leader
    assert (ids(cluster), written) == ([name] * 3, [name])
    for node in cluster.nodes.values():
        entry = node.kv.machine.get(CLUSTER_KEY)
        assert entry is not None and entry.value == cluster_value(name)
        assert set(node.membership.nodes()) == {ME, TWO, THREE}
        assert node.cluster_identity.warnings == ()


def test_a_leader_that_ends_before_the_id_is_committed_learns_it_all_the_same() -> None:
    cluster = mixed(A, A, None, leader=THREE)
    cluster.run(3_000, until=lambda: cluster.nodes[THREE].partitions[METADATA_GROUP].core.is_leader)
    assert cluster.nodes[THREE].cluster_id is None
    cluster.stop(THREE)
    cluster.run(3_000)
    cluster.start(THREE, cluster_id=None)
    cluster.run(3_000)
    assert ids(cluster) == [A] * 3


def test_a_voter_with_an_id_that_comes_a_little_late_is_not_locked_out() -> None:
    """The others are a majority, and none of them knew an id."""
    cluster = mixed(A, None, None, leader=THREE)
    cluster.stop(ME)
    cluster.run(3_000, until=lambda: cluster.nodes[THREE].partitions[METADATA_GROUP].is_serving)
    cluster.run(CLAIMS_WAIT_MS // 2)
    assert ids(cluster) == [None, None]
    cluster.start(ME, cluster_id=A)
    cluster.run(3_000)
    assert [cluster.nodes[node_id].cluster_id for node_id in (ME, TWO, THREE)] == [A] * 3


def test_a_quorum_without_an_id_waits_for_no_voter_that_is_away() -> None:
    cluster = mixed(None, None, None, leader=THREE)
    cluster.stop(ME)
    cluster.run(CLAIMS_WAIT_MS + 2_000)
    assert None not in ids(cluster) and len(set(ids(cluster))) == 1


def test_a_node_of_another_cluster_is_refused_and_named() -> None:
    cluster = mixed(A, A, B, leader=ME)
    cluster.run(5_000)
    for node_id in (ME, TWO):
        (warning,) = cluster.nodes[node_id].cluster_identity.warnings
        assert warning.startswith(f"node 3 is of cluster {B}, this one of {A}: it is answered nothing. If both belong to one")
    assert cluster.nodes[THREE].cluster_id == B


# --- what a leader without an id believes ---


def led(ground: Ground, identity: ClusterIdentity, *fetched: NodeId) -> None:
    """The metadata log is led here, and these voters have fetched in this epoch."""
    others = [node_id for node_id in sorted(ground.engine.config.voters) if node_id != ME]
    progress = {node_id: ReplicaProgress(ReplicaKey(node_id), 0) for node_id in others}
    for node_id in fetched:
        progress[node_id].has_fetched = True
    role = Leader(
        epoch_start_offset=Offset(0), granting_voters=(), voters=progress, check_quorum_deadline_ms=0, heartbeat_deadline_ms=0
    )
    latest = identity._quorum.latest
    identity._quorum = SimpleNamespace(latest=latest, partition=SimpleNamespace(core=SimpleNamespace(role=role)))  # type: ignore[assignment]


def identity_of(ground: Ground) -> tuple[ClusterIdentity, list[str]]:
    """And what it tells."""
    identity = ClusterIdentity(ground.engine, Quorum(ground.engine), Noted())  # type: ignore[arg-type]
    told: list[str] = []
    identity.listeners.append(told.append)
    return identity, told


def fetch(sender: NodeId, cluster_id: str | None) -> FetchRpc:
    return FetchRpc(
        cluster_id=cluster_id, replica_id=sender, session_id=0, session_epoch=0, wait_ms_max=0, size_max=1, messages=()
    )


PEERS, CLIENTS = PeerConnection(listener=ListenerUse.PEERS), PeerConnection(listener=ListenerUse.CLIENTS)


def test_a_leader_takes_the_id_of_the_last_fetch_of_each_voter_that_counts() -> None:
    ground = Ground(3)
    identity, _ = identity_of(ground)
    led(ground, identity, TWO, THREE)
    made_up = identity.choose(0)
    assert made_up not in (None, A, B) and identity.choose(0) != made_up
    for connection, sender, claimed in (
        (CLIENTS, TWO, B),
        (PEERS, FOUR, B),
        (PEERS, TWO, "b:b"),
        (PEERS, TWO, "b\nnode.id=9"),
        (PEERS, TWO, ""),
    ):
        assert not identity.refuses(connection, fetch(sender, claimed))
        assert identity.choose(0) not in (None, claimed), "no voter names that"
    for claimed in (B, A):
        assert not identity.refuses(PEERS, fetch(TWO, claimed))
        assert identity.choose(0) == claimed
    assert not identity.refuses(PEERS, fetch(THREE, A))
    assert identity.choose(0) == A
    for sender in (TWO, THREE):
        assert not identity.refuses(PEERS, fetch(sender, None))
    assert identity.choose(0) not in (None, A, B), "they were formatted anew"


def test_a_fetch_that_does_not_count_in_this_epoch_names_no_id() -> None:
    """Anybody may write an id into a Fetch of another epoch."""
    ground = Ground(3)
    identity, _ = identity_of(ground)
    led(ground, identity, THREE)
    identity.refuses(PEERS, fetch(TWO, B))
    for led_ms in (0, CLAIMS_WAIT_MS - 1):
        assert identity.choose(led_ms) is None, "the other voter may name one yet"
    assert identity.choose(CLAIMS_WAIT_MS) not in (None, B)
    led(ground, identity, TWO, THREE)
    assert identity.choose(0) == B


def test_who_does_not_lead_chooses_no_id() -> None:
    ground = Ground(3)
    identity, _ = identity_of(ground)
    assert identity.choose(CLAIMS_WAIT_MS) is None
    ground.host()
    assert identity.choose(CLAIMS_WAIT_MS) is None


def test_a_leader_takes_none_of_several_ids_and_says_so() -> None:
    ground = Ground(3)
    identity, told = identity_of(ground)
    led(ground, identity, TWO, THREE)
    identity.refuses(PEERS, fetch(TWO, A))
    identity.refuses(PEERS, fetch(THREE, B))
    assert identity.choose(CLAIMS_WAIT_MS) is identity.choose(CLAIMS_WAIT_MS) is None
    assert len(told) == 1 and f"node 2 is of {A}, node 3 is of {B}. " in told[0]
    identity.refuses(PEERS, fetch(THREE, A))
    assert identity.choose(CLAIMS_WAIT_MS) == A


# --- writing it down ---


@pytest.mark.parametrize("error", [DiskFull, TooManyFiles])
def test_an_id_that_cannot_be_written_down_now_is_written_down_later(error: type[DiskFull]) -> None:
    """It was never written by that process."""
    ground = Ground()
    disk = Noted()
    identity = ClusterIdentity(ground.engine, Quorum(ground.engine), disk)  # type: ignore[arg-type]
    errors: list[Exception] = [error("no room"), error("no room")]
    calls: list[str] = []

    def write(cluster_id: str) -> None:
        calls.append(cluster_id)
        if errors:
            raise errors.pop()

    identity.writers.append(write)
    identity.learn(A)
    assert ground.engine.cluster_id == A
    for tries in (1, 2):
        assert (len(calls), disk.names) == (tries, ["on_full"] * tries)
        ground.run(WRITE_INTERVAL_MS - 1)
        identity.tick()
        assert len(calls) == tries
        ground.run(1)
        identity.tick()
    ground.run(2 * WRITE_INTERVAL_MS)
    identity.tick()
    assert calls == [A] * 3 and len(disk.calls) == 2


def test_an_id_of_the_directory_is_not_written_again() -> None:
    identity, _ = identity_of(Ground(cluster_id=A))
    written: list[str] = []
    identity.writers.append(written.append)
    identity.tick()
    assert written == []


def test_a_failed_disk_is_no_full_one() -> None:
    def fail(cluster_id: str) -> None:
        raise StorageError(f"cannot sync: {cluster_id}")

    identity, _ = identity_of(Ground())
    identity.writers.append(fail)
    with pytest.raises(StorageError):
        identity.learn(A)


def test_a_full_disk_keeps_no_other_part_from_what_was_applied() -> None:
    """The metadata log was closed and started anew, and who comes behind in the line heard of the next command only."""
    cluster = Cluster()
    node = cluster.nodes[ME]
    opened, errors = node.quorum.partition, [DiskFull("cannot replace meta.properties")]
    heard: list[tuple[int, str | None]] = []
    calls: list[str] = []

    def write(cluster_id: str) -> None:
        calls.append(cluster_id)
        if errors:
            raise errors.pop()

    node.cluster_identity.writers.append(write)
    node.kv.listeners.append(lambda offset: heard.append((offset, node.cluster_id)))
    cluster.run(5_000, until=lambda: len(calls) == 1)
    cluster.run(5_000, until=lambda: heard[-1:] == [(node.kv.machine.applied_offset, node.cluster_id)])
    first = next(cluster_id for _, cluster_id in heard if cluster_id is not None)
    assert calls == [first] and node.disk.is_full
    cluster.run(2 * WRITE_INTERVAL_MS)
    assert calls == [first, first] and not node.disk.is_full
    assert node.quorum.partition is opened


# --- what is told of another cluster ---


def control(body: Any) -> PeerRpc:
    return ControlRpc(cluster_id=B, messages=(PeerMessage(METADATA_GROUP, body),))


def vote(sender: NodeId) -> VoteRequest:
    return VoteRequest(candidate=ReplicaKey(sender), epoch=Epoch(1), log_end=OffsetAndEpoch(Offset(0), Epoch(0)), pre_vote=True)


@pytest.mark.parametrize(
    "rpc",
    [
        fetch(TWO, B),
        FetchSnapshotRpc(cluster_id=B, replica_id=TWO, size_max=1, messages=()),
        ReadOffsetRpc(cluster_id=B, read_timestamp_ms=0, groups=(), replica_id=TWO),
        MarkersRpc(cluster_id=B, replica_id=TWO, markers=()),
        control(vote(TWO)),
        control(BeginQuorumEpochRequest(leader_id=TWO, leader_epoch=Epoch(1))),
        control(EndQuorumEpochRequest(leader_id=TWO, leader_epoch=Epoch(1), preferred_candidates=())),
    ],
    ids=lambda rpc: type(rpc).__name__,
)
def test_each_request_of_another_cluster_is_refused_and_its_sender_named(rpc: PeerRpc) -> None:
    identity, told = identity_of(Ground(3, cluster_id=A))
    assert identity.refuses(PEERS, rpc)
    assert len(told) == 1 and told[0].startswith(f"node 2 is of cluster {B}, this one of {A}: ")
    assert identity.warnings == tuple(told)


@pytest.mark.parametrize(
    "rpc",
    [
        ReadOffsetRpc(cluster_id=B, read_timestamp_ms=0, groups=()),
        ControlRpc(cluster_id=B, messages=()),
    ],
    ids=lambda rpc: type(rpc).__name__,
)
def test_what_no_node_sent_is_refused_without_a_word(rpc: PeerRpc) -> None:
    identity, told = identity_of(Ground(3, cluster_id=A))
    assert identity.refuses(PEERS, rpc)
    assert told == [] and identity.warnings == ()


def test_a_name_that_is_none_is_not_repeated() -> None:
    identity, told = identity_of(Ground(3, cluster_id=A))
    for claimed in ("x" * 65, "", "two\nlines"):
        assert identity.refuses(PEERS, fetch(TWO, claimed))
    assert len(told) == 1 and told[0].startswith("node 2 is of another cluster, ")


def test_the_refused_side_says_so_too() -> None:
    identity, told = identity_of(Ground(3, cluster_id=A))
    identity.refused_by(TWO, Endpoint("two", 9092))
    identity.refused_by(NodeId(-2), Endpoint("boot", 9092))
    first, second = told
    assert first.startswith(f"node 2 at two:9092 is of another cluster, this one of {A}: it answers nothing to this node. ")
    assert second.startswith("the node at boot:9092 is of another cluster, ")
    assert identity.warnings == (first, second)


def test_the_same_is_told_once_a_minute_and_stands_until_it_has_not_come_again() -> None:
    ground = Ground(3, cluster_id=A)
    identity, told = identity_of(ground)
    began_ms = ground.time.ms

    def at(after_ms: int) -> None:
        ground.time.ms = began_ms + after_ms
        ground.engine.begin_input()

    identity.refuses(PEERS, fetch(TWO, B))
    at(TELL_INTERVAL_MS - 1)
    identity.refuses(PEERS, fetch(TWO, B))
    identity.refused_by(TWO, Endpoint("two", 9092))
    assert len(told) == 2, "the second direction is news, and the first is not"
    at(TELL_INTERVAL_MS)
    assert len(identity.warnings) == 2, "the next request may be some seconds away"
    identity.refuses(PEERS, fetch(TWO, B))
    identity.refused_by(TWO, Endpoint("two", 9092))
    assert len(told) == 3 and told[2] == told[0]
    at(TELL_INTERVAL_MS - 1 + WARNING_MS - 1)
    assert len(identity.warnings) == 2
    at(TELL_INTERVAL_MS - 1 + WARNING_MS)
    assert identity.warnings == (told[0],)
    at(TELL_INTERVAL_MS + WARNING_MS)
    assert identity.warnings == ()


def test_nodes_without_a_vote_fill_neither_the_log_nor_the_memory() -> None:
    ground = Ground(3, cluster_id=A)
    identity, told = identity_of(ground)
    for number in range(10, 10 + 2 * STRANGERS_MAX):
        assert identity.refuses(PEERS, fetch(NodeId(number), B))
    assert len(told) == len(identity.warnings) == STRANGERS_MAX
    identity.refuses(PEERS, fetch(TWO, B))
    assert told[-1].startswith("node 2 "), "a voter is told of all the same"
    ground.time.ms += WARNING_MS
    ground.engine.begin_input()
    identity.refuses(PEERS, fetch(NodeId(99), B))
    assert identity.warnings == (told[-1],) and told[-1].startswith("node 99 ")


def test_own_requests_and_those_of_nodes_without_an_id_are_served() -> None:
    identity, told = identity_of(Ground(3, cluster_id=A))
    for claimed in (A, None):
        assert not identity.refuses(PEERS, fetch(TWO, claimed))
    assert told == []
