"""Control records: bytes that Kafka's own Raft accepts, and what is read from others."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage, Voter
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage as LeaderChangeMessage1
from kio.schema.leader_change_message.v1.data import Voter as Voter1
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, VotersRecord
from kio.schema.voters_record.v0.data import Voter as SetVoter

from kiomirror import kio_bytes
from raftlake.errors import CorruptBatch
from raftlake.wire.batches import build_batch, decode_records, parse_header, validate
from raftlake.wire.control import (
    ControlType,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    OtherControl,
    VoterEntry,
    kraft_version_record,
    kraft_voters_record,
    leader_change_batch,
    parse_control_record,
    voters_batch,
    voters_set_by,
)

KEY = b"\x00\x00\x00\x02"
VERSION_KEY = b"\x00\x00\x00\x05"
VOTERS_KEY = b"\x00\x00\x00\x06"
ENTRIES = (
    VoterEntry(node_id=1, directory_id=bytes(range(16)), endpoints=(("PEERS", "one", 9_092), ("OTHER", "eins", 65_535))),
    VoterEntry(node_id=2, directory_id=bytes(16), endpoints=()),
)


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


@pytest.mark.parametrize("type_", [0, 1, 3, 4, 99])
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


def test_the_voters_are_kafkas_records_behind_the_leader_change() -> None:
    """LeaderState.appendStartOfEpochControlRecords: one control batch holds all three."""
    batch = leader_change_batch(7, 3, -1, 1, (1, 2), (1,), ENTRIES)
    (header,) = validate(batch)
    assert (header.base_offset, header.record_count, header.last_offset_delta, header.is_control) == (7, 3, 2, True)
    change, version, voters = decode_records(batch, include_control=True)
    assert (change.key, version.key, voters.key) == (KEY, VERSION_KEY, VOTERS_KEY)
    assert version.value == kio_bytes(KRaftVersionRecord(version=0, k_raft_version=1))
    feature = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    assert voters.value == kio_bytes(
        VotersRecord(
            version=0,
            voters=(
                SetVoter(
                    voter_id=1,
                    voter_directory_id=UUID(bytes=bytes(range(16))),
                    endpoints=(
                        Endpoint(name="PEERS", host="one", port=9_092),
                        Endpoint(name="OTHER", host="eins", port=65_535),
                    ),
                    k_raft_version_feature=feature,
                ),
                SetVoter(voter_id=2, voter_directory_id=None, endpoints=(), k_raft_version_feature=feature),
            ),
        )
    )


@pytest.mark.parametrize("kraft_version", [None, 1])
def test_a_change_of_voters_reads_back(kraft_version: int | None) -> None:
    batch = voters_batch(40, 2, -1, ENTRIES, kraft_version=kraft_version)
    parsed = [parse_control_record(record.key, record.value) for record in decode_records(batch, include_control=True)]
    version = [] if kraft_version is None else [KRaftVersion(kraft_version=1)]
    assert parsed == [*version, KRaftVoters(voters=ENTRIES)]
    assert voters_set_by(batch) == ENTRIES
    assert voters_set_by(leader_change_batch(0, 1, -1, 1, (1,), (1,))) is None


#: Tagged fields that a newer Kafka may send anywhere in a flexible message: two of them.
TAGS = b"\x02\x05\x01x\x07\x02yz"


def test_the_leader_change_of_version_1_names_those_who_granted_too() -> None:
    voters = tuple(Voter1(voter_id=number, voter_directory_id=UUID(int=number)) for number in (1, 2, 300))
    message = LeaderChangeMessage1(version=1, leader_id=2, voters=voters, granting_voters=voters[1:])
    expected = LeaderChange(leader_id=2, voters=(1, 2, 300), granting_voters=(2, 300))
    assert parse_control_record(KEY, kio_bytes(message)) == expected


def test_fields_that_are_not_known_are_passed_over_wherever_they_stand() -> None:
    voter = b"\0\0\0\x07"
    change = b"\0\0" + b"\0\0\0\x09" + b"\x03" + (voter + TAGS) * 2 + b"\x02" + voter + TAGS + TAGS
    assert parse_control_record(KEY, change) == LeaderChange(leader_id=9, voters=(7, 7), granting_voters=(7,))
    endpoint = b"\x02n\x02h\x23\x84" + TAGS
    one = voter + bytes(range(16)) + b"\x03" + endpoint * 2 + b"\0\0\0\1" + TAGS + TAGS
    other = b"\0\0\0\x08" + bytes(16) + b"\x01" + b"\0\0\0\1" + TAGS + TAGS
    entries = (
        VoterEntry(node_id=7, directory_id=bytes(range(16)), endpoints=(("n", "h", 9_092),) * 2),
        VoterEntry(node_id=8, directory_id=bytes(16), endpoints=()),
    )
    assert parse_control_record(VOTERS_KEY, b"\0\0\x03" + one + other + TAGS) == KRaftVoters(voters=entries)


def test_of_several_sets_in_one_batch_the_last_one_counts() -> None:
    first, last = kraft_voters_record(ENTRIES), kraft_voters_record(ENTRIES[:1])
    assert voters_set_by(build_batch([first, last], timestamp_ms=0, control=True)) == ENTRIES[:1]
    assert voters_set_by(build_batch([last, first, kraft_version_record(1)], timestamp_ms=0, control=True)) == ENTRIES


ONE_VOTER = b"\x02" + b"\0\0\0\x07" + bytes(16) + b"\x01" + b"\0\0\0\1" + b"\0\0" + b"\0"


def test_a_set_of_another_version_or_of_a_negative_voter_is_refused() -> None:
    sound = VoterEntry(node_id=7, directory_id=bytes(16), endpoints=())
    assert parse_control_record(VOTERS_KEY, b"\0\0" + ONE_VOTER) == KRaftVoters(voters=(sound,))
    with pytest.raises(CorruptBatch, match="version 1"):
        parse_control_record(VOTERS_KEY, b"\0\1" + ONE_VOTER)
    with pytest.raises(CorruptBatch):
        parse_control_record(VOTERS_KEY, b"\0\0" + ONE_VOTER.replace(b"\0\0\0\x07", b"\xff\xff\xff\xff"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (VERSION_KEY, b"\0\1\0\1\0"),
        (VERSION_KEY, b"\0"),
        (VOTERS_KEY, b"\0\0\1\0"),  # nobody
        (VOTERS_KEY, b"\0\1\2" + bytes(40)),
        (VOTERS_KEY, b"\0\0\3" + (bytes(20) + b"\1\0\0\0\1\0\0") * 2 + b"\0"),  # one voter twice
        (VOTERS_KEY, b"\0\0\xff\xff\xff\xff\x0f"),
    ],
)
def test_damaged_voters_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        parse_control_record(key, value)
