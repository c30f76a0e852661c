"""Which partition a record goes to: by its key as Kafka's default partitioner does, or in turn without one."""

from __future__ import annotations

from collections.abc import Sequence

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned."""
    length = len(data)
    hash_ = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        hash_ = hash_ * _M & _MASK ^ k
    tail = data[whole:]
    if tail:
        hash_ = (hash_ ^ int.from_bytes(tail, "little")) * _M & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _M & _MASK
    return hash_ ^ hash_ >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's Java client gives this key: the hash without its sign bit, modulo the count."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class RoundRobin:
    """The partition for records without a key: each topic's partitions in turn, one batch each."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def next(self, topic: str, partitions: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return partitions[turn % len(partitions)]
