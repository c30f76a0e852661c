"""What the quorum's keys say of the tier: there and back, each wrong value refused, and how one step follows another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.tier.entries import (
    EPOCHS_MAX,
    Copying,
    Tiered,
    decode_segment,
    decode_tiered,
    encode_segment,
    encode_tiered,
    segment_to_json,
)

COPYING = Copying(segment_id="s", base_offset=Offset(7), end_offset=Offset(9), leader_epoch=Epoch(4), node_id=NodeId(2))
TIERED = Tiered(start_offset=Offset(3), end_offset=Offset(7), segments=2, size=500, incarnation=1)
SEGMENT = RemoteSegment(
    segment_id="s",
    base_offset=Offset(7),
    end_offset=Offset(12),
    leader_epoch=Epoch(4),
    epochs=((Epoch(2), Offset(7)), (Epoch(4), Offset(11))),
    timestamp_ms_max=1_700_000_000_000,
    log_bytes=1000,
    size=300,
    crc=2**32 - 1,
    file="partition=0/s.parquet",
)


@pytest.mark.parametrize(
    "tiered", [TIERED, replace(TIERED, copying=COPYING), Tiered(start_offset=Offset(0), end_offset=Offset(0))]
)
def test_how_far_a_partition_is_copied_there_and_back(tiered: Tiered) -> None:
    assert decode_tiered(encode_tiered(tiered)) == tiered


@pytest.mark.parametrize("segment", [SEGMENT, replace(SEGMENT, timestamp_ms_max=-1)])
def test_a_copy_there_and_back(segment: RemoteSegment) -> None:
    assert decode_segment(encode_segment(segment)) == segment


def tiered_fields(**changes: object) -> bytes:
    fields = json.loads(encode_tiered(replace(TIERED, copying=COPYING)))
    for name, value in changes.items():
        holder = fields["copying"] if name.startswith("copying_") else fields
        holder[name.removeprefix("copying_")] = value
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"startOffset": -1},
        {"endOffset": 2},
        {"endOffset": 8},
        {"endOffset": 2**63},
        {"segments": "2"},
        {"size": -5},
        {"incarnation": 2**31},
        {"copying": []},
        {"copying": None},
        {"copying_baseOffset": 6},
        {"copying_baseOffset": 8},
        {"copying_endOffset": 7},
        {"copying_leaderEpoch": True},
        {"copying_segmentId": "a\n"},
        {"copying_nodeId": 2**31},
    ],
)
def test_what_cannot_be_so_is_refused(changes: dict[str, object]) -> None:
    assert isinstance(decode_tiered(tiered_fields()), Tiered)
    assert isinstance(decode_tiered(tiered_fields(**changes)), Refused)


@pytest.mark.parametrize(
    "changes",
    [
        {"endOffset": 7},
        {"endOffset": 11},
        {"epochs": []},
        {"epochs": [[2, 6]]},
        {"epochs": [[2, 8]]},
        {"epochs": [[2, 7], [2, 9]]},
        {"epochs": [[4, 7], [2, 9]]},
        {"epochs": [[2, 7], [4, 7]]},
        {"epochs": [[2, 7], [4, 12]]},
        {"epochs": [[2, 7, 1]]},
        {"epochs": [7]},
        {"epochs": [[epoch, 7 + epoch] for epoch in range(EPOCHS_MAX + 1)]},
        {"crc": 2**32},
        {"maxTimestampMs": -1},
        {"file": 5},
        {"size": None},
    ],
)
def test_a_copy_that_cannot_be_so_is_refused(changes: dict[str, object]) -> None:
    assert isinstance(decode_segment(json.dumps(segment_to_json(SEGMENT)).encode()), RemoteSegment)
    assert isinstance(decode_segment(json.dumps({**segment_to_json(SEGMENT), **changes}).encode()), Refused)


@pytest.mark.parametrize("value", [b"", b"[]", b"\xff", b"{}", b"null"])
def test_garbage_is_refused(value: bytes) -> None:
    assert isinstance(decode_tiered(value), Refused) and isinstance(decode_segment(value), Refused)


def test_a_copy_is_started_at_the_end_and_in_place_of_another() -> None:
    started = TIERED.start(COPYING)
    assert started == replace(TIERED, copying=COPYING)
    assert started.start(replace(COPYING, segment_id="t")).copying == replace(COPYING, segment_id="t")
    for wrong in (replace(COPYING, base_offset=Offset(6)), replace(COPYING, end_offset=Offset(7))):
        with pytest.raises(ValueError, match="behind 7"):
            TIERED.start(wrong)


def test_a_copy_is_finished_where_the_others_end_whoever_made_it() -> None:
    finished = TIERED.start(COPYING).finish(SEGMENT)
    assert finished == replace(TIERED, end_offset=Offset(12), segments=3, size=800)
    for wrong in (replace(SEGMENT, base_offset=Offset(6)), replace(SEGMENT, end_offset=Offset(7))):
        with pytest.raises(ValueError, match="behind 7"):
            TIERED.finish(wrong)
