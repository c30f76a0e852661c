"""Our quorum as the measures need it: addresses of leaders and followers, process ids, topics with settled leaders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import HOST, wait_until
from raftlake import LocalQuorum
from raftlake.client import Client


@contextmanager
def our_quorum(directory: Path, settings: dict[str, str] | None = None) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=directory, settings=settings) as quorum:
        yield quorum


def pids_of(quorum: LocalQuorum) -> list[int]:
    return [quorum.pid(node) for node in quorum.running()]


def http_address(quorum: LocalQuorum, *, leader: bool) -> tuple[str, int]:
    """The HTTP front of the metadata log's leader, or of a follower."""
    leads = quorum.leader()
    node = leads if leader else next(node for node in quorum.running() if node != leads)
    return HOST, quorum.nodes[node].http_port


def partition_address(quorum: LocalQuorum, topic: str, partition: int = 0) -> tuple[str, int]:
    """The Kafka listener of a partition's leader."""
    with Client(quorum.bootstrap_servers) as client:
        node = quorum.nodes[client.describe_topic(topic).partitions[partition].leader_id]
    return HOST, node.port


def create_topic(quorum: LocalQuorum, name: str, partitions: int) -> None:
    """Returns when every partition has a leader."""
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic(name, partitions=partitions)
        wait_until(
            lambda: all(partition.leader_id >= 0 for partition in client.describe_topic(name).partitions),
            f"the leaders of {name}",
        )
