"""What the quorum's keys say of the remote tier (KIP-405: remote log metadata), and how they change. Pure.

One key of a partition says how far it is copied, and which copy is under way. Each step is a compare-and-set on that key, so
one leader of a partition at a time copies. The newest copies have a key each; the key of the partition counts the others.

- COPY_STARTED: `Tiered.copying` stands in the key, with the epoch of the leader that copies.
- COPY_FINISHED: `Tiered.end_offset` is the end of the copy, and the copy has a key of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from raftlake.kv.strict_json import Refused, integer, items, json_object, plain_text, read_or_refuse
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset

OFFSET_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
EPOCHS_MAX = 1000
#: Copies of one partition that have a key of their own, at most.
SEGMENT_KEYS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """A copy that a leader makes, or made when it ended."""

    segment_id: str
    base_offset: Offset
    end_offset: Offset
    leader_epoch: Epoch
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiered:
    """What is copied of one partition. Its table shows [start_offset, end_offset), and perhaps what is being copied."""

    incarnation: int = 0
    start_offset: Offset
    end_offset: Offset
    #: Copies that the table shows, and their bytes there.
    segments: int = 0
    size: int = 0
    copying: Copying | None = None

    def start(self, copying: Copying) -> Tiered:
        """COPY_STARTED, in place of any that is under way."""
        if copying.base_offset != self.end_offset or copying.end_offset <= copying.base_offset:
            raise ValueError(f"a copy of [{copying.base_offset}, {copying.end_offset}) behind {self.end_offset}")
        return replace(self, copying=copying)

    def finish(self, copied: RemoteSegment) -> Tiered:
        """COPY_FINISHED of a copy that the table shows, whoever made it."""
        if copied.base_offset != self.end_offset or copied.end_offset <= copied.base_offset:
            raise ValueError(f"a copy of [{copied.base_offset}, {copied.end_offset}) behind {self.end_offset}")
        return replace(
            self, end_offset=copied.end_offset, segments=self.segments + 1, size=self.size + copied.size, copying=None
        )


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """All that the quorum's keys say of one partition."""

    #: None without a key.
    tiered: Tiered | Refused | None = None
    #: The newest copies, by the base offsets in their keys.
    segments: Mapping[int, RemoteSegment | Refused] = field(default_factory=dict)


def encode_tiered(tiered: Tiered) -> bytes:
    """The value of `tier_key`."""
    fields: dict[str, Any] = {
        "incarnation": tiered.incarnation,
        "startOffset": tiered.start_offset,
        "endOffset": tiered.end_offset,
        "segments": tiered.segments,
        "size": tiered.size,
    }
    if tiered.copying is not None:
        fields["copying"] = {
            "segmentId": tiered.copying.segment_id,
            "baseOffset": tiered.copying.base_offset,
            "endOffset": tiered.copying.end_offset,
            "leaderEpoch": tiered.copying.leader_epoch,
            "nodeId": tiered.copying.node_id,
        }
    return _encode(fields)


def decode_tiered(value: bytes) -> Tiered | Refused:
    """What a value of `tier_key` says."""

    def read() -> Tiered:
        fields = json_object(value)
        start = _offset(fields["startOffset"])
        end = Offset(integer(fields["endOffset"], start, OFFSET_MAX))
        copying = None
        if "copying" in fields:
            found = fields["copying"]
            if not isinstance(found, dict):
                raise ValueError("copying is no object")
            copying = Copying(
                segment_id=plain_text(found["segmentId"]),
                base_offset=Offset(integer(found["baseOffset"], end, end)),
                end_offset=Offset(integer(found["endOffset"], end + 1, OFFSET_MAX)),
                leader_epoch=_epoch(found["leaderEpoch"]),
                node_id=NodeId(integer(found["nodeId"], 0, INT_MAX)),
            )
        return Tiered(
            incarnation=integer(fields["incarnation"], 0, INT_MAX),
            start_offset=start,
            end_offset=end,
            segments=integer(fields["segments"], 0, OFFSET_MAX),
            size=integer(fields["size"], 0, OFFSET_MAX),
            copying=copying,
        )

    return read_or_refuse(read)


def segment_to_json(segment: RemoteSegment) -> dict[str, Any]:
    """As in a key, in the table's commit and in its file."""
    return {
        "segmentId": segment.segment_id,
        "baseOffset": segment.base_offset,
        "endOffset": segment.end_offset,
        "leaderEpoch": segment.leader_epoch,
        "epochs": [list(each) for each in segment.epochs],
        "maxTimestampMs": None if segment.timestamp_ms_max < 0 else segment.timestamp_ms_max,
        "logBytes": segment.log_bytes,
        "size": segment.size,
        "crc": segment.crc,
        "file": segment.file,
    }


def encode_segment(segment: RemoteSegment) -> bytes:
    """The value of `tier_segment_key`."""
    return _encode(segment_to_json(segment))


def decode_segment(value: bytes) -> RemoteSegment | Refused:
    """What a value of `tier_segment_key` says."""

    def read() -> RemoteSegment:
        fields = json_object(value)
        base = _offset(fields["baseOffset"])
        end = Offset(integer(fields["endOffset"], base + 1, OFFSET_MAX))
        epochs = tuple(_epoch_entry(entry) for entry in items(fields["epochs"]))
        if len(epochs) > EPOCHS_MAX or not epochs or epochs[0][1] != base or epochs[-1][1] >= end:
            raise ValueError("the epochs are not those of the segment")
        if any(later[0] <= earlier[0] or later[1] <= earlier[1] for earlier, later in pairwise(epochs)):
            raise ValueError("the epochs do not ascend")
        return RemoteSegment(
            segment_id=plain_text(fields["segmentId"]),
            base_offset=base,
            end_offset=end,
            leader_epoch=_epoch(fields["leaderEpoch"]),
            epochs=epochs,
            timestamp_ms_max=_time(fields["maxTimestampMs"]),
            log_bytes=integer(fields["logBytes"], 0, OFFSET_MAX),
            size=integer(fields["size"], 0, OFFSET_MAX),
            crc=integer(fields["crc"], 0, 2**32 - 1),
            file=plain_text(fields["file"]),
        )

    return read_or_refuse(read)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _offset(found: object) -> Offset:
    return Offset(integer(found, 0, OFFSET_MAX))


def _epoch(found: object) -> Epoch:
    return Epoch(integer(found, 0, INT_MAX))


def _epoch_entry(found: object) -> tuple[Epoch, Offset]:
    epoch, offset = items(found)
    return _epoch(epoch), _offset(offset)


def _time(found: object) -> int:
    """Null stands for no time: the reader takes no negative numbers."""
    return -1 if found is None else integer(found, 0, OFFSET_MAX)
