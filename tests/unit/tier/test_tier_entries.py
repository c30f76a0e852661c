"""What the quorum's keys say of the tier: there and back, each wrong value refused, and how one step follows another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from raftlake.kv.strict_json import Refused
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.tier.entries import (
    EPOCHS_MAX,
    Copying,
    Deleting,
    Tiered,
    decode_segment,
    decode_tiered,
    encode_segment,
    encode_tiered,
    segment_to_json,
)

COPYING = Copying(segment_id="s", base_offset=Offset(7), end_offset=Offset(9), leader_epoch=Epoch(4), node_id=NodeId(2))
DELETING = Deleting(leader_epoch=Epoch(4), node_id=NodeId(2))
TIERED = Tiered(
    start_offset=Offset(3),
    end_offset=Offset(7),
    segments=2,
    size=500,
    log_bytes=900,
    epochs=((Epoch(1), Offset(3)), (Epoch(2), Offset(5))),
    incarnation=1,
)
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
    "tiered",
    [
        TIERED,
        replace(TIERED, copying=COPYING),
        replace(TIERED, deleting=DELETING),
        replace(TIERED, recovery="a-recovery"),
        replace(TIERED, topic="Flights_2.of-all"),
        replace(TIERED, checked_offset=Offset(5), is_held=True),
        Tiered(start_offset=Offset(0), end_offset=Offset(0)),
    ],
)
def test_how_far_a_partition_is_copied_there_and_back(tiered: Tiered) -> None:
    assert decode_tiered(encode_tiered(tiered)) == tiered


def test_a_table_that_others_have_changed_frees_no_local_disk() -> None:
    """But for what retention has ended."""
    checked = replace(TIERED, checked_offset=Offset(5))
    assert (checked.local_end, replace(checked, is_held=True).local_end) == (5, 3)
    assert "held" not in json.loads(encode_tiered(checked))


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
        {"checkedOffset": -1},
        {"checkedOffset": 8},
        {"topic": 5},
        {"topic": "a\n"},
        {"topic": "../a"},
        {"topic": "a/b"},
        {"topic": "a%2fb"},
        {"topic": "a?"},
        {"topic": "é"},
        {"segments": "2"},
        {"size": -5},
        {"incarnation": 2**31},
        {"held": 0},
        {"held": True},
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
    epochs = ((Epoch(1), Offset(3)), (Epoch(2), Offset(5)), (Epoch(4), Offset(11)))
    assert finished == replace(TIERED, end_offset=Offset(12), segments=3, size=800, log_bytes=1900, epochs=epochs)
    for wrong in (replace(SEGMENT, base_offset=Offset(6)), replace(SEGMENT, end_offset=Offset(7))):
        with pytest.raises(ValueError, match="behind 7"):
            TIERED.finish(wrong)


def test_an_epoch_that_begins_with_a_copy_is_new_and_of_many_epochs_the_last_stay() -> None:
    begins = replace(SEGMENT, epochs=((Epoch(3), Offset(7)), (Epoch(4), Offset(8))))
    assert TIERED.finish(begins).epochs == (*TIERED.epochs, *begins.epochs)
    known = tuple((Epoch(each), Offset(each)) for each in range(3, 3 + EPOCHS_MAX))
    tiered = replace(TIERED, end_offset=Offset(5000), epochs=known)
    copied = replace(SEGMENT, base_offset=Offset(5000), end_offset=Offset(5001), epochs=((Epoch(5000), Offset(5000)),))
    assert tiered.finish(copied).epochs == (*known[1:], *copied.epochs)
    assert decode_tiered(encode_tiered(tiered.finish(copied))) == tiered.finish(copied)


@pytest.mark.parametrize(
    ("until", "epochs"),
    [
        (4, ((1, 4), (2, 5))),
        (5, ((2, 5),)),
        (6, ((2, 6),)),
        (7, ((2, 7),)),
    ],
)
def test_deleting_begins_at_the_start_and_keeps_the_epochs_of_the_rest(until: int, epochs: tuple[tuple[int, int], ...]) -> None:
    begun = TIERED.start_deleting(Offset(until), DELETING)
    assert (begun.start_offset, begun.end_offset, begun.deleting, begun.epochs) == (until, 7, DELETING, epochs)
    assert (begun.segments, begun.size, begun.log_bytes) == (2, 500, 900), "the files are still there"
    assert decode_tiered(encode_tiered(begun)) == begun
    facts = LineageFacts(
        lineage=Lineage(GroupId("t", 0), 1),
        leader_epoch=Epoch(4),
        start_offset=Offset(until),
        end_offset=Offset(7),
        segments=1,
        size=200,
        log_bytes=300,
        epochs=begun.epochs,
        newest=(),
    )
    finished = replace(begun, segments=1, size=200, log_bytes=300, deleting=None)
    assert begun.finish_deleting(facts) == finished


@pytest.mark.parametrize("until", [2, 3, 8])
def test_what_is_not_there_is_not_deleted(until: int) -> None:
    with pytest.raises(ValueError, match=f"deleting below {until}"):
        TIERED.start_deleting(Offset(until), DELETING)


@pytest.mark.parametrize(
    "epochs", [[1, 2], [1, 3, 2, 7], [1, 3, 1, 4], [1, 3, 2, 3], [2, 3, 1, 4], [1], [1, 3, 5], [[1, 3]], ["1", 3], 7, None]
)
def test_epochs_that_cannot_be_are_refused(epochs: object) -> None:
    value = json.loads(encode_tiered(TIERED)) | {"epochs": epochs}
    assert isinstance(decode_tiered(json.dumps(value).encode()), Refused)


@pytest.mark.parametrize("deleting", [7, {}, {"leaderEpoch": -1, "nodeId": 2}, {"leaderEpoch": 1}, {"nodeId": 2}])
def test_deletions_that_cannot_be_are_refused(deleting: object) -> None:
    value = json.loads(encode_tiered(TIERED)) | {"deleting": deleting}
    assert isinstance(decode_tiered(json.dumps(value).encode()), Refused)


@pytest.mark.parametrize(("epoch", "epochs"), [(2, ((2, 7), (4, 11))), (3, ((3, 7), (4, 11)))])
def test_a_copy_follows_where_all_others_are_deleted(epoch: int, epochs: tuple[tuple[int, int], ...]) -> None:
    emptied = replace(TIERED.start_deleting(Offset(7), DELETING), deleting=None)
    copied = replace(SEGMENT, epochs=((Epoch(epoch), Offset(7)), (Epoch(4), Offset(11))))
    finished = emptied.finish(copied)
    assert (finished.start_offset, finished.end_offset, finished.epochs) == (7, 12, epochs)
    assert decode_tiered(encode_tiered(finished)) == finished


def test_what_was_read_back_or_has_been_ended_needs_no_local_disk() -> None:
    tiered = replace(TIERED, checked_offset=Offset(0), start_offset=Offset(0), end_offset=Offset(20), epochs=())
    first = replace(SEGMENT, base_offset=Offset(0), end_offset=Offset(7))
    checked = tiered.check(first)
    assert (tiered.safe_offset, checked.checked_offset, checked.safe_offset) == (0, 7, 7)
    assert checked.check(replace(SEGMENT, base_offset=Offset(5), end_offset=Offset(9))).safe_offset == 9
    ended = checked.start_deleting(Offset(10), Deleting(leader_epoch=Epoch(1), node_id=NodeId(1)))
    assert (ended.checked_offset, ended.safe_offset) == (7, 10)
    assert decode_tiered(encode_tiered(ended)) == ended


@pytest.mark.parametrize(("base", "end"), [(8, 9), (0, 7), (7, 21), (0, 3)])
def test_checks_follow_one_another(base: int, end: int) -> None:
    tiered = replace(TIERED, checked_offset=Offset(7), start_offset=Offset(0), end_offset=Offset(20), epochs=())
    with pytest.raises(ValueError, match="a check of"):
        tiered.check(replace(SEGMENT, base_offset=Offset(base), end_offset=Offset(end)))
