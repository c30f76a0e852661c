"""What a node's log says of roles, damage and votes, and at which level."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.ports import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.node_log import NodeLog


def listening() -> Any:
    """The log of node 1, behind the listeners that a node calls."""
    node: Any = SimpleNamespace(
        reports=SimpleNamespace(role_listeners=[]), damage=SimpleNamespace(listeners=[]), own_vote=SimpleNamespace(listeners=[])
    )
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
