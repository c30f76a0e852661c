"""Each invariant fails on a history that breaks it, and is silent on the one beside it that does not."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contract.batches import fill
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.sim.invariants import (
    CommittedLogs,
    Invariant,
    InvariantSuite,
    ReplicaState,
    StableLeadership,
    Violation,
    standard_invariants,
)
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.invariants.committed_data import CommittedData
from raftlake.sim.invariants.committed_log import CommittedLog
from raftlake.sim.invariants.convergence import Convergence, disagreements
from raftlake.sim.invariants.durable_vote import DurableVote
from raftlake.sim.invariants.leader_completeness import LeaderCompleteness
from raftlake.sim.invariants.majority_high_watermark import MajorityHoldsCommitted
from raftlake.sim.invariants.monotonic_epoch import MonotonicEpoch
from raftlake.sim.invariants.monotonic_high_watermark import MonotonicHighWatermark
from raftlake.sim.invariants.single_leader import SingleLeader

GROUP = GroupId("orders", 0, bytes(range(16)))
NODES = tuple(NodeId(node_id) for node_id in (1, 2, 3))


class SyncedMachine:
    def port_call(self, name: str) -> None:
        """Never crashes."""

    def flush_later(self, complete: object, fail: object) -> None:
        assert callable(complete)
        complete()


class Disks:
    """Three machines' disks with one group each, and the view of them."""

    def __init__(self) -> None:
        self.disks = {node_id: SimulatedDisk(SyncedMachine()) for node_id in NODES}
        for disk in self.disks.values():
            disk.open(GROUP)
        self.view = ClusterView(NODES, self.log_of, lambda node_id, group: self.disks[node_id].elections.get(group))
        self.committed = CommittedLogs()

    def log_of(self, node_id: NodeId, group: GroupId) -> MemoryLog | None:
        return self.disks[node_id].logs.get(group)

    def log(self, node_id: int) -> MemoryLog:
        return self.disks[NodeId(node_id)].open(GROUP)

    def sync(self, node_id: int) -> None:
        self.disks[NodeId(node_id)].flush([self.log(node_id)], lambda error: None)

    def fill(self, count: int, *, epoch: int = 1, nodes: tuple[int, ...] = (1, 2, 3), sync: bool = True) -> None:
        for node_id in nodes:
            fill(self.log(node_id), count, epoch=epoch)
            if sync:
                self.sync(node_id)

    def replica(self, node_id: int, *, epoch: int = 1, leads: bool = False, hw: int = 0) -> ReplicaState:
        return ReplicaState(NodeId(node_id), 1, GROUP, self.log(node_id), epoch, leads, hw)


@pytest.fixture
def disks() -> Disks:
    return Disks()


def state(epoch: int, leader: int | None = None, vote: int | None = None) -> ElectionState:
    return ElectionState(
        Epoch(epoch), None if leader is None else NodeId(leader), None if vote is None else ReplicaKey(NodeId(vote))
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state(4), state(3)),
        (state(4, vote=1), state(4, vote=2)),
        (state(4, vote=1), state(4)),
        (state(4, leader=1), state(4, leader=2)),
    ],
    ids=["epoch back", "other vote", "vote forgotten", "other leader"],
)
def test_an_election_file_that_goes_back_is_told(disks: Disks, before: ElectionState, after: ElectionState) -> None:
    with pytest.raises(Violation, match="epoch"):
        MonotonicEpoch(disks.view).on_election_saved(NODES[0], GROUP, before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, state(0)),
        (state(4, vote=1), state(5, vote=2)),
        (state(4, vote=1), state(4, leader=2, vote=1)),
        (state(4, leader=1), state(4)),
    ],
)
def test_an_election_file_that_moves_on_is_fine(disks: Disks, before: ElectionState | None, after: ElectionState) -> None:
    MonotonicEpoch(disks.view).on_election_saved(NODES[0], GROUP, before, after)


def test_a_running_epoch_behind_or_ahead_of_the_disk_is_told(disks: Disks) -> None:
    invariant = MonotonicEpoch(disks.view)
    disks.disks[NODES[0]].save({GROUP: state(4)})
    invariant.on_turn(disks.replica(1, epoch=4))
    with pytest.raises(Violation, match="disk says 4"):
        invariant.on_turn(disks.replica(1, epoch=5))
    with pytest.raises(Violation, match="disk says 4"):
        invariant.on_epoch(disks.replica(1, epoch=3), -1)
    with pytest.raises(Violation, match="after 6"):
        invariant.on_epoch(disks.replica(1, epoch=5), 6)


