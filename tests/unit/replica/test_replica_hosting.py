"""Hosting groups: found on disk, by name, by id; closed with everybody who waits for them."""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.roles import Unattached
from raftlake.raft.types import NO_VOTERS
from raftlake.raft.voters import VoterHistory
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, fetch_request, produce_request


def test_groups_on_disk_are_known_by_name_and_id_before_the_metadata_log_is_replayed() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    node = cluster.start(1)
    assert node.names.topic("t") is None
    assert node.names.resolve_group("t", 0) == group
    assert node.names.resolve_topic(group.topic_id) == "t"


def test_a_directory_of_another_incarnation_is_left_alone() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    node = cluster.leader(group)
    other = GroupId("t", 0, bytes(15) + b"\x05")
    assert not node.hosting.open(other)
    assert other not in node.partitions
    assert node.names.why_unknown(other) is ErrorCode.UNKNOWN_TOPIC_ID
    assert node.names.why_unknown(GroupId("none", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_closing_a_group_answers_appends_fetches_and_reads_that_wait_for_it() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.run(100)
    cluster.cut(me)
    appended = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x"), timeout_ms=60_000))
    fetched = cluster.send(leader, ApiKey.FETCH, fetch_request(group, 1, wait_ms=60_000))
    read: list[object] = []
    leader.reads.read(group, read.append)
    cluster.run(20)
    assert not (appended or fetched or read)
    leader.hosting.delete(leader.hosting.close([group]))
    cluster.run(11_000)
    assert appended and fetched and read
    assert fetched[0].topics[0].partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert appended[0].topics[0].partitions[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_a_node_that_stays_behind_the_metadata_log_knows_its_topics() -> None:
    """It fetches one command at a time, and each time the leader tells of more. Seed 950002061 refused appends for ever."""
    cluster = Cluster(replica_fetch_bytes_max=1)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader()
    late = cluster.followers()[0].config.node_id
    cluster.stop(late)

    def put() -> None:
        leader.kv.propose_anywhere(Txn(compares=(), ops=(Put("key", bytes(100)),)), lambda outcome: None)

    for _ in range(20):
        put()
        cluster.run(20)
    node = cluster.start(late)
    behind: list[int] = []
    for _ in range(400):
        put()
        cluster.run(2)
        if group in node.partitions and node.partitions[group].in_force is not None:
            behind.append(leader.kv.machine.applied_offset - node.kv.machine.applied_offset)
    assert behind and min(behind) > 3, "it never had all that the leader told"


def test_a_group_that_is_told_its_voters_asks_them_for_the_leader() -> None:
    """Its log was cut to nothing, and told of no voters: it had nobody to ask, and waited for nothing (seed 524441841)."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader_id = cluster.leader(group).config.node_id
    node = cluster.nodes[next(node_id for node_id in cluster.nodes if node_id != leader_id)]
    core = node.partitions[group].core
    voters = core.voters
    core.voter_history = VoterHistory(NO_VOTERS)
    core.use_latest_voters()
    core.fetch_in_flight = core.fetch_retry_at_ms = None
    core.role = Unattached(election_deadline_ms=1 << 40)
    node.hosting.begin_with(group, voters)
    assert core.voters == voters
    assert core.fetch_in_flight is not None
