"""Which batches are of aborted transactions, and what readers get of them: nothing, at offsets that do not lie."""

from __future__ import annotations

from clientkit import FakePartition, FakeQuorum, run
from raftlake.arrow.records import decode_to_arrow
from raftlake.client import LATEST, AsyncClient
from raftlake.client.aborted import AbortedBatches
from raftlake.client.types import IsolationLevel
from raftlake.wire.batches import EndMarker, Record, build_batch, end_marker_batch, iterate_headers
from raftlake.wire.fetch_response import AbortedTransaction

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def data(offset: int, producer_id: int, *, count: int = 1, transactional: bool = True) -> bytes:
    records = [Record(value=str(offset + index).encode()) for index in range(count)]
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": transactional}
    return bytes(build_batch(records, base_offset=offset, leader_epoch=0, timestamp_ms=1, **fields))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    said = EndMarker(producer_id=producer_id, epoch=0, commit=commit, coordinator_epoch=0)
    return bytes(end_marker_batch(said, 1, base_offset=offset, leader_epoch=0))


#: Producer 1: aborted [0, 3], committed [7, 9]. Producer 2: committed [2, 5]. Producer 3 has no transaction.
LOG = (
    data(0, 1, count=2),
    data(2, 2),
    marker(3, 1, commit=False),
    data(4, 3, transactional=False),
    marker(5, 2, commit=True),
    data(6, 1, transactional=False),
    data(7, 1, count=2),
    marker(9, 1, commit=True),
)
ABORTED = [AbortedTransaction(1, 0)]


def left_out(batches: tuple[bytes, ...], aborted: list[AbortedTransaction]) -> list[int]:
    view = memoryview(b"".join(batches))
    found = AbortedBatches(aborted)
    return [header.base_offset for header in iterate_headers(view) if found.holds(view, header)]


def test_a_transaction_reaches_to_its_producers_next_abort_marker() -> None:
    assert left_out(LOG, ABORTED) == [0]
    assert left_out(LOG, []) == []
    assert left_out(LOG, [AbortedTransaction(1, 7), AbortedTransaction(2, 1)]) == [2, 7]
    assert left_out(LOG[1:], ABORTED) == [], "its records lie before these"
    assert left_out(
        (data(0, 1), data(1, 1), marker(2, 1, commit=False), data(3, 1), marker(4, 1, commit=False)),
        [
            AbortedTransaction(1, 3),
            AbortedTransaction(1, 0),
        ],
    ) == [0, 1, 3]
    assert left_out((data(0, 1), data(1, 1, count=5)), [AbortedTransaction(1, 3)]) == [1], "it begins within that batch"


def fill(partition: FakePartition) -> None:
    partition.batches += LOG
    partition.end_offset = 10
    partition.aborted = ABORTED


def test_readers_get_no_record_of_an_aborted_transaction() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0])
            committed = await client.read("t", 0, 0)
            assert [(record.offset, record.value) for record in committed] == [(n, b"%d" % n) for n in (2, 4, 6, 7, 8)]
            everything = await client.read("t", 0, 0, isolation=UNCOMMITTED)
            assert [record.offset for record in everything] == [0, 1, 2, 4, 6, 7, 8]
            raw = await client.fetch_raw("t", 0, 0)
            assert raw.next_offset == 10
            rows = decode_to_arrow(raw.buffers, topic="t", partition=0)
            assert rows.column("offset").to_pylist() == [2, 4, 6, 7, 8]
            assert rows.column("value").to_pylist() == [b"2", b"4", b"6", b"7", b"8"]

    run(test())


def test_a_read_goes_on_behind_what_is_left_out() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0])
            raw = await client.fetch_raw("t", 0, 0, limit_offset=2)
            assert (raw.buffers, raw.next_offset) == ((), 2)
            amid = await client.fetch_raw("t", 0, 1, limit_offset=4)
            assert amid.next_offset == 4
            assert decode_to_arrow(amid.buffers, topic="t", partition=0).column("offset").to_pylist() == [2]

    run(test())


def test_a_read_passes_over_answers_that_hold_aborted_records_alone() -> None:
    """Whoever goes on behind the last record would ask for the same offset for ever."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            partition.batches += [data(0, 1), data(1, 1), marker(2, 1, commit=False), data(3, 2)]
            partition.end_offset, partition.aborted, partition.answers_one = 4, ABORTED, True
            assert [record.offset for record in await client.read("t", 0, 0, max_wait_ms=0)] == [3]
            partition.batches.pop()
            partition.end_offset = 3
            assert await client.read("t", 0, 0, max_wait_ms=0) == []

    run(test())


def test_a_follower_that_has_only_aborted_records_is_not_behind() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            fill(partition)
            follower = next(node for node in quorum.nodes if node != partition.leader_id)
            raw = await client.fetch_raw("t", 0, 0, limit_offset=2, replica=follower)
            assert (raw.node_id, raw.next_offset) == (follower, 2)

    run(test())


def test_proven_ends_for_readers_of_what_is_committed() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            for partition in quorum.add_topic("t", 2).partitions:
                fill(partition)
            quorum.topics["t"].partitions[1].stable_offset = 7
            assert await client.read_offset("t") == {0: 10, 1: 10}
            assert await client.read_stable_offset("t") == {0: 10, 1: 7}
            assert await client.list_offsets("t", {0: LATEST, 1: LATEST}) == {0: 10, 1: 7}
            assert await client.list_offsets("t", {1: LATEST}, isolation=UNCOMMITTED) == {1: 10}
            assert [record.offset for record in await client.read("t", 1, 0)] == [2, 4, 6]
            fetched = await client.fetch_raw("t", 1, 0)
            assert (fetched.last_stable_offset, fetched.high_watermark) == (7, 10)

    run(test())


def test_an_end_that_was_not_proven_is_asked_for_where_the_log_has_it() -> None:
    """Whoever answered ListOffsets has been replaced, and lacks what is acknowledged: no transaction is open."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            fill(partition)

            async def stale(*given: object, **named: object) -> dict[int, int]:
                return {0: 4}

            client._reader.list_offsets = stale  # type: ignore[assignment]
            assert await client.read_stable_offset("t") == {0: 10}

    run(test())
