"""Copies, checks and removals of one led partition take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledkit import DAMAGED, INTERVAL_MS, KEY, LOST, World, copied_world, facts, file
from raftlake.errors import DamagedData
from raftlake.kv.commands import Put, Txn
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import (
    LineageEnd,
    RemoteSegment,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.tiering import step
from raftlake.replica.tiering.step import RETRY_BACKOFF_MS
from raftlake.tier.entries import Copying, Deleting, Tiered, decode_tiered


def test_a_copy_that_is_shown_and_not_finished_is_counted_once() -> None:
    """DELETE_FINISHED takes the counts of the table: COPY_FINISHED of what stands there already has to come first."""
    world = copied_world()
    copying = Copying(segment_id="s", base_offset=Offset(7), end_offset=Offset(9), leader_epoch=Epoch(0), node_id=NodeId(2))
    deleting = Deleting(leader_epoch=Epoch(0), node_id=NodeId(2))
    world.put(world.tiered.start(copying).start_deleting(Offset(3), deleting))
    world.go_on()
    world.tier.claimed(LOST)
    world.go_on()
    world.answer_delete(Offset(3))
    world.answer_facts(facts(3, 9, 3))
    assert world.keys.proposed == [] and world.led.error == LOST
    world.go_on(RETRY_BACKOFF_MS)
    shown = RemoteSegment(
        segment_id="s",
        base_offset=Offset(7),
        end_offset=Offset(9),
        leader_epoch=Epoch(0),
        epochs=((Epoch(1), Offset(7)),),
        timestamp_ms_max=7,
        log_bytes=10,
        size=100,
        crc=5,
        file="f",
    )
    for _ in range(20):
        if world.tier.claims:
            world.tier.claimed(LineageEnd(shown))
        elif world.tier.deletes:
            world.answer_delete(Offset(3))
            world.answer_facts(facts(3, 9, 3))
        else:
            world.step()
        assert world.tiered.segments == (4 if world.tiered.end_offset == 9 else 3) or world.tiered.deleting is None
    assert (world.tiered.end_offset, world.tiered.segments, world.tiered.deleting) == (9, 3, None)
    assert world.led.error is None


def test_who_has_acted_comes_last() -> None:
    """A partition that is always behind with its copies has them read back, and old ones removed."""
    world = World(retention_check_interval_ms=INTERVAL_MS, retention_bytes=5)
    for _ in range(6):
        world.close_segment()
    seen = []
    world.go_on()
    for _ in range(24):
        if world.keys.proposed:
            world.keys.commit()
        elif world.tier.copies:
            world.tier.copied()
            seen.append("copy")
        elif world.tier.checks:
            world.tier.checked()
            seen.append("check")
        elif world.tier.looks:
            world.answer_look(file(0, world.tiered.end_offset))
            seen.append("look")
        else:
            world.go_on(INTERVAL_MS)
        world.only_one_call()
    assert seen[:6].count("check") >= 2 and "look" in seen[:6] and seen.count("copy") >= 3


def test_nothing_begins_while_something_is_under_way() -> None:
    world = World(retention_check_interval_ms=INTERVAL_MS, retention_bytes=5)
    world.copy_one()
    world.close_segment()
    assert len(world.tier.checks) == 1
    world.go_on(INTERVAL_MS)
    world.go_on(INTERVAL_MS)
    assert world.tier.under_way == 1 and world.keys.proposed == []


def test_a_key_is_read_once_for_each_of_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may lead thousands of partitions, and asks in each tick."""
    world = copied_world(retention_bytes=1_000, retention_ms=1_000)
    read: list[bytes] = []

    def counted(value: bytes) -> Tiered | Refused:
        read.append(value)
        return decode_tiered(value)

    monkeypatch.setattr(step, "decode_tiered", counted)
    for _ in range(10):
        assert world.led.is_due and world.led.standing() == world.led.standing()
    assert len(read) <= 5, "each of the five steps"
    world.put(world.tiered.start_deleting(Offset(3), Deleting(leader_epoch=Epoch(9), node_id=NodeId(2))))
    found = world.led.standing()
    assert not isinstance(found, Refused) and found.tiered.start_offset == 3


@pytest.mark.parametrize("what", ["COPY_STARTED", "COPY_FINISHED", "CHECKED"])
def test_a_proposal_that_is_refused_is_told_until_one_is_taken(what: str) -> None:
    """Nobody would know otherwise why nothing is copied: the tier itself has no fault."""
    world = World()
    if what == "COPY_STARTED":
        world.close_segment()
        world.go_on()
    elif what == "COPY_FINISHED":
        world.close_segment()
        world.go_on()
        world.keys.commit()
        world.tier.copied()
    else:
        world.copy_one()
        world.tier.checked()
    since_ms, waits = world.ground.engine.clock.wall_ms(), []
    for _ in range(5):
        world.keys.refuse("the key space is full")
        assert world.led.error is not None and "the key space is full" in world.led.error.reason
        assert world.led.is_alarming(since_ms) and not world.led.is_alarming(since_ms - 1), "it may be over soon"
        waited_ms = 0
        while not world.keys.proposed:
            if world.tier.checks:
                world.tier.checked()
                continue
            world.go_on(RETRY_BACKOFF_MS)
            waited_ms += RETRY_BACKOFF_MS
        waits.append(waited_ms)
    assert waits == [RETRY_BACKOFF_MS << index for index in range(5)]
    world.keys.commit()
    for _ in range(20):
        if world.tier.copies:
            world.tier.copied()
        else:
            world.step()
    assert world.led.error is None and world.tiered.safe_offset == 3


def test_an_error_goes_with_its_cause_also_where_nothing_is_left_to_do() -> None:
    """A key that was spoilt is made anew, and a damaged file goes with total retention."""
    world = copied_world()
    whole = world.tiered
    world.keys.apply(Txn((), (Put(KEY, b"spoilt"),)))
    world.led.copier.go_on()
    assert world.led.error is not None
    world.put(whole)
    world.go_on(INTERVAL_MS)
    assert world.led.error is None
    world.copy_one()
    world.tier.checked(DAMAGED)
    assert world.led.error == DAMAGED
    world.put(replace(world.tiered, checked_offset=world.tiered.end_offset))
    world.go_on(INTERVAL_MS)
    assert world.led.error is None


@pytest.mark.parametrize("name", ["adopter", "copier", "checker", "remover", "holder"])
def test_damage_that_a_step_meets_after_an_answer_is_noted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer lets the next step act outside the turn that looks for damage: seed 950000278 ended a node there."""
    world = World()
    damage = DamagedData("the batch at 8 cannot be read", offset=8)

    def meet_damage() -> None:
        raise damage

    monkeypatch.setattr(world.led.copier, "go_on", meet_damage)
    getattr(world.led, name)._then()
    assert world.findings.take() == {world.partition.group: damage}
