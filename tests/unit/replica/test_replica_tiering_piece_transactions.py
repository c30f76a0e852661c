"""What a piece of the remote tier says of transactions, found by bisection."""

from __future__ import annotations

import pytest

from raftlake.errors import CorruptBatch
from raftlake.replica.tiering.piece_transactions import Ended, PieceTransactions
from raftlake.wire.batches import EndMarker, Record, build_batch, end_marker_batch, iterate_headers
from txnkit import records


def at(offset: int, data: bytearray) -> bytes:
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    said = EndMarker(producer_id=producer_id, epoch=0, commit=commit, coordinator_epoch=0)
    return bytes(end_marker_batch(said, 1, base_offset=offset))


def data_of(offset: int, producer_id: int, count: int = 1) -> bytes:
    return at(offset, records(*[b"x"] * count, sequence=0, producer_id=producer_id))


def piece(*batches: bytes) -> PieceTransactions:
    data = b"".join(batches)
    return PieceTransactions(data, iterate_headers(data))


def test_batches_and_their_ends_are_found_by_offset() -> None:
    found = piece(
        data_of(10, 1, count=3),
        data_of(13, 2),
        at(14, build_batch([Record(value=b"plain")], timestamp_ms=1)),
        marker(15, 1, commit=False),
        data_of(16, 1),
        marker(17, 2, commit=True),
        marker(18, 1, commit=True),
    )
    assert list(found.between(0, 100)) == [(10, 1), (13, 2), (16, 1)]
    assert list(found.between(11, 16)) == [(13, 2)]
    assert list(found.between(10, 13)) == [(10, 1)]
    assert found.end_of(1, 10) == Ended(15, is_aborted=True)
    assert found.end_of(1, 15) == Ended(15, is_aborted=True)
    assert found.end_of(1, 16) == Ended(18, is_aborted=False)
    assert found.end_of(2, 13) == Ended(17, is_aborted=False)
    assert (found.end_of(1, 19), found.end_of(3, 0)) == (None, None)


def test_control_batches_of_raft_say_nothing_of_transactions() -> None:
    control = at(5, build_batch([Record(key=b"\0\0\0\2", value=b"")], timestamp_ms=1, control=True))
    empty = bytearray(records(b"x", sequence=0))
    empty[57:61] = (0).to_bytes(4, "big")
    assert list(piece(control, at(6, empty[:61])).between(0, 100)) == []


def test_a_marker_that_cannot_be_read_is_damage() -> None:
    broken = build_batch([Record(key=b"\0")], timestamp_ms=1, producer_id=1, producer_epoch=0, control=True, transactional=True)
    with pytest.raises(CorruptBatch):
        piece(bytes(broken))
