"""What a run got to see is counted where it happens."""

from __future__ import annotations

from dataclasses import replace

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import ControlReply, FetchReply, GroupId, PeerMessage
from raftlake.raft.actions import ReportRole
from raftlake.raft.messages import FetchResponse
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.sim.cluster import Cluster
from raftlake.sim.coverage import Coverage
from raftlake.sim.faults.faults import Settings
from raftlake.sim.node_watch import NodeWatch

GROUP = GroupId("t", 0)


def role(name: str, epoch: int, reason: str = "") -> ReportRole:
    return ReportRole(role=name, epoch=Epoch(epoch), leader_id=NO_LEADER, reason=reason)


def test_role_changes_epochs_and_resignations_are_counted() -> None:
    coverage = Coverage()
    coverage.role(GROUP, "-", role("Follower", 3))
    coverage.role(GROUP, "Follower", role("Follower", 1_004))
    coverage.role(GROUP, "Leader", role("Resigned", 1_004, "check quorum"))
    assert coverage.finish() == {
        "epochs": 2,
        "resigned (check quorum)": 1,
        "role - -> Follower": 1,
        "role Leader -> Resigned": 1,
    }


def test_errors_and_detours_of_answers_are_counted() -> None:
    coverage = Coverage()
    body = FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(4))
    position = OffsetAndEpoch(Offset(1), Epoch(1))
    bodies = (
        body,
        replace(body, diverging=position),
        replace(body, snapshot_id=position),
        replace(body, error=ErrorCode.FENCED_LEADER_EPOCH),
    )
    coverage.answer(FetchReply(error=ErrorCode.NONE, messages=tuple(PeerMessage(GROUP, body) for body in bodies)))
    coverage.answer(ControlReply(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert coverage.finish() == {
        "divergence told": 1,
        "epochs": 0,
        "error FENCED_LEADER_EPOCH": 1,
        "error INCONSISTENT_CLUSTER_ID": 1,
        "snapshot id told": 1,
    }


def test_a_run_tells_what_it_covered_and_a_watch_reports_what_moved() -> None:
    outcome = Cluster(replace(Settings(seed=1), safety_ms=3_000)).run()
    assert outcome.covered["role Candidate -> Leader"] >= 3
    cluster = Cluster(Settings(seed=1))
    cluster.start_all()
    while not cluster.replicas() or min(replica.high_watermark for replica in cluster.replicas()) < 1:
        cluster.run_a_while()
    machine = next(machine for machine in cluster.machines.values() if any(r.is_leader for r in machine.replicas.values()))
    assert machine.node is not None
    watch = NodeWatch(machine.node, machine.incarnation, machine.disk.logs, cluster.invariants, cluster.coverage, cluster.trace)
    watch.look()
    assert {group: state.high_watermark for group, state in watch.replicas.items()} == {
        group: state.high_watermark for group, state in machine.replicas.items()
    }
