"""What checking a request may cost beside what its batches hold: blocks without content, batches without number, and many
requests in one turn of the loop."""

from __future__ import annotations

import struct

import cramjam
import pytest
from crc32c import crc32c

from asidekit import aside, hold, result, send
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside import record_checks
from raftlake.replica.aside.allowance import TURN_BYTES, Allowance
from raftlake.replica.aside.record_checks import (
    EXTRA_BATCHES_MAX,
    INLINE_BYTES,
    PACKED_TIMES,
    RequestBudget,
)
from raftlake.wire import compression
from raftlake.wire.api import ApiKey
from raftlake.wire.compression import Compression
from raftlake.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from replica_cluster import Cluster, batch

MIB = 1 << 20


def packed(payload: bytes, codec: Compression = Compression.SNAPPY) -> bytearray:
    """A batch of one record whose payload is this, whatever it holds."""
    data = bytearray(batch(b"x"))
    data[21:23] = int(codec).to_bytes(2, "big")
    del data[61:]
    data += payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


def nothing(blocks: int) -> bytearray:
    """A batch of so many snappy blocks that hold nothing."""
    block = bytes(cramjam.snappy.compress_raw(b""))
    return packed(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * blocks)


def refusal(budget: RequestBudget, data: bytearray, inline: Allowance | None = None) -> ErrorCode | None:
    try:
        assert budget.check(data, inline) is not None
    except RequestRejected as rejected:
        return rejected.code
    return None


# --- one request ---------------------------------------------------------------------------------------------------------


def test_blocks_without_content_use_up_what_a_request_may_hold() -> None:
    """A request of 8 MiB had 1.6 million of them."""
    budget = RequestBudget(1000)
    part = nothing(6_000)
    errors = [refusal(budget, part) for _ in range(4)]
    assert errors == [ErrorCode.INVALID_RECORD] * 2 + [ErrorCode.MESSAGE_TOO_LARGE] * 2
    assert refusal(budget, batch(b"x", compression="snappy")) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(RequestBudget(1000), nothing(1 << 20)) is ErrorCode.MESSAGE_TOO_LARGE


def test_bytes_without_content_use_up_what_a_request_may_hold() -> None:
    budget = RequestBudget(1000)
    frames = packed(
        b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00" + struct.pack("<II", 0x184D2A50, 0) * (MIB // 8 + 100), Compression.ZSTD
    )
    errors = [refusal(budget, frames) for _ in range(3)]
    assert errors == [ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE]


def test_a_long_payload_is_not_looked_at_inline_whatever_it_holds() -> None:
    short, long = (packed(bytes(size), Compression.ZSTD) for size in (1_000, INLINE_BYTES // PACKED_TIMES + 1))
    assert refusal(RequestBudget(1000), short, Allowance()) is ErrorCode.INVALID_RECORD
    assert RequestBudget(1000).check(long, Allowance()) is None


def test_inline_work_is_counted_over_the_partitions_of_a_request() -> None:
    """Blocks that hold nothing count as if they held something."""
    budget, turn = RequestBudget(1000), Allowance()
    looks = [_try(budget, nothing(300), turn) for _ in range(5)]
    assert looks == [ErrorCode.INVALID_RECORD] * 3 + [None, None]


def _try(budget: RequestBudget, data: bytearray, turn: Allowance) -> ErrorCode | None:
    """None: not now."""
    try:
        assert budget.check(data, turn) is None
    except RequestRejected as rejected:
        return rejected.code
    return None


def test_batches_are_counted_over_the_partitions_of_a_request() -> None:
    budget = RequestBudget(1000)
    one = batch(b"x")
    half = one * (1 + EXTRA_BATCHES_MAX // 2)
    assert [refusal(budget, part) for part in (half, half, one, one)] == [None] * 4, "each partition has one free"
    assert refusal(budget, one * 2) is ErrorCode.INVALID_RECORD
    assert refusal(budget, one) is None
    assert refusal(RequestBudget(1000), one * (2 + EXTRA_BATCHES_MAX)) is ErrorCode.INVALID_RECORD


def test_of_too_many_batches_the_rest_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    crc = crc32c
    monkeypatch.setattr("raftlake.wire.batch_header.crc32c", lambda data: (seen.append(1), crc(data))[1])
    assert refusal(RequestBudget(1000), batch(b"x") * 50_000) is ErrorCode.INVALID_RECORD
    assert len(seen) == 1 + EXTRA_BATCHES_MAX


# --- through the node ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


def test_headers_and_checksums_of_a_large_request_are_looked_at_aside(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve partitions of 100,000 batches each kept the loop for 4 s."""
    groups = cluster.create_topic("t", 12)
    held = hold(cluster)
    validated: list[int] = []
    validate = record_checks.validate
    monkeypatch.setattr(
        record_checks, "validate", lambda data, **given: (validated.append(len(data)), validate(data, **given))[1]
    )
    tiny = batch(b"x")
    part = tiny * (INLINE_BYTES // len(tiny) + 1)
    request = ProduceRequest(
        -1, 5_000, None, [ProduceTopic("t", None, [ProducePartition(index, memoryview(part)) for index in range(12)])]
    )
    answers = cluster.send(cluster.leader(groups[0]), ApiKey.PRODUCE, request)
    assert validated == [] and aside(cluster) == 12
    held.finish_all()
    cluster.run(1_000)
    assert {part.error for part in answers[0].topics[0].partitions} == {ErrorCode.INVALID_RECORD}
    assert [cluster.leader(group).partitions[group].log.end_offset for group in groups] == [1] * 12


def test_several_batches_of_one_partition_are_appended(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    answers = send(cluster, group, *[batch(b"x") for _ in range(1 + EXTRA_BATCHES_MAX)])
    cluster.run(1_000)
    assert (result(answers).error, result(answers).base_offset) == (ErrorCode.NONE, 1)
    assert cluster.leader(group).partitions[group].high_watermark == 2 + EXTRA_BATCHES_MAX


def test_what_the_requests_of_one_turn_decompress_at_once_has_an_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of 64 KiB holds two hundred requests, each of which decompresses to as much as one may have at once."""
    group, other = cluster.create_topic("t", 2)
    held = hold(cluster)
    made: list[int] = []
    output = compression._output
    monkeypatch.setattr(compression, "_output", lambda size: (made.append(size), output(size))[1])
    bomb = batch(bytes(INLINE_BYTES - 100), compression="zstd")
    answers = [send(cluster, group, bomb) for _ in range(50)]
    assert aside(cluster) == 50 - TURN_BYTES // INLINE_BYTES
    assert sum(made) <= 2 * TURN_BYTES
    assert result_of_plain(cluster, other) == 1, "what is not compressed is looked at"
    held.finish_all()
    cluster.run(1_000)
    assert [result(each).base_offset for each in answers] == list(range(1, 51))
    made.clear()
    again = send(cluster, group, bomb)
    assert not held.jobs and sum(made) >= INLINE_BYTES, "the next turn has its own"
    cluster.run(1_000)
    assert result(again).base_offset == 51


def result_of_plain(cluster: Cluster, group: GroupId) -> int:
    answers = send(cluster, group, batch(b"plain"))
    cluster.run(1_000)
    return result(answers).base_offset


def test_an_attempt_that_was_too_large_for_the_turn_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    output = compression._output
    monkeypatch.setattr(compression, "_output", lambda size: (made.append(size), output(size))[1])
    turn, bomb = Allowance(), batch(bytes(10 * MIB), compression="zstd")
    assert [RequestBudget(1000).check(bomb, turn) for _ in range(50)] == [None] * 50
    assert sum(made) <= 2 * TURN_BYTES
