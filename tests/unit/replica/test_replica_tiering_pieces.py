"""The cache of pieces alone: which piece goes for another one."""

from __future__ import annotations

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage
from raftlake.replica.tiering import pieces
from raftlake.replica.tiering.pieces import KEPT_MS, Piece, Pieces
from raftlake.wire.batches import Record, build_batch, iterate_headers

GROUP = GroupId("orders", 0, b"o" * 16)
OTHER = GroupId("orders", 1, b"o" * 16)


def piece(*bases: int, group: GroupId = GROUP, records: int = 2, size: int = 100) -> Piece:
    """Batches of two records each."""
    built = [
        build_batch(
            [Record(offset=n, value=bytes(size)) for n in range(records)], base_offset=base, leader_epoch=1, timestamp_ms=1
        )
        for base in bases
    ]
    data = b"".join(bytes(each) for each in built)
    return Piece(Lineage(group, 0), data, iterate_headers(data))


def bases(data: bytes) -> list[int]:
    return [header.base_offset for header in iterate_headers(data)]


def test_a_cut_is_of_whole_batches_from_the_one_that_holds_the_offset() -> None:
    whole = piece(10, 12, 14)
    one = len(whole.data) // 3
    assert (whole.base_offset, whole.end_offset) == (10, 16)
    assert bases(whole.cut(13, 16, 10 * one)) == [12, 14]
    assert bases(whole.cut(13, 15, 10 * one)) == [12], "a batch that ends above the limit is left out"
    assert whole.cut(14, 15, 10 * one) == b"" and whole.cut(16, 20, 10 * one) == b""
    assert bases(whole.cut(10, 16, 2 * one)) == [10, 12]
    assert bases(whole.cut(10, 16, 2 * one - 1)) == [10]
    assert bases(whole.cut(10, 16, 0)) == [10]
    assert whole.cut(10, 16, 3 * one) == whole.data


def test_a_piece_is_awaited_until_it_is_read_or_forgotten() -> None:
    whole = piece(10, 12)
    whole.used_at_ms = 1_000
    assert whole.is_awaited(1_000 + KEPT_MS - 1) and not whole.is_awaited(1_000 + KEPT_MS)
    whole.cut(10, 14, 1)
    assert whole.is_awaited(1_000)
    whole.cut(12, 14, 1)
    assert not whole.is_awaited(1_000)
    whole.cut(10, 14, 1)
    assert not whole.is_awaited(1_000), "read again from its begin"


def test_those_that_are_not_awaited_go_first_and_the_others_by_their_last_use() -> None:
    first, second, third, fourth = piece(0), piece(2), piece(4), piece(6)
    cache = Pieces(2 * len(first.data))
    cache.add(first, 0)
    cache.add(second, 1)
    second.cut(2, 4, 1)
    cache.add(third, 2)
    lineage = first.lineage
    assert [cache.find(lineage, offset) for offset in (1, 2, 5)] == [first, None, third], "the second was read"
    cache.use(first, 3)
    cache.add(fourth, 4)
    assert [cache.find(lineage, offset) for offset in (0, 4, 6)] == [first, None, fourth], "the third was used before the first"
    assert cache.size == 2 * len(first.data) and len(cache) == 2
    assert cache.awaited_bytes(4) == cache.size and cache.awaited_bytes(KEPT_MS + 3) == len(fourth.data)


def test_a_piece_that_is_larger_than_the_cache_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = piece(0), piece(2, size=1_000)
    cache = Pieces(len(small.data))
    cache.add(small, 0)
    cache.add(large, 0)
    assert cache.find(small.lineage, 0) is None and cache.find(small.lineage, 2) is large
    monkeypatch.setattr(pieces, "PIECES_MAX", 2)
    cache = Pieces(1 << 30)
    for base in (0, 2, 4):
        cache.add(piece(base), 0)
    assert len(cache) == 2 and cache.find(small.lineage, 0) is None


def test_the_pieces_of_one_group_are_dropped() -> None:
    cache = Pieces(1 << 20)
    mine, other = piece(0), piece(0, group=OTHER)
    cache.add(mine, 0)
    cache.add(piece(2), 0)
    cache.add(other, 0)
    cache.drop(GROUP)
    cache.drop(GROUP)
    assert cache.find(mine.lineage, 0) is None and cache.find(other.lineage, 1) is other
    assert (len(cache), cache.size) == (1, len(other.data))
