"""What consumers get that read what is committed: records below the last stable offset, the aborted transactions among them,
and offsets that do not pass it. At leaders and followers alike."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.apis.fetch import ParkedFetch
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import iterate_headers, read_end_marker
from replica_cluster import Cluster, batch, fetch_request
from txnkit import (
    PRODUCER,
    ByHand,
    begin,
    decide,
    end,
    fetch_committed,
    lead,
    marker_of,
    offsets,
    produce,
    records,
    write_marker,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def cluster() -> Cluster:
    return ByHand()


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("orders")
    return group


def settle(cluster: Cluster, group: GroupId) -> None:
    """All nodes know all that is committed."""
    end_offset = cluster.leader(group).partitions[group].log.end_offset
    cluster.run(
        5_000, until=lambda: all(node.partitions[group].high_watermark == end_offset for node in cluster.nodes.values())
    )


def list_offset(cluster: Cluster, group: GroupId, timestamp: int, *, isolation: int, version: int = 11) -> tuple[int, int]:
    """Offset and timestamp."""
    schema: Any = importlib.import_module(f"kio.schema.list_offsets.v{version}.request")
    partition = schema.ListOffsetsPartition(partition_index=group.partition, timestamp=timestamp)
    topic = schema.ListOffsetsTopic(name=group.topic, partitions=(partition,))
    fields: dict[str, Any] = {"isolation_level": isolation} if version >= 2 else {}
    if version >= 10:
        fields["timeout"] = datetime.timedelta(0)
    request = schema.ListOffsetsRequest(replica_id=-1, topics=(topic,), **fields)
    answer = cluster.ask(cluster.leader(group), ApiKey.LIST_OFFSETS, request, version=version)
    found = answer.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return found.offset, getattr(found, "timestamp", -1)


def test_what_is_committed_ends_not_before_the_deleted_records(cluster: Cluster, group: GroupId) -> None:
    """An open transaction may have begun among them. A consumer at the new start is told that it is at the end."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", b"b", sequence=0))
    cluster.produce(group, batch(b"behind"))
    schema: Any = importlib.import_module("kio.schema.delete_records.v2.request")
    asked = schema.DeleteRecordsPartition(partition_index=group.partition, offset=3)
    topic = schema.DeleteRecordsTopic(name=group.topic, partitions=(asked,))
    request = schema.DeleteRecordsRequest(topics=(topic,), timeout=datetime.timedelta(seconds=5))
    cluster.ask(cluster.leader(group), ApiKey.DELETE_RECORDS, request, version=2, wait_ms=10_000)
    produce(cluster, group, records(b"c", sequence=2))
    settle(cluster, group)
    assert list_offset(cluster, group, EARLIEST, isolation=1)[0] == list_offset(cluster, group, LATEST, isolation=1)[0] == 3
    for node in cluster.nodes.values():
        cluster.run(1_000)
        answer = fetch_committed(cluster, node, group, 3)
        assert (answer.log_start_offset, answer.last_stable_offset, offsets(answer.records)) == (3, 3, [])
    end(cluster, found, group, commit=True)
    assert list_offset(cluster, group, LATEST, isolation=1)[0] == list_offset(cluster, group, LATEST, isolation=0)[0]
    assert offsets(fetch_committed(cluster, cluster.leader(group), group, 3).records)[:2] == [3, 4]


def test_records_end_at_the_last_stable_offset_at_every_node(cluster: Cluster, group: GroupId) -> None:
    cluster.produce(group, batch(b"before"))
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    cluster.produce(group, batch(b"behind"))
    settle(cluster, group)
    for node in cluster.nodes.values():
        committed, all_of_it = fetch_committed(cluster, node, group), cluster.fetch(node, group, 0)
        assert (committed.last_stable_offset, committed.high_watermark) == (2, 4)
        assert (all_of_it.last_stable_offset, all_of_it.high_watermark) == (2, 4), "in each answer"
        assert (offsets(committed.records), offsets(all_of_it.records)) == ([1], [1, 2, 3])
        assert (committed.aborted_transactions, all_of_it.aborted_transactions) == ([], None)
        for offset in (2, 3, 4):
            behind = fetch_committed(cluster, node, group, offset)
            assert (behind.error, behind.records) == (ErrorCode.NONE, b"")
    end(cluster, found, group, commit=True)
    settle(cluster, group)
    for node in cluster.nodes.values():
        committed = fetch_committed(cluster, node, group)
        assert (committed.last_stable_offset, offsets(committed.records)) == (5, [1, 2, 3, 4])


