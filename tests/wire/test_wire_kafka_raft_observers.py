"""Kafka's own Raft implementation beside raftlake nodes when nobody votes for anybody: observers, load, and a quorum without
a leader."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from functools import partial

import pytest

from mixedkit import MixedQuorum
from mixednodes import OurNode, wait_until
from waitkit import attempt

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
    quorum.add_java_observer(5, quorum.ours[3 - leader]).start()
    quorum.add_our_observer(7).start()
    quorum.check(above=quorum.append(30) - 1)

    def told(node: OurNode, what: str) -> tuple[int, int, str] | None:
        """Who leads, in which epoch, and what the tool prints meanwhile."""
        before = quorum.await_leader()
        output = kafka_tool(QUORUM, "--bootstrap-controller", node.address, "describe", what).stdout
        return (*before, output) if quorum.leader_of() == before else None

    for node in quorum.ours.values():
        leader, epoch, output = attempt(partial(told, node, "--status"), "one leader while the tool asks")
        facts = dict(re.findall(r"^(\w+):\s+(.*)$", output, flags=re.MULTILINE))
        assert (facts["LeaderId"], facts["LeaderEpoch"]) == (str(leader), str(epoch))
        assert int(facts["HighWatermark"]) > 30
        assert re.findall(r'"id": (\d+)', facts["CurrentVoters"]) == ["1", "2"]
    leader, epoch, output = attempt(partial(told, quorum.ours[7], "--replication"), "one leader while the tool asks")
    rows = {row[0]: row for row in map(str.split, output.splitlines()[1:]) if row}
    assert {node_id: row[-1] for node_id, row in rows.items()} == {
        str(leader): "Leader", str(3 - leader): "Follower", "5": "Observer", "7": "Observer",
    }  # fmt: skip
    assert rows["5"][1] == quorum.java[5].directory_id

    # Another leader, another epoch: the observer finds it by itself.
    quorum.ours[leader].stop()
    quorum.ours[leader].start()
    quorum.await_leader(epoch_above=epoch)
    quorum.check(above=quorum.append(30) - 1)


def test_we_observe_a_java_quorum_under_load(new_quorum: NewQuorum) -> None:
    """Ten seconds of appends at a Java leader, committed by a Java and our vote and observed by another node of ours."""
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=400)
    quorum.add_our_observer(7)
    quorum.start()

    def leads_undisturbed() -> bool:
        leader = quorum.make_lead(1, 2)
        java = quorum.java[leader[0]]
        told = len(java.latency_lines)
        wait_until(lambda: len(java.latency_lines) >= told + 2 or quorum.leader_of() != leader, "two reports of commit latency")
        return quorum.leader_of() == leader

    attempt(leads_undisturbed, "two reports of a leader whom nothing disturbs")
    quorum.check(above=quorum.append(500) - 1)


def test_java_peers_without_a_leader_are_paced(new_quorum: NewQuorum) -> None:
    """Kafka's Raft asks again without any pause while it is told of no leader; two of five voters and an observer do."""
    quorum = new_quorum(java=(1,), ours=(2, 3, 4, 5))
    quorum.start(1, 2)
    quorum.add_java_observer(9, quorum.ours[2]).start()
    ours = quorum.ours[2]
    wait_until(lambda: all("UnattachedState" in java.output for java in quorum.java.values()), "both are looking for a leader")
    wait_until(lambda: ours.requests_served("FETCH") > 50, "both ask us")

    began, before = time.monotonic(), asked(ours)
    wait_until(lambda: time.monotonic() - began >= 4 and asked(ours) > before + 20, "four seconds, and twenty requests")
    asked_for = asked(ours) - before
    rate = asked_for / (time.monotonic() - began)
    assert rate < 2 * ASKED_PER_SECOND_MAX, f"{rate:.0f} requests a second"
    assert all(node.is_alive and not node.trouble() for node in (*quorum.java.values(), ours))
