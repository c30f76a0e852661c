"""What a partition says of transactions whose markers compaction has removed."""

from __future__ import annotations

from random import Random

import pytest

from enginekit import Ground
from raftlake.ports.driver import Compacted, Compaction, LogStore
from raftlake.raft.types import Offset
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow, encode_packed
from transactionlog import Follower, MemoryMachine

NOW_MS = 1_700_000_000_000


@pytest.fixture
def states() -> ProducerStates:
    """7 is open from 0 on, 8 from 3 on."""
    states = ProducerStates()
    states.record(7, 0, 0, 3, 0, 100, True)
    states.record(8, 2, 0, 1, 3, 102, True)
    return states


def test_a_transaction_that_begins_below_what_is_compacted_is_decided(states: ProducerStates) -> None:
    states.close_transactions(Offset(0))
    assert states.open_transactions == {7: 0, 8: 3}
    states.close_transactions(Offset(3))
    assert states.open_transactions == {8: 3} and states.transactions.earliest_undecided == 3
    rows = {row.producer_id: row for row in states.at(10)}
    assert [rows[each].transaction_first_offset for each in (7, 8)] == [-1, 3]
    assert rows[7].last_offset == 2 and rows[7].last_sequence == 2
    states.close_transactions(Offset(4))
    assert states.transactions.earliest_undecided is None


def test_producers_without_transactions_are_the_same_producers(states: ProducerStates) -> None:
    known = KnownProducers(encode_packed(states.packed(10)), has_forgotten=False).without_transactions()
    other = ProducerStates()
    other.restore(known.packed)
    assert other.open_transactions == {} and known.has_forgotten, "what was open is forgotten"
    closed = [row._replace(transaction_first_offset=-1) for row in states.at(10)]
    assert other.at(10) == closed
    assert [KnownProducers(known.encoded, each).without_transactions() for each in (False, True)] == [
        KnownProducers(known.encoded, each) for each in (False, True)
    ]


def compact(log: LogStore, now_ms: int, aborted: tuple[AbortedTransaction, ...]) -> None:
    told: list[object] = []
    request = Compaction(
        dirty_from=log.compacted_until or Offset(0),
        until=log.segments()[-1].base_offset,
        now_ms=now_ms,
        delete_retention_ms=10,
        tombstones_below=log.end_offset,
        aborted=aborted,
        last_batches=frozenset(),
        keys_max=1_000,
        segment_bytes=1,
    )
    log.compact(request, told.append)
    assert isinstance(told[0], Compacted)


def test_a_start_point_that_knows_of_the_transaction_does_not_open_it_for_ever() -> None:
    follower = Follower(MemoryMachine(Random(3), 1 << 20))
    follower.write(7, 0)
    follower.partition.roll()
    marker = follower.end_of(7)
    follower.partition.roll()
    follower.write(8, 0, transactional=False)
    follower.commit(follower.end)
    log = follower.log
    (aborted,) = follower.partition.aborted(Offset(0), follower.end)
    assert aborted.last_offset == marker
    compact(log, NOW_MS, (aborted,))
    # Nothing of it is left but its marker: readers are not told of it any more.
    assert follower.partition.aborted(Offset(0), follower.end) == []
    compact(log, NOW_MS, ())
    compact(log, NOW_MS + 10, ())
    follower.machine.flush(log)
    # The newest point is lost; the one before tells of the open transaction.
    log.start_points.delete([offset for offset in log.start_points.offsets if offset != 1])
    assert list(log.start_points.offsets) == [1]
    follower.restart()
    follower.commit(follower.end)
    partition = follower.partition
    assert partition.producers.open_transactions == {} and partition.last_stable_offset == follower.end


def test_who_begins_amid_a_compacted_log_is_told_of_no_transaction() -> None:
    follower = Follower(MemoryMachine(Random(3), 1 << 20))
    follower.write(7, 0)
    follower.partition.roll()

    def told() -> list[int]:
        known = follower.partition.producers_at(Offset(1))
        assert known is not None
        return [row.transaction_first_offset for row in map(ProducerRow._make, ENTRY.iter_unpack(known.packed))]

    assert told() == [0]
    follower.partition.obey(in_force({"cleanup.policy": "compact"}, Ground().engine.config))
    assert told() == [-1]
