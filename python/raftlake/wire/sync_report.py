"""Whom a node misses, as it tells the replicas that fetch from it: a tagged field of our own in Fetch responses.

Owns the value and its bytes. Kafka's own nodes pass the tag over. The content is an array of nodes that are gone, or null,
then an array of sets. A set is an array of nodes and an array of topics (16 bytes of id, an array of partitions): these nodes
lag in all these partitions. Nodes and partitions have four bytes, lengths of arrays are varints.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from raftlake.errors import WireError
from raftlake.wire.primitives import (
    I32,
    ID_BYTES,
    BytesLike,
    read_count,
    read_id,
    read_nullable_count,
    require_end,
    write_count,
)


class Lagging(NamedTuple):
    """Replicas of one partition, by node, ascending. They have not had the end of its leader's log for too long."""

    topic_id: bytes
    partition: int
    nodes: tuple[int, ...]


class SyncReport(NamedTuple):
    """What one node says. It counts for the partitions that the node leads."""

    #: Nodes that it has not heard of, ascending. None: it does not lead the quorum's log, and cannot say.
    gone: tuple[int, ...] | None = None
    #: A partition in which no replica lags is absent.
    lagging: tuple[Lagging, ...] = ()


def encode_sync_report(report: SyncReport) -> bytearray:
    """The content of the tag. Partitions with the same nodes share a set."""
    sets: dict[tuple[int, ...], dict[bytes, list[int]]] = {}
    for topic_id, partition, nodes in report.lagging:
        sets.setdefault(nodes, {}).setdefault(topic_id, []).append(partition)
    out = bytearray()
    _write_numbers(out, report.gone)
    write_count(out, len(sets), True)
    for nodes, topics in sets.items():
        _write_numbers(out, nodes)
        write_count(out, len(topics), True)
        for topic_id, partitions in topics.items():
            out += topic_id
            _write_numbers(out, partitions)
    return out


def decode_sync_report(content: BytesLike) -> SyncReport:
    """The report, its partitions perhaps in another order. Raises WireError or one of `DECODE_ERRORS` for other bytes."""
    gone, position = _read_nullable_numbers(content, 0)
    lagging: list[Lagging] = []
    set_count, position = read_count(content, position, True, 2)
    for _ in range(set_count):
        nodes, position = _read_numbers(content, position)
        topic_count, position = read_count(content, position, True, ID_BYTES + 1)
        for _ in range(topic_count):
            topic_id, position = read_id(content, position)
            partitions, position = _read_numbers(content, position)
            lagging += [Lagging(topic_id, partition, nodes) for partition in partitions]
    require_end(content, position, "the report of lagging replicas")
    return SyncReport(gone, tuple(lagging))


def _write_numbers(out: bytearray, numbers: Sequence[int] | None) -> None:
    if numbers is None:
        write_count(out, -1, True)
        return
    write_count(out, len(numbers), True)
    out += struct.pack(f">{len(numbers)}i", *numbers)


def _read_nullable_numbers(content: BytesLike, position: int) -> tuple[tuple[int, ...] | None, int]:
    count, position = read_nullable_count(content, position, True, I32.size)
    if count is None:
        return None, position
    return struct.unpack_from(f">{count}i", content, position), position + count * I32.size


def _read_numbers(content: BytesLike, position: int) -> tuple[tuple[int, ...], int]:
    numbers, position = _read_nullable_numbers(content, position)
    if numbers is None:
        raise WireError("an array of nodes or partitions is null")
    return numbers, position
