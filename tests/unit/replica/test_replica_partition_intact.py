"""Bytes of a log that are not what was written are told by CRC, by the chain of offsets and by the epoch history; records that
compaction has removed by what each header counts."""

from __future__ import annotations

import pytest

from contract.batches import data_of, make_batch
from raftlake.errors import DamagedData, UnfitBeginning
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.partition.intact import headers_from, require_all_records, require_intact
from raftlake.wire.batches import iterate_headers
from raftlake.wire.compaction import empty_batch

BATCHES = [make_batch(0, count=3), make_batch(3, count=2), make_batch(5, epoch=4)]
EPOCHS = [(Epoch(1), Offset(0)), (Epoch(4), Offset(5))]


def test_what_was_written_passes_from_any_offset() -> None:
    for start, first in ((0, 0), (2, 0), (3, 1), (4, 1), (5, 2)):
        require_intact("orders-0", data_of(BATCHES[first:]), start, EPOCHS, check_crc=True)
    require_intact("orders-0", b"", 0, EPOCHS, check_crc=True)
    require_intact("orders-0", data_of(BATCHES[2:]), 5, [], check_crc=True)


def test_no_bit_flips_unseen() -> None:
    """The second of three batches, each of its bytes in turn."""
    before, whole = len(BATCHES[0][0]), data_of(BATCHES)
    for byte in range(before, before + len(BATCHES[1][0])):
        damaged = whole[:byte] + bytes([whole[byte] ^ 0x10]) + whole[byte + 1 :]
        with pytest.raises(DamagedData, match=r"orders-0: damaged at offset 3") as found:
            require_intact("orders-0", damaged, 1, EPOCHS, check_crc=True)
        assert found.value.offset == 3


def test_without_crc_only_records_are_left_to_the_reader() -> None:
    whole = data_of(BATCHES)
    require_intact("orders-0", whole[:80] + b"\xff" + whole[81:], 0, EPOCHS, check_crc=False)
    for byte in (5, 14):
        damaged = whole[:byte] + bytes([whole[byte] ^ 0x10]) + whole[byte + 1 :]
        with pytest.raises(DamagedData, match=r"damaged at offset 0"):
            require_intact("orders-0", damaged, 0, EPOCHS, check_crc=False)


def test_a_header_that_its_crc_contradicts_is_not_given() -> None:
    """The last of three batches, each byte that its CRC covers, and the CRC itself. What stands before it is given."""
    before, whole = len(data_of(BATCHES[:2])), data_of(BATCHES)
    for byte in range(before + 17, len(whole)):
        damaged = whole[:byte] + bytes([whole[byte] ^ 0x10]) + whole[byte + 1 :]
        headers = headers_from("orders-0", damaged, 0)
        assert [next(headers).base_offset, next(headers).base_offset] == [0, 3]
        with pytest.raises(DamagedData, match=r"orders-0: damaged at offset 5") as found:
            next(headers)
        assert found.value.offset == 5


def test_batches_with_all_of_their_records_complete_a_log() -> None:
    require_all_records("orders-0", iterate_headers(data_of(BATCHES)))
    require_all_records("orders-0", [])


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_batches_that_lack_a_record_do_not(kept: int) -> None:
    """The second of three."""
    first, _, last = iterate_headers(data_of(BATCHES))
    (lacking,) = iterate_headers(empty_batch(3, 6, 1))
    with pytest.raises(UnfitBeginning, match=r"orders-0: .* removed records from 3 on") as unfit:
        require_all_records("orders-0", [first, lacking._replace(record_count=kept), last])
    assert unfit.value.offset == 3
