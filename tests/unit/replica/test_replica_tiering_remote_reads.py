"""Reads of old offsets alone: the line of calls, the pieces that are kept, what is told of failures."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from asidekit import AtOnce, Held
from enginekit import ORDERS, Ground
from raftlake.ports.tier import TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering import pieces, remote_reads
from raftlake.replica.tiering.read_tally import TELL_AGAIN_MS, TELL_MS
from raftlake.replica.tiering.remote_reads import BACKOFF_MS, BACKOFF_MS_MAX, CALLS_MAX, LOOK_AGAIN_MS, PATIENCE_MS, RemoteReads
from raftlake.wire.batches import HEADER_BYTES, decode_records, iterate_headers
from remotekit import ABSENT, DAMAGED, LOST, RemoteWorld

BIG = 1 << 20
#: Of all that the table has of a partition.
SIZE = 637


class World(RemoteWorld):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        tier: Any = self.tier
        self.held = Held()
        self.reads = RemoteReads(self.ground.engine, self.remote_log, tier, self.tally, AtOnce())
        self.called: list[str] = []

    def ask(self, partition: Partition, offset: int, name: str = "") -> Any:
        return self.reads.ask(partition, offset, (lambda: self.called.append(name)) if name else None)

    def pass_time(self, ms: int) -> None:
        """At once. Timers that are due run."""
        self.ground.time.ms += ms
        self.ground.engine.begin_input()
        self.ground.engine.timers.run_due(self.ground.engine.now_ms)

    def fetched(self, partition: Partition, offset: int) -> list[int]:
        """Asks, is answered, and gives the offsets of the batches."""
        self.ask(partition, offset)
        self.tier.give()
        return offsets(self.reads.find(partition, offset, BIG))


def offsets(data: bytes | TierError | None) -> list[int]:
    assert isinstance(data, bytes)
    return [header.base_offset for header in iterate_headers(data)]


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_not_here_is_asked_for_and_whoever_waits_is_called_once(world: World) -> None:
    partition = world.partition()
    assert world.reads.find(partition, 2, BIG) is None
    world.ask(partition, 2, "a")
    world.ask(partition, 2, "b")
    assert world.tier.asked == [2]
    request = world.tier.give()
    assert (request.offset, request.end_offset, request.lineage.group, request.lineage.incarnation) == (2, 8, ORDERS, 0)
    assert world.called == [], "in an input of its own"
    world.ground.run(1)
    assert world.called == ["a", "b"]
    assert world.reads.find(partition, 2, BIG) == world.batches(partition, 2, 8)
    world.ground.run(5_000)
    assert world.called == ["a", "b"] and world.tier.reads == []


def test_one_who_has_left_is_not_called(world: World) -> None:
    partition = world.partition()
    calls: list[int] = []

    def waiter() -> None:
        calls.append(1)

    wanted = world.reads.ask(partition, 2, waiter)
    assert wanted is not None
    world.ask(partition, 2, "other")
    wanted.leave(waiter)
    world.tier.give()
    world.ground.run(1)
    assert calls == [] and world.called == ["other"]


def test_batches_come_whole_and_as_many_as_fit(world: World) -> None:
    partition = world.partition()
    world.fetched(partition, 0)
    size = len(world.batches(partition, 1, 2))
    assert len(world.batches(partition, 2, 3)) == size
    assert offsets(world.reads.find(partition, 1, 1)) == [1], "one at least"
    assert offsets(world.reads.find(partition, 1, 2 * size - 1)) == [1]
    assert offsets(world.reads.find(partition, 1, 2 * size)) == [1, 2]
    assert offsets(world.reads.find(partition, 5, BIG)) == [5, 6, 7]
    assert world.tally.hits == 5 and world.tally.reads == 1
    assert world.tally.bytes == len(world.batches(partition, 1, 8)) + HEADER_BYTES, "the control batch is empty"


def test_nothing_above_the_tables_end_or_the_high_watermark_is_shown(world: World) -> None:
    partition = world.partition()
    world.ask(partition, 2)
    world.tier.reads[0][1](world.batches(partition, 2, 11))
    assert offsets(world.reads.find(partition, 2, BIG)) == [2, 3, 4, 5, 6, 7], "the keys tell of no more"
    world.say(partition, 0, 10)
    assert offsets(world.reads.find(partition, 2, BIG)) == [2, 3, 4, 5, 6, 7, 8, 9]
    partition.high_watermark = Offset(4)
    assert offsets(world.reads.find(partition, 2, BIG)) == [2, 3]
    assert world.reads.find(partition, 4, BIG) == b""


def test_a_node_that_lags_asks_for_no_more_than_it_may_show(world: World) -> None:
    partition = world.partition()
    partition.high_watermark = Offset(5)
    world.ask(partition, 2)
    assert world.tier.reads[0][0].end_offset == 5
    world.ask(partition, 5, "above")
    assert len(world.tier.reads) == 1
    world.ground.run(1)
    assert world.called == ["above"], "there is nothing to wait for"


def test_a_table_without_a_whole_batch_yet_is_asked_again_later_and_is_no_failure(world: World) -> None:
    partition = world.partition()
    world.ask(partition, 2)
    world.tier.answer(b"")
    assert world.reads.find(partition, 2, BIG) == b"" and world.tally.failures == 0
    assert world.ask(partition, 2) is None and world.tier.reads == []
    world.ground.run(remote_reads.NOTHING_YET_MS)
    assert world.reads.find(partition, 2, BIG) is None
    assert world.fetched(partition, 2) == [2, 3, 4, 5, 6, 7]


# --- reading on -----------------------------------------------------------------------------------------------------------


def test_the_next_piece_is_there_before_it_is_asked_for() -> None:
    world = World(tier_piece_bytes=200)
    partition = world.partition(batches=20, local_from=16, copied=20)
    seen = world.fetched(partition, 0)
    assert seen == [0, 1] and world.tier.asked == [2]
    while seen[-1] < 15:
        world.tier.give()
        seen += offsets(world.reads.find(partition, seen[-1] + 1, BIG))
        assert len(world.tier.reads) <= 1
    assert seen == list(range(seen[-1] + 1)) and world.tier.reads == [], "the local log goes on from there"


def test_a_piece_ahead_that_is_wanted_takes_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tier_piece_bytes=200)
    monkeypatch.setattr(remote_reads, "CALLS_MAX", 1)
    first, second, third = (world.partition(index) for index in range(3))
    world.ask(second, 0)
    world.ask(first, 0)
    world.tier.give()
    assert offsets(world.reads.find(second, 0, BIG)) == [0, 1]
    world.ask(third, 0)
    assert [request.lineage.group.partition for request, _ in world.tier.reads] == [0]
    world.ask(second, 2, "ahead")
    world.tier.give()
    assert world.tier.reads[0][0].lineage.group.partition == 2, "those in the line come first"
    world.tier.give()
    assert (world.tier.reads[0][0].lineage.group.partition, world.tier.asked) == (1, [2])
    world.tier.give()
    world.ground.run(1)
    assert world.called == ["ahead"] and world.tier.reads == []


def test_a_piece_is_kept_as_consumers_are_shown_it(world: World) -> None:
    """The control batch at its beginning is empty, and shorter than in the log. What follows is found behind it."""
    partition = world.partition()
    assert world.fetched(partition, 0) == list(range(8))
    whole = world.reads.find(partition, 0, BIG)
    assert isinstance(whole, bytes)
    first, *others = iterate_headers(whole)
    assert (first.record_count, first.is_control, first.size) == (0, False, HEADER_BYTES)
    assert whole[first.size :] == world.batches(partition, 1, 8)
    assert [record.offset for record in decode_records(whole)] == list(range(1, 8))
    assert world.reads.find(partition, 3, BIG) == world.batches(partition, 3, 8)
    assert len(others) == 7


# --- the line -------------------------------------------------------------------------------------------------------------


def test_the_partitions_take_turns_and_few_calls_are_under_way(world: World) -> None:
    first, *others = (world.partition(index) for index in range(CALLS_MAX + 2))
    for offset in range(6):
        world.ask(first, offset)
    for partition in others:
        world.ask(partition, 1)
    assert len(world.tier.reads) == CALLS_MAX
    order: list[int] = []
    while world.tier.reads:
        assert len(world.tier.reads) <= CALLS_MAX
        order.append(world.tier.reads[0][0].lineage.group.partition)
        world.tier.answer(LOST)
    others_in_turn = list(range(1, CALLS_MAX + 2))
    assert order == [0] * CALLS_MAX + [0, *others_in_turn, 0], "of what waits: one of each, then the next of the first"


def test_a_piece_that_nobody_wants_any_more_loses_its_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "CALLS_MAX", 1)
    first, second, third = (world.partition(index) for index in range(3))
    world.ask(first, 1)
    world.ask(second, 1)
    world.ask(third, 1, "waits")
    world.ground.run(PATIENCE_MS - 1)
    fourth = world.partition(3)
    world.ask(fourth, 1)
    world.ground.run(1)
    world.tier.answer(LOST)
    assert world.tier.reads[0][0].lineage.group.partition == 2, "the second asks no more"
    world.tier.give()
    assert world.tier.reads[0][0].lineage.group.partition == 3
    world.tier.give()
    world.ask(second, 1)
    assert world.tier.asked == [1], "it may ask again"


def test_the_line_has_an_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "LINE_MAX", 3)
    partition = world.partition()
    assert [world.ask(partition, offset) is not None for offset in range(5)] == [True] * 3 + [False] * 2
    world.tier.answer(LOST)
    assert world.ask(partition, 4) is not None


def test_pieces_that_somebody_reads_have_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "CACHE_PIECES", 3)
    world = World(tier_piece_bytes=SIZE)
    partitions = [world.partition(index) for index in range(4)]
    assert len(world.batches(partitions[0], 0, 8)) == SIZE
    for partition in partitions[:2]:
        world.ask(partition, 0)
        world.tier.give()
        world.reads.find(partition, 0, 1)
    for partition in partitions[2:]:
        world.ask(partition, 0)
    assert len(world.tier.reads) == 1, "two pieces are being read, and one may come"
    world.reads.find(partitions[0], 0, BIG)
    assert len(world.tier.reads) == 2, "read to its end"
    for _ in range(2):
        world.tier.give()
    for partition in partitions[1:]:
        assert world.reads.find(partition, 3, BIG) is not None


def test_forgotten_pieces_leave_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "CACHE_PIECES", 2)
    world = World(tier_piece_bytes=SIZE)
    partitions = [world.partition(index) for index in range(3)]
    assert len(world.batches(partitions[0], 0, 8)) == SIZE
    world.ask(partitions[0], 0)
    world.tier.give()
    world.ask(partitions[1], 0)
    world.ask(partitions[2], 0)
    assert len(world.tier.reads) == 1
    world.ground.run(pieces.KEPT_MS)
    world.ask(partitions[2], 0)
    assert len(world.tier.reads) == 2


# --- what goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LOST, DAMAGED, ABSENT, TierError(TierFailure.UNUSABLE, "wrong password")])
def test_a_failure_is_told_to_those_who_ask_for_that_offset_alone(world: World, error: TierError) -> None:
    partition = world.partition()
    world.ask(partition, 2, "waits")
    world.tier.answer(error)
    world.ground.run(1)
    assert world.called == ["waits"] and world.reads.find(partition, 2, BIG) is error
    assert world.ask(partition, 2) is None and world.tier.reads == [], "not at once again"
    assert world.fetched(partition, 3) == [3, 4, 5, 6, 7]
    assert world.tally.failures == 1


def test_a_read_that_failed_is_tried_again_each_time_after_twice_as_long(world: World) -> None:
    partition = world.partition()
    pause_ms = BACKOFF_MS
    for _ in range(7):
        world.ask(partition, 2)
        world.tier.answer(LOST)
        world.ground.run(pause_ms - 1)
        assert world.reads.find(partition, 2, BIG) is LOST
        world.ground.run(1)
        assert world.reads.find(partition, 2, BIG) is None
        pause_ms = min(2 * pause_ms, BACKOFF_MS_MAX)
    assert pause_ms == BACKOFF_MS_MAX
    assert world.fetched(partition, 2) == [2, 3, 4, 5, 6, 7]


def test_what_was_deleted_meanwhile_is_no_failure(world: World) -> None:
    """Who asks is told OFFSET_OUT_OF_RANGE, by where the partition begins now."""
    partition = world.partition()
    world.ask(partition, 2, "waits")
    world.say(partition, 4, 8)
    world.tier.answer(ABSENT)
    world.ground.run(1)
    assert world.called == ["waits"] and world.tally.failures == 0
    assert world.reads.find(partition, 2, BIG) is None


def test_a_place_in_the_line_goes_with_what_was_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "CALLS_MAX", 1)
    first, second = world.partition(0), world.partition(1)
    world.ask(first, 1)
    world.ask(second, 2, "waits")
    world.say(second, 4, 8)
    world.tier.give()
    world.ground.run(1)
    assert world.tier.reads == [] and world.called == ["waits"]


@pytest.mark.parametrize("kind", ["bytes", "epoch", "offset"])
def test_what_is_not_what_the_log_had_is_not_given(world: World, kind: str) -> None:
    partition = world.partition()
    data = bytearray(world.batches(partition, 2, 5))
    if kind == "bytes":
        data[-1] ^= 1
    elif kind == "epoch":
        data[15] ^= 1
    else:
        data = data[len(world.batches(partition, 2, 3)) :]
    world.ask(partition, 2)
    world.tier.answer(bytes(data))
    found = world.reads.find(partition, 2, BIG)
    assert isinstance(found, TierError) and found.failure is TierFailure.DAMAGED and "damaged at offset" in found.reason


def test_what_comes_is_checked_aside(world: World) -> None:
    """Sixty thousand small batches take a quarter of a second."""
    world.reads._aside = world.held
    partition = world.partition()
    world.ask(partition, 2, "waits")
    world.tier.give()
    world.ground.run(100)
    assert world.called == [] and world.reads.find(partition, 2, BIG) is None and len(world.held.jobs) == 1
    world.ask(partition, 2)
    assert world.tier.reads == []
    world.held.finish(1)
    world.ground.run(1)
    assert world.called == ["waits"] and offsets(world.reads.find(partition, 2, BIG)) == [2, 3, 4, 5, 6, 7]


def test_memory_that_runs_out_is_a_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise MemoryError

    partition = world.partition()
    with monkeypatch.context() as patch:
        patch.setattr(remote_reads, "headers_from", fail)
        world.ask(partition, 2)
        world.tier.give()
    assert isinstance(world.reads.find(partition, 2, BIG), TierError)
    world.ground.run(BACKOFF_MS)
    assert world.fetched(partition, 2) == [2, 3, 4, 5, 6, 7]


def test_one_line_in_the_log_names_the_file_and_not_one_for_each_try(world: World, caplog: pytest.LogCaptureFixture) -> None:
    partition = world.partition()
    caplog.set_level(logging.WARNING, logger="raftlake.tier")

    def fail(error: TierError, offset: int) -> None:
        world.ask(partition, offset)
        world.tier.answer(error)

    for offset in range(6):
        fail(DAMAGED, offset)
    world.ground.run(TELL_MS)
    fail(DAMAGED, 1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert DAMAGED.reason in line and "orders-0" in line and "offset 0" in line
    fail(LOST, 2)
    assert [DAMAGED.reason in record.getMessage() for record in caplog.records] == [True, False], "another cause"
    fail(DAMAGED, 3)
    assert len(caplog.records) == 2, f"not within {TELL_MS} ms"
    world.ground.run(TELL_MS)
    fail(DAMAGED, 4)
    world.ground.run(TELL_AGAIN_MS - 1)
    fail(DAMAGED, 5)
    assert len(caplog.records) == 3
    world.ground.run(1)
    fail(DAMAGED, 0)
    assert len(caplog.records) == 4


def test_nothing_is_left_of_a_partition_that_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition, other = world.partition(0), world.partition(1)
    monkeypatch.setattr(remote_reads, "CALLS_MAX", 1)
    world.fetched(partition, 2)
    world.fetched(other, 0)
    world.ask(partition, 1)
    world.tier.answer(LOST)
    for offset in (0, 1):
        world.ask(partition, offset, "waits")
    world.ask(other, 0)
    world.ground.run(BACKOFF_MS)
    world.ask(partition, 1, "waits")
    assert world.tier.asked == [0]
    world.ground.engine.partitions.pop(partition.group)
    world.ground.engine.forget(partition)
    world.tier.give()
    while world.tier.reads:
        assert world.tier.give().lineage.group == other.group
    world.ground.run(1)
    assert world.called == []
    reads = world.reads
    assert not reads._wanted and not reads._line and not reads._failed and reads._under_way == 0
    assert reads.find(other, 0, BIG) and len(reads._pieces) == 1


def test_a_partition_that_is_opened_anew_asks_anew(world: World) -> None:
    """It was found damaged, say, while a read was under way."""
    partition = world.partition()
    world.ask(partition, 2, "before")
    world.ground.engine.forget(partition)
    world.ask(partition, 2, "behind")
    assert world.tier.asked == [2, 2]
    world.tier.answer(LOST)
    world.ground.run(BACKOFF_MS)
    world.ask(partition, 2)
    assert world.tier.asked == [2], "the second read is still under way"
    world.tier.give()
    world.ground.run(1)
    assert world.called == ["behind"] and world.reads._wanted == {}


def test_another_incarnation_has_other_pieces(world: World) -> None:
    partition = world.partition()
    world.fetched(partition, 2)
    tiered = world.remote_log.tiered(partition)
    assert tiered is not None
    version, _ = world.remote_log._decoded[partition.group]
    world.remote_log._decoded[partition.group] = (version, replace(tiered, incarnation=1))
    assert world.reads.find(partition, 2, BIG) is None
    world.ask(partition, 2)
    assert world.tier.reads[0][0].lineage.incarnation == 1


def test_without_a_table_there_is_nothing_to_find(world: World) -> None:
    ground = Ground()
    partition = ground.lead(ORDERS)
    reads = RemoteReads(ground.engine, world.remote_log, None, world.tally, AtOnce())
    assert reads.find(partition, 0, BIG) is None and reads.ask(partition, 0) is None


def test_a_place_in_the_line_of_a_partition_that_is_closed_is_nobodys(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn comes after all patience is over, when nothing is known of it any more."""
    monkeypatch.setattr(remote_reads, "CALLS_MAX", 1)
    partition, other = world.partition(0), world.partition(1)
    world.ask(other, 0)
    world.ask(partition, 1, "waits")
    world.ground.engine.partitions.pop(partition.group)
    world.ground.engine.forget(partition)
    assert not world.reads._line
    world.ground.run(PATIENCE_MS)
    world.tier.give()
    assert world.reads.find(other, 0, BIG) and world.tier.reads == []


