"""Local disks keep what they have while another program has changed the table, and all goes on once that is undone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledkit import INTERVAL_MS, KEY, LINEAGE, LOST, TOPIC_ID, World, copied_world, facts
from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keys import tier_segment_key
from raftlake.ports.tier import LineageEnd, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.replica.tiering.step import RETRY_BACKOFF_MS
from raftlake.tier.entries import adopted, decode_segment

CHANGED = TierError(TierFailure.CHANGED, "another program has changed it (version 5, RESTORE)")
UNUSABLE = TierError(TierFailure.UNUSABLE, "no table")
DAMAGED = TierError(TierFailure.DAMAGED, "a file is not as it was written")
#: Longer than all pauses.
LATER_MS = 60_000


def refused_world() -> World:
    """A copy was refused."""
    world = copied_world()
    world.close_segment()
    world.go_on()
    world.keys.commit()
    world.tier.fail_copy(CHANGED)
    assert world.led.error == CHANGED and world.led.is_due
    return world


def held_world() -> World:
    world = refused_world()
    world.go_on()
    world.keys.commit()
    assert world.tiered.is_held and world.led.error == CHANGED
    if not world.tier.checks:
        world.go_on()
    return world


def newest(world: World) -> RemoteSegment:
    entries, _ = world.keys.machine.list(f"{KEY}/", None, 10)
    found = decode_segment(entries[-1][1].value)
    assert isinstance(found, RemoteSegment)
    return found


def test_nothing_is_deleted_from_local_disks_once_a_call_is_refused() -> None:
    world = refused_world()
    assert (world.tiered.is_held, world.tiered.local_end) == (False, 7)
    before = world.tiered
    world.go_on()
    world.keys.commit()
    assert world.tiered == replace(before, is_held=True)
    assert (world.tiered.local_end, world.tiered.safe_offset) == (0, 7)


@pytest.mark.parametrize("answer", [CHANGED, LOST, UNUSABLE])
def test_the_newest_copy_is_asked_for_again_and_again(answer: TierError) -> None:
    world = held_world()
    for _ in range(3):
        (lineage, segment, _), *others = world.tier.checks
        assert (lineage, segment, others) == (LINEAGE, newest(world), [])
        world.tier.checked(answer)
        assert world.tiered.is_held and world.led.error is not None
        world.go_on(LATER_MS)


@pytest.mark.parametrize("answer", [None, DAMAGED])
def test_once_it_is_undone_all_goes_on_at_once(answer: TierError | None) -> None:
    """What is damaged is the checker's business: nobody has changed the table."""
    world = held_world()
    world.tier.checked(answer)
    assert world.led.error is None
    world.keys.commit()
    assert not world.tiered.is_held and world.tiered.local_end == 7
    world.tier.claimed(LineageEnd(newest(world)))
    world.keys.commit()
    world.tier.copied()
    assert world.led.error is None


def test_a_new_leader_takes_it_over() -> None:
    world = held_world()
    world.led.close()
    world.tier.checks.clear()
    world.lead()
    assert world.led.error is None and world.led.is_due
    world.go_on()
    world.tier.checked()
    world.keys.commit()
    assert not world.tiered.is_held


def test_a_copy_whose_key_is_not_there_is_looked_up() -> None:
    world = refused_world()
    segment = newest(world)
    world.keys.apply(Txn((), tuple(Delete(tier_segment_key(TOPIC_ID, 0, base)) for base in (0, 3, 5))))
    world.go_on()
    world.keys.commit()
    lineage, offset, done = world.tier.finds.pop()
    assert (lineage, offset) == (LINEAGE, 6)
    done(LOST)
    assert world.tiered.is_held
    world.go_on(LATER_MS)
    world.tier.finds.pop()[2](RemoteState(segment, b""))
    assert world.tier.checked() == segment
    world.keys.commit()
    assert not world.tiered.is_held


def test_keys_that_were_made_anew_are_held_no_more() -> None:
    """`raftlake tier rebuild-metadata`: the table counts as it is."""
    world = held_world()
    world.tier.checked(CHANGED)
    world.put(adopted(facts(0, 7, 3), ""))
    world.go_on(LATER_MS)
    assert world.led.error is None
    for _ in range(30):
        if world.tier.copies:
            world.tier.copied()
        world.step()
        assert not world.tiered.is_held
    assert world.tiered.end_offset == world.tiered.safe_offset == 9, "all copies are read back again"
    assert world.led.error is None


def answer_steps(world: World, answer: LineageEnd | TierError) -> None:
    """A copier that tries again is answered so."""
    while world.tier.claims:
        world.tier.claimed(answer)


def test_a_hold_that_the_quorum_refuses_is_said_again() -> None:
    """Else local disks would go on deleting, for the rest of the leadership."""
    world = refused_world()
    world.go_on()
    waits = []
    for _ in range(4):
        world.keys.refuse("the key space is full")
        waited_ms = 0
        while not world.keys.proposed and waited_ms < LATER_MS:
            world.go_on(RETRY_BACKOFF_MS)
            waited_ms += RETRY_BACKOFF_MS
            answer_steps(world, CHANGED)
            assert world.led.error == CHANGED
        waits.append(waited_ms)
    assert waits == [RETRY_BACKOFF_MS << index for index in range(4)]
    world.keys.commit()
    assert world.tiered.is_held and world.led.holder.error is None


def test_a_hold_that_was_refused_is_no_error_once_the_table_is_mended() -> None:
    world = refused_world()
    world.go_on()
    world.keys.refuse("the key space is full")
    for _ in range(30):
        answer_steps(world, LineageEnd(newest(world)))
        if world.tier.copies:
            world.tier.copied()
        world.step()
    assert world.tiered.safe_offset == 9 and not world.tiered.is_held
    assert world.led.error is None


def test_an_end_of_the_hold_that_was_refused_is_no_error_once_the_keys_are_made_anew() -> None:
    world = held_world()
    world.tier.checked()
    world.keys.refuse("the key space is full")
    assert world.led.error is not None
    world.put(adopted(facts(0, 7, 3), ""))
    world.go_on()
    assert world.led.error is None


def test_a_step_whose_proposal_was_refused_before_does_not_keep_up_the_hold() -> None:
    """Its word of the change is no more true than those of the others: the hold would end and begin again without a pause."""
    world = copied_world()
    world.copy_one()
    world.tier.checked()
    world.keys.refuse("the key space is full")
    world.go_on(LATER_MS)
    world.tier.checked(CHANGED)
    assert world.led.checker.error == CHANGED
    world.go_on()
    world.keys.commit()
    assert world.tiered.is_held
    world.tier.checked()
    world.keys.commit()
    assert not world.tiered.is_held and world.led.error is None
    world.settle()
    assert world.tiered.safe_offset == 9


def test_where_nothing_is_copied_nothing_is_held() -> None:
    world = World()
    world.close_segment()
    world.go_on()
    world.keys.commit()
    world.tier.fail_copy(CHANGED)
    world.go_on(INTERVAL_MS)
    assert not world.led.holder.is_due and not world.tiered.is_held
    assert world.led.error == CHANGED


def test_a_key_that_cannot_be_read_is_left_alone() -> None:
    world = refused_world()
    world.keys.apply(Txn((), (Put(KEY, b"spoilt"),)))
    assert not world.led.holder.is_due
