"""The first batch of a producer is refused before it reaches the log's sequence, and the next one is under way. In a log that
may have forgotten the producer nothing overtakes what comes again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from crc32c import crc32c

from asidekit import Held, hold, result, send
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside import check_line
from raftlake.replica.config import ClientContext
from raftlake.replica.partition import producer_state
from raftlake.replica.partition.partition import Partition
from raftlake.wire import compression
from replica_cluster import Cluster, batch

MIB = 1 << 20
PRODUCER = 7
NONE, REFUSED, TOO_LATE = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT
SENT_BACK = ErrorCode.LEADER_NOT_AVAILABLE
BOMB = batch(bytes(10 * MIB), compression="zstd")


def numbered(sequence: int, *, producer_id: int = PRODUCER, epoch: int = 0, size: int = 1, codec: str = "none") -> bytearray:
    return batch(bytes(size), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, compression=codec)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"x"))
    partition_of(cluster, group).producers.has_forgotten = True
    return group


def partition_of(cluster: Cluster, group: GroupId) -> Partition:
    return cluster.leader(group).partitions[group]


def another() -> ClientContext:
    return ClientContext("another", "127.0.0.1")


# --- the ways of being refused ----------------------------------------------------------------------------------------

Trouble = Callable[[Cluster, GroupId, pytest.MonkeyPatch], Any]


@contextmanager
def not_read_yet(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The node has started, and does not know yet what the topic asks for."""
    partition = partition_of(cluster, group)
    in_force, partition.in_force = partition.in_force, None
    yield
    partition.in_force = in_force


