"""A compacted topic and its clients: its producers write and delete a few keys over and over, readers read all of it.

The producers are those of other topics; `KeyedTopic` makes their records. A key and whether it is deleted follow from the
unique value of a record, which stands in a header: so a repetition is the same record, and tombstones can be told apart too.
Readers begin at the start, and go on at one node or at any, until they are at the end. They are judged when the run is over
(`histories.keyed`), since only then all is known that was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import SEGMENT_BYTES
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, KEYED, Client, Shared
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.committed_readers import committed_records, end_of
from raftlake.sim.clients.configurer import Configurer
from raftlake.sim.clients.messages import READ_COMMITTED, ask_fetch
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import Settings
from raftlake.sim.histories.keyed import FullRead, Written, check_read, check_replica
from raftlake.sim.histories.transactions import Transaction, check_ended, check_transactions, standing
from raftlake.sim.oracle import Oracle
from raftlake.wire.batches import Record, decode_records
from raftlake.wire.fetch_response import FetchPartitionResult

#: The header that holds what is unique about a record.
UNIQUE = "unique"
#: One record of so many deletes its key.
DELETES_ONE_IN = 4
CODECS = ("none", "none", "none", "gzip", "lz4", "zstd")
#: A reader with other things to do sleeps so long between two answers, in one of so many steps.
SLOW_ONE_IN, SLOW_MS = 8, 1_500
#: Clocks may drift by 5 %, and jump: then nobody knows when a tombstone goes.
SURE_PERCENT = 90
#: Bytes of a segment of a simulated disk.
SEGMENT_BYTES_HERE = 300


@dataclass(slots=True)
class KeyedTopic:
    """The `Target` of producers with keys, and what its readers were shown. It has one partition."""

    settings: Settings
    #: How much of a group is committed anywhere.
    committed_end: Callable[[GroupId], int]
    topic_id: bytes | None = None
    oracle: Oracle = field(default_factory=partial(Oracle, 1))
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[FullRead] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return KEYED

    @property
    def partitions(self) -> int:
        return 1

    @property
    def trims(self) -> bool:
        return self.settings.keyed_trims > 0 or self.settings.keyed_deleters > 0

    @property
    def batches_known(self) -> int:
        """A replica that has only what compaction left knows the newest batch of each producer."""
        return 1

    def group(self, partition: int) -> GroupId:
        assert self.topic_id is not None
        return GroupId(KEYED, partition, self.topic_id)

    def record(self, value: bytes) -> Record:
        drawn = crc32(value)
        key = f"key{drawn % self.settings.keyed_keys}".encode()
        is_deletion = drawn // self.settings.keyed_keys % DELETES_ONE_IN == 0
        return Record(key=key, value=None if is_deletion else value, headers=((UNIQUE, value),))

    def compression(self, value: bytes) -> str:
        return CODECS[crc32(value) % len(CODECS)]

    def configs(self) -> dict[str, str]:
        """Those that it is created with."""
        settings = self.settings
        found = {
            "cleanup.policy": "compact,delete" if self.trims else "compact",
            "min.cleanable.dirty.ratio": str(settings.keyed_dirty_percent / 100),
            "delete.retention.ms": str(settings.delete_retention_ms),
            "min.compaction.lag.ms": str(settings.compaction_lag_ms),
            "segment.bytes": str(SEGMENT_BYTES * SEGMENT_BYTES_HERE // settings.segment_bytes),
            "segment.ms": "3000",
            "retention.ms": "-1",
            "retention.bytes": "3000" if settings.keyed_trims else "-1",
        }
        # A disk that is as small as that has small segments anyhow.
        if settings.segment_bytes <= SEGMENT_BYTES_HERE:
            del found["segment.bytes"]
        return found

    # --- in the end ---

    def check(self, committed: Sequence[bytes], replicas: Sequence[tuple[str, int, Sequence[bytes]]]) -> None:
        """Raises Violation. `committed` are all batches that were ever committed; of each replica where it is, where its log
        begins, and its batches."""
        if self.topic_id is None:
            return
        self.oracle.check_partition(0, [_unique(record) for batch in committed for record in decode_records(batch)])
        stands = standing(committed)
        by_value = {record.offset: record.value or b"" for batch in committed for record in map(_unique, decode_records(batch))}
        visible = {offset: by_value[offset] for offset in stands.visible}
        trimmed_to = max((start for _, start, _ in replicas), default=0)
        # Where a log begins behind all records of an open transaction, nobody knows it any more, and its marker is not written.
        gone = {by_value[offset] for offset in stands.unmarked if offset < trimmed_to}
        check_transactions(self.transactions, {0: type(stands)(visible, stands.open)}, gone)
        check_ended(0, stands)
        written = Written(committed)
        for where, start, batches in replicas:
            check_replica(where, start, batches, written)
        for read in self.reads:
            check_read(read, written, trimmed_to=trimmed_to, retention_ms=self._sure_retention_ms)

    @property
    def _sure_retention_ms(self) -> int:
        settings = self.settings
        return 0 if settings.wall_jump_interval_ms else settings.delete_retention_ms * SURE_PERCENT // 100


def _unique(record: Record) -> Record:
    """The record as the oracle knows it: by what is unique."""
    (named,) = record.headers
    return record._replace(value=named[1])


class KeyedReader(Client):
    """Reads all of the topic, again and again. Each time it sees all records, or those of committed transactions only; it asks
    one node or any, and it may be slow."""

    def __init__(self, shared: Shared, name: str, target: KeyedTopic) -> None:
        super().__init__(shared, name)
        self._target = target
        self._read: FullRead | None = None
        self._isolation = 0
        #: None: any node.
        self._sticks_to: NodeId | None = None
        self._is_slow = False

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
            return
        read = self._read or self._begin_at(0)
        node_id = self.any_node() if self._sticks_to is None else self._sticks_to
        fetch = ask_fetch(KEYED, 0, read.position, isolation=self._isolation)
        self.shared.calls.call(node_id, fetch, partial(self._on_answer, node_id), CALL_TIMEOUT_MS)

    def _begin_at(self, start: int) -> FullRead:
        if start == 0:
            self._isolation = READ_COMMITTED if self.rng.randrange(2) else 0
            self._sticks_to = self.any_node() if self.rng.randrange(2) else None
            self._is_slow = self.rng.randrange(3) == 0
        self._read = FullRead(f"{self.name} ({self._isolation})", start, start, self._now_ms)
        return self._read

    @property
    def _now_ms(self) -> int:
        return self.shared.scheduler.now_us // US_PER_MS

    def _on_answer(self, node_id: NodeId, answer: Any) -> None:
        read = self._read
        assert read is not None
        is_answer = not isinstance(answer, CallFailure) and answer.error is ErrorCode.NONE and answer.topics
        result: FetchPartitionResult | None = answer.topics[0].partitions[0] if is_answer else None
        if result is not None and result.error is ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > read.position:
            self._begin_at(result.log_start_offset)
            self.succeed()
        elif result is None or result.error is not ErrorCode.NONE:
            # It is there for the nodes that serve. One that does not for long is left.
            self._sticks_to = None
            self.give_up()
        else:
            read.nodes.add(node_id)
            self._take(read, result)

    def _take(self, read: FullRead, result: FetchPartitionResult) -> None:
        is_committed = self._isolation == READ_COMMITTED
        records = committed_records(result) if is_committed else decode_records(result.records or b"")
        read.records += [record for record in records if record.offset >= read.position]
        read.position = end_of(result, read.position)
        if read.position >= (result.last_stable_offset if is_committed else result.high_watermark):
            read.ended_ms = self._now_ms
            read.committed_end = self._target.committed_end(self._target.group(0))
            self._target.reads.append(read)
            self._read = None
            self.shared.operations.coverage.note("full reads of a compacted topic")
            self.say(f"read all of {KEYED} up to {read.position}: {len(read.records)} records")
        is_sleepy = self._is_slow and not self.shared.is_healed and self.rng.randrange(SLOW_ONE_IN) == 0
        self.succeed(SLOW_MS if is_sleepy else 0)


class KeyedConfigurer(Configurer):
    """Changes when and how the topic is compacted, also whether it is. Tombstones never stay for less than in the beginning."""

    def __init__(self, shared: Shared, name: str, target: KeyedTopic) -> None:
        super().__init__(shared, name, target)
        settings = shared.settings
        retention_ms = settings.delete_retention_ms
        self._changes = {
            "min.cleanable.dirty.ratio": ("0.0", "0.2", "0.9", None),
            "delete.retention.ms": (str(retention_ms), str(2 * retention_ms), None),
            "min.compaction.lag.ms": ("0", "1000", None),
            "segment.ms": ("1500", "6000", None),
        }
        if target.trims:
            self._changes["cleanup.policy"] = ("compact", "compact,delete")
        elif settings.tier_lag_ms:
            self._changes["cleanup.policy"] = ("compact",)
        else:
            self._changes["cleanup.policy"] = ("compact", "delete", None)

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
        else:
            self._alter()
