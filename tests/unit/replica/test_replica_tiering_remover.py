"""Total retention removes whole files from a table, one step at a time, whoever leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginekit import WALL_MS_AT_START
from ledkit import INTERVAL_MS, KEY, LINEAGE, LOST, TOPIC_ID, World, copied_world, facts, file
from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keys import start_key, tier_segment_key
from raftlake.ports.tier import (
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.reserved import RecordStart
from raftlake.replica.tiering.step import RETRY_BACKOFF_MS
from raftlake.tier.entries import Deleting, Tiered


def test_without_a_total_retention_the_table_is_never_asked() -> None:
    world = copied_world()
    world.go_on(10 * INTERVAL_MS)
    assert world.tier.under_way == 0


def test_old_files_are_removed_step_by_step() -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    assert world.tier.looks[0][0] == LINEAGE
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    assert world.tier.deletes == [], "nothing goes before the key says so"
    world.keys.commit()
    assert (world.tiered.start_offset, world.tiered.safe_offset) == (3, 7), "clients see the new start now"
    assert world.tiered.deleting == Deleting(leader_epoch=world.led.epoch, node_id=NodeId(1))
    assert world.answer_delete(Offset(3)) == (LINEAGE, world.led.epoch, 3)
    world.answer_facts(facts(3, 7, 2))
    finished = world.keys.commit()
    assert finished.ops[1:] == (Delete(tier_segment_key(TOPIC_ID, 0, 0)),)
    tiered = world.tiered
    assert (tiered.start_offset, tiered.end_offset, tiered.segments, tiered.size, tiered.log_bytes) == (3, 7, 2, 200, 20)
    assert tiered.deleting is None and world.counts.deletions == 1
    world.go_on(INTERVAL_MS)
    world.answer_look(file(3, 5), file(5, 7))
    assert world.keys.proposed == [], "20 bytes less 10 are less than 15"


def test_the_topic_says_what_is_kept_and_may_change_its_mind() -> None:
    world = copied_world(retention_bytes=15)
    node = world.ground.engine.config
    world.partition.obey(in_force({"retention.bytes": "-1"}, node))
    world.go_on(INTERVAL_MS)
    assert world.tier.under_way == 0, "all of it, whatever the node says"
    world.partition.obey(in_force({"retention.bytes": "15"}, node))
    world.go_on(INTERVAL_MS)
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    world.keys.commit()
    assert world.tiered.start_offset == 3


def test_nothing_is_removed_before_it_is_known_what_the_topic_keeps() -> None:
    world = copied_world(retention_bytes=15)
    world.partition.in_force = None
    world.go_on(INTERVAL_MS)
    assert world.tier.under_way == 0


def test_by_age_the_table_is_asked_once_and_again_when_something_is_due() -> None:
    world = copied_world(retention_ms=60_000)
    world.go_on()
    now_ms = WALL_MS_AT_START + world.ground.time.ms
    world.answer_look(file(0, 3, now_ms - 50_000), file(3, 5, now_ms), file(5, 7, now_ms))
    asked = 0
    for _ in range(2):
        world.go_on(INTERVAL_MS)
        asked += world.tier.under_way
    assert asked == 0, "what was told is remembered"
    world.go_on(1)
    assert world.tier.under_way == 0
    world.go_on(INTERVAL_MS)
    assert len(world.tier.looks) == 1, "the files may be others by now"
    world.answer_look(file(0, 5, now_ms), file(5, 7, now_ms))
    assert world.keys.proposed == []


@pytest.mark.parametrize("files", [[], [(0, 3, -1)]])
def test_an_answer_that_says_no_time_is_not_remembered(files: list[tuple[int, int, int]]) -> None:
    world = copied_world(retention_ms=60_000)
    for _ in range(2):
        world.go_on(INTERVAL_MS)
        world.answer_look(*[file(*each) for each in files])
    world.go_on(INTERVAL_MS)
    assert len(world.tier.looks) == 1


def test_nothing_is_asked_of_a_table_that_shows_nothing() -> None:
    world = World(retention_ms=1, retention_check_interval_ms=INTERVAL_MS)
    for _ in range(3):
        assert not world.led.is_due
        world.go_on(INTERVAL_MS)
    assert world.tier.under_way == 0


def test_looks_come_once_in_an_interval() -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.answer_look()
    world.go_on(INTERVAL_MS - 1)
    assert world.tier.under_way == 0
    world.go_on(1)
    assert len(world.tier.looks) == 1


def test_a_look_that_fails_comes_again_after_the_pause_of_failures() -> None:
    """Else what a single retry mends is an alarm until the next interval ends, which may take hours."""
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.tier.looks.pop()[2](LOST)
    assert world.led.error == LOST
    world.go_on(RETRY_BACKOFF_MS - 1)
    assert world.tier.under_way == 0
    world.go_on(1)
    world.answer_look()
    assert world.led.error is None
    world.go_on(INTERVAL_MS - 1)
    assert world.tier.under_way == 0


@pytest.mark.parametrize("mended", ["nothing is too much", "all has ended", "nothing is old enough", "the key is spoilt"])
def test_an_error_goes_where_nothing_is_left_to_remove(mended: str) -> None:
    """`rebuild-metadata` mends a table that ends elsewhere, and the keys need no removal then."""
    world = copied_world(**({"retention_ms": 60_000} if mended == "nothing is old enough" else {"retention_bytes": 15}))
    whole = world.tiered
    now_ms = WALL_MS_AT_START + world.ground.time.ms
    world.go_on()
    world.answer_look(file(0, 3, now_ms), file(3, 5, now_ms), file(5, 7, now_ms))
    if world.keys.proposed:
        world.keys.commit()
    else:
        world.put(whole.start_deleting(Offset(3), Deleting(leader_epoch=Epoch(0), node_id=NodeId(2))))
        world.go_on()
    world.answer_delete(Offset(3))
    world.answer_facts(facts(3, 9, 2))
    assert world.led.error is not None and world.led.error.failure is TierFailure.ELSEWHERE
    if mended == "the key is spoilt":
        world.keys.apply(Txn((), (Put(KEY, b"spoilt"),)))
    elif mended == "all has ended":
        world.put(replace(whole, start_offset=whole.end_offset, checked_offset=whole.end_offset, epochs=()))
    else:
        world.put(replace(whole, log_bytes=10) if mended == "nothing is too much" else whole)
    world.go_on(INTERVAL_MS)
    assert world.led.remover.error is None and world.tier.under_way == 0


@pytest.mark.parametrize("moment", ["before the removal", "after the removal", "after the facts"])
def test_the_next_leader_finishes_what_stands(moment: str) -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    world.keys.commit()
    if moment != "before the removal":
        world.answer_delete(Offset(3))
    if moment == "after the facts":
        world.answer_facts(facts(3, 7, 2))
        world.keys.proposed.clear()
    world.led.close()
    calls = [*world.tier.deletes, *world.tier.asked_facts]
    world.tier.deletes.clear()
    world.tier.asked_facts.clear()
    world.lead()
    assert world.led.is_due
    world.go_on()
    assert world.answer_delete(Offset(3))[2] == 3
    world.answer_facts(facts(3, 7, 2))
    world.keys.commit()
    assert world.tiered.deleting is None and world.tiered.segments == 2
    for _, *_, done in calls:
        done(LOST)
    assert world.led.error is None and world.keys.proposed == [], "the former leader is over"


def test_a_leader_without_a_total_retention_finishes_a_removal_too() -> None:
    world = copied_world()
    world.put(world.tiered.start_deleting(Offset(3), Deleting(leader_epoch=Epoch(0), node_id=NodeId(2))))
    assert world.led.is_due
    world.go_on()
    assert world.answer_delete(Offset(3)) == (LINEAGE, world.led.epoch, 3)


def test_a_removal_that_fails_is_told_and_tried_again() -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    world.keys.commit()
    world.answer_delete(LOST)
    assert world.led.error == LOST
    world.go_on(RETRY_BACKOFF_MS)
    world.answer_delete(Offset(3))
    world.answer_facts(LOST)
    world.go_on(2 * RETRY_BACKOFF_MS)
    world.answer_delete(Offset(3))
    world.answer_facts(facts(3, 7, 2))
    world.keys.commit()
    assert world.tiered.deleting is None and world.led.error is None


def test_a_table_that_ends_elsewhere_is_told() -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    world.keys.commit()
    world.answer_delete(Offset(3))
    world.answer_facts(facts(3, 9, 2))
    assert world.led.error is not None and world.led.error.failure is TierFailure.ELSEWHERE
    assert world.tiered.deleting is not None


def test_what_was_removed_meanwhile_is_not_removed_again() -> None:
    world = copied_world(retention_bytes=15)
    world.go_on()
    world.put(world.tiered.start_deleting(Offset(5), Deleting(leader_epoch=Epoch(9), node_id=NodeId(2))))
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    assert world.keys.proposed == []


def test_the_segment_that_the_copies_end_in_does_not_count() -> None:
    """Some of it is in the table: it would count twice, and too much would go."""
    world = World(retention_check_interval_ms=INTERVAL_MS)
    world.close_segment()
    world.close_segment()
    world.close_segment()
    first, second, third, _ = world.partition.log.segments()
    amid = Offset(second.end_offset - 1)
    total = Tiered(start_offset=Offset(0), end_offset=amid, log_bytes=first.size)
    assert world.led.remover._total_bytes(total) == first.size + third.size
    whole = replace(total, end_offset=second.base_offset)
    assert world.led.remover._total_bytes(whole) == first.size + second.size + third.size


def test_a_file_of_which_all_that_counts_has_ended_ends_nothing_more() -> None:
    """OPTIMIZE cut it amid a batch: its rest goes with the file behind it."""
    world = copied_world(retention_bytes=15)
    world.put(world.tiered.start_deleting(Offset(3), Deleting(leader_epoch=Epoch(0), node_id=NodeId(2))))
    world.go_on()
    world.answer_delete(Offset(0))
    world.answer_facts(facts(0, 7, 3))
    world.keys.commit()
    world.go_on(INTERVAL_MS)
    world.answer_look(file(0, 3), file(3, 5, log_bytes=20), file(5, 7))
    assert world.keys.proposed == [] and world.tiered.start_offset == 3 and world.led.error is None


def test_files_of_deleted_records_are_removed_without_any_retention() -> None:
    world = copied_world()
    world.go_on(10 * INTERVAL_MS)
    assert world.tier.under_way == 0
    key = start_key(TOPIC_ID, 0)
    world.keys.apply(Txn((), (Put(key, RecordStart(Offset(4)).encode()),)))
    world.go_on(INTERVAL_MS)
    world.answer_look(file(0, 3), file(3, 5), file(5, 7))
    world.keys.commit()
    assert world.tiered.start_offset == 3, "the file of the start stays"
    world.answer_delete(Offset(3))
    world.answer_facts(facts(3, 7, 2))
    world.keys.commit()
    world.keys.apply(Txn((), (Put(key, RecordStart(Offset(7)).encode()),)))
    world.go_on(INTERVAL_MS)
    world.answer_look(file(3, 5), file(5, 7))
    world.keys.commit()
    assert world.tiered.start_offset == 5, "the newest copy stays"
