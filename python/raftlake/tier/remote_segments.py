"""The facts of a copy as JSON (in the file's footer, in the commit, beside the file), and its auxiliary bytes.

The file of auxiliary bytes is `_raftlake/<segment id>.aux`: a CRC-32C of all that follows, the length of the JSON, the JSON,
the bytes. Readers of Delta tables and VACUUM leave alone what begins with an underscore.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from raftlake.ports.tier import Lineage, RemoteSegment
from raftlake.raft.types import Epoch, Offset

#: The name of the JSON in a Parquet footer and in a commit.
SEGMENT_KEY = "raftlake.segment"
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">I")


def file_name(partition: int, segment_id: str) -> str:
    """Where the rows of a copy are, relative to the table."""
    return f"partition={partition}/{segment_id}.parquet"


def auxiliary_name(segment_id: str) -> str:
    """Where the auxiliary bytes of a copy are."""
    return f"_raftlake/{segment_id}.aux"


def to_json(lineage: Lineage, segment: RemoteSegment) -> str:
    """All facts of a copy."""
    return json.dumps(_facts(lineage, segment) | {"size": segment.size, "crc": segment.crc, "file": segment.file})


def footer_json(lineage: Lineage, segment: RemoteSegment) -> str:
    """The same for the file itself, which cannot tell its own size, checksum and place."""
    return json.dumps(_facts(lineage, segment))


def _facts(lineage: Lineage, segment: RemoteSegment) -> dict[str, Any]:
    return {
        "partition": lineage.group.partition,
        "incarnation": lineage.incarnation,
        "segment_id": segment.segment_id,
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "leader_epoch": segment.leader_epoch,
        "epochs": segment.epochs,
        "timestamp_ms_max": segment.timestamp_ms_max,
        "log_bytes": segment.log_bytes,
    }


@dataclass(frozen=True, slots=True)
class NamedSegment:
    """A copy with the partition and incarnation that it belongs to."""

    partition: int
    incarnation: int
    segment: RemoteSegment

    def belongs_to(self, lineage: Lineage) -> bool:
        return (self.partition, self.incarnation) == (lineage.group.partition, lineage.incarnation)

    def is_shown_by(self, lineage: Lineage) -> bool:
        """A lineage may show the copy: it is of this partition, and of this incarnation or an older one."""
        return self.partition == lineage.group.partition and self.incarnation <= lineage.incarnation


def from_json(text: str | bytes, **place: Any) -> NamedSegment | None:
    """The facts of a copy; None for what is no such JSON. `place` gives what a footer does not know: size, crc, file."""
    try:
        facts = json.loads(text) | place
        segment = RemoteSegment(
            segment_id=str(facts["segment_id"]),
            base_offset=Offset(int(facts["base_offset"])),
            end_offset=Offset(int(facts["end_offset"])),
            leader_epoch=Epoch(int(facts["leader_epoch"])),
            epochs=tuple((Epoch(int(epoch)), Offset(int(offset))) for epoch, offset in facts["epochs"]),
            timestamp_ms_max=int(facts["timestamp_ms_max"]),
            log_bytes=int(facts["log_bytes"]),
            size=int(facts["size"]),
            crc=int(facts["crc"]),
            file=str(facts["file"]),
        )
        return NamedSegment(int(facts["partition"]), int(facts["incarnation"]), segment)
    except (KeyError, TypeError, ValueError):
        return None


def pack_auxiliary(lineage: Lineage, segment: RemoteSegment, auxiliary: bytes) -> bytes:
    """The content of the file of auxiliary bytes."""
    facts = to_json(lineage, segment).encode()
    content = _LENGTH.pack(len(facts)) + facts + auxiliary
    return _CRC.pack(crc32c(content)) + content


def unpack_auxiliary(data: bytes) -> tuple[NamedSegment, bytes] | None:
    """The counterpart of `pack_auxiliary`; None where the checksum does not match."""
    head = _CRC.size + _LENGTH.size
    if len(data) < head or _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :]):
        return None
    end = head + _LENGTH.unpack_from(data, _CRC.size)[0]
    named = from_json(data[head:end])
    return None if named is None or end > len(data) else (named, data[end:])
