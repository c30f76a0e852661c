"""The rules between the quorum's keys and the table: both tell the same copies. Pure: values in, findings out.

Copies go on while a table is read. So the keys are read before the table is opened, and again after that: the table shows at
least what the first ones say, and at most what the second ones say, with the copy that is under way. Where old files are being
removed, the table may begin before the keys' start, and its counts are between two that the keys told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteSegment
from raftlake.tier.entries import PartitionKeys, Tiered
from raftlake.tier.findings import Findings, Kind

if TYPE_CHECKING:
    from raftlake.tier.row_checks import Span


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file of the table that a key may name."""

    size: int
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the table shows of one partition."""

    #: Of the newest incarnation; `start` is the first offset of the partition.
    incarnation: int
    start: int
    #: Exclusive.
    end: int
    #: None where a file cannot be read: that is told already.
    segments: int | None
    #: Bytes of all files; None where somebody has rewritten some, too.
    size: int | None
    files: Mapping[str, ShownFile]
    spans: Mapping[str, Span]


def check_keys(findings: Findings, before: PartitionKeys, after: PartitionKeys, shown: Shown | None) -> None:
    """Compare what both say. `shown` is None where the table shows nothing of the partition."""
    for what in (before.tiered, after.tiered):
        if isinstance(what, Refused):
            findings.add(Kind.KEYS, f"the quorum's key cannot be read: {what.reason}")
            return
    first, last = before.tiered, after.tiered
    assert not isinstance(first, Refused) and not isinstance(last, Refused)
    if shown is None:
        if first is not None and first.end_offset > first.start_offset:
            findings.add(Kind.KEYS, f"the quorum's key says that offsets up to {first.end_offset} are copied, there is no row")
        return
    if last is None:
        findings.add(Kind.KEYS, "the quorum has no key of it, and the table shows rows")
        return
    known = [tiered for tiered in (first, last) if tiered is not None]
    same = next((tiered for tiered in known if tiered.end_offset == shown.end), None)
    if same is not None:
        _check_same(findings, same, last, shown, is_removing=_is_removing(known))
    elif not _is_under_way(first, last, shown.end):
        findings.add(Kind.KEYS, f"the quorum's key says that the table ends at {last.end_offset}, and it ends at {shown.end}")
    for base, segment in after.segments.items():
        if isinstance(segment, Refused):
            findings.add(Kind.KEYS, f"the quorum's key of this copy cannot be read: {segment.reason}", offset=base)
        elif last.start_offset < segment.end_offset <= shown.end:
            _check_segment(findings, segment, shown)


def _is_under_way(first: Tiered | None, last: Tiered, end: int) -> bool:
    """The table was opened between two copies, or between a copy and its COPY_FINISHED."""
    ends = {tiered.copying.end_offset for tiered in (first, last) if tiered is not None and tiered.copying is not None}
    low = last.start_offset if first is None else first.end_offset
    return end in ends or low < end < last.end_offset


def _is_removing(known: list[Tiered]) -> bool:
    """Old files are on their way out of the table, or were when it was opened."""
    return any(tiered.deleting is not None for tiered in known) or known[0].start_offset != known[-1].start_offset


def _check_same(findings: Findings, tiered: Tiered, last: Tiered, shown: Shown, *, is_removing: bool) -> None:
    pairs = [("incarnation", tiered.incarnation, shown.incarnation)]
    if is_removing and shown.start > last.start_offset:
        pairs.append(("first offset", last.start_offset, shown.start))
    elif not is_removing:
        pairs += _counts(tiered, shown)
    for what, said, found in pairs:
        if said != found:
            # A leader takes a table over first, and tells the quorum then.
            hint = " (right after a recovery: verify again)" if what == "incarnation" and found > said else ""
            findings.add(Kind.KEYS, f"{what}: the quorum's key says {said}, and the table shows {found}{hint}")


def _counts(tiered: Tiered, shown: Shown) -> list[tuple[str, int, int]]:
    # A file that somebody has rewritten may begin before the keys' start. The file goes as a whole, later.
    begins_before = shown.size is None and shown.start < tiered.start_offset
    return [
        ("first offset", tiered.start_offset, tiered.start_offset if begins_before else shown.start),
        ("number of copies", tiered.segments, tiered.segments if shown.segments is None else shown.segments),
        ("bytes", tiered.size, tiered.size if shown.size is None else shown.size),
    ]


def _words(epochs: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{epoch} from {offset} on" for epoch, offset in epochs)


def _check_segment(findings: Findings, segment: RemoteSegment, shown: Shown) -> None:
    base, last = segment.base_offset, segment.end_offset - 1
    span = shown.spans.get(segment.segment_id)
    if shown.segments is not None:
        said = f"the quorum's key of copy {segment.segment_id} has"
        if span is None or (span.first, span.last) != (base, last):
            found = "no row of it" if span is None else f"{span.first} to {span.last}"
            what = f"{said} the offsets {base} to {last}, and the table shows {found}"
            findings.add(Kind.KEYS, what, offset=base, file=segment.file)
        elif tuple(span.epochs) != segment.epochs:
            what = f"{said} the epochs {_words(segment.epochs)}, and the rows have {_words(span.epochs)}"
            findings.add(Kind.KEYS, what, offset=base, file=segment.file)
    # After OPTIMIZE the rows are in another file.
    file = shown.files.get(segment.file)
    if file is not None and (file.size, file.crc) != (segment.size, segment.crc):
        what = (
            f"the quorum's key says {segment.size} bytes with the checksum {segment.crc:#010x}, "
            f"the file has {file.size} with {file.crc:#010x}"
        )
        findings.add(Kind.FILE, what, offset=base, file=segment.file)
