"""Until a log is whole it comes from the leader of one epoch, or the others have removed nothing of it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.errors import UnfitBeginning
from raftlake.raft.actions import AppendFetched
from raftlake.raft.types import Epoch, Impairment, Offset
from raftlake.replica.partition.wholeness import Wholeness


@dataclass
class Core:
    impairment: Impairment | None = None
    is_voter: bool = False
    caught_up_at: int = 1 << 40

    def has_caught_up(self, applied: Offset) -> bool:
        return applied >= self.caught_up_at


LOST = Impairment(Epoch(3), Offset(9))


class Log:
    start_offset = Offset(2)

    def __init__(self, end_offset: int) -> None:
        self.end_offset = Offset(end_offset)
        #: What was noted, and where the log ended then.
        self.notes: list[tuple[bool, int]] = []

    @property
    def is_partial(self) -> bool:
        return bool(self.notes) and self.notes[-1][0]

    def note_partial(self, is_partial: bool) -> None:
        self.notes.append((is_partial, self.end_offset))


class House:
    def __init__(self, *, end: int = 2, impairment: Impairment | None = None, is_voter: bool = False) -> None:
        self.core, self.log = Core(impairment, is_voter), Log(end)
        self.restart()

    def restart(self) -> None:
        """With all that was appended."""
        self.wholeness = Wholeness("keyed-0", self.core, self.log)  # type: ignore[arg-type]

    def append(self, epoch: int, *counts: int) -> None:
        """Batches of two offsets each, with so many records."""
        batches: list[Any] = []
        for count in counts:
            header = SimpleNamespace(base_offset=self.log.end_offset, record_count=count, last_offset_delta=1)
            batches.append(SimpleNamespace(payload=SimpleNamespace(header=header)))
        self.wholeness.about_to_append(AppendFetched(batches=tuple(batches), leader_epoch=Epoch(epoch)))
        self.log.end_offset = Offset(self.log.end_offset + 2 * len(counts))


def test_one_leader_may_have_removed_anything() -> None:
    house = House()
    for _ in range(2):
        house.append(5, 1, 0)
    assert not house.wholeness.is_whole


@pytest.mark.parametrize("counts", [(1,), (0,), (2, 1), (2, 2, 0)])
def test_a_second_leader_may_have_removed_nothing(counts: tuple[int, ...]) -> None:
    house = House()
    house.append(5, 0)
    for _ in range(2):
        house.append(6, 2, 2)
    with pytest.raises(UnfitBeginning, match=r"keyed-0: .* removed records from"):
        house.append(6, *counts)


def test_nor_may_the_first_one_when_it_leads_again() -> None:
    """It may have compacted its log meanwhile."""
    house = House()
    house.append(5, 0)
    house.append(6, 2)
    with pytest.raises(UnfitBeginning):
        house.append(7, 0)


def test_what_a_damaged_log_still_holds_is_of_no_leader() -> None:
    house = House(end=4, impairment=LOST)
    house.append(5, 2)
    with pytest.raises(UnfitBeginning):
        house.append(5, 1)


def test_a_log_that_was_found_intact_is_whole() -> None:
    house = House(end=4)
    assert house.wholeness.is_whole
    house.append(5, 0)
    house.append(6, 0)


def test_a_log_is_whole_once_it_has_caught_up() -> None:
    house = House()
    house.append(5, 2, 2)
    house.core.caught_up_at = 6
    house.wholeness.committed(Offset(5))
    assert not house.wholeness.is_whole
    house.wholeness.committed(Offset(6))
    assert house.wholeness.is_whole
    # For good: a later leader says first how far all is committed when it has been heard.
    house.core.caught_up_at = 1 << 40
    house.wholeness.committed(Offset(7))
    house.append(6, 0)


def test_an_impaired_log_is_whole_when_it_is_mended() -> None:
    house = House(end=4, impairment=LOST)
    house.core.caught_up_at = 0
    house.wholeness.committed(Offset(4))
    assert not house.wholeness.is_whole
    house.core.impairment = None
    house.wholeness.mended()
    house.append(6, 0)


def test_a_log_that_begins_anew_behind_its_leader_is_not_whole() -> None:
    house = House(end=4)
    house.log.end_offset = Log.start_offset
    house.wholeness.begun_anew()
    house.append(5, 1)
    with pytest.raises(UnfitBeginning):
        house.append(6, 1)


# --- observers ---


def observer(*counts: int) -> House:
    """It has batches of leader 5, and was restarted then."""
    house = House()
    for count in counts:
        house.append(5, count)
    house.restart()
    return house


@pytest.mark.parametrize("epoch", [5, 6])
def test_a_restart_amid_the_first_fetch_does_not_make_a_log_whole(epoch: int) -> None:
    """Simulator, seed 1100012778. Nor is it known any more which leader gave the beginning."""
    house = observer(2, 1)
    assert not house.wholeness.is_whole and house.log.notes == [(True, 2)], "noted once, before the first batch"
    house.append(epoch, 2)
    house.restart()
    with pytest.raises(UnfitBeginning):
        house.append(epoch, 2, 1)


def test_a_log_that_has_caught_up_is_whole_for_all_later_starts() -> None:
    house = observer(2)
    house.core.caught_up_at = 4
    house.wholeness.committed(Offset(3))
    assert house.log.is_partial
    house.wholeness.committed(Offset(4))
    house.wholeness.committed(Offset(4))
    assert house.log.notes == [(True, 2), (False, 4)]
    house.core.caught_up_at = 1 << 40
    house.restart()
    assert house.wholeness.is_whole
    house.append(6, 0)


def test_an_observer_that_becomes_a_voter_has_to_catch_up_first() -> None:
    house = observer(2)
    house.core.is_voter = True
    house.restart()
    with pytest.raises(UnfitBeginning):
        house.append(6, 0)


def test_nor_when_it_begins_anew_behind_its_leader_then() -> None:
    house = observer(2)
    house.core.is_voter = True
    house.log.end_offset = Log.start_offset
    house.wholeness.begun_anew()
    house.append(6, 0)
    with pytest.raises(UnfitBeginning):
        house.append(7, 0)
    assert house.log.notes == [(True, 2)]


def test_a_voter_that_begins_with_nothing_takes_what_two_leaders_give() -> None:
    """Simulator, seed 1110003134. Nothing was removed that it did not have. Nor does it note anything: each new topic would
    cost its voters two syncs more for each partition."""
    house = House(is_voter=True)
    house.append(5, 0)
    house.append(6, 2, 0)
    house.restart()
    house.append(7, 0)
    assert house.wholeness.is_whole and house.log.notes == []


def test_a_voter_that_begins_anew_behind_its_leader_does_so_too() -> None:
    house = House(end=4, is_voter=True)
    house.log.end_offset = Log.start_offset
    house.wholeness.begun_anew()
    house.append(5, 1)
    house.append(6, 1)
    assert house.wholeness.is_whole and house.log.notes == []


@pytest.mark.parametrize("end", [2, 4])
def test_a_voter_that_lost_its_log_may_not(end: int) -> None:
    house = House(end=end, impairment=LOST, is_voter=True)
    house.append(5, 2)
    with pytest.raises(UnfitBeginning):
        house.append(6, 1)


def test_an_observer_that_begins_anew_behind_its_leader_notes_it_again() -> None:
    house = House(end=4)
    assert house.wholeness.is_whole
    house.log.end_offset = Log.start_offset
    house.wholeness.begun_anew()
    house.append(5, 2)
    house.append(5, 2)
    assert house.log.notes == [(True, 2)]


def test_a_mended_log_is_partial_no_more() -> None:
    house = observer(2)
    house.core.impairment = LOST
    house.core.caught_up_at = 0
    house.restart()
    house.wholeness.committed(Offset(4))
    assert house.log.is_partial
    house.core.impairment = None
    house.wholeness.mended()
    assert not house.log.is_partial and house.wholeness.is_whole
    house.restart()
    assert house.wholeness.is_whole