def test_a_second_leader_of_an_epoch_is_told(disks: Disks) -> None:
    invariant = SingleLeader(disks.view)
    invariant.on_leader(disks.replica(1, epoch=4, leads=True))
    invariant.on_leader(disks.replica(2, epoch=5, leads=True))
    invariant.on_election_saved(NODES[2], GROUP, None, state(5, leader=2))
    with pytest.raises(Violation, match="epoch 5 is led by 2"):
        invariant.on_leader(disks.replica(1, epoch=5, leads=True))
    with pytest.raises(Violation, match="epoch 4 is led by 1"):
        invariant.on_election_saved(NODES[2], GROUP, None, state(4, leader=3))


def test_a_vote_that_a_crash_could_take_back_is_told(disks: Disks) -> None:
    invariant = DurableVote(disks.view)
    with pytest.raises(Violation, match="disk says None"):
        invariant.on_vote_granted(NODES[0], GROUP, 4, ReplicaKey(NODES[1]))
    disks.disks[NODES[0]].save({GROUP: state(4, vote=2)})
    invariant.on_vote_granted(NODES[0], GROUP, 4, ReplicaKey(NODES[1]))
    disks.disks[NODES[0]].save({GROUP: state(5)})
    invariant.on_vote_granted(NODES[0], GROUP, 4, ReplicaKey(NODES[1]))
    with pytest.raises(Violation, match="grants epoch 5"):
        invariant.on_vote_granted(NODES[0], GROUP, 5, ReplicaKey(NODES[1]))
    with pytest.raises(Violation, match="after 2"):
        invariant.on_vote_granted(NODES[0], GROUP, 4, ReplicaKey(NODES[2]))


def test_a_vote_of_a_group_that_went_with_its_topic_need_not_be_on_disk(disks: Disks) -> None:
    """Seed 791103296: a node that had been paused granted a vote, and learned in the same turn that the topic was deleted."""
    node_id = NODES[0]
    for topics, is_gone in ((GROUP.topic, False), ("other", True), (GROUP.topic, True)):
        invariant = DurableVote(replace(disks.view, disposable_topics=(topics,)))
        if is_gone:
            disks.disks[node_id].logs.pop(GROUP, None)
        if is_gone and topics == GROUP.topic:
            invariant.on_vote_granted(node_id, GROUP, 4, ReplicaKey(NODES[1]))
        else:
            with pytest.raises(Violation, match="disk says None"):
                invariant.on_vote_granted(node_id, GROUP, 4, ReplicaKey(NODES[1]))


def test_a_high_watermark_that_goes_back_or_too_far_is_told(disks: Disks) -> None:
    invariant = MonotonicHighWatermark(disks.view)
    disks.fill(5)
    invariant.on_high_watermark(disks.replica(1, hw=5), 3)
    with pytest.raises(Violation, match="5 -> 4"):
        invariant.on_high_watermark(disks.replica(1, hw=4), 5)
    with pytest.raises(Violation, match="past the log end"):
        invariant.on_high_watermark(disks.replica(1, hw=6), 5)


def test_committed_bytes_that_differ_are_told(disks: Disks) -> None:
    invariant = CommittedData(disks.view, disks.committed)
    disks.fill(2, nodes=(1, 2, 3))
    disks.fill(2, nodes=(1, 2), epoch=2)
    disks.fill(2, nodes=(3,), epoch=3)
    invariant.on_high_watermark(disks.replica(1, hw=4), 0)
    invariant.on_high_watermark(disks.replica(2, hw=3), 0)
    invariant.on_high_watermark(disks.replica(3, hw=2), 0)
    with pytest.raises(Violation, match=r"committed batch \[2, 3\) of epoch 2"):
        invariant.on_high_watermark(disks.replica(3, hw=3), 2)


def test_a_committed_batch_that_is_replaced_is_told_after_a_restart(disks: Disks) -> None:
    invariant = CommittedData(disks.view, disks.committed)
    disks.fill(3)
    invariant.on_high_watermark(disks.replica(1, hw=3), 0)
    disks.log(1).truncate_to(Offset(1))
    disks.fill(2, nodes=(1,), epoch=4)
    with pytest.raises(Violation, match=r"\[1, 2\) of epoch 1"):
        invariant.on_high_watermark(disks.replica(1, hw=3), -1)


