"""Kafka's own Raft implementation beside raftlake nodes when nobody votes for anybody: observers, load, and a quorum without
a leader."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable

import pytest

from mixedkit import MixedQuorum
from mixednodes import OurNode, wait_until

pytestmark = pytest.mark.java

NewQuorum = Callable[..., MixedQuorum]
Tool = Callable[..., subprocess.CompletedProcess[str]]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
#: Leaderless answers are held for 20 ms, so one peer asks 50 times a second at most; votes come on top.
ASKED_PER_SECOND_MAX = 75


def asked(node: OurNode) -> float:
    return node.requests_served("FETCH") + node.requests_served("VOTE")


def test_java_observes_our_quorum_and_kafkas_tool_describes_it_at_every_node(new_quorum: NewQuorum, kafka_tool: Tool) -> None:
    """The observer knows one of our nodes by its address alone, which does not lead (KIP-853 bootstrap servers)."""
    quorum = new_quorum(java=(), ours=(1, 2))
    quorum.start()
    leader, epoch = quorum.await_leader()
    follower = 3 - leader
    quorum.add_java_observer(5, quorum.ours[follower]).start()
    quorum.add_our_observer(7).start()
    quorum.append(leader, 30)
    quorum.check(above=30)

    for node in quorum.ours.values():
        output = kafka_tool(QUORUM, "--bootstrap-controller", node.address, "describe", "--status").stdout
        facts = dict(re.findall(r"^(\w+):\s+(.*)$", output, flags=re.MULTILINE))
        assert (facts["LeaderId"], facts["LeaderEpoch"]) == (str(leader), str(epoch))
        assert int(facts["HighWatermark"]) > 30
        assert re.findall(r'"id": (\d+)', facts["CurrentVoters"]) == ["1", "2"]
    output = kafka_tool(QUORUM, "--bootstrap-controller", quorum.ours[7].address, "describe", "--replication").stdout
    rows = {row[0]: row for row in map(str.split, output.splitlines()[1:]) if row}
    assert {node_id: row[-1] for node_id, row in rows.items()} == {
        str(leader): "Leader", str(follower): "Follower", "5": "Observer", "7": "Observer",
    }  # fmt: skip
    assert rows["5"][1] == quorum.java[5].directory_id

    # Another leader, another epoch: the observer finds it by itself.
    quorum.ours[leader].stop()
    quorum.ours[leader].start()
    leader, _ = quorum.await_leader(epoch_above=epoch)
    quorum.append(leader, 30)
    quorum.check(above=60)


def test_we_observe_a_java_quorum_under_load(new_quorum: NewQuorum) -> None:
    """Ten seconds of appends at a Java leader, committed by a Java and our vote and observed by another node of ours."""
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=400)
    quorum.add_our_observer(7)
    quorum.start()
    leader, epoch = quorum.make_lead(1, 2)
    java = quorum.java[leader]
    began = java.log_end
    told = len(java.latency_lines)
    wait_until(lambda: len(java.latency_lines) >= told + 2, "two reports of commit latency")
    assert quorum.leader_of() == (leader, epoch), "nothing disturbed the leader"
    quorum.check(above=began + 2000)


def test_java_peers_without_a_leader_are_paced(new_quorum: NewQuorum) -> None:
    """Kafka's Raft asks again without any pause while it is told of no leader; two of five voters and an observer do."""
    quorum = new_quorum(java=(1,), ours=(2, 3, 4, 5))
    quorum.start(1, 2)
    quorum.add_java_observer(9, quorum.ours[2]).start()
    ours = quorum.ours[2]
    wait_until(lambda: all("UnattachedState" in java.output for java in quorum.java.values()), "both are looking for a leader")
    wait_until(lambda: ours.requests_served("FETCH") > 50, "both ask us")

    began, before = time.monotonic(), asked(ours)
    wait_until(lambda: time.monotonic() - began >= 4, "four seconds")
    rate = (asked(ours) - before) / (time.monotonic() - began)
    assert 5 < rate < 2 * ASKED_PER_SECOND_MAX, f"{rate:.0f} requests a second"
    assert all(node.is_alive and not node.trouble() for node in (*quorum.java.values(), ours))
