"""A consumer's Fetch that waits: how often it looks at its partitions, and what it reads in vain."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports import GroupId
from raftlake.replica.apis.fetch import BYTES_MIN_MAX, PARTITION_BYTES_MAX, PARTITIONS_MAX, ParkedFetch
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replica_cluster import Cluster, batch, produce_request

MIB = 1 << 20


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


@pytest.fixture
def looks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When all partitions of a request were looked at."""
    seen: list[int] = []
    read = ParkedFetch._read

    def noted(self: ParkedFetch) -> Any:
        seen.append(cluster.now_ms)
        return read(self)

    monkeypatch.setattr(ParkedFetch, "_read", noted)
    return seen


def send(
    cluster: Cluster, group: GroupId, offsets: list[int], *, bytes_min: int, bytes_max: int = 64 * MIB, wait_ms: int = 5_000
) -> list[Any]:
    """Asks for the partition once for each offset."""
    asked = [FetchPartition(group.partition, -1, offset, -1, -1, 64 * MIB) for offset in offsets]
    request = FetchRequest(
        wait_ms_max=wait_ms, bytes_min=bytes_min, bytes_max=bytes_max, topics=[FetchTopic(group.topic, None, asked)]
    )
    return cluster.send(cluster.leader(group), ApiKey.FETCH, request)


def test_a_partition_that_is_asked_for_many_times_is_looked_at_once_for_one_move(cluster: Cluster, looks: list[int]) -> None:
    """Each move looked at all of them for each of them: 131,072 times 131,072."""
    (group,) = cluster.create_topic("t")
    answers = send(cluster, group, [1] * 200, bytes_min=MIB, bytes_max=100)
    assert len(looks) == 1 and not answers
    cluster.produce(group, batch(b"x"))
    assert len(looks) == 2 and not answers


def test_after_a_look_in_vain_a_request_waits_as_it_is_large(cluster: Cluster, looks: list[int]) -> None:
    (group,) = cluster.create_topic("t")
    answers = send(cluster, group, [1] * 1_000, bytes_min=MIB, bytes_max=100, wait_ms=400)
    looks.clear()
    while not answers:
        cluster.produce(group, batch(b"x"))
    assert 20 < len(looks) <= 2 + 400 // 11, "what came meanwhile is looked at behind the pause"
    (first, *_) = answers[0].topics[0].partitions
    assert [record.value for record in decode_records(first.records)] == [b"x"]


def test_news_amid_the_pause_are_seen_behind_it(cluster: Cluster, looks: list[int]) -> None:
    groups = cluster.create_topic("t", 400)
    cluster.run(1_000)
    asked = [FetchPartition(group.partition, -1, 1, -1, -1, MIB) for group in groups]
    request = FetchRequest(wait_ms_max=5_000, bytes_min=600, bytes_max=MIB, topics=[FetchTopic("t", None, asked)])
    answers = cluster.send(cluster.leader(groups[0]), ApiKey.FETCH, request)
    cluster.produce(groups[7], batch(bytes(10)))
    assert not answers and len(looks) == 2
    began = cluster.now_ms
    for group in groups[8:10]:
        cluster.send(cluster.leader(group), ApiKey.PRODUCE, produce_request(group, batch(bytes(300))))
    cluster.run(10, until=lambda: bool(answers))
    assert cluster.now_ms - began >= 3 and len(looks) == 3


def test_one_record_answers_at_once_who_waits_for_one_byte(cluster: Cluster, looks: list[int]) -> None:
    (group,) = cluster.create_topic("t")
    answers = send(cluster, group, [1], bytes_min=1)
    cluster.produce(group, batch(b"x"))
    assert len(answers) == 1 and len(looks) == 2


def test_what_a_request_waits_for_has_an_end(cluster: Cluster) -> None:
    """A look in vain read 64 MiB with each batch that was appended."""
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(bytes(BYTES_MIN_MAX + 1)))
    answers = send(cluster, group, [1], bytes_min=2**31 - 1)
    assert len(answers) == 1


def test_of_one_partition_an_answer_holds_a_part(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    for _ in range(3):
        cluster.produce(group, batch(bytes(3 * MIB)))
    (answer,) = send(cluster, group, [1], bytes_min=1)
    records = answer.topics[0].partitions[0].records
    assert 6 * MIB < len(records) <= PARTITION_BYTES_MAX


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_request_for_too_many_partitions_is_refused(cluster: Cluster, beyond: int) -> None:
    (group,) = cluster.create_topic("t")
    (answer,) = send(cluster, group, [0] * (PARTITIONS_MAX + beyond), bytes_min=1, bytes_max=100)
    assert answer.error is (ErrorCode.INVALID_REQUEST if beyond else ErrorCode.NONE)
