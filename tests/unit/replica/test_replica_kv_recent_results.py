"""The results of the commands applied last: which are kept."""

from __future__ import annotations

from raftlake.kv.machine import TxnResult
from raftlake.replica.kv.recent_results import RecentResults


def result(offset: int) -> TxnResult:
    if offset % 3 == 0:
        return TxnResult(succeeded=True, offset=offset, ignored=(("k", "why"),) if offset % 2 else ())
    return TxnResult(succeeded=False, offset=offset, current=(("k", 7),) if offset % 3 == 1 else ())


def test_the_last_ones_are_there_and_the_oldest_are_gone() -> None:
    results = RecentResults(kept_min=4)
    for offset in range(100, 200):
        results.note(result(offset))
        assert 4 <= len(results) <= 8 or offset < 104
        assert all(results.get(earlier) == result(earlier) for earlier in range(max(offset - 3, 100), offset + 1))
    assert results.get(191) is None and results.get(200) is None


def test_offsets_may_be_missing() -> None:
    results = RecentResults(kept_min=2)
    for offset in (3, 7, 8):
        results.note(result(offset))
    assert [results.get(offset) is not None for offset in (3, 4, 7, 8)] == [True, False, True, True]


def test_an_end_of_a_transaction_that_was_refused_is_no_success() -> None:
    results = RecentResults(kept_min=2)
    refused = TxnResult(succeeded=False, offset=3, refused=((7, "why"),))
    results.note(refused)
    assert results.get(3) == refused
