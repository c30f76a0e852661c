"""Which prefix of a log may be deleted. Pure: segments and a time come in, an offset goes out."""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.ports.driver import SegmentInfo
from raftlake.replica.config import NodeConfig


def first_offset_to_keep(segments: Sequence[SegmentInfo], config: NodeConfig, wall_ms: int, high_watermark: int) -> int:
    """The first offset that must stay: whole closed segments below the high watermark go when they are older than
    `retention.ms` or, oldest first, while the log is larger than `retention.bytes`. The active segment always stays."""
    keep_from = segments[0].base_offset if segments else 0
    total_bytes = sum(segment.size for segment in segments)
    for segment in segments[:-1]:
        if segment.end_offset > high_watermark:
            break
        too_old = 0 <= config.retention_ms < wall_ms - segment.timestamp_ms_max
        too_much = 0 <= config.retention_bytes <= total_bytes - segment.size
        if not (too_old or too_much):
            break
        keep_from = segment.end_offset
        total_bytes -= segment.size
    return keep_from
