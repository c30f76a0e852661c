"""A replica that fetches its log anew: who counts as one, and what is wrong with what it is given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compactkit import LogInTheMaking
from raftlake.raft.types import NodeId
from raftlake.sim.disk.log_image import StoredBatch, stored
from raftlake.sim.invariants.refetched import Refetched
from raftlake.wire.batches import decode_records
from raftlake.wire.compaction import empty_batch

ONE, TWO = NodeId(1), NodeId(2)
KEY = b"a"


def test_a_replica_fetches_anew_until_it_is_where_the_committed_log_ended() -> None:
    refetched = Refetched()
    refetched.lost(ONE, 5, 5)
    assert ONE not in refetched
    refetched.lost(ONE, 4, 5)
    refetched.lost(TWO, 0, 9)
    refetched.caught_up(ONE, 4)
    assert ONE in refetched
    refetched.caught_up(ONE, 5)
    refetched.caught_up(TWO, 8)
    assert (ONE in refetched, TWO in refetched) == (False, True)
    refetched.caught_up(ONE, 100)
    refetched.caught_up(TWO, 9)
    assert TWO not in refetched


def test_who_loses_its_log_twice_is_judged_by_the_second_loss() -> None:
    refetched = Refetched()
    refetched.lost(ONE, 0, 5)
    refetched.lost(ONE, 2, 7)
    refetched.caught_up(ONE, 6)
    assert ONE in refetched
    refetched.caught_up(ONE, 7)
    assert ONE not in refetched


def test_who_begins_with_nothing_has_lost_nothing_and_is_judged_until_it_has_what_was_committed() -> None:
    refetched = Refetched()
    refetched.begins(ONE, 5)
    refetched.begins(ONE, 9)
    refetched.lost(TWO, 0, 5)
    assert (ONE in refetched, TWO in refetched) == (True, True)
    assert (refetched.has_lost(ONE), refetched.has_lost(TWO)) == (False, True)
    refetched.caught_up(TWO, 5)
    refetched.caught_up(ONE, 4)
    assert (ONE in refetched, refetched.has_lost(TWO)) == (True, False)
    refetched.caught_up(ONE, 5)
    assert ONE not in refetched


def test_who_loses_what_it_began_with_is_judged_by_the_loss() -> None:
    refetched = Refetched()
    refetched.begins(ONE, 5)
    refetched.lost(ONE, 2, 7)
    refetched.begins(ONE, 6)
    refetched.caught_up(ONE, 6)
    assert ONE in refetched and refetched.has_lost(ONE)


def fault(
    refetched: Refetched, data: bytes, *, older: dict[bytes, int] | None = None, last: int = 2, held: int | None = None
) -> str | None:
    batch = stored(data)
    before: Sequence[StoredBatch] = ()
    records = list(decode_records(data, include_control=True))
    return refetched.fault_of(before, batch, records, lambda *_: older or {}, lambda _: last, lambda *_: held)


@pytest.mark.parametrize(("begin", "end", "is_wrong"), [(0, 2, False), (0, 3, True), (2, 3, True), (3, 4, False)])
def test_the_place_of_a_tombstone_is_not_passed_without_it(begin: int, end: int, is_wrong: bool) -> None:
    refetched = Refetched()
    refetched.tombstones[2] = KEY
    found = fault(refetched, empty_batch(begin, end, 1), older={KEY: 0})
    assert (found is not None) is is_wrong
    assert found is None or found == "has the key b'a' at 0 and is not told of its tombstone at 2"


def test_a_tombstone_is_missed_by_nobody_who_is_told_of_it_or_has_no_older_value_or_a_newer_one() -> None:
    refetched = Refetched()
    refetched.tombstones[0] = KEY
    made = LogInTheMaking()
    made.data(("a", None))
    assert fault(refetched, made.batches[0], older={KEY: 0}) is None
    passed = empty_batch(0, 1, 1)
    assert fault(refetched, passed, older={b"b": 0}, last=0) is None
    assert fault(refetched, passed, older={KEY: 0}, last=1) is None
    assert fault(refetched, passed, older={KEY: 0}, last=0) is not None


def test_the_place_of_a_marker_is_not_passed_without_it() -> None:
    refetched = Refetched()
    refetched.markers.add(3)
    assert fault(refetched, empty_batch(0, 3, 1), held=1) is None
    assert fault(refetched, empty_batch(2, 4, 1), held=None) is None
    found = fault(refetched, empty_batch(2, 4, 1), held=1)
    assert found == "has a batch at 1 of a transaction, and is not told of its marker at 3"
    assert fault(Refetched(), empty_batch(2, 4, 1), held=1) is None
