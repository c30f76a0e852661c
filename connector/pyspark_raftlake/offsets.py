"""Offsets of a query, and the JSON in which users, checkpoints and Spark's Kafka connector write them.

An offset is the *next* one to read, so an end offset is exclusive. JSON: `{"topic":{"0":23,"1":-2}}`, where -1 stands for the
latest offset and -2 for the earliest (in options only, never in a checkpoint). Rendered offsets are sorted by topic and
partition, because Spark compares the texts to see whether there is anything new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from raftlake.errors import ConfigError

LATEST = -1
EARLIEST = -2
#: Only in questions to the nodes: the first offset on local disks; the last one in the remote tier, -1 without any.
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
#: So begin the topics that raftlake keeps for itself: changes of state, large files of checkpoints.
OWN_TOPICS = "__raftlake-"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]


# --- where a query begins or ends --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset that each partition still holds."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition at the time of the first plan."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset per partition; LATEST and EARLIEST stand for themselves."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after a time, the same for all partitions."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time per partition."""

    timestamps_ms: Mapping[TopicPartition, int]


Position = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


# --- JSON ------------------------------------------------------------------------------------------------------------------


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """`{"topic":{"0":23}}` as a map; raises ConfigError on anything else."""
    return offsets_of(_parse(text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'))


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1],"topicB":[2,4]}` as a sorted tuple; raises ConfigError on anything else."""
    example = '{"topicA":[0,1],"topicB":[2,4]}'
    document = _parse(text, example)
    found: set[TopicPartition] = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(_is_count(partition) for partition in partitions):
            raise ConfigError(f"Expected e.g. {example}, got {text}")
        found.update(TopicPartition(topic, partition) for partition in partitions)
    return tuple(sorted(found))


def offsets_of(document: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The decoded JSON as a map sorted by topic and partition; raises ConfigError when it is something else."""
    found: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"Expected offsets per partition for topic {topic!r}, got {partitions!r}")
        for partition, offset in partitions.items():
            if not partition.isascii() or not partition.isdigit():
                raise ConfigError(f"Topic {topic!r}: {partition!r} is not a partition number")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
                raise ConfigError(f"Topic {topic!r}, partition {partition}: {offset!r} is not an offset")
            found[TopicPartition(topic, int(partition))] = offset
    return dict(sorted(found.items()))


def document_of(offsets: Offsets) -> dict[str, dict[str, int]]:
    """What Spark serialises into the checkpoint, sorted by topic and partition."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def topics_of(partitions: Iterable[TopicPartition]) -> list[str]:
    """The topics of some partitions, sorted."""
    return sorted({partition.topic for partition in partitions})


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers per topic, both sorted."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _parse(text: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"Expected e.g. {example}, got {text}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"Expected e.g. {example}, got {text}")
    return document


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