@contextmanager
def too_much_waits(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    line = cluster.leader(group).record_checks.line
    with monkeypatch.context() as patch:
        patch.setattr(line, "aside", Held())
        send(cluster, group, BOMB, client=another())
        patch.setattr(check_line, "WAITING_BYTES_MAX", len(BOMB))
        yield
        line.aside.finish_all()  # type: ignore[attr-defined]


@contextmanager
def no_memory(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*given: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(compression.mmap, "mmap", refuse)
        yield


@pytest.mark.parametrize(
    ("trouble", "size"),
    [(not_read_yet, 1), (too_much_waits, 5 * MIB), (no_memory, MIB - 100), (no_memory, 5 * MIB)],
    ids=["not read yet", "too much waits", "no memory at once", "no memory aside"],
)
@pytest.mark.parametrize("first", [0, 5])
def test_nothing_overtakes_what_was_refused(
    cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, size: int, first: int
) -> None:
    """The second one was taken, and the first was out of order when it came again: producers end with that."""
    codec = "none" if size == 1 else "zstd"
    with trouble(cluster, group, monkeypatch):
        for _ in range(2):
            assert cluster.produce(group, numbered(first, size=size, codec=codec)).error is REFUSED
    assert cluster.produce(group, numbered(first + 1)).error is SENT_BACK
    assert cluster.produce(group, numbered(first, size=size, codec=codec)).error is NONE
    assert [cluster.produce(group, numbered(first + number)).error for number in (1, 2)] == [NONE, NONE]


def held_back(cluster: Cluster, group: GroupId) -> tuple[Held, list[Any]]:
    """The first batch waits behind a check of another connection, for 100 ms at most."""
    held = hold(cluster)
    for _ in range(check_line.AT_ONCE):
        send(cluster, group, BOMB, client=another())
    return held, send(cluster, group, numbered(0, size=5 * MIB, codec="zstd"), timeout_ms=100)


@pytest.mark.parametrize(("waited_ms", "error", "next_error"), [(100, NONE, NONE), (101, TOO_LATE, SENT_BACK)])
def test_what_was_checked_too_late_comes_again_too(
    cluster: Cluster, group: GroupId, waited_ms: int, error: ErrorCode, next_error: ErrorCode
) -> None:
    held, first = held_back(cluster, group)
    cluster.run(waited_ms)
    held.finish_all()
    cluster.run(10)
    assert result(first).error is error
    assert cluster.produce(group, numbered(1)).error is next_error


def test_the_earliest_of_those_that_were_refused_comes_first(
    cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is refused, while the first waits for its check."""
    held = hold(cluster)
    first = send(cluster, group, numbered(0, size=5 * MIB, codec="zstd"))
    with monkeypatch.context() as patch:
        patch.setattr(check_line, "WAITING_BYTES_MAX", 1)
        assert result(send(cluster, group, numbered(1))).error is REFUSED
    assert not first
    held.finish_all()
    cluster.run(10)
    assert result(first).error is NONE
    assert [cluster.produce(group, numbered(number)).error for number in (1, 2)] == [NONE, NONE]


def test_of_a_known_producer_a_gap_is_told_as_ever(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.produce(group, numbered(0)).error is NONE
    with not_read_yet(cluster, group, monkeypatch):
        assert cluster.produce(group, numbered(1)).error is REFUSED
    assert not partition_of(cluster, group).producers._sent_back
    assert [cluster.produce(group, numbered(number)).error for number in (2, 1, 2)] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        NONE,
        NONE,
    ]


def test_other_producers_and_epochs_go_on(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> None:
    with not_read_yet(cluster, group, monkeypatch):
        cluster.produce(group, numbered(3))
        cluster.produce(group, batch(b"plain"))
    assert list(partition_of(cluster, group).producers._sent_back) == [(PRODUCER, 0)]
    assert cluster.produce(group, numbered(4, producer_id=8)).error is NONE
    assert cluster.produce(group, batch(b"plain")).error is NONE
    assert cluster.produce(group, numbered(4)).error is SENT_BACK
    assert cluster.produce(group, numbered(9, epoch=1)).error is NONE


def test_as_many_are_remembered_as_ever(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "SENT_BACK_MAX", 2)
    with too_much_waits(cluster, group, monkeypatch):
        for producer_id in (1, 2, 3, 3):
            refused = cluster.produce(group, numbered(0, producer_id=producer_id, size=5 * MIB, codec="zstd"))
            assert refused.error is REFUSED
    producers = partition_of(cluster, group).producers
    assert list(producers._sent_back) == list(producers._refused) == [(2, 0), (3, 0)]


# --- what is not noted ------------------------------------------------------------------------------------------------


def sealed(data: bytearray) -> bytearray:
    """With the CRC of what it holds now."""
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data


def damaged(position: int) -> bytearray:
    data = numbered(0, size=2_000)
    data[position] ^= 0x40
    return data


def with_sequence(sequence: int) -> bytearray:
    data = numbered(0, size=2_000)
    data[53:57] = sequence.to_bytes(4, "big", signed=True)
    return sealed(data)


@pytest.mark.parametrize(
    "records",
    [
        damaged(53),
        damaged(-1),
        with_sequence(-1),
        numbered(0, size=2_000)[:-1],
        numbered(0)[:60],
        bytearray(b"x"),
        numbered(0) + numbered(1),
        batch(b"x", control=True, producer_id=PRODUCER, producer_epoch=0, base_sequence=0),
        batch(b"x"),
    ],
    ids=["sequence", "payload", "negative", "cut", "no header", "a byte", "two", "control", "plain"],
)
def test_what_is_no_batch_of_an_idempotent_producer_is_not_noted(
    cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch, records: bytearray
) -> None:
    """It is refused unread, and its header may say anything: a sequence number from far away would hold its producer up."""
    held = hold(cluster)
    send(cluster, group, BOMB)
    with monkeypatch.context() as patch:
        patch.setattr(check_line, "WAITING_BYTES_MAX", 1)
        assert result(send(cluster, group, bytearray(records))).error is REFUSED
    assert not partition_of(cluster, group).producers._sent_back
    held.finish_all()


def test_what_is_refused_for_good_is_not_noted(cluster: Cluster, group: GroupId) -> None:
    """It does not come again."""
    unreadable = numbered(0)
    unreadable[-1] ^= 1
    assert cluster.produce(group, sealed(unreadable)).error is ErrorCode.INVALID_RECORD
    assert not partition_of(cluster, group).producers._sent_back
    assert cluster.produce(group, numbered(1)).error is NONE


def test_who_does_not_lead_any_more_notes_nothing() -> None:
    """Its batches come again elsewhere."""
    cluster = Cluster(3)
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    partition = leader.partitions[group]
    held = hold(cluster, group)
    for _ in range(check_line.AT_ONCE):
        send(cluster, group, BOMB, client=another())
    first = send(cluster, group, numbered(0, size=5 * MIB, codec="zstd"), timeout_ms=100)
    cluster.cut(leader.config.node_id)
    cluster.run(30_000, until=lambda: not partition.core.is_leader)
    held.finish_all()
    assert result(first).error is TOO_LATE
    assert not partition.producers._sent_back
