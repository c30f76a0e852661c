"""Recent appends in memory: contiguous, of one epoch, within their bound; anything else is left to the log."""

from __future__ import annotations

from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.replication.recent_appends import RecentAppends

GROUP, OTHER = GroupId("t", 0), GroupId("t", 1)


def filled() -> RecentAppends:
    recent = RecentAppends(bytes_max=100)
    recent.add(GROUP, 5, 7, 3, [b"aa", memoryview(b"bbb")])
    recent.add(GROUP, 7, 8, 3, [bytearray(b"cc")])
    return recent


def test_what_follows_one_another_is_one_answer() -> None:
    recent = filled()
    assert recent.find(GROUP, 5, 3, 1000) == b"aabbbcc"
    assert recent.find(GROUP, 7, 3, 1000) == b"cc"


def test_only_whole_appends_that_fit_are_given() -> None:
    recent = filled()
    assert recent.find(GROUP, 5, 3, 6) == b"aabbb"
    assert recent.find(GROUP, 5, 3, 4) is None, "the log can give a part of it"


def test_another_group_offset_or_epoch_is_not_here() -> None:
    recent = filled()
    assert recent.find(OTHER, 5, 3, 1000) is None
    assert recent.find(GROUP, 6, 3, 1000) is None
    assert recent.find(GROUP, 8, 3, 1000) is None
    assert recent.find(GROUP, 5, 4, 1000) is None


def test_an_append_of_a_later_epoch_replaces_what_stood_there() -> None:
    recent = filled()
    recent.add(GROUP, 7, 9, 4, [b"new"])
    assert recent.find(GROUP, 5, 3, 1000) == b"aabbb"
    assert recent.find(GROUP, 7, 4, 1000) == b"new"


def test_the_oldest_goes_when_there_is_too_much() -> None:
    recent = filled()
    recent.add(OTHER, 0, 1, 3, [bytes(95)])
    assert recent.find(GROUP, 5, 3, 1000) is None
    assert recent.find(GROUP, 7, 3, 1000) == b"cc"
    recent.add(OTHER, 1, 2, 3, [bytes(101)])
    assert [recent.find(GROUP, 7, 3, 1000), recent.find(OTHER, 0, 3, 1000), recent.find(OTHER, 1, 3, 1000)] == [None] * 3
