"""Which whole files of a table are older, or more, than what is kept in all. Pure: values in, an offset out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftlake.ports.tier import RemoteFile
from raftlake.raft.types import Offset


@dataclass(frozen=True, slots=True)
class TotalRule:
    """`retention.bytes` and `retention.ms` of a partition with a table: what table and local log keep together. -1: all."""

    retention_bytes: int
    retention_ms: int

    def may_end_something(self, total_bytes: int, has_deleted: bool = False) -> bool:
        """Whether it is worth asking which files are the oldest. `total_bytes`: of the log, in the table and behind it.
        `has_deleted`: the table begins before the first record that is not deleted."""
        return has_deleted or self.retention_ms >= 0 or 0 <= self.retention_bytes < total_bytes

    def first_kept(
        self, files: Sequence[RemoteFile], *, total_bytes: int, copied_end: Offset, wall_ms: int, deleted_below: int = 0
    ) -> Offset | None:
        """Behind the last of the oldest files that go; None where all stay. `files` come in the order of offsets. A file whose
        records are all below `deleted_below` goes in any case.

        The file with the newest copy always stays: a clock that is wrong leaves a table that goes on where it ended."""
        kept: Offset | None = None
        for index, file in enumerate(files):
            # What has no time is as old as what follows it.
            newest_ms = next((each.timestamp_ms_max for each in files[index:] if each.timestamp_ms_max >= 0), wall_ms)
            too_old = 0 <= self.retention_ms < wall_ms - newest_ms
            too_much = 0 <= self.retention_bytes <= total_bytes - file.log_bytes
            if file.end_offset >= copied_end or not (too_old or too_much or file.end_offset <= deleted_below):
                break
            kept = file.end_offset
            total_bytes -= file.log_bytes
        return kept
