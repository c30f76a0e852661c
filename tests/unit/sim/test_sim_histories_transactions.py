"""Transactions over several partitions: what the judge of their histories takes for a broken promise."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from raftlake.sim.histories.transactions import (
    ABORT_HOLDS,
    ALL_OR_NOTHING,
    COMMIT_HOLDS,
    COMMITTED_ALL,
    COMMITTED_ONLY,
    ENDS,
    RAISED,
    RETIRED,
    RetiredEpochs,
    Shown,
    Standing,
    Transaction,
    check_ended,
    check_shown,
    check_transactions,
    standing,
)
from raftlake.sim.invariants import Violation
from raftlake.wire.batches import Record, build_batch

ABORT, COMMIT = 0, 1


class Log:
    """Batches one after the other."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self._end = 0

    def append(self, *values: bytes, producer: int = -1, epoch: int = 0) -> Log:
        records = [Record(value=value) for value in values]
        more = (
            {"producer_id": producer, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
            if producer >= 0
            else {}
        )
        return self._put(build_batch(records, base_offset=self._end, leader_epoch=1, timestamp_ms=1, **more), len(values))

    def mark(self, producer: int, kind: int, *, epoch: int = 0) -> Log:
        record = Record(key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 3))
        more = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": -1, "transactional": True, "control": True}
        return self._put(build_batch([record], base_offset=self._end, leader_epoch=1, timestamp_ms=1, **more), 1)

    def _put(self, batch: bytearray, count: int) -> Log:
        self.batches.append(bytes(batch))
        self._end += count
        return self

    def standing(self) -> Standing:
        return standing(self.batches)


def transaction(name: str, *, asked: bool = True, outcome: bool | None = None, **values: Sequence[bytes]) -> Transaction:
    """`values`: acknowledged ones by partition, p0=..."""
    acknowledged = {int(index[1:]): list(each) for index, each in values.items()}
    sent = [value for each in acknowledged.values() for value in each]
    return Transaction(name, acknowledged, sent, commit_was_asked=asked, outcome=outcome)


def test_markers_decide_what_is_visible() -> None:
    log = Log().append(b"plain").append(b"a", b"b", producer=7).append(b"c", producer=8).append(b"d", producer=7)
    assert log.standing() == Standing({0: b"plain"}, {7: (b"a", b"b", b"d"), 8: (b"c",)})
    log.mark(7, COMMIT).append(b"e", producer=7).mark(8, ABORT)
    assert log.standing() == Standing({0: b"plain", 1: b"a", 2: b"b", 4: b"d"}, {7: (b"e",)})
    log.mark(7, ABORT).mark(9, COMMIT)
    assert log.standing() == Standing({0: b"plain", 1: b"a", 2: b"b", 4: b"d"}, {})


def test_records_without_a_marker_before_the_next_epoch_are_told() -> None:
    """Simulator, seed 840003614: all records of an open transaction were deleted, and replicas that had known it began anew."""
    log = Log().append(b"a", producer=7).append(b"b", producer=8).mark(8, COMMIT).append(b"c", producer=8, epoch=1)
    assert log.standing().unmarked == {}
    log.append(b"d", producer=7, epoch=1).append(b"e", producer=7, epoch=1).mark(7, ABORT, epoch=1)
    assert log.standing().unmarked == {0: b"a"}
    assert log.standing().visible == {1: b"b"}
    found = [transaction("deleted", outcome=True, p0=[b"a"]), transaction("other", outcome=True, p0=[b"b"])]
    check_transactions(found, {0: log.standing()}, {b"a"})
    with pytest.raises(Violation):
        check_transactions(found, {0: log.standing()})


def test_a_batch_behind_the_marker_that_raised_its_epoch_is_found() -> None:
    """As KIP-890 part 2 has it; below version 2 the epoch stays, and nothing tells such a batch from the next transaction's."""
    log = Log().append(b"a", producer=7).append(b"b", producer=8).mark(7, COMMIT, epoch=1).mark(8, COMMIT)
    log.append(b"c", producer=8).append(b"d", producer=7, epoch=1).mark(7, COMMIT, epoch=2)
    assert log.standing() == Standing({0: b"a", 1: b"b", 5: b"d"}, {8: (b"c",)})
    with pytest.raises(Violation, match=f"{RAISED}: offset 7: producer 7 epoch 1, after 2"):
        log.append(b"late", producer=7, epoch=1).standing()


