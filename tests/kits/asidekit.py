"""A node whose records are checked aside when the test says so, and what it answers to Produce requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside.later_turns import result_of
from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.wire.api import ApiKey
from raftlake.wire.produce import ProducePartitionResult
from replica_cluster import Cluster, produce_request


class Held:
    """`ports.Aside` whose jobs are done when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.jobs.append(lambda: done(result_of(job)))

    def finish(self, count: int) -> None:
        """Do the first `count` jobs."""
        for _ in range(count):
            self.jobs.pop(0)()

    def finish_all(self) -> None:
        """Do all jobs, and those that come of them."""
        while self.jobs:
            self.finish(1)


class AtOnce:
    """`ports.Aside` that does each job as it is submitted."""

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(result_of(job))


def hold(cluster: Cluster, group: GroupId = METADATA_GROUP) -> Held:
    """Let the leader of `group` check aside with what is returned."""
    held = Held()
    leader = cluster.leader(group)
    leader.record_checks.line.aside = leader.time_searches.aside = held
    return held


def aside(cluster: Cluster, group: GroupId = METADATA_GROUP) -> int:
    """How many checks of the group's leader are aside, or wait for that."""
    return len(cluster.leader(group).record_checks.line)


def send(
    cluster: Cluster, group: GroupId, *batches: bytearray, client: ClientContext | None = None, **fields: int
) -> list[Any]:
    """Gets the answer of the group's leader to a Produce request."""
    return cluster.send(cluster.leader(group), ApiKey.PRODUCE, produce_request(group, *batches, **fields), client=client)


def result(answers: list[Any]) -> ProducePartitionResult:
    """What the one answer says of its one partition."""
    ((answer),) = answers
    part: ProducePartitionResult = answer.topics[0].partitions[0]
    return part
