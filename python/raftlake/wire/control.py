"""Control records: what Raft itself writes into the log (KIP-595 "LeaderChangeMessage", Kafka's ControlRecordType), and the
markers that end transactions (KIP-98).

A control record's key is two i16: version 0 and the type. The value (LeaderChange 2, KRaftVersion 5, KRaftVoters 6) is the
message itself, with no version in front of it: its own first field is the version. Other bytes stop Kafka's own Raft
implementation for good, because it reads its log again at every start. A marker's value (ABORT 0, COMMIT 1) is a version and
the epoch of the coordinator; producer id and producer epoch stand in the header of its batch, which holds this record alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from raftlake.errors import CorruptBatch, WireError
from raftlake.wire.batch_header import parse_header
from raftlake.wire.batch_records import Record, build_batch, decode_batch, decode_records
from raftlake.wire.primitives import (
    DECODE_ERRORS,
    I32,
    U16,
    BytesLike,
    read_count,
    read_id,
    read_string,
    skip_tags,
    write_nullable_string,
    write_uvarint,
)

_KEY = struct.Struct(">hh")
_LEADER_CHANGE_HEAD = struct.Struct(">hi")
#: Of a marker: its version, and the coordinator's epoch.
_MARKER = struct.Struct(">hi")
#: Bytes of a voter's directory id, by version of the message.
_DIRECTORY_ID_BYTES = {0: 0, 1: 16}
_I16_PAIR = struct.Struct(">hh")
#: The kraft.versions that each voter of a set which we write understands.
KRAFT_VERSION_MIN, KRAFT_VERSION_MAX = 0, 1


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
    """A control record that says nothing of Raft: transaction markers (`read_end_marker`), snapshot frames, newer types."""

    type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersion:
    """From here on the group follows this version: 1 when its voters are in the log (KIP-853)."""

    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEntry:
    """A voter of a KRaftVoters record; an endpoint is (listener name, host, port)."""

    node_id: int
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVoters:
    """The voters from this record on, even before it is committed."""

    voters: tuple[VoterEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndMarker:
    """The end of a transaction of a producer in one partition, as its control batch says it."""

    producer_id: int
    #: The producer's epoch. The batches of lower epochs are refused from here on.
    epoch: int
    #: False: the transaction is aborted.
    commit: bool
    coordinator_epoch: int


ControlRecord = LeaderChange | KRaftVersion | KRaftVoters | OtherControl


def leader_change_batch(
    offset: int,
    epoch: int,
    timestamp_ms: int,
    leader_id: int,
    voters: Sequence[int],
    granting_voters: Sequence[int],
    kraft_voters: Sequence[VoterEntry] = (),
) -> bytes:
    """The control batch with which a leader opens `epoch`; written at `offset`. With `kraft_voters` it holds three records:
    the first leader of a group of kraft.version 1 puts the voters that the group began with into the log."""
    value = bytearray(_LEADER_CHANGE_HEAD.pack(0, leader_id))
    for group in (voters, granting_voters):
        write_uvarint(value, len(group) + 1)
        for voter in group:
            value += I32.pack(voter)
            value.append(0)
    value.append(0)
    records = [Record(key=_KEY.pack(0, ControlType.LEADER_CHANGE), value=bytes(value))]
    if kraft_voters:
        records += [kraft_version_record(1), kraft_voters_record(kraft_voters)]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, control=True))


def voters_batch(
    offset: int, epoch: int, timestamp_ms: int, voters: Sequence[VoterEntry], *, kraft_version: int | None = None
) -> bytes:
    """The control batch that sets the voters. With `kraft_version` it also raises the version: the record of the version comes
    first."""
    records = [] if kraft_version is None else [kraft_version_record(kraft_version)]
    records.append(kraft_voters_record(voters))
    return bytes(build_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, control=True))


def end_marker_batch(marker: EndMarker, timestamp_ms: int, *, base_offset: int = 0, leader_epoch: int = -1) -> bytearray:
    """The control batch that ends a transaction, as Kafka's `MemoryRecords.withEndTransactionMarker` makes it. The leader of
    the partition may stamp the offset and the leader epoch later."""
    type_ = ControlType.COMMIT if marker.commit else ControlType.ABORT
    record = Record(key=_KEY.pack(0, type_), value=_MARKER.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        control=True,
        transactional=True,
    )


def read_end_marker(batch: BytesLike) -> EndMarker | None:
    """The marker that a batch holds, which begins at the first byte; None for any other batch. A control batch without records
    is none: compaction has removed its transaction. Raises CorruptBatch."""
    header = parse_header(batch)
    if not header.is_control or header.record_count == 0:
        return None
    record = decode_batch(batch, header)[0]
    outcome = parse_end_marker(record.key, record.value)
    if outcome is None:
        return None
    commit, coordinator_epoch = outcome
    return EndMarker(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
    )


def parse_end_marker(key: BytesLike | None, value: BytesLike | None) -> tuple[bool, int] | None:
    """Of the record of a marker: whether the transaction is committed, and the epoch of the coordinator. None for any other
    control record. Raises CorruptBatch."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("control record without a version and a type")
    version, type_ = _KEY.unpack_from(key)
    if type_ not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch("transaction marker without the epoch of its coordinator")
    # Newer versions begin alike: Kafka reads them as version 0.
    value_version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0 or value_version < 0:
        raise CorruptBatch(f"transaction marker of version {min(version, value_version)}")
    return type_ == ControlType.COMMIT, coordinator_epoch