def judge(found: Transaction, *logs: Log) -> str:
    partitions = {index: log.standing() for index, log in enumerate(logs)}
    try:
        check_transactions([transaction("other", outcome=None), found], partitions)
    except Violation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize("outcome", [True, None])
def test_a_whole_transaction_is_well(outcome: bool | None) -> None:
    logs = Log().append(b"a", producer=7).mark(7, COMMIT), Log().append(b"b", b"c", producer=7).mark(7, COMMIT)
    assert judge(transaction("t", outcome=outcome, p0=[b"a"], p1=[b"b", b"c"]), *logs) == ""


def test_half_a_transaction_is_found() -> None:
    logs = Log().append(b"a", producer=7).mark(7, COMMIT), Log().append(b"b", producer=7).mark(7, ABORT)
    assert ALL_OR_NOTHING in judge(transaction("t", p0=[b"a"], p1=[b"b"]), *logs)
    assert COMMIT_HOLDS in judge(transaction("t", outcome=True, p0=[b"a"], p1=[b"b"]), *logs)


def test_a_commit_that_left_nothing_is_found() -> None:
    log = Log().append(b"a", producer=7).mark(7, ABORT)
    assert COMMIT_HOLDS in judge(transaction("t", outcome=True, p0=[b"a"]), log)
    assert judge(transaction("t", outcome=None, p0=[b"a"]), log) == ""
    assert judge(transaction("t", outcome=False, p0=[b"a"]), log) == ""


def test_a_commit_that_nobody_asked_for_is_found() -> None:
    log = Log().append(b"a", producer=7).mark(7, COMMIT)
    assert ABORT_HOLDS in judge(transaction("t", asked=False, p0=[b"a"]), log)
    assert ABORT_HOLDS in judge(transaction("t", outcome=False, p0=[b"a"]), log)


def test_a_batch_that_was_not_acknowledged_counts_where_it_is_visible() -> None:
    sent = Transaction("t", {0: [b"a"]}, [b"a", b"unknown"], commit_was_asked=False)
    log = Log().append(b"unknown", producer=7).mark(7, COMMIT)
    assert ABORT_HOLDS in judge(sent, log)
    sent.commit_was_asked = True
    assert ALL_OR_NOTHING in judge(sent, log)


def shown_of(start: int, position: int, *records: tuple[int, bytes]) -> Shown:
    return Shown(start, position, list(records))


def test_what_a_reader_was_shown() -> None:
    final = Log().append(b"p").append(b"a", producer=7).append(b"b", producer=8).mark(7, COMMIT).mark(8, ABORT).standing()
    check_shown(0, "r", shown_of(0, 5, (0, b"p"), (1, b"a")), final)
    check_shown(0, "r", shown_of(1, 5, (1, b"a")), final)
    check_shown(0, "r", shown_of(0, 1, (0, b"p")), final)
    with pytest.raises(Violation, match=COMMITTED_ONLY):
        check_shown(0, "r", shown_of(0, 5, (0, b"p"), (1, b"a"), (2, b"b")), final)
    with pytest.raises(Violation, match=COMMITTED_ALL):
        check_shown(0, "r", shown_of(0, 2, (0, b"p")), final)
    with pytest.raises(Violation, match=COMMITTED_ALL):
        check_shown(0, "r", shown_of(0, 5, (1, b"a"), (0, b"p")), final)


def test_a_transaction_that_stays_open_is_found() -> None:
    log = Log().append(b"a", producer=7)
    with pytest.raises(Violation, match=ENDS):
        check_ended(0, log.standing())
    check_ended(0, log.mark(7, ABORT).standing())


def test_a_retired_epoch_that_is_in_use_again_is_found() -> None:
    ongoing, ended = b'{"producer_id":7,"epoch":3,"state":"Ongoing"}', b'{"producer_id":7,"epoch":3,"state":"PrepareCommit"}'
    retired = RetiredEpochs()
    retired.stands(ongoing, 1)
    retired.ended(7, 3, 2)
    retired.ended(7, 3, 5)
    for value in (ended, b"", ongoing.replace(b"3", b"4"), ongoing.replace(b"7", b"8")):
        retired.stands(value, 6)
    with pytest.raises(Violation, match=RETIRED) as caught:
        retired.stands(ongoing, 7)
    assert "ended that epoch at 2" in str(caught.value)