def test_a_read_that_goes_well_forgets_the_failures_before_it(world: World) -> None:
    partition = world.partition()
    for pause_ms in (BACKOFF_MS, 2 * BACKOFF_MS):
        world.ask(partition, 2)
        world.tier.answer(LOST)
        world.ground.run(pause_ms)
    world.fetched(partition, 2)
    assert not world.reads._failed
    world.reads._pieces.drop(partition.group)
    world.ask(partition, 2)
    world.tier.answer(LOST)
    world.ground.run(BACKOFF_MS)
    assert world.reads.find(partition, 2, BIG) is None, "the first pause again"


def test_the_failures_that_are_remembered_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "FAILED_MAX", 3)
    partition = world.partition()
    for offset in range(5):
        world.ask(partition, offset)
        world.tier.answer(LOST)
    found = [world.reads.find(partition, offset, BIG) for offset in range(5)]
    assert found == [None, None, LOST, LOST, LOST], "the newest ones"


def test_what_cannot_be_read_is_told_until_it_can_be(world: World) -> None:
    partition = world.partition()
    unreadable = world.tally.unreadable
    for offset in (3, 2, 3):
        world.ask(partition, offset)
        world.tier.answer(DAMAGED)
        world.ground.time.ms += BACKOFF_MS_MAX
    (told,) = unreadable.all()
    assert (told.group, told.error, told.first, told.last) == (partition.group, DAMAGED, 2, 3)
    assert told.since_ms == world.ground.engine.clock.wall_ms() - 3 * BACKOFF_MS_MAX
    assert world.fetched(partition, 4) and unreadable.all() == [told], "that may be another file"
    assert world.fetched(partition, 2) and unreadable.all() == []


