"""The epoch history against a list that holds the epoch of every single record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raftkit.replica import position
from raftlake.errors import InvariantViolation
from raftlake.raft.epochs import EpochHistory
from raftlake.raft.types import Epoch, Offset


def history(*entries: tuple[int, int], start: int = 0, end: int) -> EpochHistory:
    return EpochHistory([(Epoch(epoch), Offset(first)) for epoch, first in entries], Offset(start), Offset(end))


class EpochHistoryModel(RuleBasedStateMachine):
    """`records[i]` is the epoch of the record at offset `start + i`; `before` the epoch of the one before the start."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.before, self.records = 0, 0, list[int]()
        self.history = EpochHistory([], Offset(0), Offset(0))

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def last(self) -> int:
        return self.records[-1] if self.records else self.before

    @rule(bump=st.integers(0, 3), count=st.integers(1, 4))
    def append(self, bump: int, count: int) -> None:
        epoch = max(self.last + bump, 1)
        self.history.assign(Epoch(epoch), Offset(self.end))
        self.records += [epoch] * count

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.start, self.end))
        self.history.truncate_to(Offset(end))
        del self.records[end - self.start :]

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end))
        self.before = self.before if start == self.start else self.records[start - self.start - 1]
        self.history.advance_start(Offset(start))
        self.records = self.records[start - self.start :]
        self.start = start

    @rule(ahead=st.integers(0, 5), bump=st.integers(0, 3))
    def reset(self, ahead: int, bump: int) -> None:
        self.start, self.before, self.records = self.end + ahead, self.last + bump, []
        self.history.reset(position(self.start, self.before))

    @invariant()
    def answers_are_those_of_the_records(self) -> None:
        assert self.history.last_epoch == self.last
        for offset in range(self.start, self.end + 1):
            expected = self.before if offset == self.start else self.records[offset - self.start - 1]
            assert self.history.epoch_before(Offset(offset)) == expected
            assert self.history.contains(position(offset, expected), Offset(self.end))
            assert not self.history.contains(position(offset, expected + 1), Offset(self.end))
        for epoch in range(self.last + 2):
            below = [index for index, record in enumerate(self.records) if record <= epoch]
            end = self.history.floor_end(Epoch(epoch), Offset(self.end))
            if below:
                assert end == position(self.start + below[-1] + 1, self.records[below[-1]])
            else:
                assert end == position(self.start, min(epoch, self.before))
            if self.records:
                assert self.history.has_epoch(Epoch(epoch)) == (epoch in self.records)


EpochHistoryModel.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestEpochHistoryModel = EpochHistoryModel.TestCase


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=6), st.data())
def test_a_history_read_back_from_its_entries_is_the_same(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    first = EpochHistory([], Offset(0), Offset(0))
    epoch = end = 0
    for bump, count in runs:
        epoch = max(epoch + bump, 1)
        first.assign(Epoch(epoch), Offset(end))
        end += count
    start = data.draw(st.integers(0, end - 1))
    first.advance_start(Offset(start))
    second = EpochHistory(first.entries(), Offset(start), Offset(end))
    assert second.entries() == first.entries()
    assert (second.last_epoch, second.last_start) == (first.last_epoch, first.last_start)


def test_epochs_that_start_at_the_log_end_are_forgotten() -> None:
    """KAFKA-10706: empty elections leave entries without records; kept, they would make a follower diverge for ever."""
    log = history((1, 0), (3, 4), (5, 4), end=4)
    assert log.entries() == ((1, 0),)
    assert log.last_epoch == 1


def test_a_truncation_to_the_log_end_keeps_what_has_records() -> None:
    log = history((1, 0), (3, 4), end=7)
    log.truncate_to(Offset(7))
    assert log.entries() == ((1, 0), (3, 4))
    log.truncate_to(Offset(4))
    assert log.entries() == ((1, 0),)


def test_an_empty_log_that_begins_later_remembers_the_epoch_before() -> None:
    """KAFKA-10761: after a reset the last fetched epoch is that of the position the log begins at."""
    log = history((1, 0), end=3)
    log.reset(position(10, 4))
    assert (log.last_epoch, log.epoch_before(Offset(10))) == (4, 4)
    reopened = history((4, 10), start=10, end=10)
    assert (reopened.last_epoch, reopened.epoch_before(Offset(10))) == (4, 4)


def test_an_empty_log_at_zero_has_epoch_zero_whatever_the_checkpoint_says() -> None:
    assert history((3, 0), end=0).last_epoch == 0


@pytest.mark.parametrize(("epoch", "start"), [(2, 9), (4, 5), (4, 4)])
def test_epochs_and_offsets_ascend(epoch: int, start: int) -> None:
    log = history((1, 0), (3, 5), end=9)
    with pytest.raises(InvariantViolation):
        log.assign(Epoch(epoch), Offset(start))