def test_a_high_watermark_inside_a_batch_is_told(disks: Disks) -> None:
    fill(disks.log(1), 2, count=4)
    with pytest.raises(Violation, match="not the end of a batch"):
        CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, hw=6), 0)


def test_a_high_watermark_without_a_synced_majority_is_told(disks: Disks) -> None:
    data = CommittedData(disks.view, disks.committed)
    invariant = MajorityHoldsCommitted(disks.view, disks.committed)
    disks.fill(1, nodes=(1, 2))
    data.on_high_watermark(disks.replica(1, hw=1), 0)
    invariant.on_high_watermark(disks.replica(1, hw=1), 0)
    disks.fill(1, nodes=(1,))
    disks.fill(1, nodes=(2,), sync=False)
    data.on_high_watermark(disks.replica(1, hw=2), 1)
    with pytest.raises(Violation, match="only 1 of 3"):
        invariant.on_high_watermark(disks.replica(1, hw=2), 1)
    disks.sync(2)
    invariant.on_high_watermark(disks.replica(1, hw=2), 1)


def test_a_truncation_that_takes_committed_data_from_the_majority_is_told(disks: Disks) -> None:
    invariant = MajorityHoldsCommitted(disks.view, disks.committed)
    disks.fill(2, nodes=(1, 2))
    CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, hw=2), 0)
    invariant.on_crash(NODES[2])
    disks.log(2).truncate_to(Offset(1))
    with pytest.raises(Violation, match="only 1 of 3"):
        invariant.on_log_cut(NODES[1], GROUP, 1)
    with pytest.raises(Violation, match="only 1 of 3"):
        invariant.on_crash(NODES[2])


def test_who_begins_anew_behind_a_durable_snapshot_holds_what_it_stands_for(disks: Disks) -> None:
    """The log may come back as it was before, which is continued from the snapshot at the next start."""
    snapshots: dict[NodeId, list[OffsetAndEpoch]] = {}
    view = replace(disks.view, snapshots_of=lambda node_id, group: snapshots.get(node_id, []))
    invariant = MajorityHoldsCommitted(view, disks.committed)
    disks.fill(3, nodes=(1, 2))
    CommittedData(view, disks.committed).on_high_watermark(disks.replica(1, hw=3), 0)
    disks.log(2).truncate_to(Offset(0))
    disks.log(2).reset(OffsetAndEpoch(Offset(3), Epoch(1)))
    with pytest.raises(Violation, match="only 1 of 3"):
        invariant.on_crash(NODES[2])
    snapshots[NODES[1]] = [OffsetAndEpoch(Offset(2), Epoch(1))]
    with pytest.raises(Violation, match="only 1 of 3"):
        invariant.on_crash(NODES[2])
    snapshots[NODES[1]].append(OffsetAndEpoch(Offset(3), Epoch(1)))
    invariant.on_crash(NODES[2])


def test_the_data_of_a_topic_that_nobody_deleted_stays(disks: Disks) -> None:
    disks.fill(2)
    data = CommittedData(disks.view, disks.committed)
    data.on_high_watermark(disks.replica(1, hw=2), 0)
    with pytest.raises(Violation, match="was not deleted"):
        MajorityHoldsCommitted(disks.view, disks.committed).on_log_deleted(NODES[0], GROUP)
    allowed = MajorityHoldsCommitted(replace(disks.view, disposable_topics=(GROUP.topic,)), disks.committed)
    for node_id in NODES[:2]:
        disks.disks[node_id].delete(GROUP)
        allowed.on_log_deleted(node_id, GROUP)
    allowed.on_crash(NODES[2])


def test_a_synced_batch_of_another_epoch_is_no_copy(disks: Disks) -> None:
    disks.fill(1, nodes=(1,), epoch=1)
    disks.fill(1, nodes=(2,), epoch=2)
    CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, hw=1), 0)
    with pytest.raises(Violation, match="only 1 of 3"):
        MajorityHoldsCommitted(disks.view, disks.committed).on_high_watermark(disks.replica(1, hw=1), 0)


def test_a_leader_without_a_committed_record_is_told(disks: Disks) -> None:
    invariant = LeaderCompleteness(disks.view, disks.committed)
    disks.fill(3, nodes=(1, 2))
    disks.fill(2, nodes=(3,))
    CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, epoch=2, hw=3), 0)
    invariant.on_leader(disks.replica(2, epoch=3, leads=True))
    with pytest.raises(Violation, match=r"without the committed batch \[2, 3\)"):
        invariant.on_leader(disks.replica(3, epoch=3, leads=True))


