"""Partitions whose history is only in the remote tier, and a tier whose reads and searches wait for the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from copierkit import Keys
from enginekit import ORDERS, Ground
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import tier_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import FoundRecord, ReadRequest, SearchRequest, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.read_tally import ReadTally
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.batches import iterate_headers
from raftlake.wire.ids import id_to_text

ABSENT = TierError(TierFailure.ABSENT, "the table does not show it")
LOST = TierError(TierFailure.UNKNOWN, "no answer")
DAMAGED = TierError(TierFailure.DAMAGED, "partition=0/a.parquet has 7 bytes and not 70")


@dataclass
class HistoryTier:
    """Notes what is asked, and answers from `data` when the test says so."""

    data: dict[GroupId, bytes] = field(default_factory=dict)
    reads: list[tuple[ReadRequest, Callable[[bytes | TierError], None]]] = field(default_factory=list)
    searches: list[tuple[SearchRequest, Callable[[FoundRecord | TierError | None], None]]] = field(default_factory=list)

    def read(self, request: ReadRequest, done: Callable[[bytes | TierError], None]) -> None:
        self.reads.append((request, done))

    def search(self, request: SearchRequest, done: Callable[[FoundRecord | TierError | None], None]) -> None:
        self.searches.append((request, done))

    @property
    def asked(self) -> list[int]:
        """The offsets of the reads that are under way."""
        return [request.offset for request, _ in self.reads]

    def give(self, index: int = 0) -> ReadRequest:
        """A read is answered with what was asked for."""
        request, done = self.reads.pop(index)
        data = self.data[request.lineage.group]
        found = b""
        for header in iterate_headers(data):
            if header.end_offset <= request.offset:
                continue
            batch = data[header.position : header.end_position]
            if header.end_offset > request.end_offset or (found and len(found) + len(batch) > request.size_max):
                break
            found += batch
        done(found)
        return request

    def answer(self, answer: bytes | TierError, index: int = 0) -> None:
        """A read is answered so."""
        _, done = self.reads.pop(index)
        done(answer)

    def found(self, answer: FoundRecord | TierError | None) -> SearchRequest:
        """The oldest search is answered so."""
        request, done = self.searches.pop(0)
        done(answer)
        return request


class RemoteWorld:
    """Node 1 leads partitions of a topic; each log is as it was written, and begins behind what was trimmed."""

    def __init__(self, *, is_on: bool = True, **settings: Any) -> None:
        self.ground, self.keys, self.tier = Ground(segment_bytes=100, **settings), Keys(), HistoryTier()
        keys: Any = self.keys
        self.remote_log = RemoteLog(self.ground.engine, keys, is_on=is_on)
        # There is no metadata log that might tell of deleted records.
        self.remote_log._knows_deletions = True
        self.tally = ReadTally(self.ground.engine)

    def partition(
        self, index: int = 0, *, batches: int = 10, size: int = 10, local_from: int = 6, copied: int = 8
    ) -> Partition:
        """A control record at 0, and batches of one record each behind it. The table has [0, copied)."""
        partition = self.ground.lead(ORDERS._replace(partition=index))
        for offset in range(1, batches + 1):
            self.ground.append(partition, bytes([offset]) * size)
        self.tier.data[partition.group] = partition.log.read(Offset(0), partition.log.end_offset, 1 << 30)
        self.say(partition, 0, copied)
        self.trim(partition, local_from)
        return partition

    def say(self, partition: Partition, start: int, end: int) -> None:
        """What the quorum's key says from now on."""
        tiered = Tiered(start_offset=Offset(start), end_offset=Offset(end), epochs=((partition.core.epoch, Offset(start)),))
        key = tier_key(id_to_text(partition.group.topic_id), partition.group.partition)
        self.keys.apply(Txn((), (Put(key, encode_tiered(tiered)),)))

    @staticmethod
    def trim(partition: Partition, start: int) -> None:
        """The local log begins there from now on."""
        assert partition.log.advance_start(Offset(start)) == start

    def batches(self, partition: Partition, start: int, end: int) -> bytes:
        """As the log had them."""
        data = self.tier.data[partition.group]
        return b"".join(
            data[each.position : each.end_position]
            for each in iterate_headers(data)
            if start <= each.base_offset and each.end_offset <= end
        )


def record(offset: int, timestamp_ms: int, epoch: int = 1) -> FoundRecord:
    return FoundRecord(offset=Offset(offset), timestamp_ms=timestamp_ms, epoch=Epoch(epoch))
