"""Kafka's own tool (4.3.1, Java) at nodes whose peers have a listener of their own: it is served at either one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from splitkit import split_quorum

pytestmark = pytest.mark.java

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


def test_the_quorum_tool_asks_at_either_listener(
    tmp_path: Path, kafka_tool: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with split_quorum(tmp_path) as nodes:
        for option, address in (("--bootstrap-server", nodes[0].clients), ("--bootstrap-controller", nodes[0].peers)):
            told = kafka_tool(QUORUM, option, address, "describe", "--status").stdout
            assert re.search(r"LeaderId:\s+[123]\n", told), told
            assert len(re.findall(r'"id": [123],', told)) == 3, told
            removed = kafka_tool(
                QUORUM, option, address, "remove-controller", "--controller-id", "9", "--controller-directory-id",
                "AAAAAAAAAAAAAAAAAAAAAg", check=False,
            )  # fmt: skip
            # The tool finds the leader among controllers, who knows no such voter; of brokers it asks any one.
            known = "VoterNotFoundException" if option == "--bootstrap-controller" else "VoterNotFound|NotLeaderOrFollower"
            assert re.search(known, removed.stderr), removed.stderr