def test_who_wins_an_older_epoch_too_late_needs_only_what_was_committed_before_it(disks: Disks) -> None:
    disks.fill(3, nodes=(1, 2))
    disks.fill(2, nodes=(3,))
    CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, epoch=2, hw=2), 0)
    CommittedData(disks.view, disks.committed).on_high_watermark(disks.replica(1, epoch=6, hw=3), 2)
    invariant = LeaderCompleteness(disks.view, disks.committed)
    invariant.on_leader(disks.replica(3, epoch=5, leads=True))
    with pytest.raises(Violation):
        invariant.on_leader(disks.replica(3, epoch=7, leads=True))


def test_a_leader_change_is_told_only_while_leadership_must_be_stable(disks: Disks) -> None:
    invariant = StableLeadership(disks.view)
    invariant.on_leader(disks.replica(1, epoch=1, leads=True))
    invariant.armed = True
    invariant.on_epoch(disks.replica(3, epoch=1), -1)
    with pytest.raises(Violation, match="became leader"):
        invariant.on_leader(disks.replica(2, epoch=2, leads=True))
    with pytest.raises(Violation, match="1 -> 2"):
        invariant.on_epoch(disks.replica(3, epoch=2), 1)


def test_what_has_not_converged_is_told(disks: Disks) -> None:
    disks.fill(2)
    replicas = [disks.replica(node_id, leads=node_id == 2, hw=2) for node_id in (1, 2, 3)]
    assert disagreements(replicas, 3) == []
    assert disks.committed.of(GROUP).extend(disks.log(1), 2, 1)
    convergence = Convergence(disks.view, disks.committed, 3)
    convergence.on_end(replicas)
    for broken, why in (
        (replicas[:2], "on nodes"),
        ([replace(replicas[0], high_watermark=1), *replicas[1:]], "by node"),
        ([replace(replicas[0], is_leader=True), *replicas[1:]], "leaders"),
        ([replace(replica, high_watermark=1) for replica in replicas], "not committed"),
    ):
        with pytest.raises(Violation, match=why):
            convergence.on_end(broken)
    disks.fill(1, nodes=(1,))
    assert disks.committed.of(GROUP).extend(disks.log(1), 3, 1)
    disks.log(1).truncate_to(Offset(2))
    with pytest.raises(Violation, match="3 was committed"):
        convergence.on_end(replicas)


def test_a_committed_log_finds_the_first_difference(disks: Disks) -> None:
    committed = CommittedLog()
    disks.fill(4, nodes=(1,))
    assert committed.extend(disks.log(1), 4, 1)
    assert not committed.extend(disks.log(2), 5, 1)
    disks.fill(4, nodes=(2,))
    assert committed.first_difference(disks.log(2), 0, 4) is None
    disks.log(2).truncate_to(Offset(3))
    missing = committed.first_difference(disks.log(2), 0, 4)
    assert missing is not None and missing.base == 3
    assert committed.first_difference(disks.log(2), 0, 3) is None


def test_the_suite_calls_only_who_listens(disks: Disks) -> None:
    calls: list[NodeId] = []

    class Listening(Invariant):
        def on_crash(self, node_id: NodeId) -> None:
            calls.append(node_id)

    suite = InvariantSuite([Listening(disks.view), SingleLeader(disks.view)])
    suite.on_crash(NODES[1])
    suite.on_log_cut(NODES[1], GROUP, 0)
    assert calls == [NODES[1]]


def test_the_standard_invariants_accept_a_plain_history(disks: Disks) -> None:
    invariants, committed = standard_invariants(disks.view, 3, 2_000)
    suite = InvariantSuite(invariants)
    disks.fill(3)
    for node_id in (1, 2, 3):
        disks.disks[NodeId(node_id)].save({GROUP: state(1, leader=1)})
        suite.on_high_watermark(disks.replica(node_id, hw=3), 0)
    disks.disks[NODES[2]].crash(Random(1))
    suite.on_crash(NODES[2])
    suite.on_end([disks.replica(node_id, leads=node_id == 1, hw=3) for node_id in (1, 2, 3)])
    assert committed.of(GROUP).end == 3
