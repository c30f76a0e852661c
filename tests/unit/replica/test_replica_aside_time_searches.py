"""ListOffsets by time: what is answered, and that no question keeps the node from anything else."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from crc32c import crc32c
from kio.static.primitive import i32, i64

from asidekit import Held, hold
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside import time_searches
from raftlake.wire import compression
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch
from replica_cluster import Cluster, produce_request

MIB = 1 << 20


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


def ask(cluster: Cluster, group: GroupId, *timestamps: int, partitions: int = 1) -> list[Any]:
    """Gets the answer to a question for each time, in each of the first partitions."""
    schema: Any = importlib.import_module("kio.schema.list_offsets.v7.request")
    asked = tuple(
        schema.ListOffsetsPartition(partition_index=i32(index), current_leader_epoch=i32(-1), timestamp=i64(timestamp))
        for timestamp in timestamps
        for index in range(group.partition, group.partition + partitions)
    )
    topic = schema.ListOffsetsTopic(name=group.topic, partitions=asked)
    request = schema.ListOffsetsRequest(replica_id=i32(-1), isolation_level=0, topics=(topic,))
    return cluster.send(cluster.leader(group), ApiKey.LIST_OFFSETS, request, version=7)


def found(answers: list[Any]) -> list[tuple[int, int, int]]:
    """(error, timestamp, offset) for each question."""
    (answer,) = answers
    return [
        (int(each.error_code), int(each.timestamp), int(each.offset)) for topic in answer.topics for each in topic.partitions
    ]


def times(*deltas: int, codec: str = "none", base_ms: int = 1_000, size: int = 1) -> bytearray:
    """A batch with a record at each time."""
    records = [Record(offset=index, timestamp_ms=base_ms + delta, value=bytes(size)) for index, delta in enumerate(deltas)]
    return build_batch(records, timestamp_ms=base_ms, compression=codec)


def claiming(data: bytearray, timestamp_ms_max: int) -> bytearray:
    """The batch with another largest time in its header."""
    data[35:43] = timestamp_ms_max.to_bytes(8, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_first_record_of_a_time_or_later_is_found(cluster: Cluster, codec: str) -> None:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(0, 10, 5, 30, codec=codec))
    cluster.produce(group, times(20, 40, 40, codec=codec))
    asked = {0: (1_000, 1), 1_000: (1_000, 1), 1_001: (1_010, 2), 1_010: (1_010, 2), 1_011: (1_030, 4), 1_031: (1_040, 6)}
    answers = found(ask(cluster, group, *asked, 1_041, -3, -1, -2))
    assert answers == [(0, *each) for each in asked.values()] + [(0, -1, -1), (0, 1_040, 6), (0, -1, 8), (0, -1, 0)]


def test_a_batch_whose_records_have_no_such_time_is_the_finest_answer(cluster: Cluster) -> None:
    """Its header says that they have. What stands behind it is not looked through for that."""
    (group,) = cluster.create_topic("t")
    cluster.produce(group, claiming(times(0, 1), 9_000))
    cluster.produce(group, times(7_500))
    assert found(ask(cluster, group, 5_000, 9_000, -3)) == [(0, 9_000, 1)] * 3


def test_records_above_the_high_watermark_are_not_told() -> None:
    cluster = Cluster(3)
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(0))
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut(me)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, times(500)))
    cluster.run(20)
    assert not answers and leader.partitions[group].log.end_offset == 3
    assert found(ask(cluster, group, 1_000, 1_001, -3)) == [(0, 1_000, 1), (0, -1, -1), (0, -1, -1)]


def test_damage_is_told_and_not_taken_for_an_answer() -> None:
    cluster = Cluster(3)
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(0, size=100))
    leader = cluster.leader(group)
    read = leader.partitions[group].log.read

    def damaged(*given: Any) -> bytes:
        data = bytearray(read(*given))
        data[-1] ^= 1
        return bytes(data)

    leader.partitions[group].log.read = damaged  # type: ignore[method-assign]
    assert found(ask(cluster, group, 1_000)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)]
    assert leader.findings.has_found


# --- work ----------------------------------------------------------------------------------------------------------------


def test_what_is_large_is_decompressed_aside_and_those_behind_wait(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    group, other = cluster.create_topic("t", 2)
    cluster.produce(group, times(0, 7, codec="zstd", size=5 * MIB))
    cluster.produce(other, times(3))
    held = hold(cluster)
    made: list[int] = []
    output = compression._output
    monkeypatch.setattr(compression, "_output", lambda size: (made.append(size), output(size))[1])
    large, small, end = ask(cluster, group, 1_001), ask(cluster, other, 1_001), ask(cluster, group, -1)
    assert found(end) == [(0, -1, 3)], "what needs no look into the log is told at once"
    assert sum(made) <= 4 * MIB and len(held.jobs) == 1
    cluster.run(100)
    assert not large and not small
    held.finish(1)
    cluster.run(10)
    assert (found(large), found(small)) == ([(0, 1_007, 2)], [(0, 1_003, 1)])


def test_many_questions_are_answered_in_many_turns(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = cluster.create_topic("t", 4)
    for group in groups:
        cluster.produce(group, times(0, 5))
    looks: dict[int, int] = {}
    look = time_searches.TimeSearches._look

    def noted(self: time_searches.TimeSearches, *given: Any) -> Any:
        looks[cluster.now_ms] = looks.get(cluster.now_ms, 0) + 1
        return look(self, *given)

    monkeypatch.setattr(time_searches.TimeSearches, "_look", noted)
    answers = [ask(cluster, groups[0], *range(1_001, 1_005), partitions=4) for _ in range(20)]
    assert not all(answers)
    cluster.run(100)
    assert [found(each) for each in answers] == [[(0, 1_005, 2)] * 16] * 20
    assert sum(looks.values()) == 320 and max(looks.values()) <= 32 and len(looks) >= 10


def test_many_records_are_walked_over_in_many_turns(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(*[0] * 60_000, 9, codec="zstd"))
    walked: dict[int, int] = {}
    find = time_searches.RecordTimes.find

    def noted(self: time_searches.RecordTimes, timestamp_ms: int, count: int) -> Any:
        walked[cluster.now_ms] = walked.get(cluster.now_ms, 0) + count
        return find(self, timestamp_ms, count)

    monkeypatch.setattr(time_searches.RecordTimes, "find", noted)
    answers = ask(cluster, group, 1_009)
    cluster.run(200)
    assert found(answers) == [(0, 1_009, 60_001)]
    assert max(walked.values()) <= 8_192 and len(walked) >= 10


def test_a_question_sees_its_partition_as_it_is_when_its_turn_comes(cluster: Cluster) -> None:
    group, other, third = cluster.create_topic("t", 3)
    cluster.produce(group, times(0, 7, codec="zstd", size=5 * MIB))
    for small in (other, third):
        cluster.produce(small, times(3))
    held = hold(cluster)
    answers = [ask(cluster, each, 1_001) for each in (group, other, third)]
    cluster.leader().hosting.close([group, other])
    held.finish(1)
    cluster.run(10)
    assert [found(each)[0][0] for each in answers] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_a_failed_disk_keeps_nobody_waiting_who_asks_later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(3))

    def fail(*given: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(time_searches.TimeSearches, "_look", fail)
        with pytest.raises(MemoryError):
            ask(cluster, group, 1_001)
    assert found(ask(cluster, group, 1_001)) == [(0, 1_003, 1)]


@pytest.mark.parametrize("size", [MIB - 100, 5 * MIB], ids=["at once", "aside"])
def test_memory_that_runs_out_costs_the_finest_answer_and_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, times(0, 7, codec="zstd", size=size))
    cluster.produce(group, times(50))

    def refuse(*given: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(compression.mmap, "mmap", refuse)
    answers = ask(cluster, group, 1_001, 1_008)
    cluster.run(100)
    assert found(answers) == [(0, 1_007, 1), (0, 1_050, 3)]


def held_back(cluster: Cluster) -> tuple[Held, GroupId, GroupId, list[Any]]:
    """A question whose job is aside, so that those behind it wait; a partition with such a batch, and one without."""
    group, other = cluster.create_topic("t", 2)
    cluster.produce(group, times(0, 7, codec="zstd", size=5 * MIB))
    cluster.produce(other, times(3))
    held = hold(cluster)
    return held, group, other, ask(cluster, group, 1_001)


def test_requests_take_turns_so_that_a_short_one_does_not_wait_for_a_long_one(cluster: Cluster) -> None:
    """One request of thousands of questions kept all other clients waiting for minutes."""
    held, group, other, first = held_back(cluster)
    long = ask(cluster, group, *[1_001] * 6)
    short, shorter = ask(cluster, other, 1_001, 1_002), ask(cluster, other, 1_003)
    held.finish(1)
    cluster.run(10)
    assert first and not short and not shorter, "the first question of the long one is aside"
    held.finish(1)
    cluster.run(10)
    assert found(shorter) == [(0, 1_003, 1)] and not long
    held.finish(1)
    cluster.run(10)
    assert found(short) == [(0, 1_003, 1)] * 2 and not long
    for _ in range(4):
        held.finish(1)
        cluster.run(10)
    assert found(long) == [(0, 1_007, 2)] * 6 and not held.jobs


@pytest.mark.parametrize("waited_ms", [time_searches.PATIENCE_MS - 1, time_searches.PATIENCE_MS])
def test_what_has_waited_as_long_as_clients_do_is_not_worked_off(cluster: Cluster, waited_ms: int) -> None:
    """Who had asked was gone, and the questions were worked off for minutes all the same."""
    held, _, other, first = held_back(cluster)
    waiting = ask(cluster, other, 1_001, 1_002)
    cluster.run(waited_ms)
    fresh = ask(cluster, other, 1_001)
    held.finish(1)
    is_late = waited_ms == time_searches.PATIENCE_MS
    later = [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)] if is_late else [(0, 1_003, 1)]
    assert found(waiting) == later * 2
    assert found(fresh) == [(0, 1_003, 1)] and first


def test_questions_beyond_a_number_are_refused_at_once_and_there_is_room_again_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waiting question takes memory, and nothing bounded them."""
    monkeypatch.setattr(time_searches, "QUESTIONS_MAX", 3)
    held, _, other, first = held_back(cluster)
    waiting = ask(cluster, other, 1_001, 1_002)
    half, none = ask(cluster, other, 1_001, 1_002), ask(cluster, other, 1_001)
    assert found(none) == [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)] and not half
    held.finish(1)
    assert found(waiting) == [(0, 1_003, 1)] * 2 and first
    assert found(half) == [(0, 1_003, 1), (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)]
    assert found(ask(cluster, other, 1_001, 1_002)) == [(0, 1_003, 1)] * 2
