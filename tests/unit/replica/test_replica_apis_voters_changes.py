"""Changes of voters on their way through a node."""

from __future__ import annotations

import datetime
from importlib import import_module
from typing import Any

import pytest

from raftkit.replica import key, voter_set
from raftlake.errors import DamagedData, ErrorCode
from raftlake.ports.peer_rpcs import FetchRpc, GroupId, PeerRpc
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import ResignRequested
from raftlake.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from raftlake.raft.types import Epoch, NodeId, VoterEndpoint
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.replica.voters.changes import NOT_CONFIRMED, next_steps
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_to_kio
from replica_cluster import Cluster, batch


def grown(size: int = 3) -> Cluster:
    """A cluster whose voters are in the log."""
    cluster = Cluster(size, directories=True)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    return cluster


def remove(cluster: Cluster, asked: ReplicaNode, node_id: int) -> AnswerVoterChange:
    answers: list[AnswerVoterChange] = []
    voter = asked.quorum.latest.voters[cluster.nodes[node_id].config.node_id]  # type: ignore[index]
    asked.engine.begin_input()
    asked.voter_changes.request(asked.partitions[METADATA_GROUP], RemoveVoter(voter=voter), answers.append)
    cluster.run(5_000, lambda: bool(answers))
    assert len(answers) == 1
    return answers[0]


def test_a_change_is_answered_when_it_is_committed() -> None:
    cluster = grown()
    leader = cluster.leader()
    follower = cluster.followers()[0]
    answer = remove(cluster, leader, follower.config.node_id)
    assert answer.error is ErrorCode.NONE
    committed = leader.quorum.committed
    assert committed is not None and follower.config.node_id not in committed and len(committed) == 2


def test_who_does_not_lead_names_the_leader() -> None:
    cluster = grown()
    answer = remove(cluster, cluster.followers()[0], cluster.leader().config.node_id)
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, cluster.leader().config.node_id)


def request_of(name: str, node_id: int, directory: bytes, **fields: Any) -> Any:
    """A request of API `name` about a voter, in its newest version."""
    version = 1 if name == "AddRaftVoter" else 0
    snake = {"AddRaftVoter": "add_raft_voter", "RemoveRaftVoter": "remove_raft_voter", "UpdateRaftVoter": "update_raft_voter"}
    schema: Any = import_module(f"kio.schema.{snake[name]}.v{version}.request")
    if name != "RemoveRaftVoter":
        fields["listeners"] = (schema.Listener(name="CONTROLLER", host="127.0.0.1", port=9090 + node_id),)
    if name == "AddRaftVoter":
        fields["timeout"] = datetime.timedelta(seconds=5)
    if name == "UpdateRaftVoter":
        fields["k_raft_version_feature"] = schema.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    request = getattr(schema, f"{name}Request")
    return request(voter_id=node_id, voter_directory_id=id_to_kio(directory), **{"cluster_id": None, **fields})


def ask(cluster: Cluster, node: ReplicaNode, name: str, node_id: int, directory: bytes, **fields: Any) -> Any:
    api_key = {"Add": ApiKey.ADD_RAFT_VOTER, "Rem": ApiKey.REMOVE_RAFT_VOTER, "Upd": ApiKey.UPDATE_RAFT_VOTER}[name[:3]]
    version = 1 if name == "AddRaftVoter" else 0
    return cluster.ask(node, api_key, request_of(name, node_id, directory, **fields), version=version)


def directory_of(cluster: Cluster, node_id: int) -> bytes:
    return cluster.nodes[NodeId(node_id)].config.directory_id


