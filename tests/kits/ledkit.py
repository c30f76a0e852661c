"""One led partition, and the answers of its tier and of the quorum, which a test gives by hand."""

from __future__ import annotations

from typing import Any

from copierkit import Keys, Tier
from enginekit import ORDERS, WALL_MS_AT_START, Ground
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import tier_key
from raftlake.ports.tier import (
    Lineage,
    LineageFacts,
    RemoteFile,
    RemoteSegment,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.led import LedPartition
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.step import TierCounts
from raftlake.tier.entries import Tiered, decode_tiered, encode_tiered
from raftlake.wire.ids import id_to_text

TOPIC_ID = id_to_text(ORDERS.topic_id)
KEY = tier_key(TOPIC_ID, 0)
LINEAGE = Lineage(ORDERS, 0)
DAMAGED = TierError(TierFailure.DAMAGED, "partition=0/x.parquet is not as it was written")
LOST = TierError(TierFailure.UNKNOWN, "no answer")
INTERVAL_MS = 5_000


class World:
    """A partition that node 1 leads, with a control record at 0."""

    def __init__(self, **settings: Any) -> None:
        self.ground = Ground(**{"tier_target_lag_ms": 1_000, **settings})
        self.partition: Partition = self.ground.lead(ORDERS)
        self.keys, self.tier = Keys(), Tier()
        self.lead()

    def lead(self) -> None:
        keys: Any = self.keys
        self.counts = TierCounts()
        remote_log = RemoteLog(self.ground.engine, keys, is_on=True)
        self.findings = Findings(self.ground.engine)
        self.led = LedPartition(self.ground.engine, keys, self.tier, self.partition, remote_log, self.counts, self.findings)
        self.led.learn()

    def close_segment(self) -> None:
        self.ground.append(self.partition, b"x", b"x")
        self.partition.roll()

    def go_on(self, later_ms: int = 0) -> None:
        self.ground.time.ms += later_ms
        self.ground.engine.begin_input()
        self.led.go_on()
        self.only_one_call()

    def only_one_call(self) -> None:
        assert self.tier.under_way + len(self.keys.proposed) <= 1

    def copy_one(self) -> RemoteSegment:
        """Announced, made and finished; what comes next has begun."""
        self.close_segment()
        if not self.led.is_busy:
            self.go_on()
        while not self.tier.copies:
            self.step()
        copied = self.tier.copied()
        while self.tiered.end_offset < copied.end_offset:
            self.step()
        return copied

    def step(self) -> None:
        """What is under way ends well."""
        if self.keys.proposed:
            self.keys.commit()
        elif self.tier.checks:
            self.tier.checked()
        elif self.tier.looks:
            self.answer_look()
        else:
            self.go_on(INTERVAL_MS)
        self.only_one_call()

    def settle(self) -> None:
        """All proposals and checks that are under way end well."""
        while self.keys.proposed or self.tier.checks:
            self.step()

    @property
    def tiered(self) -> Tiered:
        entry = self.keys.machine.get(KEY)
        found = Tiered(start_offset=Offset(0), end_offset=Offset(0)) if entry is None else decode_tiered(entry.value)
        assert isinstance(found, Tiered)
        return found

    def put(self, tiered: Tiered) -> None:
        """Another leader has changed the key."""
        self.keys.apply(Txn((), (Put(KEY, encode_tiered(tiered)),)))

    def answer_look(self, *files: RemoteFile) -> None:
        _, _, done = self.tier.looks.pop(0)
        done(files)
        self.only_one_call()

    def answer_delete(self, answer: Offset | TierError) -> tuple[Lineage, Epoch, Offset]:
        lineage, epoch, until, done = self.tier.deletes.pop(0)
        done(answer)
        self.only_one_call()
        return lineage, epoch, until

    def answer_facts(self, answer: LineageFacts | TierError) -> None:
        _, done = self.tier.asked_facts.pop(0)
        done(answer)
        self.only_one_call()


def file(base: int, end: int, time_ms: int = WALL_MS_AT_START, log_bytes: int = 10) -> RemoteFile:
    return RemoteFile(base_offset=Offset(base), end_offset=Offset(end), timestamp_ms_max=time_ms, size=100, log_bytes=log_bytes)


def facts(start: int, end: int, segments: int) -> LineageFacts:
    return LineageFacts(
        lineage=LINEAGE,
        leader_epoch=Epoch(1),
        start_offset=Offset(start),
        end_offset=Offset(end),
        segments=segments,
        size=100 * segments,
        log_bytes=10 * segments,
        epochs=((Epoch(1), Offset(start)),),
        newest=(),
    )


def copied_world(**settings: Any) -> World:
    """Three copies of two records each, read back; the log has no more."""
    world = World(retention_check_interval_ms=INTERVAL_MS, **settings)
    for _ in range(3):
        world.copy_one()
    for _ in range(10):
        world.step()
        if world.tiered.safe_offset == 7:
            break
    assert (world.tiered.end_offset, world.tiered.safe_offset, world.tiered.log_bytes) == (7, 7, 30)
    while world.keys.proposed:
        world.keys.commit()
    world.tier.looks.clear()
    world.led.close()
    world.lead()
    return world
