"""What the judge of a compacted topic accepts, and what it takes for a broken promise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compactkit import Asked, LogInTheMaking, compact
from raftlake.raft.types import NodeId
from raftlake.sim.histories.keyed import (
    AS_WRITTEN,
    LAST_VALUES,
    STAYS_DELETED,
    FullRead,
    Written,
    check_read,
    check_replica,
)
from raftlake.sim.invariants import Violation
from raftlake.wire.batches import Record


@pytest.fixture
def made() -> LogInTheMaking:
    """a is 2, b is deleted, c is 1, d is 1; an aborted transaction would have made it 2."""
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
    log.data(("a", "2"))
    log.data(("b", None))
    log.data(("d", "2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.marker(7, commit=False)
    return log


def read_of(
    written: Written, *offsets: int, position: int = 8, committed_end: int = 8, took_ms: int = 10, nodes: tuple[int, ...] = (1,)
) -> FullRead:
    records = [written.records[offset] for offset in offsets]
    return FullRead("reader", 0, position, 100, 100 + took_ms, committed_end, records, set(map(NodeId, nodes)))


def judge(read: FullRead, written: Written, *, trimmed_to: int = 0) -> None:
    check_read(read, written, trimmed_to=trimmed_to, retention_ms=1_000)


@pytest.mark.parametrize(
    "offsets",
    [(0, 1, 2, 3, 4, 5, 6), (2, 3, 4, 5), (2, 3, 4), (1, 2, 3, 4, 5), (2, 3, 4, 6)],
    ids=["all", "compacted", "deletion over", "tombstone seen", "aborted one seen"],
)
def test_a_full_read_of_the_last_values_is_fine(made: LogInTheMaking, offsets: Sequence[int]) -> None:
    written = Written(made.batches)
    judge(read_of(written, *offsets), written)


@pytest.mark.parametrize(
    ("offsets", "promise"),
    [((2, 3, 5), LAST_VALUES), ((0, 2, 3, 5), LAST_VALUES), ((2, 4, 5, 6), LAST_VALUES), ((1, 2, 3, 4), STAYS_DELETED)],
    ids=["nothing of a key", "an older value", "an aborted value alone", "a deleted key"],
)
def test_a_full_read_without_the_last_value_is_told(made: LogInTheMaking, offsets: Sequence[int], promise: str) -> None:
    written = Written(made.batches)
    with pytest.raises(Violation, match=promise):
        judge(read_of(written, *offsets), written)


def test_a_reader_that_is_slow_or_moves_may_miss_a_tombstone_and_a_lagging_node_the_end(made: LogInTheMaking) -> None:
    written = Written(made.batches)
    judge(read_of(written, 1, 2, 3, 4, took_ms=1_000), written)
    # Simulator, seed 17989833: the node that it read from first was behind with its passes.
    judge(read_of(written, 1, 2, 3, 4, nodes=(1, 2)), written)
    with pytest.raises(Violation, match=LAST_VALUES):
        judge(read_of(written, 0, 2, 3, 5, nodes=(1, 2)), written)
    # Another node had compacted what this one, which ends at 4, superseded.
    judge(read_of(written, 2, 3, position=4), written)
    # What came later than the end of the read is no excuse: nothing was removed for it.
    with pytest.raises(Violation, match=LAST_VALUES):
        judge(read_of(written, 2, 3, position=4, committed_end=4), written)
    judge(read_of(written, 4, 5), written, trimmed_to=4)


def test_what_was_not_written_there_is_told(made: LogInTheMaking) -> None:
    written = Written(made.batches)
    for record in (
        written.records[4]._replace(value=b"other"),
        written.records[4]._replace(offset=3),
        written.records[4]._replace(headers=(("h", None),)),
        Record(offset=99, key=b"a", value=b"2"),
    ):
        read = read_of(written, 2, 3)
        read.records.append(record)
        with pytest.raises(Violation, match=AS_WRITTEN):
            judge(read, written)
    for offsets in ((3, 2, 4, 5), (2, 2, 3, 4, 5)):
        with pytest.raises(Violation, match=AS_WRITTEN):
            judge(read_of(written, *offsets), written)


def test_each_replica_holds_the_last_values(made: LogInTheMaking) -> None:
    written = Written(made.batches)
    asked = Asked(until=made.end, aborted=tuple(made.aborted))
    for batches in (made.batches, compact(made.batches, asked).batches):
        check_replica("node 1", 0, batches, written)
    check_replica("node 1", 5, made.batches[2:], written)
    for batches, promise in (
        (made.batches[1:], LAST_VALUES),
        ([made.batches[0], *made.batches[2:]], LAST_VALUES),
        ([*made.batches[:2], *made.batches[3:]], STAYS_DELETED),
        ([*made.batches[1:], made.batches[0]], AS_WRITTEN),
    ):
        with pytest.raises(Violation, match=promise):
            check_replica("node 1", 0, batches, written)