def kraft_version_record(version: int) -> Record:
    """KRaftVersion as a record of a control batch."""
    return Record(key=_KEY.pack(0, ControlType.KRAFT_VERSION), value=_I16_PAIR.pack(0, version) + b"\0")


def kraft_voters_record(voters: Sequence[VoterEntry]) -> Record:
    """KRaftVoters as a record of a control batch, the voters in the given order."""
    value = bytearray(2)
    write_uvarint(value, len(voters) + 1)
    for voter in voters:
        value += I32.pack(voter.node_id)
        value += voter.directory_id
        write_uvarint(value, len(voter.endpoints) + 1)
        for name, host, port in voter.endpoints:
            write_nullable_string(value, name, True)
            write_nullable_string(value, host, True)
            value += U16.pack(port)
            value.append(0)
        value += _I16_PAIR.pack(KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)
        value += b"\0\0"
    value.append(0)
    return Record(key=_KEY.pack(0, ControlType.KRAFT_VOTERS), value=bytes(value))


def voters_set_by(batch: BytesLike) -> tuple[VoterEntry, ...] | None:
    """The voters that a control batch sets, None when it sets none. Raises CorruptBatch."""
    voters: tuple[VoterEntry, ...] | None = None
    for record in decode_records(batch, include_control=True):
        control = parse_control_record(record.key, record.value)
        if isinstance(control, KRaftVoters):
            voters = control.voters
    return voters


def parse_control_record(key: BytesLike | None, value: BytesLike | None) -> ControlRecord:
    """What the record of a control batch says; CorruptBatch when one that we know is damaged."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("control record without a version and a type")
    _, type_ = _KEY.unpack_from(key)
    parse = _PARSERS.get(type_)
    if parse is None:
        return OtherControl(type=type_)
    name = _NAMES[type_]
    if value is None:
        raise CorruptBatch(f"{name} without a value")
    try:
        return parse(value)
    except (WireError, *DECODE_ERRORS) as error:
        raise CorruptBatch(f"{name}: {error}") from error


def _parse_kraft_version(value: BytesLike) -> KRaftVersion:
    version, kraft_version = _I16_PAIR.unpack_from(value)
    if version != 0:
        raise CorruptBatch(f"KRaftVersion of version {version}")
    return KRaftVersion(kraft_version=kraft_version)


def _parse_kraft_voters(value: BytesLike) -> KRaftVoters:
    (version,) = struct.unpack_from(">h", value)
    if version != 0:
        raise CorruptBatch(f"KRaftVoters of version {version}")
    count, position = read_count(value, 2, True, 27)
    voters: list[VoterEntry] = []
    for _ in range(count):
        (node_id,) = I32.unpack_from(value, position)
        directory_id, position = read_id(value, position + 4)
        endpoint_count, position = read_count(value, position, True, 5)
        endpoints: list[tuple[str, str, int]] = []
        for _ in range(endpoint_count):
            name, position = read_string(value, position, True)
            host, position = read_string(value, position, True)
            (port,) = U16.unpack_from(value, position)
            endpoints.append((name, host, port))
            position = skip_tags(value, position + 2)
        # The range of kraft.versions that the voter understands, a structure with tags of its own.
        position = skip_tags(value, skip_tags(value, position + _I16_PAIR.size))
        voters.append(VoterEntry(node_id=node_id, directory_id=directory_id, endpoints=tuple(endpoints)))
    if not voters or len({voter.node_id for voter in voters}) != len(voters) or min(voters, key=_id_of).node_id < 0:
        raise CorruptBatch("KRaftVoters without voters, or with one twice")
    return KRaftVoters(voters=tuple(voters))


def _id_of(voter: VoterEntry) -> int:
    return voter.node_id


def _parse_leader_change(value: BytesLike) -> LeaderChange:
    version, leader_id = _LEADER_CHANGE_HEAD.unpack_from(value)
    # Version 1 adds a directory id to each voter; newer ones are not known, and what cannot be read is not guessed.
    if version not in _DIRECTORY_ID_BYTES:
        raise CorruptBatch(f"LeaderChange of version {version}")
    voters, position = _read_voters(value, _LEADER_CHANGE_HEAD.size, _DIRECTORY_ID_BYTES[version])
    granting_voters, _ = _read_voters(value, position, _DIRECTORY_ID_BYTES[version])
    return LeaderChange(leader_id=leader_id, voters=voters, granting_voters=granting_voters)


def _read_voters(value: BytesLike, position: int, id_bytes: int) -> tuple[tuple[int, ...], int]:
    count, position = read_count(value, position, True, 5 + id_bytes)
    voters: list[int] = []
    for _ in range(count):
        (voter,) = I32.unpack_from(value, position)
        voters.append(voter)
        position = skip_tags(value, position + 4 + id_bytes)
    return tuple(voters), position


_PARSERS: dict[int, Callable[[BytesLike], ControlRecord]] = {
    ControlType.LEADER_CHANGE: _parse_leader_change,
    ControlType.KRAFT_VERSION: _parse_kraft_version,
    ControlType.KRAFT_VOTERS: _parse_kraft_voters,
}
_NAMES: dict[int, str] = {
    ControlType.LEADER_CHANGE: "LeaderChange",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}
