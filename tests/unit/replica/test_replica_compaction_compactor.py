"""Which log is compacted when, and what a pass is told: on a node that leads its partitions alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from enginekit import ORDERS, Ground, Noted
from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.compaction.cleanable import Cleanable
from raftlake.replica.compaction.compactor import FAILED_BACKOFFS, Compactor, _Newest
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.producer_care import ProducerCare
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers
from raftlake.wire.control import EndMarker, end_marker_batch

BACKOFF_MS = 1_000
INTERVAL_MS = 250
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5", "delete.retention.ms": "5000"}


class House:
    """A node that leads some partitions of one compacted topic."""

    def __init__(self, count: int = 1, **configs: str) -> None:
        self.ground = ground = Ground(cleaner_backoff_ms=BACKOFF_MS)
        self.partitions = [ground.lead(ORDERS._replace(partition=index)) for index in range(count)]
        for partition in self.partitions:
            self.ask(partition, **configs)
        self.disk: Any = Noted()
        self.disk.is_full = False
        self.findings = Findings(ground.engine)
        #: The nodes that have an address.
        self.registered = {ground.engine.config.node_id}
        self.told: list[tuple[GroupId, int]] = []
        self.compactor = Compactor(
            ground.engine,
            disk=self.disk,
            findings=self.findings,
            producers=ProducerCare(ground.engine),
            about_to_compact=lambda group, until: self.told.append((group, until)),
            registered=lambda: self.registered,
        )

    def ask(self, partition: Partition, **configs: str) -> None:
        asked = {**COMPACT, **{name.replace("_", "."): value for name, value in configs.items()}}
        partition.obey(in_force(asked, self.ground.engine.config))

    def put(self, partition: Partition, key: bytes, value: bytes | None, **fields: Any) -> None:
        record = Record(key=key, value=value)
        batch = build_batch([record], timestamp_ms=self.ground.time.wall_ms(), **fields)
        self.append(partition, batch)

    def append(self, partition: Partition, batch: bytearray) -> None:
        headers = tuple(iterate_headers(batch))
        idempotent = headers[0].producer_id >= 0
        pending = PendingAppend(batch, headers, 1 << 40, lambda error, offset: None, idempotent=idempotent)
        partition.appending.append(pending)
        self.ground.append_waiting(partition)

    def fill(self, partition: Partition, *keys: bytes) -> None:
        """Put these keys, and close the segment."""
        for index, key in enumerate(keys):
            self.put(partition, key, b"%d" % index)
        partition.roll()

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // INTERVAL_MS):
            self.ground.run(INTERVAL_MS)
            self.compactor.tick()

    def keys(self, partition: Partition) -> list[tuple[int, bytes | None]]:
        """What the log holds: offset and key of each record of a client."""
        log = partition.log
        found: list[tuple[int, bytes | None]] = []
        offset = log.start_offset
        while offset < log.end_offset:
            data = log.read(offset, log.end_offset, 1 << 20)
            found += [(record.offset, record.key) for record in decode_records(data)]
            offset = Offset(list(iterate_headers(data))[-1].end_offset)
        return found


def passes(house: House) -> int:
    return house.compactor.counts.passes


def overhear(house: House, partition: Partition, monkeypatch: pytest.MonkeyPatch, *, answers: bool = True) -> list[Compaction]:
    """The passes that are begun."""
    heard: list[Compaction] = []
    compact = partition.log.compact

    def listen(request: Compaction, done: Any) -> None:
        heard.append(request)
        if answers:
            compact(request, done)

    monkeypatch.setattr(partition.log, "compact", listen)
    return heard


def test_closed_segments_are_compacted_and_the_open_one_is_not() -> None:
    house = House()
    (partition,) = house.partitions
    house.fill(partition, b"a", b"b", b"a")
    house.put(partition, b"b", b"last")
    house.put(partition, b"b", bytes(1_000))
    house.run(BACKOFF_MS * 2)
    # Offset 0 is the leader's own.
    assert house.keys(partition) == [(2, b"b"), (3, b"a"), (4, b"b"), (5, b"b")]
    assert house.told == [(partition.group, 4)], "the place below which records went"
    counts = house.compactor.counts
    assert (counts.passes, counts.failures, counts.records_removed) == (1, 0, 1) and counts.bytes_removed > 0
    partition.roll()
    house.run(BACKOFF_MS * 2)
    assert house.keys(partition) == [(3, b"a"), (5, b"b")]


def test_the_first_look_comes_after_a_pause() -> None:
    """A node that starts has other things to do."""
    house = House()
    house.fill(house.partitions[0], b"a", b"a")
    house.run(BACKOFF_MS - INTERVAL_MS)
    assert passes(house) == 0
    house.run(2 * INTERVAL_MS)
    assert passes(house) == 1


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    house = House(cleanup_policy="delete")
    house.fill(house.partitions[0], b"a", b"a")
    house.run(10 * BACKOFF_MS)
    assert passes(house) == 0 and house.compactor.dirtiest == 0.0
    house.ask(house.partitions[0], cleanup_policy="compact,delete")
    house.run(2 * BACKOFF_MS)
    assert passes(house) == 1


def test_little_that_is_dirty_waits_for_more() -> None:
    house = House(min_cleanable_dirty_ratio="0.5")
    (partition,) = house.partitions
    house.fill(partition, *[b"%d" % index for index in range(20)])
    house.run(2 * BACKOFF_MS)
    assert passes(house) == 1
    house.fill(partition, *[b"%d" % index for index in range(8)])
    house.run(10 * BACKOFF_MS)
    assert passes(house) == 1 and 0.2 < house.compactor.dirtiest < 0.5
    house.fill(partition, *[b"%d" % index for index in range(14)])
    house.run(2 * BACKOFF_MS)
    assert passes(house) == 2
    house.run(10 * BACKOFF_MS)
    assert (passes(house), house.compactor.dirtiest) == (2, 0.0)


def test_the_dirtiest_log_comes_first_and_the_others_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(3)
    for partition in house.partitions:
        house.fill(partition, *[b"%d" % index for index in range(10)])
    house.run(2 * BACKOFF_MS)
    assert passes(house) == 3
    order: list[int] = []
    for partition, count in zip(house.partitions, (12, 40, 20), strict=True):
        compact = partition.log.compact

        def listen(request: Compaction, done: Any, index: int = partition.group.partition, compact: Any = compact) -> None:
            order.append(index)
            compact(request, done)

        monkeypatch.setattr(partition.log, "compact", listen)
        house.fill(partition, *[b"%d" % index for index in range(count)])
    house.run(2 * BACKOFF_MS)
    assert order == [1, 2, 0]


def test_one_pass_is_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(2)
    heard = [overhear(house, partition, monkeypatch, answers=False) for partition in house.partitions]
    for partition in house.partitions:
        house.fill(partition, b"a", b"a")
    house.run(10 * BACKOFF_MS)
    assert sum(map(len, heard)) == 1


def test_a_young_record_keeps_its_segment_as_it_is() -> None:
    house = House(min_compaction_lag_ms="20000")
    (partition,) = house.partitions
    house.fill(partition, b"a", b"a")
    house.run(19_000)
    assert passes(house) == 0
    house.run(3_000)
    assert house.keys(partition) == [(2, b"a")]


def test_a_pass_ends_below_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not decided stays, and so does all behind it."""
    house = House()
    (partition,) = house.partitions
    heard = overhear(house, partition, monkeypatch)
    house.fill(partition, b"a", b"a")
    house.put(partition, b"a", b"open", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.roll()
    house.fill(partition, b"a", b"a")
    house.run(3 * BACKOFF_MS)
    assert [request.until for request in heard] == [3]
    assert house.keys(partition) == [(2, b"a"), (3, b"a"), (4, b"a"), (5, b"a")]


def test_records_of_an_aborted_transaction_go(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    (partition,) = house.partitions
    heard = overhear(house, partition, monkeypatch)
    house.put(partition, b"a", b"kept")
    house.put(partition, b"a", b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = EndMarker(producer_id=7, epoch=0, commit=False, coordinator_epoch=1)
    house.append(partition, end_marker_batch(marker, house.ground.time.wall_ms()))
    partition.roll()
    house.run(3 * BACKOFF_MS)
    assert [[(each.producer_id, each.first_offset, each.last_offset) for each in request.aborted] for request in heard] == [
        [(7, 2, 3)]
    ]
    assert house.keys(partition) == [(1, b"a")]


def test_tombstones_go_when_their_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anything new in the log."""
    house = House(delete_retention_ms="20000")
    (partition,) = house.partitions
    heard = overhear(house, partition, monkeypatch)
    house.put(partition, b"a", b"value")
    house.put(partition, b"a", None)
    partition.roll()
    house.run(10_000)
    assert house.keys(partition) == [(2, b"a")] and len(heard) == 1
    house.run(20_000)
    assert house.keys(partition) == [] and len(heard) == 2
    house.run(60_000)
    assert len(heard) == 2, "nothing waits any more"


def test_a_tombstone_that_a_voter_lacks_is_tried_again_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(delete_retention_ms="0")
    (partition,) = house.partitions
    monkeypatch.setattr("raftlake.replica.compaction.floor.ask", lambda *given: given[-1](Offset(0)))
    heard = overhear(house, partition, monkeypatch)
    house.put(partition, b"a", None)
    partition.roll()
    duration_ms = 20 * FAILED_BACKOFFS * BACKOFF_MS
    house.run(duration_ms)
    assert house.keys(partition) == [(1, b"a")]
    assert 2 <= len(heard) <= duration_ms // (FAILED_BACKOFFS * BACKOFF_MS) + 1
    assert {request.tombstones_below for request in heard} == {0}


def test_a_follower_asks_its_leader_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    house = House()
    (partition,) = house.partitions
    heard = overhear(house, partition, monkeypatch)
    monkeypatch.setattr("raftlake.replica.compaction.floor.ask", lambda *given: asked.append(given[-1]))
    house.fill(partition, b"a", b"a")
    house.run(3 * BACKOFF_MS)
    assert len(asked) == 1 and not heard
    asked[0](Offset(2))
    assert [request.tombstones_below for request in heard] == [2]
    house.run(BACKOFF_MS)
    assert house.keys(partition) == [(2, b"a")]


def test_a_group_that_is_gone_meanwhile_is_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    house = House(2)
    first, second = house.partitions
    monkeypatch.setattr("raftlake.replica.compaction.floor.ask", lambda *given: asked.append(given))
    heard = overhear(house, first, monkeypatch), overhear(house, second, monkeypatch)
    house.fill(first, b"a", b"a", b"a", b"a")
    house.run(2 * BACKOFF_MS)
    (_, partition, _, done) = asked.pop()
    assert partition is first
    del house.ground.engine.partitions[first.group]
    house.ground.engine.forget(first)
    done(Offset(0))
    house.fill(second, b"a", b"a")
    house.run(BACKOFF_MS)
    assert not heard[0] and [each[1] for each in asked] == [second]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StorageError("the worker was killed"), "a pass of compaction failed, and is tried again: the worker was killed"),
        (DiskFull("no space"), "is not compacted for want of room"),
    ],
)
def test_a_pass_that_failed_is_told_and_tried_again_after_a_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: StorageError, told: str
) -> None:
    house = House()
    (partition,) = house.partitions
    dones: list[Any] = []
    monkeypatch.setattr(partition.log, "compact", lambda _request, done: dones.append(done))
    house.fill(partition, b"a", b"a")
    house.run(2 * BACKOFF_MS)
    with caplog.at_level(logging.WARNING, "raftlake.compaction"):
        dones.pop()(error)
    assert told in caplog.text and house.compactor.counts.failures == 1
    house.run((FAILED_BACKOFFS - 1) * BACKOFF_MS)
    assert not dones
    house.run(2 * BACKOFF_MS)
    assert len(dones) == 1


def test_a_pass_that_raises_at_once_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(2)
    first, second = house.partitions

    def refuse(_request: Compaction, _done: Any) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(first.log, "compact", refuse)
    house.fill(first, b"a", b"a", b"a")
    house.fill(second, b"a", b"a")
    house.run(3 * BACKOFF_MS)
    assert house.compactor.counts.failures == 1 and house.keys(second) == [(2, b"a")]


def test_a_pass_that_was_given_up_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    (partition,) = house.partitions
    dones: list[Any] = []
    monkeypatch.setattr(partition.log, "compact", lambda _request, done: dones.append(done))
    house.fill(partition, b"a", b"a")
    house.run(2 * BACKOFF_MS)
    dones.pop()(None)
    counts = house.compactor.counts
    assert (counts.passes, counts.failures) == (0, 0)
    house.run((FAILED_BACKOFFS + 2) * BACKOFF_MS)
    assert len(dones) == 1


def test_damage_that_a_pass_finds_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    (partition,) = house.partitions
    dones: list[Any] = []
    monkeypatch.setattr(partition.log, "compact", lambda _request, done: dones.append(done))
    house.fill(partition, b"a", b"a")
    house.run(2 * BACKOFF_MS)
    damage = DamagedData("a flipped bit", offset=1)
    dones.pop()(damage)
    assert house.findings.take() == {partition.group: damage}


def test_nothing_is_begun_while_the_disk_is_full() -> None:
    house = House()
    house.fill(house.partitions[0], b"a", b"a")
    house.disk.is_full = True
    house.run(5 * BACKOFF_MS)
    assert passes(house) == 0
    house.disk.is_full = False
    house.run(2 * BACKOFF_MS)
    assert passes(house) == 1


def test_a_pass_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    with caplog.at_level(logging.INFO, "raftlake.compaction"):
        house.fill(house.partitions[0], b"a", b"a")
        house.run(2 * BACKOFF_MS)
    (told,) = caplog.messages
    assert told.startswith("orders-0: compacted up to offset 3 in 0.") and ": 1 records went, " in told


def test_horizons_are_those_of_the_log_that_was_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group was opened anew while its pass was under way: the answer says nothing of the new log."""
    house = House()
    (partition,) = house.partitions
    dones: list[Any] = []
    monkeypatch.setattr(partition.log, "compact", lambda _request, done: dones.append(done))
    house.fill(partition, b"a", b"a")
    house.run(2 * BACKOFF_MS)
    engine = house.ground.engine
    del engine.partitions[partition.group]
    engine.forget(partition)
    again = house.ground.lead(partition.group)
    house.ask(again)
    done = Compacted(clean_until=Offset(3), bytes_before=9, bytes_after=1, records_removed=1, next_horizon_ms=1)
    dones.pop()(done)
    house.run(2 * BACKOFF_MS)
    assert len(dones) == 1, "the new log is due by itself, with another pass"


def test_a_log_that_was_trimmed_while_the_leader_was_asked_is_left_alone() -> None:
    house = House()
    (partition,) = house.partitions
    house.fill(partition, b"a", b"a")
    assert partition.in_force is not None and partition.in_force.compaction is not None
    gone = Cleanable(Offset(0), Offset(1), clean_bytes=0, dirty_bytes=100)
    house.compactor._busy = partition
    house.compactor._start(gone, partition.in_force.compaction, _Newest(frozenset(), frozenset(), frozenset()), Offset(0))
    assert house.compactor._busy is None and house.compactor.counts.passes == house.compactor.counts.failures == 0
