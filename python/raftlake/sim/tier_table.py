"""What a simulated table shows of one lineage, and what becomes of copies that an unclean election cuts.

Owns the values alone: `sim.tier` decides when they change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import crc32c

from raftlake.ports.tier import (
    FoundRecord,
    Lineage,
    LineageEnd,
    LineageFacts,
    RemoteFile,
    RemoteSegment,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.lineage import Part, Piece
from raftlake.tier.plan import Range, epochs_within
from raftlake.wire.batch_header import BatchHeader
from raftlake.wire.batches import decode_records, iterate_headers

#: Of the newest copies in `LineageFacts`.
NEWEST = 16
#: At the place of a topic's table somebody else has one.
NOT_OURS = TierError(TierFailure.UNUSABLE, "the table is not ours")


def batches_of(parts: list[bytes]) -> Iterator[tuple[BatchHeader, bytes]]:
    for part in parts:
        for header in iterate_headers(part):
            yield header, part[header.position : header.end_position]


def file_of(segment: RemoteSegment) -> RemoteFile:
    return RemoteFile(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        timestamp_ms_max=segment.timestamp_ms_max,
        size=segment.size,
        log_bytes=segment.log_bytes,
    )


#: Segment, batches, auxiliary bytes.
Copy = tuple[RemoteSegment, bytes, bytes]


def piece_of(segment: RemoteSegment, *, is_live: bool) -> Piece:
    return Piece(
        name=segment.segment_id,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        epochs=segment.epochs,
        is_live=is_live,
    )


def cut(copy: Copy, part: Part) -> Copy:
    """The part of a copy; where it is cut at the end it has no auxiliary bytes."""
    segment, batches, auxiliary = copy
    if part.is_whole:
        return copy
    kept = b"".join(
        batch for header, batch in batches_of([batches]) if part.base_offset <= header.base_offset < part.end_offset
    )
    segment_id = f"{segment.segment_id}-{part.base_offset}-{part.end_offset}"
    cut = replace(
        segment,
        segment_id=segment_id,
        base_offset=part.base_offset,
        end_offset=part.end_offset,
        epochs=epochs_within(segment.epochs, Range(part.base_offset, part.end_offset)),
        log_bytes=len(kept),
        size=len(kept),
        crc=crc32c.crc32c(kept),
        file=f"{segment.file.rpartition('/')[0]}/{segment_id}.parquet",
    )
    return cut, kept, auxiliary if part.end_offset == segment.end_offset else b""


def _base(copy: Copy) -> Offset:
    return copy[0].base_offset


def facts_of(lineage: Lineage, shown: Shown) -> LineageFacts:
    epochs: list[tuple[Epoch, Offset]] = []
    for segment in shown.segments:
        epochs += [each for each in segment.epochs if not epochs or each[0] != epochs[-1][0]]
    return LineageFacts(
        lineage=lineage,
        leader_epoch=Epoch(shown.leader_epoch),
        start_offset=shown.start_offset,
        end_offset=shown.start_offset if shown.newest is None else shown.newest.end_offset,
        segments=len(shown.segments),
        size=sum(segment.size for segment in shown.segments),
        log_bytes=sum(segment.log_bytes for segment in shown.segments),
        epochs=tuple(epochs),
        newest=tuple(shown.segments[-NEWEST:]),
    )


def found_in(parts: list[bytes], request: SearchRequest) -> FoundRecord | None:
    """See `SearchRequest`."""
    best: FoundRecord | None = None
    for header, batch in batches_of(parts):
        if header.is_control:
            continue
        for record in decode_records(batch):
            if not request.start_offset <= record.offset < request.end_offset:
                continue
            found = FoundRecord(
                offset=Offset(record.offset), timestamp_ms=record.timestamp_ms, epoch=Epoch(header.leader_epoch)
            )
            if request.timestamp_ms is not None and found.timestamp_ms >= request.timestamp_ms:
                return found
            if request.timestamp_ms is None and (best is None or found.timestamp_ms > best.timestamp_ms):
                best = found
    return best


@dataclass(slots=True)
class Shown:
    """What the table shows of a lineage."""

    segments: list[RemoteSegment] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    auxiliaries: list[bytes] = field(default_factory=list)
    #: The last copy that was ever shown.
    newest: RemoteSegment | None = None
    #: Of the last leader that wrote.
    leader_epoch: int = -1
    #: Counts the commits on the lineage.
    version: int = 0
    #: The copies that were read back, by their names.
    checked: set[str] = field(default_factory=set)
    #: The topic is gone.
    is_dropped: bool = False
    #: The recovery that began this incarnation, and where its first copy begins.
    recovery: str = ""
    begin: Offset = Offset(0)

    @property
    def end(self) -> LineageEnd:
        return LineageEnd(self.newest)

    def checked_end(self, start: Offset) -> Offset:
        """Up to where each copy was read back, from `start` on: what lies before has been ended."""
        kept = (each for each in self.segments if each.end_offset > start)
        waiting = next((each for each in kept if each.segment_id not in self.checked), None)
        if waiting is not None:
            return max(waiting.base_offset, start)
        return start if self.newest is None else max(self.newest.end_offset, start)

    @property
    def start_offset(self) -> Offset:
        if self.segments:
            return self.segments[0].base_offset
        return self.begin if self.newest is None else self.newest.end_offset

    def index_of(self, offset: Offset) -> int | None:
        """The index of the copy that holds `offset`."""
        found = (n for n, each in enumerate(self.segments) if each.base_offset <= offset < each.end_offset)
        return next(found, None)

    def show(self, segment: RemoteSegment, batches: bytes, auxiliary: bytes) -> None:
        self.segments.append(segment)
        self.batches.append(batches)
        self.auxiliaries.append(auxiliary)
        self.newest = segment

    def take_out(self, segments: Sequence[RemoteSegment]) -> list[Copy]:
        """Another program removes copies: what they were."""
        copies = list(zip(self.segments, self.batches, self.auxiliaries, strict=True))
        taken = [copy for copy in copies if copy[0] in segments]
        self._have([copy for copy in copies if copy not in taken])
        return taken

    def put_back(self, copies: list[Copy]) -> None:
        """Another program puts copies back."""
        self._have(sorted([*zip(self.segments, self.batches, self.auxiliaries, strict=True), *copies], key=_base))

    def _have(self, copies: list[Copy]) -> None:
        self.segments = [segment for segment, _, _ in copies]
        self.batches = [batches for _, batches, _ in copies]
        self.auxiliaries = [auxiliary for _, _, auxiliary in copies]

    def remove(self, count: int) -> None:
        """The `count` oldest copies."""
        del self.segments[:count], self.batches[:count], self.auxiliaries[:count]
