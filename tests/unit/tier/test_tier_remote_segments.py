"""The facts of a copy as JSON, and the file of auxiliary bytes: what comes back, and what is not taken for it."""

from __future__ import annotations

import json

import pytest

from contract.tier_contract import LINEAGE
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.remote_segments import footer_json, from_json, pack_auxiliary, to_json, unpack_auxiliary

SEGMENT = RemoteSegment(
    segment_id="s-1",
    base_offset=Offset(7),
    end_offset=Offset(1 << 60),
    leader_epoch=Epoch(9),
    epochs=((Epoch(3), Offset(7)), (Epoch(9), Offset(50))),
    timestamp_ms_max=-1,
    log_bytes=1 << 31,
    size=12,
    crc=0xFFFFFFFF,
    file="partition=2/s-1.parquet",
)


def test_all_facts_come_back() -> None:
    named = from_json(to_json(LINEAGE, SEGMENT))
    assert named is not None and named.segment == SEGMENT and named.belongs_to(LINEAGE)
    other = from_json(footer_json(LINEAGE, SEGMENT), size=1, crc=2, file="f")
    assert other is not None and (other.segment.size, other.segment.crc, other.segment.file) == (1, 2, "f")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "{", footer_json(LINEAGE, SEGMENT)]
    + [
        json.dumps(json.loads(to_json(LINEAGE, SEGMENT)) | change)
        for change in ({"epochs": 3}, {"epochs": [1]}, {"size": "x"}, {"partition": None})
    ],
)
def test_what_is_no_segment_is_none(text: str) -> None:
    assert from_json(text) is None


@pytest.mark.parametrize("auxiliary", [b"", b"x", bytes(100_000)], ids=len)
def test_auxiliary_bytes_come_back(auxiliary: bytes) -> None:
    data = pack_auxiliary(LINEAGE, SEGMENT, auxiliary)
    unpacked = unpack_auxiliary(data)
    assert unpacked is not None
    assert (unpacked[0].segment, unpacked[1]) == (SEGMENT, auxiliary)
    for position in (0, 3, 4, 7, 8, len(data) // 2, len(data) - 1):
        broken = bytearray(data)
        broken[position] ^= 0x10
        assert unpack_auxiliary(bytes(broken)) is None
    for length in (0, 3, 7, 8, len(data) - 1):
        assert unpack_auxiliary(data[:length]) is None
