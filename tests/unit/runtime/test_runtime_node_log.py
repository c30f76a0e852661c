"""What a node's log says of roles, damage and votes, and at which level."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.node_log import NodeLog
from replica_cluster import Cluster


def listening() -> Any:
    """The log of node 1, behind the listeners that a node calls."""
    services = {name: SimpleNamespace(listeners=[]) for name in ("damage", "own_vote", "disk")}
    reports, kv = SimpleNamespace(role_listeners=[]), SimpleNamespace(room=SimpleNamespace(listeners=[]))
    node: Any = SimpleNamespace(reports=reports, kv=kv, **services)
    NodeLog(NodeId(1), METADATA_GROUP).listen_to(node)
    return node


def test_the_quorums_own_role_is_news_and_a_partitions_is_not(caplog: pytest.LogCaptureFixture) -> None:
    (role,) = listening().reports.role_listeners
    report = ReportRole(role="Leader", epoch=Epoch(3), leader_id=NodeId(1), reason="elected")
    with caplog.at_level(logging.INFO):
        role(GroupId("flights", 0), report)
        assert caplog.text == ""
        role(METADATA_GROUP, report)
    assert "role node=1 group=__cluster_metadata-0 role=Leader epoch=3 leader=1 reason=elected" in caplog.text


def test_damage_is_an_error_and_its_repair_is_told(caplog: pytest.LogCaptureFixture) -> None:
    (damage,) = listening().damage.listeners
    with caplog.at_level(logging.INFO):
        damage(METADATA_GROUP, "bit flip")
        damage(METADATA_GROUP, None)
    first, second = caplog.records
    assert (first.levelno, second.levelno) == (logging.ERROR, logging.INFO)
    assert "reason='bit flip'" in first.getMessage() and second.getMessage().startswith("repaired node=1")


def test_a_refused_vote_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    (own_vote,) = listening().own_vote.listeners
    with caplog.at_level(logging.INFO):
        own_vote("add this voter", "")
        own_vote("add this voter", "lagging")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]
    assert "refused=lagging" in caplog.records[1].getMessage()


def test_disks_that_fill_up_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(size=1, min_free_bytes=50_000)
    node = cluster.leader()
    cluster.run(2_000)
    NodeLog(NodeId(1), METADATA_GROUP).listen_to(node)
    cluster.disks[NodeId(1)].space.fill(40_000)
    cluster.run(3_000)
    cluster.disks[NodeId(1)].space.empty()
    cluster.run(3_000)
    found = [record for record in caplog.records if record.name == "raftlake.node"]
    assert [record.levelno for record in found] == [logging.WARNING] * 4
    told = [record.getMessage() for record in found]
    assert "log.dir.min.free.bytes=50000" in told[0] and "node 1" in told[1]
    assert "has room again" in told[2] and "has room again" in told[3]


def test_a_key_space_that_fills_up_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = listening().kv.room.listeners
    warning("the key space is nearly full")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "the key space is nearly full node=1")
    ]
