"""What one Produce request may decompress to, and that a large one keeps neither the node waiting nor appends out of order."""

from __future__ import annotations

import gc
import queue
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from asidekit import Held, hold, result, send
from configkit import alter, created
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.aside.record_checks import (
    DECOMPRESSED_BYTES_MIN,
    DECOMPRESSED_TIMES_MAX,
    INLINE_BYTES,
    KEYED_INLINE_BYTES,
    RequestBudget,
)
from raftlake.runtime.aside import ThreadAside
from raftlake.wire import compression
from raftlake.wire.api import ApiKey
from raftlake.wire.batch_records import Record, build_batch
from raftlake.wire.batches import decode_records
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from replica_cluster import Cluster, batch

MIB = 1 << 20
CODECS = ("gzip", "snappy", "lz4", "zstd")


def zeros(size: int, codec: str = "zstd") -> bytearray:
    """A compressed batch of one record of so many zeros."""
    return batch(bytes(size), compression=codec)


def look(budget: RequestBudget, data: bytearray, *, inline: bool = False) -> bool:
    return budget.check(data, Allowance() if inline else None) is not None


def refusal(budget: RequestBudget, data: bytearray) -> ErrorCode | None:
    try:
        assert look(budget, data)
    except RequestRejected as rejected:
        return rejected.code
    return None


@pytest.mark.parametrize("codec", CODECS)
def test_what_the_batches_of_a_request_hold_together_has_an_end(codec: str) -> None:
    budget = RequestBudget(1000)
    part = zeros(5 * MIB, codec)
    assert [refusal(budget, part) for _ in range(4)] == [None, None, None, ErrorCode.MESSAGE_TOO_LARGE]
    assert refusal(budget, zeros(100, codec)) is ErrorCode.MESSAGE_TOO_LARGE, "the rest is not worth a look"
    assert refusal(budget, batch(b"plain")) is None, "what is not compressed costs nothing of it"


