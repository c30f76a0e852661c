"""Voters in the log (KIP-853) in quorums of Kafka's own Raft implementation and raftlake nodes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mixedkit import MixedQuorum
from mixednodes import wait_until

pytestmark = pytest.mark.java

NewQuorum = Callable[..., MixedQuorum]
DYNAMIC = {"quorum.kraft.version": "1"}
#: Of control records: version 0 and the type.
KRAFT_VERSION_KEY, KRAFT_VOTERS_KEY = b"\0\0\0\5", b"\0\0\0\6"


def test_static_voters_of_both_kinds_move_into_the_log(new_quorum: NewQuorum) -> None:
    """Our leader raises kraft.version to 1 once it knows every voter's directory; either kind leads on from there."""
    quorum = new_quorum(java=(1,), ours=(2, 3), our_settings=DYNAMIC)
    quorum.start()
    # Our nodes alone move them.
    quorum.check(above=quorum.grow(20, 2, 3) - 1)

    def have_moved() -> bool:
        logs = [node.log_bytes(1 << 60) for node in quorum.nodes.values()]
        if all(KRAFT_VERSION_KEY in log and KRAFT_VOTERS_KEY in log for log in logs):
            return True
        quorum.make_lead(2, 3)
        return False

    wait_until(have_moved, "the voters are in every log")
    quorum.check(above=quorum.grow(20, 1) - 1)
    quorum.check(above=quorum.grow(20, 2, 3) - 1)
    state = json.loads((quorum.java[1].log_directory / "quorum-state").read_text())
    assert state["data_version"] == 1


def test_a_java_controller_joins_our_quorum_by_itself(new_quorum: NewQuorum) -> None:
    """It knows one address, asks the leader to add it, and leads in the end; no node of ours was ever told where it is."""
    quorum = new_quorum(java=(), ours=(2, 3), our_settings=DYNAMIC)
    quorum.start()
    end = quorum.append(30)
    ours = list(quorum.ours.values())
    java = quorum.add_java_observer(1, quorum.ours[2], **{"controller.quorum.auto.join.enable": "true"})
    java.start()
    wait_until(
        lambda: all([voter["id"] for voter in each.describe().get("currentVoters", [])] == [1, 2, 3] for each in ours),
        "the leader has added it",
    )
    quorum.check(above=end)

    quorum.check(above=quorum.grow(20, 1) - 1)
    _, epoch = quorum.make_lead(1)
    java.kill()
    quorum.await_leader((2, 3), epoch_above=epoch)
    quorum.append(10)
    java.start()
    quorum.check(above=quorum.append(10) - 1)