def test_aborted_transactions_come_with_their_records(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    cluster.produce(group, batch(b"plain"))
    produce(cluster, group, records(b"b", sequence=1))
    end(cluster, found, group, commit=False)
    next_one = begin(cluster, group)
    produce(cluster, group, records(b"c", sequence=2))
    end(cluster, next_one, group, commit=True)
    settle(cluster, group)
    # 1 a, 2 plain, 3 b, 4 the abort, 5 c, 6 the commit.
    for node in cluster.nodes.values():
        aborted = {offset: fetch_committed(cluster, node, group, offset).aborted_transactions for offset in range(8)}
        assert aborted == {offset: [(PRODUCER, 1)] if offset <= 4 else [] for offset in range(8)}
        one = fetch_committed(cluster, node, group, 0, bytes_max=1)
        assert (offsets(one.records), one.aborted_transactions) == ([1], [(PRODUCER, 1)])
        assert visible(fetch_committed(cluster, node, group)) == [b"plain", b"c"]


def visible(result: Any) -> list[bytes | None]:
    """What a consumer of Kafka gives its application (`CompletedFetch`)."""
    from raftlake.wire.batches import decode_records

    waiting = sorted(result.aborted_transactions, key=lambda each: each.first_offset)
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for header in iterate_headers(result.records):
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        data = result.records[header.position : header.end_position]
        marker = read_end_marker(data)
        if marker is not None and not marker.commit:
            aborted.discard(marker.producer_id)
        elif not header.is_control and not (header.is_transactional and header.producer_id in aborted):
            values += [record.value for record in decode_records(data)]
    return values


def test_markers_are_shown_as_they_are(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    end(cluster, found, group, commit=False)
    data = bytes(fetch_committed(cluster, cluster.leader(group), group).records or b"")
    last = list(iterate_headers(data))[-1]
    assert last.is_control and last.is_transactional
    assert read_end_marker(data[last.position :]) == marker_of(found, commit=False)


def test_a_waiting_fetch_is_answered_when_the_last_stable_offset_moves(cluster: Cluster, group: GroupId) -> None:
    """The marker commits, and nothing else."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    settle(cluster, group)
    asked = fetch_request(group, 1, wait_ms=60_000, isolation_level=1)
    answers = [cluster.send(node, ApiKey.FETCH, asked) for node in cluster.nodes.values()]
    cluster.run(1_000)
    assert not any(answers)
    decided, at = decide(cluster, found, commit=True)
    assert write_marker(cluster, group, marker_of(decided, commit=True), at) is ErrorCode.NONE
    cluster.run(1_000, until=lambda: all(answers))
    for answer in answers:
        (result,) = answer[0].topics[0].partitions
        assert (offsets(result.records), result.last_stable_offset) == ([1, 2], 3)


def test_a_waiting_fetch_is_not_called_while_the_last_stable_offset_stands(
    cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    settle(cluster, group)
    looks: list[bool] = []
    attempt = ParkedFetch._attempt
    monkeypatch.setattr(ParkedFetch, "_attempt", lambda self, final: (looks.append(final), attempt(self, final))[1])
    asked = fetch_request(group, 1, wait_ms=60_000, isolation_level=1)
    answers = cluster.send(cluster.leader(group), ApiKey.FETCH, asked)
    for sequence in range(1, 20):
        produce(cluster, group, records(b"a", sequence=sequence))
    assert (looks, answers) == ([False], [])
    end(cluster, found, group, commit=True)
    cluster.run(100, until=lambda: bool(answers))
    assert len(looks) == 2


def test_a_fetch_that_looked_in_vain_hears_of_the_next_last_stable_offset(cluster: Cluster, group: GroupId) -> None:
    """It wants more bytes than the first transaction has, and pauses then."""
    first = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    second = begin(cluster, group, producer_id=8, transactional_id="others")
    produce(cluster, group, records(b"a", sequence=0, producer_id=8), transactional_id="others")
    asked = fetch_request(group, 1, wait_ms=60_000, isolation_level=1)
    asked.bytes_min = 200
    answers = cluster.send(cluster.leader(group), ApiKey.FETCH, asked)
    end(cluster, first, group, commit=True)
    cluster.run(1_000)
    assert not answers
    end(cluster, second, group, commit=True)
    cluster.run(1_000, until=lambda: bool(answers))
    assert offsets(answers[0].topics[0].partitions[0].records) == [1, 2, 3, 4]


def test_a_node_that_is_behind_answers_a_waiting_fetch_when_it_has_caught_up(cluster: Cluster, group: GroupId) -> None:
    """Its last stable offset stands still, and what it may say of the position changes."""
    begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    settle(cluster, group)
    follower = cluster.followers(group)[0]
    partition = follower.partitions[group]
    show = partition.show
    partition.show = lambda high_watermark: None  # type: ignore[method-assign]
    for sequence in (1, 2):
        produce(cluster, group, records(b"b", sequence=sequence))
    cluster.run(100)
    assert partition.log.end_offset == 4 > partition.high_watermark
    asked = fetch_request(group, 3, wait_ms=60_000, isolation_level=1, last_fetched_epoch=0)
    answers = cluster.send(follower, ApiKey.FETCH, asked)
    cluster.run(100)
    assert not answers
    partition.show = show  # type: ignore[method-assign]
    cluster.machines[follower.config.node_id].run(partition.show, 4)
    cluster.run(100)
    # No record has this epoch: the log was cut. That is told at once.
    assert answers and answers[0].topics[0].partitions[0].diverging_epoch is not None


def test_offsets_are_listed_up_to_the_last_stable_one(cluster: Cluster, group: GroupId) -> None:
    cluster.produce(group, batch(b"before", timestamp_ms=1_000))
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0, timestamp_ms=2_000))
    asked = {LATEST: (2, 4), EARLIEST: (0, 0), MAX_TIMESTAMP: (-1, 2), 1_000: (1, 1), 1_500: (-1, 2)}
    cluster.produce(group, batch(b"behind", timestamp_ms=500))
    for timestamp, (committed, all_of_it) in asked.items():
        assert list_offset(cluster, group, timestamp, isolation=1)[0] == committed, timestamp
        assert list_offset(cluster, group, timestamp, isolation=0)[0] == all_of_it, timestamp
    assert list_offset(cluster, group, LATEST, isolation=0, version=1)[0] == 4, "before there were levels"
    end(cluster, found, group, commit=False)
    assert list_offset(cluster, group, LATEST, isolation=1) == list_offset(cluster, group, LATEST, isolation=0)
    assert list_offset(cluster, group, 1_500, isolation=1)[0] == 2


def test_times_behind_deleted_records_are_searched_up_to_the_last_stable_offset(cluster: Cluster, group: GroupId) -> None:
    """What the index names is deleted: each batch behind is looked at."""
    leader = cluster.leader(group)
    cluster.produce(group, batch(b"old", timestamp_ms=3_000))
    begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0, timestamp_ms=3_000))
    leader.services.time_searches._local._deleted_below = lambda partition: Offset(2)  # type: ignore[attr-defined]
    assert list_offset(cluster, group, 2_000, isolation=0)[0] == 2
    assert list_offset(cluster, group, 2_000, isolation=1)[0] == -1
    assert list_offset(cluster, group, MAX_TIMESTAMP, isolation=1)[0] == -1


def test_the_next_leader_tells_of_the_same_aborted_transactions(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    end(cluster, found, group, commit=False)
    begin(cluster, group)
    produce(cluster, group, records(b"b", sequence=1))
    settle(cluster, group)
    follower = cluster.followers(group)[0]
    lead(cluster, follower, group)
    result = fetch_committed(cluster, follower, group)
    assert (result.last_stable_offset, result.aborted_transactions) == (3, [(PRODUCER, 1)])
    assert offsets(result.records) == [1, 2]


def test_an_index_that_cannot_be_read_is_an_error_of_the_disk(cluster: Cluster, group: GroupId) -> None:
    from raftlake.errors import TooManyFiles

    cluster.produce(group, batch(b"a"))
    node = cluster.leader(group)
    partition = node.partitions[group]

    def refuse(start: Offset, end_offset: Offset) -> Any:
        raise TooManyFiles("no descriptor is left")

    partition.aborted = refuse  # type: ignore[method-assign]
    assert fetch_committed(cluster, node, group).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.fetch(node, group, 0).error is ErrorCode.NONE