def test_a_quorum_grows_and_every_group_follows() -> None:
    """A fourth node joins, knowing only an address; the metadata group takes it as a voter, and the topic's groups after it."""
    cluster = grown()
    groups = cluster.create_topic("t", 2)
    assert cluster.produce(groups[0], batch(b"before")).base_offset == 3, "behind its leader's three control records"
    cluster.wipe(4)
    cluster.start(4)
    leader, met = cluster.leader(), cluster.addresses_told()
    hosted = cluster.nodes[NodeId(4)].partitions
    cluster.run(5_000, lambda: all(g in hosted and hosted[g].core.log_end > 0 for g in (METADATA_GROUP, *groups)))
    assert ask(cluster, leader, "AddRaftVoter", 4, directory_of(cluster, 4)).error_code == ErrorCode.NONE
    cluster.run(5_000, lambda: all(cluster.leader(g).partitions[g].core.voters.ids == (1, 2, 3, 4) for g in groups))
    assert all(met[node_id, NodeId(4)].port == 9094 for node_id in cluster.voters)
    (later,) = cluster.create_topic("later")
    assert cluster.leader(later).partitions[later].core.voters.ids == (1, 2, 3, 4)


def test_a_voter_goes_and_every_group_follows_its_own_leader_last() -> None:
    cluster = grown()
    groups = cluster.create_topic("t", 3)
    leader = cluster.leader()
    gone = leader.config.node_id
    assert ask(cluster, leader, "RemoveRaftVoter", gone, directory_of(cluster, gone)).error_code == ErrorCode.NONE
    cluster.run(10_000, lambda: all(gone not in cluster.leader(g).partitions[g].core.voters for g in (METADATA_GROUP, *groups)))
    assert cluster.leader().config.node_id != gone
    assert not cluster.nodes[gone].partitions[METADATA_GROUP].core.is_voter


def test_a_wiped_node_is_an_observer_until_it_is_added_back() -> None:
    cluster = grown()
    groups = cluster.create_topic("t", 1)
    victim = cluster.followers()[0].config.node_id
    old = directory_of(cluster, victim)
    cluster.stop(victim)
    cluster.wipe(victim)
    cluster.start(victim)
    cluster.run(5_000, lambda: cluster.nodes[victim].quorum.committed is not None)
    assert not cluster.nodes[victim].partitions[METADATA_GROUP].core.is_voter
    leader = cluster.leader()
    new = directory_of(cluster, victim)
    assert ask(cluster, leader, "AddRaftVoter", victim, new).error_code == ErrorCode.DUPLICATE_VOTER
    assert ask(cluster, leader, "RemoveRaftVoter", victim, new).error_code == ErrorCode.VOTER_NOT_FOUND
    assert ask(cluster, leader, "RemoveRaftVoter", victim, old).error_code == ErrorCode.NONE
    assert ask(cluster, leader, "AddRaftVoter", victim, new).error_code == ErrorCode.NONE
    hosted = cluster.nodes[victim].partitions
    cluster.run(5_000, lambda: all(hosted[g].core.is_voter for g in (METADATA_GROUP, *groups)))


def test_requests_are_refused_as_kafka_refuses_them() -> None:
    cluster = grown()
    leader, follower = cluster.leader(), cluster.followers()[0]
    directory = directory_of(cluster, follower.config.node_id)
    refused = ask(cluster, follower, "RemoveRaftVoter", follower.config.node_id, directory)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.run(5_000, lambda: leader.cluster_id is not None)
    foreign = ask(cluster, leader, "AddRaftVoter", 4, directory, cluster_id="other")
    assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID and "other" in foreign.error_message
    lagging = ask(cluster, leader, "AddRaftVoter", 4, directory)
    assert lagging.error_code == ErrorCode.REQUEST_TIMED_OUT and "has not fetched" in lagging.error_message
    epoch = leader.partitions[METADATA_GROUP].core.epoch
    updated = ask(cluster, leader, "UpdateRaftVoter", follower.config.node_id, directory, current_leader_epoch=epoch)
    assert updated.error_code == ErrorCode.NONE
    assert (updated.current_leader.leader_id, updated.current_leader.leader_epoch) == (leader.config.node_id, epoch)