def test_the_budget_grows_with_the_request_and_has_an_end() -> None:
    below = DECOMPRESSED_BYTES_MIN - 1000
    assert refusal(RequestBudget(1), zeros(below)) is None
    assert refusal(RequestBudget(1), zeros(DECOMPRESSED_BYTES_MIN)) is ErrorCode.MESSAGE_TOO_LARGE
    large = 3 * MIB
    assert refusal(RequestBudget(large), zeros(DECOMPRESSED_TIMES_MAX * large - 1000)) is None
    assert refusal(RequestBudget(large), zeros(DECOMPRESSED_TIMES_MAX * large)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(RequestBudget(100 * MIB), zeros(DECOMPRESSED_BYTES_MAX)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(RequestBudget(100 * MIB), zeros(DECOMPRESSED_BYTES_MAX - 1000)) is None


def test_batches_whose_records_are_refused_cost_as_much_as_any() -> None:
    budget = RequestBudget(1000)
    bad = bytearray(zeros(6 * MIB))
    # The header claims one record more than there is; the checksum fits.
    two = batch(bytes(6 * MIB), b"", compression="zstd")
    assert refusal(budget, two) is None
    spoilt = _with_count(bad, 2)
    assert refusal(budget, spoilt) is ErrorCode.INVALID_RECORD
    assert refusal(budget, spoilt) is ErrorCode.MESSAGE_TOO_LARGE


def _with_count(data: bytearray, count: int) -> bytearray:
    spoilt = bytearray(data)
    spoilt[23:27] = (count - 1).to_bytes(4, "big")
    spoilt[57:61] = count.to_bytes(4, "big")
    spoilt[17:21] = crc32c(bytes(spoilt[21:])).to_bytes(4, "big")
    return spoilt


def test_bytes_behind_a_gzip_payload_are_refused() -> None:
    """Readers take them, for earlier releases did."""
    data = batch(b"x", compression="gzip") + b"more"
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    assert refusal(RequestBudget(1000), data) is ErrorCode.INVALID_RECORD
    assert [record.value for record in decode_records(data)] == [b"x"]


def test_only_what_damage_on_the_way_may_have_done_is_asked_for_again() -> None:
    """Clients send a batch again after CORRUPT_MESSAGE, for minutes. After INVALID_RECORD they give up."""

    def spoilt(position: int, value: int, *, sealed: bool) -> bytearray:
        data = batch(b"x")
        data[position] = value
        if sealed:
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        return data

    last_delta, codec, magic = 26, 22, 16
    for position, value in ((last_delta, 7), (codec, 7)):
        assert refusal(RequestBudget(1000), spoilt(position, value, sealed=False)) is ErrorCode.CORRUPT_MESSAGE
        assert refusal(RequestBudget(1000), spoilt(position, value, sealed=True)) is ErrorCode.INVALID_RECORD
    assert refusal(RequestBudget(1000), spoilt(magic, 1, sealed=False)) is ErrorCode.INVALID_RECORD, "as in Kafka"
    assert refusal(RequestBudget(1000), batch(b"x")[:-1]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", ["none", *CODECS])
def test_what_is_large_is_not_looked_at_inline_and_costs_nothing_until_it_is(codec: str) -> None:
    budget = RequestBudget(1000)
    assert look(budget, zeros(INLINE_BYTES // 2, codec), inline=True)
    for size in (INLINE_BYTES // 2 + 1, 10 * MIB):
        assert not look(budget, zeros(size, codec), inline=True)
    assert look(budget, zeros(1000, codec), inline=True)
    assert look(budget, zeros(10 * MIB, codec), inline=False)


def test_little_is_decompressed_to_find_out_that_a_request_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    output = compression._output
    monkeypatch.setattr(compression, "_output", lambda size: (made.append(size), output(size))[1])
    assert not look(RequestBudget(1000), zeros(60 * MIB), inline=True)
    assert sum(made) <= 2 * INLINE_BYTES
    made.clear()
    budget = RequestBudget(60_000)
    bombs = [zeros(60 * MIB) for _ in range(30)]
    assert {refusal(budget, bomb) for bomb in bombs} == {ErrorCode.MESSAGE_TOO_LARGE}
    assert sum(made) <= 2 * DECOMPRESSED_BYTES_MIN


# --- through the node ------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


def test_a_large_request_is_appended_when_it_was_looked_at(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    answer = cluster.produce(group, zeros(10 * MIB))
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 1)


def test_what_comes_behind_a_large_request_waits_for_it_and_nothing_else_does(cluster: Cluster) -> None:
    group, other = cluster.create_topic("t", 2)
    held = hold(cluster)
    large = send(cluster, group, zeros(10 * MIB))
    small = [send(cluster, group, batch(b"%d" % number)) for number in range(3)]
    beside = send(cluster, other, batch(b"beside"))
    cluster.run(1_000)
    assert not large and not any(small)
    assert result(beside).base_offset == 1
    held.finish(2)
    cluster.run(1_000)
    assert (result(large).base_offset, result(small[0]).base_offset) == (1, 2)
    late = send(cluster, group, batch(b"late"))
    held.finish(2)
    cluster.run(1_000)
    assert not late, "two are still looked at when it comes"
    held.finish(1)
    cluster.run(1_000)
    assert [result(each).base_offset for each in (*small, late)] == [2, 3, 4, 5]
    assert result(send_and_wait(cluster, group, batch(b"at once"))).base_offset == 6
    assert not held.jobs


def send_and_wait(cluster: Cluster, group: GroupId, data: bytearray) -> list[Any]:
    answers = send(cluster, group, data)
    cluster.run(1_000)
    return answers


def test_the_parts_of_a_request_behind_a_large_one_go_aside_with_it(cluster: Cluster) -> None:
    """One budget is never used by two threads."""
    groups = cluster.create_topic("t", 3)
    held = hold(cluster)
    parts = [batch(b"small"), zeros(10 * MIB), batch(b"small")]
    request = ProduceRequest(
        -1,
        5_000,
        None,
        [ProduceTopic("t", None, [ProducePartition(index, memoryview(data)) for index, data in enumerate(parts)])],
    )
    answers = cluster.send(cluster.leader(groups[0]), ApiKey.PRODUCE, request)
    assert len(held.jobs) == 2
    cluster.run(1_000)
    assert not answers
    held.finish(2)
    cluster.run(1_000)
    assert [part.error for part in answers[0].topics[0].partitions] == [ErrorCode.NONE] * 3


def test_a_request_that_was_aside_while_its_topic_was_deleted_is_answered(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    held = hold(cluster)
    answers = send(cluster, group, zeros(10 * MIB))
    cluster.leader().hosting.close([group])
    held.finish(1)
    assert result(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_that_was_aside_while_its_leader_was_deposed_is_answered() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    held = Held()
    leader.record_checks.line.aside = held
    answers = send(cluster, group, zeros(10 * MIB))
    me = leader.config.node_id
    cluster.cut(me)
    cluster.run(10_000, until=lambda: not leader.partitions[group].core.is_leader)
    held.finish(1)
    assert result(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.heal()


def test_a_bug_in_one_check_keeps_nobody_waiting(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (group,) = cluster.create_topic("t")
    held = hold(cluster)
    first = send(cluster, group, zeros(10 * MIB))
    second = send(cluster, group, batch(b"behind"))

    def fail(*args: object, **kwargs: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.replica.aside.record_checks.require_records", fail)
        held.finish(1)
    held.finish(1)
    cluster.run(1_000)
    assert result(first).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (result(second).error, result(second).base_offset) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("size", [MIB - 100, 10 * MIB], ids=["at once", "aside"])
def test_without_memory_a_request_is_refused_and_may_be_sent_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (group,) = cluster.create_topic("t")

    def refuse(*given: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(compression.mmap, "mmap", refuse)
        refused = cluster.produce(group, zeros(size))
        beside = cluster.produce(group, batch(b"small"))
    assert (refused.error, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert "no memory" in (refused.error_message or "")
    assert (beside.error, beside.base_offset) == (ErrorCode.NONE, 1)
    assert cluster.produce(group, zeros(size)).base_offset == 2


def test_what_was_decompressed_is_let_go_of_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that remembers where it was raised keeps 16 MiB until the garbage collector comes by, each time."""
    (group,) = cluster.create_topic("t")
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    aside = ThreadAside(posted.put)
    cluster.leader().record_checks.line.aside = aside
    outputs: list[weakref.ref[memoryview]] = []
    output = compression._output

    def noted(size: int) -> memoryview:
        made = output(size)
        outputs.append(weakref.ref(made))
        return made

    monkeypatch.setattr(compression, "_output", noted)
    gc.disable()
    try:
        answers = send(cluster, group, zeros(60 * MIB))
        posted.get(timeout=30)()
        assert result(answers).error is ErrorCode.MESSAGE_TOO_LARGE
        aside.close()
        assert len(outputs) > 5
        assert [each for each in outputs if each() is not None] == []
    finally:
        gc.enable()


def test_an_idempotent_producers_batches_stay_in_order_around_a_large_one(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    held = hold(cluster)
    fields = {"producer_id": 7, "producer_epoch": 0}
    answers = [
        send(cluster, group, batch(b"a", base_sequence=0, **fields)),
        send(cluster, group, batch(bytes(10 * MIB), compression="zstd", base_sequence=1, **fields)),
        send(cluster, group, batch(b"c", base_sequence=2, **fields)),
    ]
    cluster.run(1_000)
    held.finish(2)
    cluster.run(1_000)
    assert [(result(each).error, result(each).base_offset) for each in answers] == [(ErrorCode.NONE, n) for n in (1, 2, 3)]


@pytest.mark.parametrize("topics", [[["t"], [0, 1, 0]], [["t", "t"], [0]]], ids=["in one topic", "in two"])
def test_a_partition_that_stands_in_a_request_twice_is_refused_and_the_others_are_not(
    cluster: Cluster, topics: list[list[Any]]
) -> None:
    cluster.create_topic("t", 2)
    names, indexes = topics
    request = ProduceRequest(
        -1,
        5_000,
        None,
        [ProduceTopic(name, None, [ProducePartition(index, memoryview(batch(b"x"))) for index in indexes]) for name in names],
    )
    answers = cluster.send(cluster.leader(), ApiKey.PRODUCE, request)
    cluster.run(1_000)
    found = [(part.index, part.error) for topic in answers[0].topics for part in topic.partitions]
    expected = {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}
    assert found == [(index, expected[index]) for _ in names for index in indexes]


# --- compacted topics ------------------------------------------------------------------------------------------------------


def test_many_keys_are_not_looked_at_inline() -> None:
    """Each record is walked twice."""
    budget = RequestBudget(1000)
    large, small = batch(bytes(KEYED_INLINE_BYTES)), batch(bytes(KEYED_INLINE_BYTES - 100))
    assert budget.check(large, Allowance()) is not None
    assert budget.check(large, Allowance(), needs_keys=True) is None
    for inline in (Allowance(), None):
        with pytest.raises(RequestRejected, match="record 0 of 1: Compacted topic cannot accept message without key"):
            budget.check(small, inline, needs_keys=True)


@pytest.mark.parametrize("size", [1, KEYED_INLINE_BYTES])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_compacted_topic_takes_no_record_without_a_key(cluster: Cluster, size: int, compression: str) -> None:
    """At once and aside, in the second batch as in the first."""
    (group,) = created(cluster, "compacted", cleanup_policy="compact")
    (plain,) = created(cluster, "plain")
    keyless = batch(bytes(size), b"x", compression=compression)
    good = build_batch([Record(key=b"k", value=bytes(size))], timestamp_ms=1, compression=compression)
    assert cluster.produce(plain, keyless).error is ErrorCode.NONE
    assert cluster.produce(group, keyless).error is ErrorCode.INVALID_RECORD
    assert cluster.produce(group, bytearray(good + keyless)).error is ErrorCode.INVALID_RECORD
    answer = cluster.produce(group, good)
    assert (answer.error, answer.base_offset) == (ErrorCode.NONE, 1)
    alter(cluster, "compacted", cleanup_policy="delete")
    assert cluster.produce(group, keyless).error is ErrorCode.NONE
