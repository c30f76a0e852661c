"""A consumer's Fetch that waits: how often it looks at its partitions, and what it reads in vain."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
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
    cluster: Cluster, groups: list[GroupId], *, offset: int = 1, bytes_min: int, bytes_max: int = 64 * MIB, wait_ms: int = 5_000
) -> list[Any]:
    asked = [FetchPartition(group.partition, -1, offset, -1, -1, 64 * MIB) for group in groups]
    request = FetchRequest(
        wait_ms_max=wait_ms, bytes_min=bytes_min, bytes_max=bytes_max, topics=[FetchTopic(groups[0].topic, None, asked)]
    )
    return cluster.send(cluster.leader(groups[0]), ApiKey.FETCH, request)


@pytest.mark.parametrize("spread", [False, True], ids=["side by side", "in two topics"])
def test_a_partition_that_is_asked_for_twice_is_refused(cluster: Cluster, spread: bool) -> None:
    """Each move called a waiter for each of 16,384 mentions of one partition."""
    group, other = cluster.create_topic("t", 2)
    asked = [FetchPartition(each.partition, -1, 1, -1, -1, MIB) for each in (group, other, group)]
    topics = [asked[:2], asked[2:]] if spread else [asked]
    request = FetchRequest(wait_ms_max=5_000, bytes_min=1, topics=[FetchTopic("t", None, parts) for parts in topics])
    (answer,) = cluster.send(cluster.leader(group), ApiKey.FETCH, request)
    assert (answer.error, answer.topics) == (ErrorCode.INVALID_REQUEST, [])
    assert not waiters(cluster, group)


def waiters(cluster: Cluster, *groups: GroupId) -> int:
    """How many a move of the partitions' high watermarks would call."""
    return sum(len(cluster.leader(group).partitions[group]._watermark_waiters) for group in groups)


def test_after_a_look_in_vain_a_request_waits_as_it_is_large(cluster: Cluster, looks: list[int]) -> None:
    groups = cluster.create_topic("t", 400)
    cluster.run(1_000)
    answers = send(cluster, groups, bytes_min=MIB, bytes_max=100, wait_ms=400)
    looks.clear()
    while not answers:
        cluster.produce(groups[3], batch(b"x"))
    assert 40 < len(looks) <= 2 + 400 // 5, "what came meanwhile is looked at behind the pause"
    first = answers[0].topics[0].partitions[3]
    assert [record.value for record in decode_records(first.records)] == [b"x"]


def test_during_a_pause_no_move_calls_a_request(cluster: Cluster, looks: list[int]) -> None:
    """Twenty connections with 16,384 partitions each made each move of one of them call 330,000 waiters."""
    groups = cluster.create_topic("t", 100)
    answers = [send(cluster, groups, bytes_min=MIB) for _ in range(20)]
    assert waiters(cluster, *groups) == 2_000
    cluster.produce(groups[0], batch(b"x"))
    assert len(looks) == 40 and waiters(cluster, *groups) == 0
    for group in groups:
        cluster.send(cluster.leader(group), ApiKey.PRODUCE, produce_request(group, batch(b"y")))
    cluster.run(1)
    assert len(looks) == 40
    cluster.run(100)
    assert len(looks) == 60, "what came meanwhile is seen, in one look"
    cluster.run(100)
    assert len(looks) == 60 and waiters(cluster, *groups) == 2_000 and not any(answers)


def test_those_that_look_in_vain_share_the_time(cluster: Cluster, looks: list[int]) -> None:
    groups = cluster.create_topic("t", 100)
    for _ in range(20):
        send(cluster, groups, bytes_min=MIB)
    looks.clear()
    began = cluster.now_ms
    while cluster.now_ms < began + 500:
        cluster.produce(groups[0], batch(b"x"))
    # 100 partitions in a ms, whoever asks for them.
    assert 200 <= len(looks) <= 20 + 500
    busiest = max(looks.count(at_ms) for at_ms in set(looks[40:]))
    assert busiest <= 20


def test_what_waiting_requests_name_together_has_an_end_that_the_largest_pays_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[ParkedFetch.__module__], "PARKED_MAX", 100)
    groups = cluster.create_topic("t", 100)
    small = [send(cluster, groups[at : at + 20], bytes_min=1) for at in (0, 20)]
    large = send(cluster, groups[:60], bytes_min=1)
    assert not any(small) and not large
    another = send(cluster, groups[40:60], bytes_min=1)
    assert len(large) == 1 and not any(small) and not another
    (too_large,) = send(cluster, groups, bytes_min=1)
    assert len(too_large.topics[0].partitions) == 100
    assert not any(small) and not another and waiters(cluster, *groups) == 60
    cluster.produce(groups[0], batch(b"x"))
    assert len(small[0]) == 1
    cluster.run(6_000)
    assert small[1] and another and waiters(cluster, *groups) == 0
    again = send(cluster, groups[1:], bytes_min=1)
    assert not again, "who was answered takes no room"


def test_topics_without_partitions_count_as_well(cluster: Cluster) -> None:
    for count, error in ((PARTITIONS_MAX, ErrorCode.NONE), (PARTITIONS_MAX + 1, ErrorCode.INVALID_REQUEST)):
        request = FetchRequest(wait_ms_max=0, bytes_min=1, topics=[FetchTopic("t", None, [])] * count)
        (answer,) = cluster.send(cluster.leader(), ApiKey.FETCH, request)
        assert answer.error is error


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
    answers = send(cluster, [group], bytes_min=1)
    cluster.produce(group, batch(b"x"))
    assert len(answers) == 1 and len(looks) == 2


def test_what_a_request_waits_for_has_an_end(cluster: Cluster) -> None:
    """A look in vain read 64 MiB with each batch that was appended."""
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(bytes(BYTES_MIN_MAX + 1)))
    answers = send(cluster, [group], bytes_min=2**31 - 1)
    assert len(answers) == 1


def test_of_one_partition_an_answer_holds_a_part(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    for _ in range(3):
        cluster.produce(group, batch(bytes(3 * MIB)))
    (answer,) = send(cluster, [group], bytes_min=1)
    records = answer.topics[0].partitions[0].records
    assert 6 * MIB < len(records) <= PARTITION_BYTES_MAX


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_request_for_too_many_partitions_is_refused(cluster: Cluster, beyond: int) -> None:
    (group,) = cluster.create_topic("t")
    asked = [group._replace(partition=index) for index in range(PARTITIONS_MAX + beyond)]
    (answer,) = send(cluster, asked, bytes_min=1, bytes_max=100)
    assert answer.error is (ErrorCode.INVALID_REQUEST if beyond else ErrorCode.NONE)
