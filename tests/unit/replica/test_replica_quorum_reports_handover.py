"""Who votes, who leads and how a leader stops: each service alone on an engine."""

from __future__ import annotations

from enginekit import ME, ORDERS, THREE, TWO, Ground
from raftlake.raft.actions import ReportRefusedEpoch, ReportRole
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.handover import HOLD_MS, SETTLE_MS, Handover
from raftlake.replica.quorum import Quorum
from raftlake.replica.reports import Reports


def test_the_static_voters_count_until_the_log_is_open_and_says_more() -> None:
    ground = Ground(3)
    quorum = Quorum(ground.engine)
    assert quorum.partition is None and quorum.latest is quorum.static and quorum.committed is None
    assert (quorum.leader_id, quorum.is_ready()) == (NO_LEADER, False)
    assert quorum.addresses() == {ME: Endpoint("h", 9091), TWO: Endpoint("h", 9092), THREE: Endpoint("h", 9093)}


def test_a_quorum_is_ready_when_it_is_led_and_something_is_applied() -> None:
    ground = Ground()
    quorum = Quorum(ground.engine)
    partition = ground.lead()
    assert quorum.partition is partition
    assert (quorum.leader_id, quorum.is_ready()) == (ME, True)
    partition.high_watermark = Offset(0)
    assert not quorum.is_ready()


def test_all_who_listen_hear_of_a_role() -> None:
    heard: list[tuple[object, ...]] = []
    reports = Reports(Ground().engine)
    reports.role_listeners += [lambda *told: heard.append(told)] * 2
    report = ReportRole(role="Leader", epoch=Epoch(3), leader_id=ME, reason="test")
    reports.role(ORDERS, report)
    assert heard == [(ORDERS, report)] * 2


def test_an_epoch_that_was_refused_is_an_alarm_until_the_group_reaches_it() -> None:
    reports = Reports(Ground().engine)
    reports.refused_epoch(ORDERS, ReportRefusedEpoch(source=NodeId(7), epoch=Epoch(900), own_epoch=Epoch(2)))
    assert list(reports.alarms) == [ORDERS] and reports.refused_epochs == 1
    reports.role(ORDERS, ReportRole(role="Follower", epoch=Epoch(899), leader_id=TWO, reason="test"))
    assert ORDERS in reports.alarms
    reports.role(ORDERS, ReportRole(role="Follower", epoch=Epoch(900), leader_id=TWO, reason="test"))
    assert reports.alarms == {}


def test_who_stops_resigns_where_all_is_committed_and_settles_elsewhere() -> None:
    ground = Ground()
    quorum, reports = Quorum(ground.engine), Reports(ground.engine)
    handover = Handover(ground.engine, quorum, reports)
    idle, busy = ground.lead(METADATA_GROUP), ground.lead(ORDERS)
    busy.high_watermark = Offset(0)
    handover.begin()
    assert ground.engine.is_resigning and handover.is_drained(), "there is no other voter"
    assert idle.core.is_resigning and not handover.holds(idle)
    assert not busy.core.is_resigning and handover.holds(busy), "its last records are not committed"
    ground.run(SETTLE_MS)
    assert busy.core.is_resigning and not handover.holds(busy)


def test_what_is_held_for_the_next_leader_is_refused_when_it_is_known() -> None:
    ground = Ground()
    reports = Reports(ground.engine)
    quorum = Quorum(ground.engine)
    handover = Handover(ground.engine, quorum, reports)
    partition = ground.lead(ORDERS)
    quorum.static = Quorum(Ground(3).engine).static
    handover.begin()
    assert handover.holds(partition) and not handover.is_drained()
    reports.role(ORDERS, ReportRole(role="Unattached", epoch=Epoch(2), leader_id=NO_LEADER, reason="test"))
    assert handover.holds(partition)
    reports.role(ORDERS, ReportRole(role="Follower", epoch=Epoch(2), leader_id=TWO, reason="test"))
    assert not handover.holds(partition)
    ground.run(HOLD_MS)
    assert not handover.holds(partition)
