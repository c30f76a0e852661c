"""Control records: what Raft itself writes into the log (KIP-595 "LeaderChangeMessage", Kafka's ControlRecordType).

A control record's key is two i16: version 0 and the type. The value of LeaderChange (type 2) is the message itself, with no
version in front of it: its own first field is the version. Other bytes stop Kafka's own Raft implementation for good,
because it reads its log again at every start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from raftlake.errors import CorruptBatch, WireError
from raftlake.wire.batch_records import Record, build_batch
from raftlake.wire.primitives import DECODE_ERRORS, I32, BytesLike, read_count, skip_tags, write_uvarint

_KEY = struct.Struct(">hh")
_LEADER_CHANGE_HEAD = struct.Struct(">hi")
#: Bytes of a voter's directory id, by version of the message.
_DIRECTORY_ID_BYTES = {0: 0, 1: 16}


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """A new leader's first record: who leads, who could vote and who did vote for it."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherControl:
    """A control record that has no meaning here: transaction markers, snapshot frames, KIP-853 voters, newer types."""

    type: int


def leader_change_batch(
    offset: int, epoch: int, timestamp_ms: int, leader_id: int, voters: Sequence[int], granting_voters: Sequence[int]
) -> bytes:
    """The control batch with which a leader opens `epoch`; written at `offset`."""
    value = bytearray(_LEADER_CHANGE_HEAD.pack(0, leader_id))
    for group in (voters, granting_voters):
        write_uvarint(value, len(group) + 1)
        for voter in group:
            value += I32.pack(voter)
            value.append(0)
    value.append(0)
    record = Record(key=_KEY.pack(0, ControlType.LEADER_CHANGE), value=bytes(value))
    return bytes(build_batch([record], base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, control=True))


def parse_control_record(key: BytesLike | None, value: BytesLike | None) -> LeaderChange | OtherControl:
    """What the record of a control batch says; CorruptBatch when a LeaderChange is not one."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("control record without a version and a type")
    _, type_ = _KEY.unpack_from(key)
    if type_ != ControlType.LEADER_CHANGE:
        return OtherControl(type=type_)
    if value is None:
        raise CorruptBatch("LeaderChange without a value")
    return _parse_leader_change(value)


def _parse_leader_change(value: BytesLike) -> LeaderChange:
    try:
        version, leader_id = _LEADER_CHANGE_HEAD.unpack_from(value)
        # Version 1 adds a directory id to each voter; newer ones are not known, and what cannot be read is not guessed.
        if version not in _DIRECTORY_ID_BYTES:
            raise CorruptBatch(f"LeaderChange of version {version}")
        voters, position = _read_voters(value, _LEADER_CHANGE_HEAD.size, _DIRECTORY_ID_BYTES[version])
        granting_voters, _ = _read_voters(value, position, _DIRECTORY_ID_BYTES[version])
    except (WireError, *DECODE_ERRORS) as error:
        raise CorruptBatch(f"LeaderChange: {error}") from error
    return LeaderChange(leader_id=leader_id, voters=voters, granting_voters=granting_voters)


def _read_voters(value: BytesLike, position: int, id_bytes: int) -> tuple[tuple[int, ...], int]:
    count, position = read_count(value, position, True, 5 + id_bytes)
    voters: list[int] = []
    for _ in range(count):
        (voter,) = I32.unpack_from(value, position)
        voters.append(voter)
        position = skip_tags(value, position + 4 + id_bytes)
    return tuple(voters), position
