"""Kafka's own Raft implementation and raftlake nodes in one quorum (KIP-595, KIP-996 on the real wire).

After each story every node runs, none has complained, all have committed, and all logs are equal byte for byte below the high
watermark.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mixedkit import MixedQuorum
from mixednodes import TOPIC, wait_until
from raftlake import Client

pytestmark = pytest.mark.java

NewQuorum = Callable[..., MixedQuorum]


def test_leadership_goes_back_and_forth_with_one_java_voter(new_quorum: NewQuorum) -> None:
    """A graceful stop hands over by EndQuorumEpoch in both directions; a kill is survived; whoever comes back follows."""
    quorum = new_quorum(java=(1,), ours=(2, 3), throughput=200)
    quorum.start()
    leader, epoch = quorum.make_lead(2, 3)
    quorum.append(leader, 50)
    quorum.settle(above=50)

    _, epoch = quorum.make_lead(1)
    appended = quorum.java[1].log_end
    quorum.settle(above=appended + 100)

    quorum.java[1].stop()
    leader, epoch = quorum.await_leader((2, 3), epoch_above=epoch)
    assert "reason='leader resigned'" in quorum.ours[leader].output, "our node was told by EndQuorumEpoch"
    quorum.java[1].start()
    quorum.append(leader, 20)
    committed = quorum.settle(above=appended + 120)

    quorum.ours[leader].kill()
    successor, _ = quorum.await_leader(epoch_above=epoch)
    quorum.ours[leader].start()
    if successor in quorum.ours:
        quorum.append(successor, 20)
    quorum.check(above=committed + 20)


def test_leadership_goes_back_and_forth_with_two_java_voters(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=200)
    quorum.start()
    _, epoch = quorum.make_lead(3)
    quorum.append(3, 50)
    quorum.settle(above=50)
    with Client(quorum.ours[3].address) as client:
        # Proven by Fetches of Java alone, which have no session to tell in which order they were sent.
        assert client.read_offset(TOPIC)[0] > 50

    quorum.ours[3].kill()
    leader, epoch = quorum.await_leader((1, 2), epoch_above=epoch)
    quorum.ours[3].start()
    committed = quorum.settle(above=quorum.java[leader].log_end + 50)

    quorum.java[leader].kill()
    successor, epoch = quorum.await_leader(epoch_above=epoch)
    quorum.java[leader].start()
    if successor == 3:
        quorum.append(3, 20)
    quorum.check(above=committed + 20)


def test_our_uncommitted_tail_gives_way_to_the_epoch_of_a_java_leader(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=100)
    quorum.start()
    _, epoch = quorum.make_lead(3)
    quorum.append(3, 10)
    common = quorum.settle(above=10)
    for java in quorum.java.values():
        java.kill()
    quorum.append(3, 30, wait=False)
    ours = quorum.ours[3]
    wait_until(lambda: ours.log_end >= common + 30, "a tail that nobody else has")
    ours.kill()
    tail = ours.log_bytes(common + 30)

    quorum.start(1, 2)
    quorum.await_leader((1, 2), epoch_above=epoch)
    ours.start()
    quorum.check(above=common + 60)
    assert ours.log_bytes(common + 30) != tail


def test_a_java_tail_gives_way_to_the_epoch_of_our_leader(new_quorum: NewQuorum) -> None:
    quorum = new_quorum(java=(1,), ours=(2, 3), throughput=100)
    quorum.start()
    _, epoch = quorum.make_lead(1)
    quorum.settle(above=20)
    for ours in quorum.ours.values():
        ours.kill()
    java = quorum.java[1]
    common = max(ours.log_end for ours in quorum.ours.values())
    wait_until(lambda: java.log_end >= common + 30, "a tail that nobody else has")
    java.kill()
    tail = java.log_bytes(common + 30)

    quorum.start(2, 3)
    leader, _ = quorum.await_leader((2, 3), epoch_above=epoch)
    quorum.append(leader, 40)
    java.start()
    quorum.check(above=common + 40)
    assert java.log_bytes(common + 30) != tail
    assert "Truncated to offset" in java.output
