"""Control records: bytes that Kafka's own Raft accepts, and what is read from others."""

from __future__ import annotations

import pytest
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage, Voter
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage as LeaderChangeMessage1
from kio.schema.leader_change_message.v1.data import Voter as Voter1

from kiomirror import kio_bytes
from raftlake.errors import CorruptBatch
from raftlake.wire.batches import decode_records, parse_header, validate
from raftlake.wire.control import ControlType, LeaderChange, OtherControl, leader_change_batch, parse_control_record

KEY = b"\x00\x00\x00\x02"


def test_leader_change_is_kafkas_message_without_a_version_in_front() -> None:
    batch = leader_change_batch(41, 6, 1_700_000_000_000, 2, [1, 2], [2, 1])
    (header,) = validate(batch)
    assert (header.base_offset, header.leader_epoch, header.attributes, header.record_count) == (41, 6, 0x20, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    (record,) = decode_records(batch, include_control=True)
    assert record.key == KEY
    reference = LeaderChangeMessage(
        version=0,
        leader_id=2,
        voters=(Voter(voter_id=1), Voter(voter_id=2)),
        granting_voters=(Voter(voter_id=2), Voter(voter_id=1)),
    )
    assert record.value == kio_bytes(reference)
    assert len(record.value) == 29


def test_leader_change_reads_back() -> None:
    (record,) = decode_records(leader_change_batch(0, 1, 0, 3, [1, 2, 3], [3]), include_control=True)
    expected = LeaderChange(leader_id=3, voters=(1, 2, 3), granting_voters=(3,))
    assert parse_control_record(record.key, record.value) == expected
    assert parse_header(leader_change_batch(0, 1, 0, 3, range(300), [])).record_count == 1


def test_version_1_of_leader_change_is_read() -> None:
    message = LeaderChangeMessage1(
        version=1, leader_id=7, voters=(Voter1(voter_id=7, voter_directory_id=None),), granting_voters=()
    )
    assert parse_control_record(KEY, kio_bytes(message)) == LeaderChange(leader_id=7, voters=(7,), granting_voters=())


@pytest.mark.parametrize("type_", [0, 1, 3, 4, 5, 6, 99])
def test_other_types_are_named(type_: int) -> None:
    assert parse_control_record(b"\0\0" + type_.to_bytes(2, "big"), None) == OtherControl(type=type_)
    assert ControlType.LEADER_CHANGE == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0\0", b""),
        (KEY, None),
        (KEY, b""),
        (KEY, b"\0\2" + bytes(20)),  # a version that does not exist
        (KEY, b"\xff\xff" + bytes(20)),
        (KEY, b"\0\0\0\0\0\1\xff\xff\xff\xff\x0f"),  # voters without end
        (KEY, b"\0\0\0\0\0\1\x00\x00"),  # a null list
    ],
)
def test_damage_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        parse_control_record(key, value)
