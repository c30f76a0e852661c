"""What invariants see of machines, and that they see it in the calm preset too, on which unit tests of the driver run."""

from __future__ import annotations

import pytest

from raftlake.ports.driver import BatchSpan
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.invariants import Violation
from raftlake.sim.view import view_of
from replica_cluster import Cluster, batch

ONE, FOUR = NodeId(1), NodeId(4)


def test_a_view_sees_the_disks_of_machines_that_are_off_and_of_those_that_came_later() -> None:
    cluster = Cluster(directories=True, snapshot_bytes_between=1)
    view = view_of(cluster.machines, tuple(cluster.voters))
    (group,) = cluster.create_topic("t")
    cluster.run(5_000, until=lambda: bool(view.snapshots_of(ONE, METADATA_GROUP)))
    history = view.history_of(ONE, group)
    assert history is not None and history.latest.ids == (1, 2, 3)
    directory_id = view.directory_of(ONE)
    cluster.stop(ONE)
    log, election = view.log_of(ONE, METADATA_GROUP), view.election_of(ONE, METADATA_GROUP)
    assert log is not None and log.end_offset > 0 and election is not None and election.epoch > 0
    assert view.history_of(ONE, group) is None
    cluster.wipe(ONE)
    assert view.log_of(ONE, METADATA_GROUP) is None and view.election_of(ONE, METADATA_GROUP) is None
    assert view.directory_of(ONE) != directory_id
    cluster.wipe(FOUR)
    assert view.log_of(FOUR, METADATA_GROUP) is None
    cluster.start(FOUR)
    cluster.run(5_000, until=lambda: (view.log_of(FOUR, group) or log).end_offset > 0)


def test_a_broken_promise_is_found_in_the_calm_preset() -> None:
    """Two logs with unlike records of one epoch at one offset."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    log = cluster.leader(group).partitions[group].log
    cluster.produce(group, batch(b"x"))
    cluster.run(1_000)
    follower = cluster.followers(group)[0].partitions[group].log
    end, (epoch, _) = follower.end_offset, follower.epochs[-1]
    assert end == log.end_offset
    for name, copy in (("one", log), ("other", follower)):
        data = batch(name.encode(), base_offset=end, leader_epoch=epoch)
        span = BatchSpan(base_offset=end, end_offset=end + 1, epoch=epoch, size=len(data), timestamp_ms_max=1)
        if copy is log:
            copy.append([data], [span])
            continue
        with pytest.raises(Violation):
            copy.append([data], [span])
