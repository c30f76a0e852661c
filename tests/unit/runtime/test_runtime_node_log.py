"""What a node's log says of roles, damage and votes, and at which level."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.replica.hosting.topic_news import TopicNews
from raftlake.replica.refused_for_good import COMMIT, FETCH, MORE, Refusal
from raftlake.replica.reserved import Topic
from raftlake.runtime.node_log import NodeLog
from replica_cluster import Cluster


def listening() -> Any:
    """The log of node 1, behind the listeners that a node calls."""
    services = {name: SimpleNamespace(listeners=[]) for name in ("damage", "own_vote", "disk", "cluster_identity")}
    reports, kv = SimpleNamespace(role_listeners=[]), SimpleNamespace(room=SimpleNamespace(listeners=[]))
    topics = SimpleNamespace(changes=SimpleNamespace(listeners=[]))
    refused = SimpleNamespace(listeners=[], overflow_listeners=[])
    node: Any = SimpleNamespace(reports=reports, kv=kv, topics=topics, refused_for_good=refused, **services)
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


def test_a_topic_that_was_created_or_deleted_is_one_line_with_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    (topic,) = listening().topics.changes.listeners
    orders = Topic("orders", bytes(range(16)), 4)
    with caplog.at_level(logging.INFO):
        topic(TopicNews(orders, True, ClientContext("a\nb" + "c" * 1_000, "10.0.0.9")))
        topic(TopicNews(orders, False, None))
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("topic created node=1 topic=orders id=AAECAwQFBgcICQoLDA0ODw partitions=4 client='a\\nbccc")
    assert first.endswith(" host=10.0.0.9") and len(first) < 500 and "\n" not in first
    assert second == "topic deleted node=1 topic=orders id=AAECAwQFBgcICQoLDA0ODw partitions=4"
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_a_refusal_says_to_whom_and_why(caplog: pytest.LogCaptureFixture) -> None:
    refused = listening().refused_for_good
    with caplog.at_level(logging.INFO):
        for client in (ClientContext("rdkafka", "10.0.0.9"), None):
            refused.listeners[0](Refusal(kind=COMMIT, subject="a=b", why="no groups " + "x" * 1_000, client=client))
        refused.listeners[0](Refusal(kind=FETCH, subject="me", why="why", client=ClientContext("me", "h")))
        refused.overflow_listeners[0](MORE)
    first, second, fetch, more = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "refused to keep the offsets of a group node=1 group='a=b' client=rdkafka host=10.0.0.9 reason='no groups xxx"
    )
    assert second.startswith("refused to keep the offsets of a group node=1 group='a=b' reason='no groups")
    assert len(first) < 500
    assert fetch == "refused to serve a fetch node=1 client=me host=h reason=why"
    assert more == f"{MORE} node=1"
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
