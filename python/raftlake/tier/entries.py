"""What the quorum's keys say of the remote tier (KIP-405: remote log metadata), and how they change. Pure.

One key of a partition says how far it is copied, and which copy is under way. Each step is a compare-and-set on that key, so
one leader of a partition at a time copies. The newest copies have a key each; the key of the partition counts the others.

- COPY_STARTED: `Tiered.copying` stands in the key, with the epoch of the leader that copies.
- COPY_FINISHED: `Tiered.end_offset` is the end of the copy, and the copy has a key of its own.
- CHECKED: `Tiered.checked_offset` is the end of a copy that was read back. Local disks may delete what lies below it.
- An unclean election: `Tiered.recovery` names it, and all counts are those of the table since it was taken over.
- DELETE_STARTED: `Tiered.start_offset` is behind what is being deleted, and `Tiered.deleting` stands in the key.
- HELD: `Tiered.is_held`: another program has changed the table, so local disks keep what they have until that is undone.
- DELETE_FINISHED: `Tiered.deleting` is gone, and the counts are those of what the table still shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from raftlake.kv.strict_json import Refused, integer, items, json_object, plain_text, read_or_refuse
from raftlake.ports.tier import LineageFacts, RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset

OFFSET_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
EPOCHS_MAX = 1000
#: Copies of one partition that have a key of their own, at most.
SEGMENT_KEYS_MAX = 16
#: The characters of topics' names (Kafka's Topic.validate). Where the table lies is made of the name: others could lead
#: elsewhere. No name stands for a topic that is not known.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """A copy that a leader makes, or made when it ended."""

    segment_id: str
    base_offset: Offset
    end_offset: Offset
    leader_epoch: Epoch
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """Files that a leader removes from the table, or removed when it ended: all that lie below `start_offset` of the key."""

    leader_epoch: Epoch
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiered:
    """What is copied of one partition. Its table shows [start_offset, end_offset), and perhaps what is being copied or
    deleted."""

    incarnation: int = 0
    #: The last unclean election whose leader took the table over, "" for none.
    recovery: str = ""
    #: Of the topic: its table is named after it, and is dropped when the topic is gone.
    topic: str = ""
    start_offset: Offset
    end_offset: Offset
    #: Copies that end here, or before, were read back as they were written.
    checked_offset: Offset = Offset(0)
    #: Copies that the table shows, their bytes there, and in the log.
    segments: int = 0
    size: int = 0
    log_bytes: int = 0
    #: The leader epochs of the copied records, each with its first offset; of very many the last EPOCHS_MAX.
    epochs: tuple[tuple[Epoch, Offset], ...] = ()
    copying: Copying | None = None
    deleting: Deleting | None = None
    #: Another program has changed the table: nothing is deleted from local disks.
    is_held: bool = False

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
            self,
            end_offset=copied.end_offset,
            segments=self.segments + 1,
            size=self.size + copied.size,
            log_bytes=self.log_bytes + copied.log_bytes,
            epochs=_joined(self.epochs, copied.epochs),
            copying=None,
        )

    def shows(self, segment: RemoteSegment) -> bool:
        """Whether the copy lies within what the table shows."""
        return self.start_offset <= segment.base_offset < segment.end_offset <= self.end_offset

    @property
    def safe_offset(self) -> Offset:
        """What lies below needs no local disk: it was read back from the table, or retention has ended it."""
        return max(self.checked_offset, self.start_offset)

    @property
    def local_end(self) -> Offset:
        """What lies below may be deleted from local disks."""
        return self.start_offset if self.is_held else self.safe_offset

    def check(self, read_back: RemoteSegment) -> Tiered:
        """CHECKED of a copy whose bytes in the store are those that were written."""
        if not read_back.base_offset <= self.safe_offset < read_back.end_offset <= self.end_offset:
            raise ValueError(
                f"a check of [{read_back.base_offset}, {read_back.end_offset}) behind {self.safe_offset}, copied is "
                f"{self.end_offset}"
            )
        return replace(self, checked_offset=read_back.end_offset)

    def start_deleting(self, until: Offset, deleting: Deleting) -> Tiered:
        """DELETE_STARTED: readers find nothing below `until` from now on."""
        if not self.start_offset < until <= self.end_offset:
            raise ValueError(f"deleting below {until} of [{self.start_offset}, {self.end_offset})")
        first = max((index for index, (_, offset) in enumerate(self.epochs) if offset <= until), default=0)
        kept = tuple((epoch, max(offset, until)) for epoch, offset in self.epochs[first:])
        return replace(self, start_offset=until, epochs=kept, deleting=deleting)

    def finish_deleting(self, facts: LineageFacts) -> Tiered:
        """DELETE_FINISHED, with what the table still shows."""
        return replace(self, segments=facts.segments, size=facts.size, log_bytes=facts.log_bytes, deleting=None)


def _joined(
    known: tuple[tuple[Epoch, Offset], ...], more: tuple[tuple[Epoch, Offset], ...]
) -> tuple[tuple[Epoch, Offset], ...]:
    """The epochs of a copy behind those of the copies before it."""
    # Where all copies are deleted, the last epoch stands at the end of them.
    before = tuple(entry for entry in known if entry[1] < more[0][1])
    is_known = bool(before) and more[0][0] == before[-1][0]
    return (*before, *(more[1:] if is_known else more))[-EPOCHS_MAX:]


def adopted(facts: LineageFacts, recovery: str) -> Tiered:
    """What the key says once the leader of an unclean election has taken the table over."""
    return Tiered(
        incarnation=facts.lineage.incarnation,
        recovery=recovery,
        topic=facts.lineage.group.topic,
        start_offset=facts.start_offset,
        end_offset=facts.end_offset,
        segments=facts.segments,
        size=facts.size,
        log_bytes=facts.log_bytes,
        epochs=facts.epochs[-EPOCHS_MAX:],
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
        "topic": tiered.topic,
        "startOffset": tiered.start_offset,
        "endOffset": tiered.end_offset,
        "checkedOffset": tiered.checked_offset,
        "segments": tiered.segments,
        "size": tiered.size,
        "logBytes": tiered.log_bytes,
        "epochs": _flat(tiered.epochs),
    }
    if tiered.is_held:
        fields["held"] = 1
    if tiered.recovery:
        fields["recovery"] = tiered.recovery
    if tiered.copying is not None:
        fields["copying"] = {
            "segmentId": tiered.copying.segment_id,
            "baseOffset": tiered.copying.base_offset,
            "endOffset": tiered.copying.end_offset,
            "leaderEpoch": tiered.copying.leader_epoch,
            "nodeId": tiered.copying.node_id,
        }
    if tiered.deleting is not None:
        fields["deleting"] = {"leaderEpoch": tiered.deleting.leader_epoch, "nodeId": tiered.deleting.node_id}
    return _encode(fields)


def decode_tiered(value: bytes) -> Tiered | Refused:
    """What a value of `tier_key` says."""

    def read() -> Tiered:
        fields = json_object(value)
        start = _offset(fields["startOffset"])
        end = Offset(integer(fields["endOffset"], start, OFFSET_MAX))
        epochs = _epoch_entries(fields["epochs"])
        if epochs and not start <= epochs[0][1] <= epochs[-1][1] < max(end, start + 1):
            raise ValueError("the epochs are not those of the copies")
        _require_ascending(epochs)
        return Tiered(
            incarnation=integer(fields["incarnation"], 0, INT_MAX),
            recovery=plain_text(fields["recovery"]) if "recovery" in fields else "",
            topic=_topic(fields["topic"]),
            start_offset=start,
            end_offset=end,
            checked_offset=Offset(integer(fields["checkedOffset"], 0, end)),
            segments=integer(fields["segments"], 0, OFFSET_MAX),
            size=integer(fields["size"], 0, OFFSET_MAX),
            log_bytes=integer(fields["logBytes"], 0, OFFSET_MAX),
            epochs=epochs,
            copying=_copying(fields["copying"], end) if "copying" in fields else None,
            deleting=_deleting(fields["deleting"]) if "deleting" in fields else None,
            is_held="held" in fields and integer(fields["held"], 1, 1) == 1,
        )

    return read_or_refuse(read)


def _topic(found: object) -> str:
    name = plain_text(found)
    if not _TOPIC.fullmatch(name):
        raise ValueError("no topic has such a name")
    return name


def _copying(found: object, end: Offset) -> Copying:
    if not isinstance(found, dict):
        raise ValueError("copying is no object")
    return Copying(
        segment_id=plain_text(found["segmentId"]),
        base_offset=Offset(integer(found["baseOffset"], end, end)),
        end_offset=Offset(integer(found["endOffset"], end + 1, OFFSET_MAX)),
        leader_epoch=_epoch(found["leaderEpoch"]),
        node_id=NodeId(integer(found["nodeId"], 0, INT_MAX)),
    )


def _deleting(found: object) -> Deleting:
    if not isinstance(found, dict):
        raise ValueError("deleting is no object")
    return Deleting(leader_epoch=_epoch(found["leaderEpoch"]), node_id=NodeId(integer(found["nodeId"], 0, INT_MAX)))


def segment_to_json(segment: RemoteSegment) -> dict[str, Any]:
    """As in a key, in the table's commit and in its file."""
    return {
        "segmentId": segment.segment_id,
        "baseOffset": segment.base_offset,
        "endOffset": segment.end_offset,
        "leaderEpoch": segment.leader_epoch,
        "epochs": _flat(segment.epochs),
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
        epochs = _epoch_entries(fields["epochs"])
        if len(epochs) > EPOCHS_MAX or not epochs or epochs[0][1] != base or epochs[-1][1] >= end:
            raise ValueError("the epochs are not those of the segment")
        _require_ascending(epochs)
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


def _flat(epochs: tuple[tuple[Epoch, Offset], ...]) -> list[int]:
    """Epoch, first offset, epoch, first offset, ..."""
    return [number for entry in epochs for number in entry]


def _epoch_entries(found: object) -> tuple[tuple[Epoch, Offset], ...]:
    numbers = items(found)
    return tuple((_epoch(epoch), _offset(offset)) for epoch, offset in zip(numbers[::2], numbers[1::2], strict=True))


def _require_ascending(epochs: tuple[tuple[Epoch, Offset], ...]) -> None:
    if len(epochs) > EPOCHS_MAX or any(later[0] <= earlier[0] or later[1] <= earlier[1] for earlier, later in pairwise(epochs)):
        raise ValueError("the epochs do not ascend")


def _time(found: object) -> int:
    """Null stands for no time: the reader takes no negative numbers."""
    return -1 if found is None else integer(found, 0, OFFSET_MAX)
