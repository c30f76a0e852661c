"""Topics with their partitions, as the private messages (ReadOffset, FindQuorum) list them. All flexible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from raftlake.errors import WireError
from raftlake.wire.common import PARTITIONS_MAX
from raftlake.wire.primitives import I32, read_count, read_string, skip_tags, write_nullable_string, write_uvarint

T = TypeVar("T")
E = TypeVar("E")


@dataclass(slots=True)
class TopicPartitions:
    """A topic of a request and the indexes of the partitions that it asks about."""

    name: str
    partitions: list[int]


class _Topic(Protocol[E]):
    name: str
    partitions: list[E]


def write_topics(out: bytearray, topics: Sequence[_Topic[E]], write: Callable[[bytearray, E], None]) -> None:
    """`write` writes the fields of one partition; the tags behind them are written here."""
    write_uvarint(out, len(topics) + 1)
    for topic in topics:
        write_nullable_string(out, topic.name, True)
        write_uvarint(out, len(topic.partitions) + 1)
        for partition in topic.partitions:
            write(out, partition)
            out.append(0)
        out.append(0)


def read_topics(
    view: memoryview,
    position: int,
    size_min: int,
    read: Callable[[memoryview, int], tuple[E, int]],
    make: Callable[[str, list[E]], T],
) -> tuple[list[T], int]:
    """`read` reads the fields of one partition, at least `size_min` bytes; `make` makes a topic of its partitions."""
    topic_count, position = read_count(view, position, True, 3)
    topics: list[T] = []
    budget = PARTITIONS_MAX
    for _ in range(topic_count):
        name, position = read_string(view, position, True)
        count, position = read_count(view, position, True, size_min + 1)
        budget -= count + 1
        if budget < 0:
            raise WireError(f"message names more than {PARTITIONS_MAX} partitions")
        partitions: list[E] = []
        for _ in range(count):
            partition, position = read(view, position)
            position = skip_tags(view, position)
            partitions.append(partition)
        position = skip_tags(view, position)
        topics.append(make(name, partitions))
    return topics, position


def write_asked(out: bytearray, topics: Sequence[TopicPartitions]) -> None:
    """The topics of a request."""
    write_topics(out, topics, _write_index)


def read_asked(view: memoryview, position: int) -> tuple[list[TopicPartitions], int]:
    """The topics of a request."""
    return read_topics(view, position, I32.size, _read_index, TopicPartitions)


def _write_index(out: bytearray, index: int) -> None:
    out += I32.pack(index)


def _read_index(view: memoryview, position: int) -> tuple[int, int]:
    (index,) = I32.unpack_from(view, position)
    return index, position + 4