def test_a_place_that_consumers_have_left_is_looked_at_again(world: World) -> None:
    partition = world.partition()
    world.ask(partition, 2)
    world.tier.answer(DAMAGED)
    for answer in (DAMAGED, None):
        world.pass_time(LOOK_AGAIN_MS - 1)
        assert world.tier.asked == []
        world.pass_time(1)
        assert world.tier.asked == [2]
        world.tier.give() if answer is None else world.tier.answer(answer)
        assert len(world.tally.unreadable.all()) == (answer is not None)
    world.pass_time(LOOK_AGAIN_MS)
    assert world.tier.asked == []


def test_what_retention_has_ended_is_unreadable_no_more(world: World) -> None:
    partition = world.partition()
    world.ask(partition, 2)
    world.tier.answer(DAMAGED)
    world.say(partition, 3, 8)
    world.pass_time(LOOK_AGAIN_MS)
    assert world.tier.asked == [] and world.tally.unreadable.all() == []


def test_a_partition_that_goes_takes_along_what_was_told_of_it(world: World) -> None:
    for index in range(2):
        world.ask(world.partition(index), 2)
        world.tier.answer(DAMAGED)
    partition = world.ground.engine.partitions.pop(ORDERS)
    world.ground.engine.forget(partition)
    assert [told.group.partition for told in world.tally.unreadable.all()] == [1]
