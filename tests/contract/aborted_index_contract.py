"""What every index of aborted transactions must do, whatever it is made of: the guarantees of `ports.AbortedIndex`.

A test class of `LogStoreContract` derives from this too, for its `directory`, `log` and `restart`.
"""

from __future__ import annotations

import pytest

from contract.batches import fill
from contract.log_store_contract import GROUP, LogStoreContract, at
from raftlake.ports.driver import LogDirectory, LogStore
from raftlake.raft.types import Offset
from raftlake.wire.aborted_index import AbortedTransaction

#: Segments of ten offsets each, as `segmented` makes them.
STEP = 10
#: Markers in the segments from 0, 10 and 30 on; none in that from 20 on. One is open over three of them.
FIRST = AbortedTransaction(1, 0, 3, 4)
SECOND = AbortedTransaction(1, 5, 8, 9)
LATER = AbortedTransaction(2, 12, 19, 11)
LONG = AbortedTransaction(3, 11, 32, 31)
LAST = AbortedTransaction(4, 31, 33, 34)
ALL = [FIRST, SECOND, LATER, LONG, LAST]
COUNTS = [(0, 2), (10, 1), (30, 2)]


class AbortedIndexContract(LogStoreContract):
    @pytest.fixture
    def segmented(self, log: LogStore) -> LogStore:
        """A log of [0, 38) in four segments, with its index."""
        for _ in range(3):
            fill(log, STEP)
            log.roll()
        fill(log, 8)
        log.aborted.append(ALL[:2])
        log.aborted.append(ALL[2:])
        return log

    def found(self, log: LogStore, start: int, end: int) -> list[AbortedTransaction]:
        return log.aborted.find(Offset(start), Offset(end))

    def everything(self, log: LogStore) -> list[AbortedTransaction]:
        return self.found(log, log.start_offset, 1 << 40)

    def test_an_index_begins_empty(self, log: LogStore) -> None:
        fill(log, 2)
        assert self.found(log, 0, 2) == [] and list(log.aborted.counts(Offset(2))) == []
        assert log.aborted.agrees(Offset(2), ())
        log.aborted.sync()
        log.aborted.truncate_to(Offset(1))
        assert self.everything(log) == []

    @pytest.mark.parametrize("start", [0, 3, 4, 8, 9, 10, 19, 20, 25, 32, 33, 34, 38])
    @pytest.mark.parametrize("end", [0, 1, 5, 6, 12, 13, 31, 32, 38])
    def test_what_a_reader_leaves_out_is_found_in_the_order_of_markers(self, segmented: LogStore, start: int, end: int) -> None:
        expected = [each for each in ALL if each.last_offset >= start and each.first_offset < end]
        assert self.found(segmented, start, end) == expected

    @pytest.mark.parametrize("end", [0, 3, 4, 9, 10, 19, 20, 30, 32, 33, 34, 38])
    def test_entries_are_counted_by_the_segment_of_their_marker(self, segmented: LogStore, end: int) -> None:
        counts = {base: sum(base <= each.last_offset < min(end, base + STEP) for each in ALL) for base in range(0, 40, STEP)}
        assert list(segmented.aborted.counts(Offset(end))) == [each for each in counts.items() if each[1]]

    def test_a_count_that_was_told_is_agreed_with(self, segmented: LogStore) -> None:
        agrees = segmented.aborted.agrees
        assert agrees(Offset(38), COUNTS) and agrees(Offset(34), COUNTS) and agrees(Offset(30), COUNTS[:2])
        assert agrees(Offset(33), [*COUNTS[:2], (30, 1)]) and agrees(Offset(9), [(0, 2)]) and agrees(Offset(8), [(0, 1)])

    def test_another_count_is_not_agreed_with(self, segmented: LogStore) -> None:
        agrees = segmented.aborted.agrees
        assert not agrees(Offset(38), COUNTS[:2]) and not agrees(Offset(38), COUNTS[1:]) and not agrees(Offset(38), ())
        assert not agrees(Offset(38), [(0, 2), (10, 1), (30, 3)]) and not agrees(
            Offset(38), [(0, 2), (10, 1), (20, 1), (30, 2)]
        )
        assert not agrees(Offset(33), COUNTS) and not agrees(Offset(38), [(0, 1), (10, 1), (30, 2)])

    @pytest.mark.parametrize("end", [0, 3, 4, 8, 9, 10, 19, 20, 25, 32, 33, 34, 38])
    def test_the_index_is_cut_before_a_marker(self, segmented: LogStore, end: int) -> None:
        segmented.aborted.truncate_to(Offset(end))
        assert self.everything(segmented) == [each for each in ALL if each.last_offset < end]
        again = [each for each in ALL if each.last_offset >= end]
        segmented.aborted.append(again)
        assert self.everything(segmented) == ALL

    @pytest.mark.parametrize("end", [0, 3, 4, 10, 19, 20, 30, 32, 33])
    def test_the_index_is_cut_with_its_log(self, segmented: LogStore, end: int) -> None:
        segmented.truncate_to(Offset(end))
        kept = [each for each in ALL if each.last_offset < end]
        assert self.everything(segmented) == kept
        fill(segmented, 38 - end, epoch=2)
        segmented.aborted.append([AbortedTransaction(9, 0, 37, 38)])
        assert self.everything(segmented) == [*kept, AbortedTransaction(9, 0, 37, 38)]

    @pytest.mark.parametrize("start", [9, 10, 19, 20, 29, 30, 38])
    def test_entries_go_with_their_segment(self, segmented: LogStore, start: int) -> None:
        segmented.advance_start(Offset(start))
        kept = [each for each in ALL if each.last_offset >= segmented.start_offset]
        assert self.everything(segmented) == kept
        assert segmented.aborted.agrees(Offset(38), COUNTS)
        assert list(segmented.aborted.counts(Offset(38))) == [each for each in COUNTS if each[0] >= segmented.start_offset]

    def test_a_reset_drops_all(self, segmented: LogStore) -> None:
        segmented.reset(at(20, 3))
        assert self.everything(segmented) == [] and list(segmented.aborted.counts(Offset(100))) == []
        fill(segmented, 15, epoch=3, size=10)
        segmented.aborted.append([LONG])
        assert self.everything(segmented) == [LONG] and list(segmented.aborted.counts(Offset(100))) == [(20, 1)]

    def test_what_was_synced_is_there_after_a_restart(self, directory: LogDirectory, segmented: LogStore) -> None:
        segmented.aborted.sync()
        self.flush(directory, segmented)
        again = self.restart(directory).open(GROUP)
        assert self.everything(again) == ALL and again.aborted.agrees(Offset(38), COUNTS)

    def test_what_was_cut_and_synced_again_is_there_after_a_restart(self, directory: LogDirectory, segmented: LogStore) -> None:
        segmented.aborted.sync()
        segmented.aborted.truncate_to(Offset(19))
        segmented.aborted.append([LONG])
        segmented.aborted.sync()
        self.flush(directory, segmented)
        again = self.restart(directory).open(GROUP)
        assert self.everything(again) == [FIRST, SECOND, LONG]
