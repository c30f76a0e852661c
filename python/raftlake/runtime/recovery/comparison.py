"""What a survivor's logs lack of what the Delta tables show (`tier.inventory`). Nothing is read or written here.

Owns the words for it. Tables that could not be read are never taken for none: an operator has to say that they are lost. So it
is with a table that is absent and was there by the quorum's keys (`key_space`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import LineageFacts
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.entries import Tiered
from raftlake.tier.lineage import Epochs, Piece, agreed
from raftlake.tier.told import ToldPartition, ToldTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A survivor's log beside its table."""

    start_offset: Offset
    #: Exclusive.
    end_offset: Offset
    #: Records of the table that the log does not have, or has otherwise. A recovery supersedes them.
    leaving: int
    #: Why; "" where the log has all that the table shows.
    reason: str


def compare(facts: LineageFacts, log_start: Offset, log_end: Offset, epochs: Epochs) -> Shown:
    """`epochs` are those of the log, from its start on. What the table shows before that is the log's own history where the
    two agree at the log's start."""
    start, end = facts.start_offset, facts.end_offset
    kept, reason = end, ""
    if start < end < log_start:
        kept, reason = start, f"its table ends at {end}, and this log begins at {log_start} only"
    elif max(start, log_start) < end:
        base = max(start, log_start)
        piece = Piece(name="", base_offset=start, end_offset=end, epochs=facts.epochs, is_live=True)
        ranges = agreed(piece, epochs, log_end)
        kept = next((each.end_offset for each in ranges if each.base_offset <= base < each.end_offset), base)
        if kept < end:
            reason = (
                f"its table shows offsets up to {end}, this log ends at {log_end}"
                if kept >= min(log_end, end)
                else f"its table has other records than this log from offset {kept} on"
            )
    if reason:
        count = end - kept
        reason = f"{reason}: {count} {'record' if count == 1 else 'records'} would leave the table"
    return Shown(start_offset=start, end_offset=end, leaving=end - kept, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the tables tell beside the directory of a survivor."""

    partitions: Mapping[GroupId, ToldPartition]
    #: Why the tables could not be read; None where they were.
    failure: str | None
    #: Partitions without a table of which the quorum's keys tell one, and what to do.
    missing: Mapping[GroupId, str] = field(default_factory=dict)

    def epoch_of(self, group: GroupId, quorum_group: GroupId) -> Epoch:
        """What a new epoch has to be above. The quorum's own log has no table: there it is the highest of all."""
        if group == quorum_group:
            return Epoch(max((told.leader_epoch for told in self.partitions.values()), default=0))
        told = self.partitions.get(group)
        return Epoch(0) if told is None else told.leader_epoch

    def facts_of(self, group: GroupId) -> LineageFacts | None:
        """None where no table shows rows of it, or ever did."""
        told = self.partitions.get(group)
        return None if told is None else told.facts

    def unknown(self, known: Iterable[GroupId]) -> dict[GroupId, Shown]:
        """Partitions with records in their tables, and without a log in the directory."""
        there = set(known)
        found: dict[GroupId, Shown] = {}
        for group, told in self.partitions.items():
            facts = told.facts
            if group in there or facts is None or facts.end_offset == facts.start_offset:
                continue
            count = facts.end_offset - facts.start_offset
            found[group] = Shown(
                start_offset=facts.start_offset,
                end_offset=facts.end_offset,
                leaving=count,
                reason=f"its table shows {count} records, and this directory has no log of it",
            )
        return found


#: Without a tier.
NO_TABLES = Comparison(partitions={}, failure=None)


def comparison_of(tables: Sequence[ToldTable], copied: Mapping[GroupId, Tiered], uri: str) -> Comparison:
    """The tables of the survivor's own cluster, that were looked for at `uri`. `copied`: what its directory knows of the
    quorum's keys."""
    known = {group: told for table in tables if not table.is_dropped for group, told in table.groups()}
    topics = {table.topic_id for table in tables}
    missing = {group: _missing(tiered, uri) for group, tiered in copied.items() if group.topic_id not in topics}
    return Comparison(partitions=known, failure=None, missing=missing)


def _missing(tiered: Tiered, uri: str) -> str:
    return (
        f"the quorum's keys tell of a table with the offsets {tiered.start_offset} to {tiered.end_offset - 1}, and {uri} has "
        "none of it: mount the file system that it is on, or correct tier.uri"
    )


def absent(uri: str) -> Comparison:
    """There is no such directory, and the directory of the survivor knows of no copy. The lost nodes may have made some."""
    return unread(
        f"there is no directory {uri}. It may be on a file system that is not mounted: mount that. Where no node has ever "
        f"copied anything, nothing can be lost there: make the directory, empty (mkdir {uri}), and run this again"
    )


def unread(failure: str) -> Comparison:
    return Comparison(partitions={}, failure=failure)