def test_the_steps_from_one_set_to_another() -> None:
    here = (VoterEndpoint("P", "h", 1),)
    me, epoch = NodeId(1), Epoch(5)
    current = voter_set((1, 2, 3))

    def names(steps: list[Any]) -> list[str]:
        return [f"{type(step).__name__} {step.voter.id}" for step in steps]

    assert names(next_steps(current, voter_set((1, 2, 3)), me, epoch)) == []
    assert names(next_steps(current, voter_set((2, 3, 4, 5)), me, epoch)) == ["AddVoter 4", "AddVoter 5"]
    assert names(next_steps(current, voter_set((2,)), me, epoch)) == ["RemoveVoter 3", "RemoveVoter 1"], "the leader last"
    silent = frozenset({NodeId(3)})
    assert names(next_steps(current, voter_set((1, 2, 4)), me, epoch, silent)) == ["AddVoter 4", "RemoveVoter 3"]
    replaced = current.without(NodeId(2)).with_voter(key(2, b"new"), here)
    assert next_steps(current, replaced, me, epoch) == [RemoveVoter(voter=key(2))]
    assert next_steps(current.without(NodeId(2)), replaced, me, epoch) == [AddVoter(voter=key(2, b"new"), endpoints=here)]
    moved = current.with_voter(key(3), here)
    assert next_steps(current, moved, me, epoch) == [UpdateVoter(voter=key(3), endpoints=here, leader_epoch=epoch)]


# --- the endpoint of a new voter ---


def joining() -> tuple[Cluster, ReplicaNode]:
    """A fourth node fetches; whoever adds it asks the leader."""
    cluster = grown()
    cluster.wipe(4)
    cluster.start(4)
    leader = cluster.leader()
    cluster.run(5_000, lambda: cluster.nodes[NodeId(4)].quorum.committed is not None)
    return cluster, leader


def test_a_voter_at_whose_endpoint_nobody_answers_is_refused_at_once() -> None:
    """It would count for the majority, and its peers could not ask it for its vote."""
    cluster, leader = joining()
    cluster.move(NodeId(4), Endpoint("elsewhere", 9094))
    refused = ask(cluster, leader, "AddRaftVoter", 4, directory_of(cluster, 4))
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    # Anybody may name any address: what the leader saw there is for its log alone.
    assert refused.error_message == NOT_CONFIRMED and "9094" not in NOT_CONFIRMED
    assert NodeId(4) not in leader.quorum.latest
    cluster.move(NodeId(4), Endpoint("127.0.0.1", 9094))
    assert ask(cluster, leader, "AddRaftVoter", 4, directory_of(cluster, 4)).error_code == ErrorCode.NONE


def test_a_voter_that_does_not_know_our_kraft_version_is_refused() -> None:
    cluster, leader = joining()
    cluster.network.kraft_versions = (0, 0)
    refused = ask(cluster, leader, "AddRaftVoter", 4, directory_of(cluster, 4))
    assert refused.error_code == ErrorCode.INVALID_REQUEST and "kraft.version 1" in refused.error_message


def test_while_an_endpoint_is_being_asked_there_is_no_other_addition() -> None:
    cluster, leader = joining()
    change = AddVoter(voter=key(4, directory_of(cluster, 4)), endpoints=(VoterEndpoint("CONTROLLER", "127.0.0.1", 9094),))
    answers: list[AnswerVoterChange] = []
    partition = leader.partitions[METADATA_GROUP]
    leader.engine.begin_input()
    leader.voter_changes.admit(partition, change, answers.append)
    leader.voter_changes.admit(partition, change, answers.append)
    (refused,) = answers
    assert refused.error is ErrorCode.REQUEST_TIMED_OUT and "is being asked" in refused.message
    cluster.run(1_000, lambda: len(answers) == 2)
    assert answers[1].error is ErrorCode.NONE


