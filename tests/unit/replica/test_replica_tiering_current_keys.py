"""A leader judges its table by keys that are not older than its leadership."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledkit import World
from raftlake.errors import ErrorCode
from raftlake.ports.tier import TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.tiering.current_keys import CurrentKeys
from raftlake.tier.entries import Tiered


def started_world() -> tuple[World, Tiered]:
    """A leader that has just started: its keys are those of an old snapshot, and its log is trimmed by newer ones. With what
    these say."""
    world = World()
    old = Tiered(topic="orders", start_offset=Offset(0), end_offset=Offset(1), checked_offset=Offset(1))
    for _ in range(3):
        world.close_segment()
    assert world.partition.log.advance_start(Offset(5)) == 5
    world.put(old)
    world.led.close()
    world.keys.is_current = False
    world.lead()
    return world, replace(old, end_offset=Offset(5), checked_offset=Offset(5))


def test_a_node_that_starts_takes_no_old_key_for_a_gap() -> None:
    world, newest = started_world()
    world.go_on()
    assert (world.led.error, world.led.is_due, world.keys.proposed, world.tier.under_way) == (None, False, [], 0)
    world.put(newest)
    world.keys.answer_reads()
    world.go_on()
    assert world.led.error is None
    world.keys.commit()
    assert [(request.base_offset, request.end_offset) for request, _ in world.tier.copies] == [(5, 7)]


def test_a_gap_that_current_keys_tell_of_is_told() -> None:
    world, _ = started_world()
    world.keys.answer_reads()
    world.go_on()
    error = world.led.error
    assert error is not None and error.failure is TierFailure.UNUSABLE
    assert "the table ends at 1, and the log begins at 5" in error.reason


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_read_that_fails_is_repeated(error: ErrorCode) -> None:
    world = World()
    world.keys.is_current = False
    keys = CurrentKeys(world.ground.engine, world.keys)  # type: ignore[arg-type]
    keys.ask()
    keys.ask()
    assert len(world.keys.reads) == 1 and not keys.are_here, "one at a time"
    world.keys.answer_reads(error)
    assert not keys.are_here
    keys.ask()
    world.keys.answer_reads()
    keys.ask()
    assert keys.are_here and world.keys.reads == []
