"""Clusters whose voters change: what an operator's plan reaches, what its invariants catch, and the defects it has found."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from raftlake.ports.driver import BatchSpan
from raftlake.raft.roles import Follower, SnapshotDownload
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.voter_log import entries_of
from raftlake.sim.clients.operations import bootstrap_addresses, bootstrap_servers
from raftlake.sim.clients.topics import create_topic
from raftlake.sim.clients.voters import Operator
from raftlake.sim.cluster import Cluster
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.faults.faults import Settings, draw_operated
from raftlake.sim.invariants import CommittedLogs, ReplicaState, Violation
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.invariants.majority_high_watermark import MajorityHoldsCommitted
from raftlake.sim.invariants.voter_sets import VoterSets
from raftlake.wire.control import voters_batch

QUIET = Settings(seed=5, safety_ms=20_000, partitions=1, producers=1, readers=1, kv_clients=1, think_ms_mean=200)


def test_a_node_that_knows_only_addresses_hosts_topics_of_static_voters() -> None:
    """As long as one voter has not been heard of, voters are static, and a new topic's value names none. A node without a list
    of voters divided by their number, and ended itself."""
    cluster = Cluster(replace(QUIET, spares=1))
    one, two, three, spare = cluster.node_ids
    for node_id in (one, two, spare):
        cluster.start(node_id)
    for client in cluster.clients:
        client.start()
    for _ in range(50):
        cluster.run_a_while()
    group = cluster.shared.group(0)
    assert cluster.committed.of(group).voters is None
    assert group in cluster.machines[spare].replicas
    cluster.start(three)
    for _ in range(50):
        cluster.run_a_while()
    voters = cluster.committed.of(group).voters
    assert voters is not None and voters.ids == (one, two, three)
    assert cluster.machines[spare].replicas[group].high_watermark > 0


# --- the plan -------------------------------------------------------------------------------------------------------


def test_an_operator_adds_removes_and_replaces_voters_and_all_groups_follow() -> None:
    cluster = Cluster(replace(QUIET, operators=1, spares=1, safety_ms=60_000))
    covered = cluster.run().covered
    for what in ("voter added", "voter removed", "voter removed (leader)", "voter's disk replaced"):
        assert covered.get(what, 0) >= 2, (what, covered)
    expected = cluster.committed.of(METADATA_GROUP).voters
    assert expected is not None
    for replica in cluster.replicas():
        history = cluster.view.history_of(replica.node_id, replica.group)
        assert history is not None and history.latest.voters == expected.voters
    # Every disk that was replaced is a new replica, and each set in the log was one step.
    sets = [voters for _, voters in cluster.committed.of(METADATA_GROUP).voter_sets]
    keys = dict.fromkeys(key for voters in sets for key in voters.voters.values())
    assert len(keys) > len(cluster.node_ids)
    assert {len(voters) for voters in sets} <= {2, 3, 4} and len(sets) > 10


def test_one_voter_may_be_replaced_by_another() -> None:
    """A quorum of one: the spare comes, the first voter goes, and so on."""
    cluster = Cluster(replace(QUIET, voters=1, operators=1, spares=1))
    cluster.run()
    sets = [voters.ids for _, voters in cluster.committed.of(METADATA_GROUP).voter_sets]
    assert {(1,), (1, 2), (2,)} <= set(sets)


def test_a_disk_is_replaced_only_where_a_majority_is_left_by_every_log() -> None:
    cluster = Cluster(replace(QUIET, spares=1))
    operations = cluster.shared.operations
    assert not operations.may_lose_a_disk(cluster.scheduler.now_us)
    cluster.start_all()
    for client in cluster.clients:
        client.start()
    for _ in range(50):
        cluster.run_a_while()
    assert operations.may_lose_a_disk(cluster.scheduler.now_us)
    one, two = cluster.node_ids[:2]
    # A node that is down may know less than all others.
    cluster.restarts_by_itself = False
    cluster.crash(one, "test")
    assert not operations.may_lose_a_disk(cluster.scheduler.now_us)
    cluster.start(one)
    for _ in range(20):
        cluster.run_a_while()
    assert operations.may_lose_a_disk(cluster.scheduler.now_us)
    operations.replace_disk(two)
    assert operations.lost() == [ReplicaKey(two, DirectoryId(int(two).to_bytes(16, "big")))]
    assert operations.key(two).directory_id != operations.lost()[0].directory_id
    cluster.start(two)
    for _ in range(50):
        cluster.run_a_while()
    # It is back, empty and as somebody else: until it votes again no other disk may go.
    assert cluster.machines[two].replicas and not operations.may_lose_a_disk(cluster.scheduler.now_us)


@pytest.mark.parametrize(("gets_on_s", "waited_s"), [(0, 5), (4, 9), (12, 17)])
def test_an_operator_waits_for_a_new_voter_that_gets_on_and_not_for_another(
    monkeypatch: pytest.MonkeyPatch, gets_on_s: int, waited_s: int
) -> None:
    """Seed 840005589: a node that was to become a voter fetched one batch at a time, and its operator was called stuck."""
    cluster = settled_cluster()
    operator = next(client for client in cluster.clients if isinstance(client, Operator))
    began_us = cluster.scheduler.now_us
    cluster.safety_end_us = began_us
    for client in cluster.clients:
        client.last_completed_began_us = began_us

    def fetched(node_id: NodeId) -> tuple[int, int, int]:
        return min(cluster.scheduler.now_us - began_us, gets_on_s * 1_000_000), -1, -1

    monkeypatch.setattr(cluster.shared.operations, "fetched", fetched)
    operator.last_completed_began_us = -1
    operator._adds = cluster.node_ids[3]
    with pytest.raises(Violation, match=rf"stuck: \['{operator.name}'\]"):
        cluster._await_progress(began_us + 1_000_000)
    assert cluster.scheduler.now_us - began_us == pytest.approx(waited_s * 1_000_000, abs=300_000)


def test_what_a_new_voter_has_fetched_grows_with_its_log_and_its_snapshot() -> None:
    cluster = settled_cluster()
    operations, spare = cluster.shared.operations, cluster.node_ids[3]
    log = cluster.machines[spare].replicas[METADATA_GROUP].log
    assert operations.fetched(spare) == (log.end_offset, -1, -1) and log.end_offset > 0
    node = cluster.machines[spare].node
    assert node is not None
    role = node.partitions[METADATA_GROUP].core.role
    assert isinstance(role, Follower)
    role.download = SnapshotDownload(snapshot_id=OffsetAndEpoch(Offset(70), Epoch(1)), position=100)
    assert operations.fetched(spare) == (log.end_offset, 70, 100)
    cluster.crash(spare, "test")
    assert operations.fetched(spare) == (-1, -1, -1)
    # Seed 101: a node that begins is there before its replicas are.
    cluster.start(spare)
    assert cluster.machines[spare].node is not None and not cluster.machines[spare].replicas
    assert operations.fetched(spare) == (-1, -1, -1)


def settled_cluster() -> Cluster:
    """Three voters and a spare that have come to rest."""
    cluster = Cluster(replace(QUIET, spares=1, operators=1))
    cluster.start_all()
    for client in cluster.clients[:-1]:
        client.start()
    for _ in range(50):
        cluster.run_a_while()
    assert cluster.shared.operations.may_lose_a_disk(cluster.scheduler.now_us)
    return cluster


def test_no_disk_goes_while_a_node_may_know_older_voters_only() -> None:
    """Seed 791102076: a voter went and came back, and the leader of a partition, which knew only the first of it, brought its
    group to two voters as one of these lost its disk."""
    cluster = settled_cluster()
    operations, (one, _, three, _) = cluster.shared.operations, cluster.node_ids
    for node_id, group in ((one, METADATA_GROUP), (three, cluster.shared.group(0))):
        replica, history = cluster.machines[node_id].replicas[group], cluster.view.history_of(node_id, group)
        known = replica.high_watermark
        assert history is not None and history.latest_offset is not None
        replica.high_watermark = history.latest_offset
        assert not operations.may_lose_a_disk(cluster.scheduler.now_us)
        replica.high_watermark = history.latest_offset + 1
        assert operations.may_lose_a_disk(cluster.scheduler.now_us)
        replica.high_watermark = known


@pytest.mark.parametrize("answer", ["created", "refused", "none"])
def test_no_disk_goes_while_a_topic_may_come_that_knows_older_voters(answer: str) -> None:
    """Seed 791100444: a topic was on its way, with two voters of whom one lost its disk before the group had a leader."""
    cluster = settled_cluster()
    operations, answers = cluster.shared.operations, []
    client = cluster.clients[0]
    create_topic(client, "another" if answer == "created" else "orders", 1, answers.append)
    assert not operations.may_lose_a_disk(cluster.scheduler.now_us)
    if answer == "none":
        for node_id in cluster.node_ids:
            cluster.crash(node_id, "test")
    while not answers:
        cluster.run_a_while()
    for _ in range(20):
        cluster.run_a_while()
    waits_us = max(operations._unanswered_until_us.values()) - cluster.scheduler.now_us
    assert (waits_us > 0) == (answer != "created")
    if answer != "none":
        assert operations.may_lose_a_disk(cluster.scheduler.now_us + max(waits_us, 0))


def test_while_a_voter_is_damaged_no_other_disk_goes_and_no_sound_majority_is_removed() -> None:
    cluster = Cluster(replace(QUIET, operators=1, spares=1))
    operations = cluster.shared.operations
    cluster.start_all()
    for client in cluster.clients[:-1]:
        client.start()
    for _ in range(50):
        cluster.run_a_while()
    one, two, three, spare = cluster.node_ids
    assert not cluster.damage_log(spare, 0, 0, -1), "it has no vote"
    operations.answered("somebody", cluster.scheduler.now_us + 1, is_known=True)
    assert not cluster.damage_log(one, 0, 0, -1), "a change may be under way"
    cluster.run_a_while()
    assert cluster.damage_log(one, 0, 0, -1)
    assert not operations.is_sound(one) and not operations.may_lose_a_disk(cluster.scheduler.now_us)
    assert not cluster.damage_log(two, 0, 0, -1)
    # Of two who stay both are needed, of three two.
    assert operations.may_remove(operations.key(one))
    assert not operations.may_remove(operations.key(three))


def test_a_run_with_an_operator_is_the_same_twice() -> None:
    def trace() -> str:
        sink = io.StringIO()
        Cluster(draw_operated(replace(Settings.draw(38), safety_ms=8_000)), sink).run()
        return sink.getvalue()

    first = trace()
    assert "voter added" in first and first == trace()


def test_about_one_run_in_eight_has_an_operator() -> None:
    drawn = [Settings.draw(seed) for seed in range(1, 401)]
    operated = [settings for settings in drawn if settings.operators]
    assert 30 < len(operated) < 70
    assert all(settings.spares == 1 for settings in operated)
    assert 5 < sum(settings.damage_interval_ms > 0 for settings in operated) < 30
    assert all(settings.spares == 0 for settings in drawn if not settings.operators)


def test_a_node_finds_the_others_at_its_addresses() -> None:
    one, two, three, four = (NodeId(each) for each in (1, 2, 3, 4))
    assert bootstrap_addresses(two, (one, two, three)) == {-2: one, -3: three}
    assert bootstrap_addresses(four, (one, two)) == {-2: one, -3: two}
    assert bootstrap_servers(two, (one, two, three)) == (Endpoint("node1", 9092), Endpoint("node3", 9092))


def test_an_operator_repairs_a_lost_disk_before_anything_else() -> None:
    cluster = Cluster(replace(QUIET, operators=1, spares=1))
    (operator,) = (client for client in cluster.clients if isinstance(client, Operator))
    asked: list[str] = []
    operator.say = asked.append  # type: ignore[method-assign]
    cluster.run()
    replaced = [index for index, what in enumerate(asked) if what.startswith("replaces")]
    assert len(replaced) >= 2
    for index in replaced:
        node_id = asked[index].split()[-1]
        told = [what for what in asked[index + 1 :] if what.split()[0] in ("adds", "removes")]
        added = told.index(f"adds {node_id}")
        assert set(told[:added]) == {f"removes {node_id}"}


# --- invariants -----------------------------------------------------------------------------------------------------


def set_of(*ids: int) -> VoterSet:
    return VoterSet({NodeId(each): ReplicaKey(NodeId(each), directory(each)) for each in ids})


def directory(node_id: int) -> DirectoryId:
    return DirectoryId(node_id.to_bytes(16, "big"))


def voters_at(log: MemoryLog, voters: VoterSet) -> None:
    """Append a control batch that sets the voters."""
    offset = int(log.end_offset)
    data = voters_batch(offset, 1, -1, entries_of(voters))
    log.append([data], [BatchSpan(Offset(offset), Offset(offset + 1), Epoch(1), -1, len(data))])


class FourDisks:
    """Four voters by the log of node 1, which leads and has committed that; the first of them hold it."""

    def __init__(self, holders: int, latest: VoterSet | None = None) -> None:
        disks = {NodeId(each): Cluster(QUIET).machines[NodeId(1)].disk for each in (1, 2, 3, 4)}
        self.logs = {node_id: disk.open(METADATA_GROUP) for node_id, disk in disks.items()}
        self.directories = {node_id: directory(node_id) for node_id in self.logs}
        for node_id in list(self.logs)[:holders]:
            voters_at(self.logs[node_id], set_of(1, 2, 3, 4))
            self.logs[node_id].finish_flush(self.logs[node_id].begin_flush())
        history = VoterHistory(set_of(1, 2, 3))
        history.record(Offset(0), set_of(1, 2, 3, 4))
        if latest is not None:
            history.record(Offset(1), latest)
        committed = CommittedLogs()
        view = ClusterView(
            tuple(self.logs),
            lambda node_id, group: self.logs[node_id],
            lambda node_id, group: None,
            directory_of=lambda node_id: self.directories[node_id],
            history_of=lambda node_id, group: history,
        )
        self.invariant = MajorityHoldsCommitted(view, committed)
        self.replica = ReplicaState(NodeId(1), 1, METADATA_GROUP, self.logs[NodeId(1)], 1, True, 1)
        committed.of(METADATA_GROUP).extend(self.replica.log, 1, 1)


def test_a_leader_counts_by_the_voters_of_its_log() -> None:
    """Two of four are not enough, though nobody could be elected without them; of three that come next they are."""
    FourDisks(3).invariant.on_high_watermark(FourDisks(3).replica, 0)
    too_few = FourDisks(2)
    with pytest.raises(Violation, match=r"leader 1 has high watermark 1"):
        too_few.invariant.on_high_watermark(too_few.replica, 0)
    removing = FourDisks(2, latest=set_of(1, 2, 3))
    removing.invariant.on_high_watermark(removing.replica, 0)


def test_a_voter_whose_disk_is_gone_neither_holds_nor_votes() -> None:
    disks = FourDisks(3)
    disks.directories[NodeId(2)] = directory(99)
    disks.invariant.on_wiped(NodeId(2))
    disks.directories[NodeId(1)] = directory(98)
    disks.invariant.on_wiped(NodeId(1))
    disks.directories[NodeId(3)] = directory(97)
    with pytest.raises(Violation, match="only 0 of 4 voters"):
        disks.invariant.on_wiped(NodeId(3))


def test_two_of_four_that_never_had_it_may_not_be_a_majority_with_an_empty_one() -> None:
    disks = FourDisks(1)
    with pytest.raises(Violation, match="only 1 of 4 voters"):
        disks.invariant.on_crash(NodeId(1))


def test_two_voters_that_change_at_once_are_told() -> None:
    cluster = Cluster(QUIET)
    log = cluster.machines[cluster.node_ids[0]].disk.open(METADATA_GROUP)
    replica = ReplicaState(cluster.node_ids[0], 1, METADATA_GROUP, log, epoch=1)
    invariant = VoterSets(cluster.view, cluster.committed)
    for ids in ((1, 2, 3), (1, 2, 3, 4)):
        voters_at(log, set_of(*ids))
        cluster.committed.of(METADATA_GROUP).extend(log, int(log.end_offset), 1)
        invariant.on_high_watermark(replica, 0)
    voters_at(log, set_of(1, 2, 5))
    cluster.committed.of(METADATA_GROUP).extend(log, int(log.end_offset), 1)
    with pytest.raises(Violation, match="one at a time"):
        invariant.on_high_watermark(replica, 0)


def test_groups_with_other_voters_are_told_in_the_end() -> None:
    cluster = Cluster(QUIET)
    cluster.start_all()
    for client in cluster.clients:
        client.start()
    for _ in range(50):
        cluster.run_a_while()
    invariant = VoterSets(cluster.view, cluster.committed)
    invariant.on_end(cluster.replicas())
    sets = cluster.committed.of(METADATA_GROUP).voter_sets
    sets.append((sets[-1][0] + 1, sets[-1][1].without(cluster.node_ids[0])))
    with pytest.raises(Violation, match="node 1 orders-0 has the voters"):
        invariant.on_end([replica for replica in cluster.replicas() if replica.group != METADATA_GROUP])


def test_two_ways_to_one_peer_do_not_end_each_others_sessions() -> None:
    """A node without a vote fetched one group from a leader it knew, and asked the same node by its address who leads another.
    The peer kept one session with each node: each round ended the other's, and both were begun anew at once, 17,000 times."""
    covered = Cluster(replace(QUIET, operators=1, spares=1, safety_ms=60_000)).run().covered
    assert covered["voter's disk replaced"] >= 2
    assert covered.get("error FETCH_SESSION_ID_NOT_FOUND", 0) + covered.get("error INVALID_FETCH_SESSION_EPOCH", 0) < 100
