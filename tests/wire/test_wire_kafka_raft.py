"""Kafka's own Raft implementation and raftlake nodes in one quorum (KIP-595, KIP-996 on the real wire).

After each story every node runs, none has complained, all have committed, and all logs are equal byte for byte below the high
watermark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from mixedkit import MixedQuorum
from mixednodes import TOPIC, wait_until
from raftlake import Client
from raftlake.errors import RaftlakeError
from waitkit import attempt

pytestmark = pytest.mark.java

NewQuorum = Callable[..., MixedQuorum]


def test_leadership_goes_back_and_forth_with_one_java_voter(new_quorum: NewQuorum) -> None:
    """A graceful stop hands over by EndQuorumEpoch in both directions; a kill is survived; whoever comes back follows."""
    quorum = new_quorum(java=(1,), ours=(2, 3), throughput=200)
    quorum.start()
    quorum.grow(50, 2, 3)
    quorum.hand_over((2, 3), (1,))
    quorum.grow(100, 1)
    quorum.hand_over((1,), (2, 3))
    quorum.grow(20, 2, 3)

    leader, epoch = quorum.make_lead(2, 3)
    quorum.ours[leader].kill()
    quorum.await_leader(epoch_above=epoch)
    quorum.ours[leader].start()
    quorum.check(above=quorum.append(20) - 1)


def test_leadership_goes_back_and_forth_with_two_java_voters(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=200)
    quorum.start()
    committed = quorum.grow(50, 3)

    def read() -> int:
        """Proven by Fetches of Java alone, which have no session to tell in which order they were sent."""
        quorum.make_lead(3)
        # Nobody else knows this request: where another node leads meanwhile, it has no answer.
        with Client(quorum.ours[3].address, request_timeout_ms=3000) as client, contextlib.suppress(RaftlakeError):
            return client.read_offset(TOPIC)[0]
        return 0

    assert attempt(read, "a linearizable read at our leader") >= committed

    _, epoch = quorum.make_lead(3)
    quorum.ours[3].kill()
    quorum.await_leader((1, 2), epoch_above=epoch)
    quorum.ours[3].start()
    quorum.append(50)

    leader, epoch = quorum.make_lead(1, 2)
    quorum.java[leader].kill()
    quorum.await_leader(epoch_above=epoch)
    quorum.java[leader].start()
    quorum.check(above=quorum.append(20) - 1)


def test_our_uncommitted_tail_gives_way_to_the_epoch_of_a_java_leader(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=100)
    quorum.start()
    ours = quorum.ours[3]

    def tail() -> tuple[int, int] | None:
        """Where records begin that nobody else has, and in which epoch they are."""
        _, epoch = quorum.make_lead(3)
        quorum.append(10)
        for java in quorum.java.values():
            java.kill()
        common = ours.log_end
        quorum.send(3, 30)
        # It is leader no longer than it can do without a majority.
        wait_until(lambda: ours.log_end > common or quorum.leader_of() != (3, epoch), "records in our leader's log alone")
        if ours.log_end > common:
            return common, epoch
        quorum.start(1, 2)
        return None

    common, epoch = attempt(tail, "a tail that nobody else has")
    ours.kill()
    end = ours.log_end
    lost = ours.log_bytes(end, common)

    quorum.start(1, 2)
    quorum.await_leader((1, 2), epoch_above=epoch)
    ours.start()
    quorum.append(end - common + 60)
    quorum.check()
    assert lost and ours.log_bytes(end, common) != lost


def test_a_java_tail_gives_way_to_the_epoch_of_our_leader(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1,), ours=(2, 3), throughput=100)
    quorum.start()
    java = quorum.java[1]

    def tail() -> tuple[int, int] | None:
        """Where records begin that nobody else has, and in which epoch they are."""
        _, epoch = quorum.make_lead(1)
        quorum.append(20)
        for ours in quorum.ours.values():
            ours.kill()
        common = max(ours.log_end for ours in quorum.ours.values())
        # It is leader no longer than it can do without a majority.
        wait_until(lambda: java.log_end > common or java.election() != (1, epoch), "records in the Java leader's log alone")
        if java.log_end > common:
            return common, epoch
        quorum.start(2, 3)
        return None

    common, epoch = attempt(tail, "a tail that nobody else has")
    java.kill()
    end = java.log_end
    lost = java.log_bytes(end, common)

    quorum.start(2, 3)
    quorum.await_leader((2, 3), epoch_above=epoch)
    quorum.append(end - common + 40)
    java.start()
    quorum.check(above=quorum.append(10) - 1)
    assert lost and java.log_bytes(end, common) != lost
    assert "Truncated to offset" in java.output
