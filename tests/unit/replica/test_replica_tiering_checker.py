"""Copies are read back before local disks may let go of them, in every order of answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledkit import DAMAGED, INTERVAL_MS, LINEAGE, LOST, TOPIC_ID, World
from raftlake.kv.commands import Delete, Txn
from raftlake.kv.keys import tier_segment_key
from raftlake.ports.tier import (
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Offset
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.tiering.checker import BACKOFF_MAX_MS
from raftlake.replica.tiering.step import RETRY_BACKOFF_MS


def test_a_copy_is_read_back_once_and_then_counts_as_safe() -> None:
    world = World()
    copied = world.copy_one()
    assert (world.tiered.end_offset, world.tiered.safe_offset) == (3, 0)
    assert world.tier.checked() == copied
    assert world.tiered.safe_offset == 0, "before the key says so"
    world.keys.commit()
    assert (world.tiered.checked_offset, world.tiered.end_offset) == (3, 3)
    world.go_on(INTERVAL_MS)
    assert world.tier.under_way == 0 and world.keys.proposed == [] and world.counts.checks == 1


@pytest.mark.parametrize("answer", [None, DAMAGED, LOST])
def test_what_is_read_back_at_once_is_finished_and_checked_together(answer: TierError | None) -> None:
    world = World()
    world.close_segment()
    world.go_on()
    world.keys.commit()
    copied = world.tier.copied(read_back=answer)
    (txn, _), *others = world.keys.proposed
    assert not others and len(txn.ops) == 2 and world.tier.under_way == 0
    world.keys.commit()
    assert (world.tiered.end_offset, world.tiered.safe_offset) == (3, 3 if answer is None else 0)
    assert [segment for _, segment, _ in world.tier.checks] == ([] if answer is None else [copied])


def test_a_copy_behind_one_that_is_not_checked_waits_for_its_turn() -> None:
    world = World()
    first = world.copy_one()
    world.tier.checked(LOST)
    world.close_segment()
    while not world.tier.copies:
        world.step()
    world.tier.copied(read_back=None)
    while world.tiered.end_offset == first.end_offset:
        world.step()
    assert world.tiered.safe_offset == 0
    for _ in range(10):
        world.step()
    assert world.tiered.safe_offset == world.tiered.end_offset == 5


def test_copies_go_on_while_one_cannot_be_read_back() -> None:
    world = World()
    world.copy_one()
    world.tier.checked(DAMAGED)
    assert world.led.error == DAMAGED and world.counts.damaged == 1
    world.copy_one()
    world.copy_one()
    assert (world.tiered.end_offset, world.tiered.safe_offset) == (7, 0)
    assert world.led.error == DAMAGED, "copies that succeed do not hide it"


def test_the_damaged_copy_is_looked_at_again_and_nothing_behind_it_before() -> None:
    world = World()
    first, second = world.copy_one(), None
    world.tier.checked(DAMAGED)
    second = world.copy_one()
    waits_ms = []
    for _ in range(14):
        waited_ms = 0
        while not world.tier.checks:
            world.go_on(RETRY_BACKOFF_MS)
            waited_ms += RETRY_BACKOFF_MS
        assert world.tier.checked(DAMAGED) == first
        waits_ms.append(waited_ms)
    assert waits_ms[-1] > 10 * waits_ms[0] and waits_ms[-1] <= BACKOFF_MAX_MS, "each look reads the whole file"
    world.go_on(BACKOFF_MAX_MS)
    assert world.tier.checked() == first
    world.keys.commit()
    assert world.tiered.safe_offset == first.end_offset and world.led.error is None
    assert world.tier.checked() == second
    world.keys.commit()
    assert world.tiered.safe_offset == second.end_offset


def test_the_next_leader_reads_back_what_the_key_does_not_say_yet() -> None:
    world = World()
    copied = world.copy_one()
    world.tier.checked()
    world.keys.answer(ProposeStatus.UNKNOWN)
    world.led.close()
    world.lead()
    world.go_on()
    assert world.tier.checked() == copied
    world.keys.commit()
    assert world.tiered.safe_offset == 3


def test_a_copy_whose_key_is_folded_is_found_in_the_table() -> None:
    world = World()
    first = world.copy_one()
    world.tier.checked(LOST)
    world.keys.apply(Txn((), (Delete(tier_segment_key(TOPIC_ID, 0, 0)),)))
    world.go_on(RETRY_BACKOFF_MS)
    lineage, offset, done = world.tier.finds.pop()
    assert (lineage, offset) == (LINEAGE, 0)
    done(RemoteState(first, b""))
    assert world.tier.checked() == first
    world.keys.commit()
    assert world.tiered.safe_offset == first.end_offset


def test_a_copy_that_an_election_cut_is_found_too_and_what_follows_it_is_checked() -> None:
    """The state beside it is that of a later copy, which is checked in its turn."""
    world = World()
    first = world.copy_one()
    world.tier.checked(LOST)
    second = world.copy_one()
    world.keys.apply(Txn((), (Delete(tier_segment_key(TOPIC_ID, 0, 0)),)))
    while not world.tier.finds:
        world.go_on(RETRY_BACKOFF_MS)
    world.tier.finds.pop()[2](RemoteState(second, b"state", cut=first))
    assert world.tier.checked() == first
    world.keys.commit()
    assert world.tiered.safe_offset == first.end_offset and world.led.error is None
    assert world.tier.checked() == second


@pytest.mark.parametrize("failure", [TierFailure.ABSENT, TierFailure.UNKNOWN, TierFailure.UNUSABLE])
def test_a_copy_that_cannot_be_found_is_told(failure: TierFailure) -> None:
    world = World()
    world.copy_one()
    world.tier.checked(TierError(failure, "the table does not show x"))
    assert world.led.error is not None and world.led.error.reason == "the table does not show x"
    assert world.tiered.safe_offset == 0 and world.counts.damaged == 0


def test_a_check_that_ends_after_the_leadership_has_no_effect() -> None:
    world = World()
    world.copy_one()
    world.led.close()
    world.tier.checked()
    assert world.keys.proposed == []


def test_a_check_from_before_the_keys_were_made_anew_does_not_count() -> None:
    """The table may be another one by now, with other rows at the same offsets."""
    world = World()
    copied = world.copy_one()
    world.put(replace(world.tiered, size=99))
    assert world.tier.checked() == copied
    assert world.keys.proposed == [] and world.tiered.safe_offset == 0
    world.go_on()
    assert world.tier.checked() == copied
    world.keys.commit()
    assert world.tiered.safe_offset == copied.end_offset


def test_a_removed_copy_is_never_taken_for_read_back() -> None:
    """RESTORE took the last copy out, and the keys were made anew as often as they were said to be wrong: its offsets stay on
    local disks until they are copied and read back again."""
    world = World()
    kept = world.copy_one()
    world.settle()
    world.close_segment()
    while not world.tier.copies:
        world.step()
    gone = world.tier.copied(read_back=None)
    world.settle()
    assert world.tiered.safe_offset == gone.end_offset == 5
    for _ in range(3):
        world.put(replace(world.tiered, end_offset=kept.end_offset, checked_offset=Offset(0), copying=None))
        world.keys.apply(Txn((), (Delete(tier_segment_key(TOPIC_ID, 0, gone.base_offset)),)))
        while not world.tier.copies:
            world.step()
            assert world.tiered.safe_offset <= kept.end_offset == world.tiered.end_offset
        world.tier.fail_copy(LOST)
