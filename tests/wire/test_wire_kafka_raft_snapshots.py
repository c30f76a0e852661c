"""Snapshots between Kafka's own Raft implementation and raftlake nodes (KIP-630), in both directions.

TestRaftServer takes no snapshots by itself but starts from one that it finds, and serves it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mixedkit import MixedQuorum
from mixednodes import wait_until
from raftlake.wire.snapshots import data_batch, footer_batch, header_batch

pytestmark = pytest.mark.java

NewQuorum = Callable[..., MixedQuorum]


def test_java_begins_with_a_snapshot_of_ours(new_quorum: NewQuorum) -> None:
    """A Java voter that was away while retention trimmed the log fetches our snapshot and goes on from there; then it leads."""
    small = {"log.segment.bytes": "16384", "retention.bytes": "16384"}
    quorum = new_quorum(java=(1,), ours=(2, 3), our_settings=small, throughput=200)
    quorum.start(2, 3)
    end = quorum.append(600)
    # Either of them may lead when the third one comes.
    wait_until(lambda: all(ours.log_start > 0 for ours in quorum.ours.values()), "the logs were trimmed")
    start = min(ours.snapshots()[-1] for ours in quorum.ours.values())

    java = quorum.java[1]
    java.start()
    quorum.check(above=end - 1)
    assert java.snapshots()[-1] >= start and java.log_start >= start[0]
    quorum.check(above=quorum.grow(100, 1) - 1)


def test_we_begin_with_a_snapshot_that_a_java_leader_has(new_quorum: NewQuorum) -> None:
    """Its content is somebody else's, larger than one answer, and stored as it came."""
    quorum = new_quorum(java=(1, 2), ours=(3,), throughput=100, our_settings={"quorum.fetch.snapshot.max.bytes": "4096"})
    quorum.start(1, 2)
    leader, _ = quorum.await_leader((1, 2))
    wait_until(lambda: min(java.high_watermark for java in quorum.java.values()) > 60, "fifty records are committed")
    for java in quorum.java.values():
        java.kill()
    last = [header for header in quorum.java[leader].headers() if header.end_offset <= 60][-1]
    end_offset, epoch = last.end_offset, last.leader_epoch
    snapshot = header_batch(epoch, 1, last.timestamp_ms_max)
    for number in range(100):
        snapshot += data_batch(1 + number, epoch, 1, [b"%d of somebody's values" % number * 20])
    snapshot += footer_batch(101, epoch, 1)
    name = f"{end_offset:020d}-{epoch:010d}.checkpoint"
    for java in quorum.java.values():
        (java.log_directory / name).write_bytes(snapshot)

    quorum.start()
    quorum.append(50)
    quorum.check(above=end_offset)
    ours = quorum.ours[3]
    assert ours.log_start == end_offset
    assert (ours.log_directory / name).read_bytes() == snapshot
    # It votes and leads from there, and after a restart too.
    quorum.grow(20, 3)
    _, epoch = quorum.make_lead(3)
    ours.kill()
    end = ours.log_end
    ours.start()
    quorum.await_leader(epoch_above=epoch)
    quorum.append(20)
    quorum.check(above=end)