def test_who_no_longer_leads_when_the_endpoint_has_answered_adds_nobody() -> None:
    cluster, leader = joining()
    change = AddVoter(voter=key(4, directory_of(cluster, 4)), endpoints=(VoterEndpoint("CONTROLLER", "127.0.0.1", 9094),))
    answers: list[AnswerVoterChange] = []
    leader.engine.begin_input()
    leader.voter_changes.admit(leader.partitions[METADATA_GROUP], change, answers.append)
    leader.resign()
    cluster.run(2_000, lambda: bool(answers))
    assert answers[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_idle_observer_is_heard_of_while_its_endpoint_is_asked() -> None:
    """Its round is held for longer than the fetch timeout; it was called lagging, 0 offsets behind."""
    cluster = Cluster(
        directories=True,
        raft=RaftConfig(election_timeout_ms=200, fetch_timeout_ms=300),
        replica_fetch_wait_ms=2_000,
    )
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    cluster.wipe(4)
    cluster.start(4)
    leader = cluster.leader()
    cluster.run(5_000, lambda: cluster.nodes[NodeId(4)].quorum.committed is not None)
    cluster.run(5_900)
    assert ask(cluster, cluster.leader(), "AddRaftVoter", 4, directory_of(cluster, 4)).error_code == ErrorCode.NONE
    assert leader is cluster.leader()


def test_a_group_without_traffic_follows_the_quorum_though_its_new_voter_waits_in_a_long_round() -> None:
    """Simulator, seed 167. The leader of a group and the new voter say nothing to each other for longer than the fetch timeout:
    each attempt came while the round was held, and the new voter was called lagging, 0 offsets behind.

    Their next word would be of replicas in sync, after a second, and only where there is something to tell. It is not awaited.
    """
    raft = RaftConfig(election_timeout_ms=200, fetch_timeout_ms=600)
    cluster = Cluster(directories=True, raft=raft, replica_fetch_wait_ms=60_000)
    cluster.leader()
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    groups = cluster.create_topic("t", 6)
    led_by_others = [group for group in groups if cluster.leader(group) is not cluster.leader()]
    assert led_by_others
    cluster.wipe(4)
    cluster.start(4)
    cluster.run(5_000, lambda: all(group in cluster.nodes[NodeId(4)].partitions for group in groups))
    cluster.run(5_000)
    assert ask(cluster, cluster.leader(), "AddRaftVoter", 4, directory_of(cluster, 4)).error_code == ErrorCode.NONE
    leaders = {group: cluster.leader(group).partitions[group].core for group in led_by_others}
    cluster.run(900, lambda: all(NodeId(4) in core.voters for core in leaders.values()))


def test_a_leader_with_an_old_view_of_the_voters_does_not_steer_its_group_back() -> None:
    """It was cut off from the metadata group's leader while another leader brought its group to fewer voters, and leads it now.
    By what it knew the voter that went was missing, and it added it again."""
    cluster = grown(4)
    groups = cluster.create_topic("t", 4)
    metadata_leader = cluster.leader().config.node_id
    group = next(each for each in groups if cluster.leader(each).config.node_id != metadata_leader)
    first = cluster.leader(group)
    second, gone = [each for each in cluster.voters if each not in (metadata_leader, first.config.node_id)]
    cluster.cut(metadata_leader, second)
    cluster.run(600)
    assert remove(cluster, cluster.leader(), gone).error is ErrorCode.NONE
    core = first.partitions[group].core
    cluster.run(
        5_000, lambda: gone not in core.voters and core.voter_history.at(first.partitions[group].high_watermark) == core.voters
    )
    held = cluster.nodes[second].partitions[group].core
    cluster.run(1_000, lambda: gone not in held.voters)
    assert gone in cluster.nodes[second].quorum.latest, "it has not heard of it"
    cluster.cut(metadata_leader, first.config.node_id)
    first.engine.step(first.partitions[group], ResignRequested())
    cluster.run(1_000, lambda: held.is_serving_leader)
    assert gone in cluster.nodes[second].quorum.latest, "it still has not"
    sets = len(held.voter_history.entries)
    cluster.run(5_000)
    assert gone not in cluster.nodes[second].quorum.latest
    assert held.is_leader and len(held.voter_history.entries) == sets


def under_way(cluster: Cluster, group: GroupId) -> tuple[ReplicaNode, int]:
    """The group's leader, which is cut off while it removes a voter from its group because the quorum has removed it."""
    leader = cluster.leader(group)
    me = leader.config.node_id
    gone = next(node_id for node_id in cluster.voters if node_id not in (me, cluster.leader().config.node_id))
    assert remove(cluster, cluster.leader(), gone).error is ErrorCode.NONE
    cluster.run(5_000, lambda: gone not in leader.partitions[group].core.voters)
    cluster.cut(me)
    assert group in leader.voter_changes._under_way
    return leader, gone


def test_a_group_that_is_repaired_amid_a_change_goes_on_following_the_quorum() -> None:
    """Simulator, seed 770002119. The answer to the step under way was lost when the group was started anew, so the node took
    the step to be under way for ever, and kept the old voters when it led the group again."""
    cluster = grown(4)
    groups = cluster.create_topic("t", 4)
    group = next(each for each in groups if cluster.leader(each) is not cluster.leader())
    cluster.run(1_000)
    leader, gone = under_way(cluster, group)
    cluster.disks[leader.config.node_id].logs[group].damage(0, -1)
    leader.findings.found(group, DamagedData("a read came upon it", offset=0))
    cluster.run(1)
    assert group in leader.damage.impaired
    assert group not in leader.voter_changes._under_way
    cluster.heal()
    hosted = leader.partitions[group]
    cluster.run(10_000, lambda: not leader.damage.impaired and gone not in hosted.core.voters)


def test_a_change_of_a_group_that_is_closed_is_answered_once() -> None:
    cluster = grown(4)
    groups = cluster.create_topic("t", 2)
    group = next(each for each in groups if cluster.leader(each) is not cluster.leader())
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.run(1_000)
    cluster.cut(me)
    answers: list[AnswerVoterChange] = []
    voter = next(voter for node_id, voter in leader.quorum.latest.voters.items() if node_id != me)
    leader.engine.begin_input()
    leader.voter_changes.request(leader.partitions[group], RemoveVoter(voter=voter), answers.append)
    cluster.run(1)
    assert not answers
    leader.hosting.close([group])
    assert [answer.error for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.run(2_000)
    assert len(answers) == 1


@pytest.mark.parametrize("state", ["restarted", "behind"])
def test_a_topic_begins_with_the_voters_that_are_committed_when_it_is_created(state: str) -> None:
    """A node that has just started knows none yet, and one that lags knows older ones. Their topics began with those, of whom
    a majority may be gone for good."""
    cluster = grown(4)
    asked = cluster.followers()[0].config.node_id
    gone = next(node_id for node_id in cluster.voters if node_id not in (asked, cluster.leader().config.node_id))
    if state == "restarted":
        assert remove(cluster, cluster.leader(), gone).error is ErrorCode.NONE
        cluster.run(1_000)
        cluster.stop(asked)
        cluster.start(asked)
    else:
        cluster.cut(asked)
        assert remove(cluster, cluster.leader(), gone).error is ErrorCode.NONE
    node = cluster.nodes[asked]
    node.engine.begin_input()
    created: list[Any] = []
    node.topics.create("t", 1, {}, lambda *outcome: created.append(outcome))
    cluster.heal()
    cluster.run(10_000, lambda: bool(created))
    topic, error, message = created[0]
    assert error is ErrorCode.NONE, message
    assert topic.voters is not None and gone not in topic.voters and len(topic.voters) == 3


def test_a_node_that_joins_knows_where_the_voters_are_before_its_groups_ask_one() -> None:
    """It was told up to 250 ms later. A group that asked before had no answer, and asked again half a second later."""
    cluster = Cluster(directories=True)
    (group,) = cluster.create_topic("t")
    cluster.run(5_000, lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    cluster.wipe(4)
    cluster.start(4)
    told, asked = cluster.addresses_told(), list[set[int]]()

    def hear(source: NodeId, destination: NodeId, rpc: PeerRpc) -> None:
        if source == 4 and isinstance(rpc, FetchRpc) and any(message.group == group for message in rpc.messages):
            asked.append({peer for node_id, peer in told if node_id == 4})

    cluster.overhear(hear)
    cluster.run(5_000, lambda: bool(asked))
    assert asked[0] >= {1, 2, 3}
