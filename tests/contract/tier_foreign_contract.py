"""What every remote tier must do with a table that another program has changed: guarantee 12 of `ports.RemoteTier`.

A test module derives `Test...` from `TierContract` and this class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contract.tier_contract import GROUP, LINEAGE, TierWorld, data_batch, failure, request_for, segment
from contract.tier_history_contract import OTHER, check, copied, delete, drop, facts, read
from raftlake.ports.tier import AdoptRequest, LineageFacts, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset


def adopt(world: TierWorld) -> LineageFacts | TierError:
    request = AdoptRequest(
        group=GROUP,
        leader_epoch=Epoch(7),
        recovery="first",
        epochs=((Epoch(5), Offset(0)),),
        log_start=Offset(0),
        end_offset=Offset(18),
    )
    answer = world.ask(lambda done: world.tier(1).adopt(request, done))
    assert isinstance(answer, LineageFacts | TierError)
    return answer


def accept(world: TierWorld, begin: int | None = 0, reach: int = 0) -> LineageFacts | TierError:
    at = None if begin is None else Offset(begin)
    answer = world.ask(lambda done: world.tier(3).accept(GROUP, at, Offset(reach), done))
    assert isinstance(answer, LineageFacts | TierError)
    return answer


def ends(answer: LineageFacts | TierError) -> tuple[int, int]:
    assert isinstance(answer, LineageFacts), answer
    return answer.start_offset, answer.end_offset


CALLS: dict[str, Callable[[TierWorld, Sequence[RemoteSegment]], Any]] = {
    "copy": lambda world, made: world.copy(1, segment(18, "next")),
    "claim": lambda world, made: world.claim(2, 6),
    "check": lambda world, made: check(world, made[0]),
    "delete": lambda world, made: delete(world, 6),
    "adopt": lambda world, made: adopt(world),
}


class TierForeignContract:
    """Guarantee 12."""

    @pytest.fixture
    def made(self, world: TierWorld) -> list[RemoteSegment]:
        return copied(world, segment(0, "a"), segment(6, "b"), segment(12, "c"))

    @pytest.mark.parametrize("place", [0, 1, 2])
    @pytest.mark.parametrize("call", CALLS)
    def test_12_no_call_goes_on_where_rows_were_removed(
        self, world: TierWorld, made: list[RemoteSegment], call: str, place: int
    ) -> None:
        world.take_out(LINEAGE, [made[place]])
        commits = world.commits(GROUP)
        assert failure(CALLS[call](world, made)) is TierFailure.CHANGED
        assert world.commits(GROUP) == commits

    @pytest.mark.parametrize("call", CALLS)
    def test_12_all_goes_on_once_the_rows_are_back(self, world: TierWorld, made: list[RemoteSegment], call: str) -> None:
        world.take_out(LINEAGE, made[1:])
        assert failure(CALLS[call](world, made)) is TierFailure.CHANGED
        world.put_back(LINEAGE, made[1:2])
        assert failure(CALLS[call](world, made)) is TierFailure.CHANGED
        world.put_back(LINEAGE, made[2:])
        assert not isinstance(CALLS[call](world, made), TierError)

    def test_12_a_process_that_begins_then_finds_it_too(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        world.take_out(LINEAGE, made[2:])
        answer = world.copy(2, segment(18, "next"))
        assert failure(answer) is TierFailure.CHANGED
        assert failure(world.copy(2, segment(12, "next"))) is TierFailure.CHANGED

    def test_12_other_partitions_are_as_they_were(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        (other,) = copied(world, segment(0, "o", lineage=OTHER))
        world.take_out(LINEAGE, made[1:])
        assert check(world, other, OTHER) is None
        copied(world, segment(6, "p", lineage=OTHER))
        assert failure(world.copy(1, segment(18, "next"))) is TierFailure.CHANGED

    def test_12_a_deleted_topic_is_emptied_all_the_same(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        world.take_out(LINEAGE, made[1:2])
        assert drop(world) is None
        assert world.shown(LINEAGE) == []

    def test_12_readers_are_served_what_is_there(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        world.take_out(LINEAGE, made[2:])
        assert isinstance(read(world, 0), bytes)
        assert failure(read(world, 12)) is TierFailure.ABSENT

    # --- the operator's word ---

    def test_12_accepting_a_table_as_it_was_left_changes_nothing(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        before = world.commits(GROUP)
        assert accept(world) == facts(world)
        assert accept(world, None) == facts(world)
        assert world.commits(GROUP) == before
        assert failure(accept_of(world, OTHER)) is TierFailure.ABSENT

    def test_12_a_table_that_was_cut_short_goes_on_where_it_ends(self, world: TierWorld, made: list[RemoteSegment]) -> None:
        world.take_out(LINEAGE, made[1:])
        answer = accept(world)
        assert ends(answer) == (0, 6)
        assert answer == facts(world)
        assert failure(world.copy(1, segment(18, "late"))) is TierFailure.ELSEWHERE
        again = segment(6, "again")
        copied(world, again, segment(12, "more"))
        assert check(world, made[0]) is None
        assert [row[0] for row in world.shown(LINEAGE)] == list(range(18))
        last = world.last(2, 6)
        assert last is not None and last.segment_id == "more"

    @pytest.mark.parametrize("gone", [(1,), (0,), (0, 1), (0, 1, 2)])
    def test_12_a_hole_or_a_lost_beginning_is_never_accepted(
        self, world: TierWorld, made: list[RemoteSegment], gone: tuple[int, ...]
    ) -> None:
        world.take_out(LINEAGE, [made[n] for n in gone])
        commits = world.commits(GROUP)
        assert failure(accept(world)) is TierFailure.CHANGED
        assert world.commits(GROUP) == commits
        assert failure(world.copy(1, segment(18, "next"))) is TierFailure.CHANGED
        world.put_back(LINEAGE, [made[n] for n in gone])
        assert ends(accept(world)) == (0, 18)
        copied(world, segment(18, "next"))

    @pytest.mark.parametrize("last", [1, 2])
    def test_12_a_copy_that_was_removed_never_counts_as_shown_again(
        self, world: TierWorld, made: list[RemoteSegment], last: int
    ) -> None:
        """Its file and the facts beside it are still in the store. Local disks let go of what a check has passed."""
        gone = made[last:]
        world.take_out(LINEAGE, gone)
        assert ends(accept(world)) == (0, gone[0].base_offset)
        assert all(failure(check(world, each)) is TierFailure.ABSENT for each in gone)
        before = world.last(1, 5)
        assert before == made[last - 1], "a claim tells what the table shows"
        for old in gone:
            (again,) = copied(world, segment(old.base_offset, f"again-{old.segment_id}"))
            assert failure(check(world, old)) is TierFailure.ABSENT
            assert check(world, again) is None and world.last(1, 5) == again
        assert [row[0] for row in world.shown(LINEAGE)] == list(range(18))

    def test_12_a_table_that_ends_before_the_log_begins_is_never_accepted(
        self, world: TierWorld, made: list[RemoteSegment]
    ) -> None:
        """Nothing could be copied behind it, and no reader would be served what it shows."""
        world.take_out(LINEAGE, made[1:])
        commits = world.commits(GROUP)
        answer = accept(world, reach=7)
        assert failure(answer) is TierFailure.CHANGED and isinstance(answer, TierError)
        assert "ends at 6" in answer.reason and "begins at 7" in answer.reason
        assert world.commits(GROUP) == commits and failure(world.copy(1, segment(6, "next"))) is TierFailure.CHANGED
        assert ends(accept(world, reach=6)) == (0, 6)
        commits = world.commits(GROUP)
        assert failure(accept(world, reach=7)) is TierFailure.CHANGED and world.commits(GROUP) == commits

    # --- 10: what a takeover may not take out ---

    def test_10_a_table_that_does_not_lead_to_the_log_is_not_taken_over(self, world: TierWorld) -> None:
        """Rows of the leader's own history, which nobody else has, would go."""
        copied(world, segment(0, "a"), request_for(data_batch(6, 5), "b"))
        request = AdoptRequest(
            group=GROUP,
            leader_epoch=Epoch(7),
            recovery="first",
            epochs=((Epoch(5), Offset(0)), (Epoch(7), Offset(12))),
            log_start=Offset(12),
            end_offset=Offset(20),
        )
        commits, shown = world.commits(GROUP), world.shown(LINEAGE)
        answer = world.ask(lambda done: world.tier(1).adopt(request, done))
        assert failure(answer) is TierFailure.ELSEWHERE
        assert isinstance(answer, TierError) and "0 to 8" in answer.reason and "begins at 12" in answer.reason
        assert (world.commits(GROUP), world.shown(LINEAGE)) == (commits, shown)


def accept_of(world: TierWorld, lineage: Any) -> LineageFacts | TierError:
    answer = world.ask(lambda done: world.tier(3).accept(lineage.group, None, None, done))
    assert isinstance(answer, LineageFacts | TierError)
    return answer
