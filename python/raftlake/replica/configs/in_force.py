"""What a node does for the partitions of one topic: the topic's configs over the node's settings, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raftlake.replica.config import NodeConfig
from raftlake.replica.configs.definitions import (
    AS_RETENTION,
    COMPACT,
    DELETE,
    LOG_APPEND_TIME,
    LONG_MAX,
    Surroundings,
    list_of,
    value_in_force,
)

#: `segment.ms` of a topic that closes no segment for its age.
NEVER_MS = LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRules:
    """How a topic wants to be compacted (KIP-58, KIP-534)."""

    #: A log is compacted from that part of uncompacted bytes on, 0 to 1.
    dirty_ratio: float
    #: How long a tombstone stays after the pass that found it.
    delete_retention_ms: int
    #: How long a record stays in any case.
    lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Sizes in bytes, times in milliseconds, -1 for "no limit"."""

    #: None: the topic is not compacted.
    compaction: CompactionRules | None
    #: Retention deletes old records (cleanup.policy has delete).
    deletes: bool
    #: What is kept of a partition: with a remote tier of table and local log together.
    retention_bytes: int
    retention_ms: int
    #: What local disks keep of that with a remote tier.
    local_bytes: int
    local_ms: int
    segment_bytes: int
    segment_ms: int
    message_bytes_max: int
    #: The leader writes its time into batches (message.timestamp.type=LogAppendTime).
    stamps_time: bool


def in_force(configs: Mapping[str, str], node: NodeConfig) -> InForce:
    """Never raises: what is not accepted counts as not set. Depends on the configs and the node's settings alone."""
    # No majority counts here: nothing follows from min.insync.replicas.
    around = Surroundings(node=node, majority=1, is_tiered=True)

    def number(name: str) -> int:
        return int(value_in_force(name, configs, around))

    retention_bytes, retention_ms = number("retention.bytes"), number("retention.ms")
    policies = list_of(value_in_force("cleanup.policy", configs, around))
    compaction = CompactionRules(
        dirty_ratio=float(value_in_force("min.cleanable.dirty.ratio", configs, around)),
        delete_retention_ms=number("delete.retention.ms"),
        lag_ms=number("min.compaction.lag.ms"),
    )
    return InForce(
        compaction=compaction if COMPACT in policies else None,
        deletes=DELETE in policies,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
        local_bytes=_at_most(number("local.retention.bytes"), retention_bytes),
        local_ms=_at_most(number("local.retention.ms"), retention_ms),
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        message_bytes_max=number("max.message.bytes"),
        stamps_time=value_in_force("message.timestamp.type", configs, around) == LOG_APPEND_TIME,
    )


def _at_most(local: int, whole: int) -> int:
    """What local disks keep: nothing longer than in all, whatever node and topic say together."""
    if local == AS_RETENTION or (whole >= 0 and not 0 <= local <= whole):
        return whole
    return local
