"""What every remote tier must do after an unclean election: guarantee 10 of `ports.RemoteTier`, scenarios 3 to 5 of KIP-405.

A test module derives `Test...` from `TierContract` and this class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.tier_contract import GROUP, TierWorld, failure
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    Lineage,
    LineageEnd,
    LineageFacts,
    ReadRequest,
    RemoteSegment,
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.plan import Range, epochs_within
from raftlake.wire.batches import Record, build_batch

#: A history: the epoch and the text of each record, by offset.
History = list[tuple[int, str]]

#: The seed's scenario 3: two nodes fail one after the other (scenario 2 of KIP-101). Its LE-0 is epoch 1 here: a log has no
#: records of epoch 0.
FAILED: History = [(1, "msg 0"), (1, "msg 1")]
AFTER_FAILURES: History = [(1, "msg 0"), (2, "msg 2"), (2, "msg 3")]
#: Scenario 4: the new leader lacks what the table shows.
TRUNCATED: History = [(1, "msg 0"), (1, "msg 1"), (1, "msg 2")]
AFTER_TRUNCATION: History = [(1, "msg 0"), (2, "msg 3"), (2, "msg 4")]
#: Scenario 5: the tables of two histories.
OF_A: History = [(1, f"msg {n}") for n in range(5)]
OF_B: History = [*OF_A[:2], (2, "msg 4"), (2, "msg 5"), (2, "msg 6")]
OF_A_AGAIN: History = [*OF_A, (3, "msg 7"), (3, "msg 8")]


def batch_of(offset: int, epoch: int, text: str) -> bytes:
    return bytes(build_batch([Record(value=text.encode())], base_offset=offset, leader_epoch=epoch, timestamp_ms=7))


def epochs_of(history: History) -> list[tuple[Epoch, Offset]]:
    return [(Epoch(epoch), Offset(n)) for n, (epoch, _) in enumerate(history) if n == 0 or history[n - 1][0] != epoch]


def copy_of(history: History, base: int, end: int, incarnation: int, name: str, leader_epoch: int = 0) -> CopyRequest:
    """The leader of a history copies a range of it."""
    return CopyRequest(
        lineage=Lineage(GROUP, incarnation),
        segment_id=name,
        base_offset=Offset(base),
        end_offset=Offset(end),
        leader_epoch=Epoch(leader_epoch or history[-1][0]),
        epochs=epochs_within(epochs_of(history), Range(Offset(base), Offset(end))),
        sources=(b"".join(batch_of(offset, *history[offset]) for offset in range(base, end)),),
        auxiliary=f"state at {end}".encode(),
    )


def copied(world: TierWorld, *requests: CopyRequest) -> None:
    for request in requests:
        made = world.copy(1, request)
        assert isinstance(made, RemoteSegment), made


def request_of(history: History, recovery: str, log_start: int = 0, leader_epoch: int = 0) -> AdoptRequest:
    return AdoptRequest(
        group=GROUP,
        leader_epoch=Epoch(leader_epoch or history[-1][0]),
        recovery=recovery,
        epochs=tuple(epochs_of(history)),
        log_start=Offset(log_start),
        end_offset=Offset(len(history)),
    )


def ask(world: TierWorld, request: AdoptRequest, node: int = 2) -> LineageFacts | TierError:
    answer = world.ask(lambda done: world.tier(node).adopt(request, done))
    assert isinstance(answer, LineageFacts | TierError)
    return answer


def adopt(world: TierWorld, history: History, recovery: str, log_start: int = 0, node: int = 2) -> LineageFacts:
    answer = ask(world, request_of(history, recovery, log_start), node)
    assert isinstance(answer, LineageFacts), answer
    return answer


def texts(world: TierWorld, incarnation: int) -> list[str]:
    """What a reader of the table finds, by offset from 0 on."""
    rows = world.shown(Lineage(GROUP, incarnation))
    assert [row[0] for row in rows] == list(range(rows[0][0], rows[0][0] + len(rows))) if rows else True
    return [(row[5] or b"").decode() for row in rows]


def read(world: TierWorld, offset: int, incarnation: int) -> bytes | TierError:
    request = ReadRequest(
        lineage=Lineage(GROUP, incarnation), offset=Offset(offset), end_offset=Offset(1 << 40), size_max=1 << 20
    )
    answer = world.ask(lambda done: world.tier(1).read(request, done))
    assert isinstance(answer, bytes | TierError)
    return answer


def find(world: TierWorld, offset: int, incarnation: int) -> RemoteState | TierError:
    answer = world.ask(lambda done: world.tier(1).find(Lineage(GROUP, incarnation), Offset(offset), done))
    assert isinstance(answer, RemoteState | TierError)
    return answer


def check(world: TierWorld, segment: RemoteSegment, incarnation: int) -> TierError | None:
    answer = world.ask(lambda done: world.tier(1).check(Lineage(GROUP, incarnation), segment, done))
    assert answer is None or isinstance(answer, TierError)
    return answer


def facts(world: TierWorld, of: Any = GROUP) -> LineageFacts:
    answer = world.ask(lambda done: world.tier(1).facts(of, done))
    assert isinstance(answer, LineageFacts), answer
    return answer


def last(world: TierWorld, incarnation: int, epoch: int) -> RemoteSegment | None:
    answer = world.claim(1, epoch, Lineage(GROUP, incarnation))
    assert isinstance(answer, LineageEnd), answer
    return answer.last


def bytes_from(history: History, offset: int, end: int) -> bytes:
    return b"".join(batch_of(each, *history[each]) for each in range(offset, end))


class TierAdoptionContract:
    """The suite. `world` is the fixture of `TierContract`."""

    @pytest.mark.parametrize(("before", "after"), [(FAILED, AFTER_FAILURES), (TRUNCATED, AFTER_TRUNCATION)])
    def test_10_scenarios_3_and_4_the_table_goes_on_with_the_new_leader_alone(
        self, world: TierWorld, before: History, after: History
    ) -> None:
        copied(world, copy_of(before, 0, len(before), 0, "uuid1"))
        found = adopt(world, after, "first")
        assert (found.lineage.incarnation, found.start_offset, found.end_offset, found.newest) == (1, 0, 0, ())
        assert (found.segments, found.size, found.epochs, found.leader_epoch) == (0, 0, (), 2)
        assert texts(world, 1) == [] and last(world, 1, 2) is None
        copied(world, copy_of(after, 0, 2, 1, "uuid2"), copy_of(after, 2, 3, 1, "uuid3"))
        assert texts(world, 1) == [text for _, text in after]
        assert read(world, 0, 1) == bytes_from(after, 0, 3)
        assert world.superseded(GROUP) == {0: [text for _, text in before]}
        assert world.faults() == []

    def begin(self, world: TierWorld) -> None:
        """Scenario 5 up to its step 3: A copied offsets 0 to 3, then B did."""
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        adopt(world, OF_B, "of B")
        copied(world, copy_of(OF_B, 0, 4, 1, "uuid2"))

    def test_10_scenario_5_brings_back_what_an_election_superseded(self, world: TierWorld) -> None:
        self.begin(world)
        assert texts(world, 1) == ["msg 0", "msg 1", "msg 4", "msg 5"]
        assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}
        assert world.faults() == []
        found = adopt(world, OF_A_AGAIN, "of A", log_start=4)
        assert (found.lineage.incarnation, found.start_offset, found.end_offset, found.epochs) == (2, 0, 4, ((1, 0),))
        assert [segment.segment_id for segment in found.newest] == ["uuid1"]
        assert found == facts(world) == facts(world, Lineage(GROUP, 2))
        assert world.superseded(GROUP) == {1: ["msg 0", "msg 1", "msg 4", "msg 5"]}
        copied(world, copy_of(OF_A_AGAIN, 4, 6, 2, "uuid3"))
        assert texts(world, 2) == [text for _, text in OF_A_AGAIN[:6]]
        assert read(world, 0, 2) == bytes_from(OF_A_AGAIN, 0, 6)
        state = find(world, 1, 2)
        assert isinstance(state, RemoteState)
        assert (state.segment.segment_id, state.segment.end_offset, state.auxiliary) == ("uuid1", 4, b"state at 4")
        assert facts(world).epochs == ((1, 0), (3, 5))
        assert world.faults() == []

    def test_10_a_copy_is_cut_where_the_histories_part_and_the_next_one_has_the_state(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        found = adopt(world, OF_B, "of B", log_start=1)
        assert (found.end_offset, found.epochs, [each.end_offset for each in found.newest]) == (2, ((1, 0),), [2])
        assert texts(world, 1) == ["msg 0", "msg 1"]
        assert failure(find(world, 1, 1)) is TierFailure.ABSENT
        end = last(world, 1, 2)
        assert end is not None and (end.base_offset, end.end_offset) == (0, 2)
        copied(world, copy_of(OF_B, 2, 4, 1, "uuid2"))
        state = find(world, 1, 1)
        assert isinstance(state, RemoteState) and (state.segment.end_offset, state.auxiliary) == (4, b"state at 4")
        assert state.cut == found.newest[0] and check(world, state.cut, 1) is None
        state = find(world, 2, 1)
        assert isinstance(state, RemoteState) and state.cut is None
        assert read(world, 1, 1) == bytes_from(OF_B, 1, 4)
        assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}
        assert world.faults() == []

    def test_10_files_of_the_common_history_stay_and_those_behind_it_go(self, world: TierWorld) -> None:
        copied(world, *(copy_of(OF_A, n, n + 1, 0, f"uuid{n}") for n in range(4)))
        before = facts(world)
        found = adopt(world, OF_B, "of B", log_start=2)
        assert (found.start_offset, found.end_offset, found.segments) == (0, 2, 2)
        assert found.newest == before.newest[:2], "they are as they were"
        assert read(world, 0, 1) == bytes_from(OF_B, 0, 2)
        state = find(world, 1, 1)
        assert isinstance(state, RemoteState) and state.auxiliary == b"state at 2"
        assert world.superseded(GROUP) == {0: ["msg 2", "msg 3"]}
        copied(world, copy_of(OF_B, 2, 5, 1, "uuid9"))
        assert texts(world, 1) == [text for _, text in OF_B]
        assert world.faults() == []

    def test_10_a_third_history_takes_parts_of_both_others(self, world: TierWorld) -> None:
        """Rows of incarnation 1 go before rows of incarnation 0."""
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        adopt(world, OF_B, "of B")
        copied(world, copy_of(OF_B, 0, 1, 1, "uuid2"), copy_of(OF_B, 1, 4, 1, "uuid3"))
        found = adopt(world, OF_A_AGAIN, "of A", log_start=4)
        assert (found.start_offset, found.end_offset, found.segments) == (0, 4, 2)
        assert texts(world, 2) == [text for _, text in OF_A_AGAIN[:4]]
        state = find(world, 2, 2)
        assert isinstance(state, RemoteState), "the end of the first copy is here"
        assert (state.segment.base_offset, state.segment.end_offset, state.auxiliary) == (1, 4, b"state at 4")
        end = last(world, 2, 3)
        assert end is not None and end.end_offset == 4
        copied(world, copy_of(OF_A_AGAIN, 4, 7, 2, "uuid4"))
        assert read(world, 0, 2) == bytes_from(OF_A_AGAIN, 0, 7)
        assert world.faults() == []

    def test_10_leaders_of_older_incarnations_are_fenced(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        arrive = world.delay(3, copy_of(OF_A, 4, 5, 0, "late"))
        adopt(world, OF_B, "of B", log_start=1)
        arrive()
        old = Lineage(GROUP, 0)
        answers: list[Any] = [
            world.copy(1, copy_of(OF_A, 4, 5, 0, "later", leader_epoch=99)),
            world.claim(1, 99, old),
            world.ask(lambda done: world.tier(1).delete(old, Epoch(99), Offset(4), done)),
        ]
        assert [failure(answer) for answer in answers] == [TierFailure.FENCED] * 3
        assert texts(world, 1) == ["msg 0", "msg 1"]
        assert world.faults() == []

    def test_10_a_repeated_call_answers_as_before_and_shows_nothing_anew(self, world: TierWorld) -> None:
        self.begin(world)
        again = adopt(world, OF_B, "of B", node=3)
        assert (again.lineage.incarnation, again.start_offset, again.end_offset) == (1, 0, 4)
        assert texts(world, 1)[3] == "msg 5"
        # The next leader of this history goes on with it, and fences the one before.
        later = ask(world, request_of(OF_B, "of B", leader_epoch=7))
        assert isinstance(later, LineageFacts) and (later.lineage.incarnation, later.leader_epoch) == (1, 7)
        assert failure(world.copy(1, copy_of(OF_B, 4, 5, 1, "older"))) is TierFailure.FENCED
        assert failure(ask(world, request_of(OF_B, "of B"))) is TierFailure.FENCED
        copied(world, copy_of(OF_B, 4, 5, 1, "newer", leader_epoch=7))
        assert world.faults() == []

    def test_10_a_leader_of_a_lower_epoch_takes_nothing_over(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1", leader_epoch=5))
        before = world.commits(GROUP)
        assert failure(ask(world, request_of(OF_B, "of B", leader_epoch=4))) is TierFailure.FENCED
        assert (world.commits(GROUP), texts(world, 0)) == (before, ["msg 0", "msg 1", "msg 2", "msg 3"])

    def test_10_where_nothing_leads_to_the_log_the_table_begins_where_the_log_does(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        other: History = [(5, f"else {n}") for n in range(9)]
        found = adopt(world, other, "of C", log_start=6)
        assert (found.start_offset, found.end_offset, found.segments, found.newest) == (6, 6, 0, ())
        assert last(world, 1, 5) is None and facts(world) == found
        again = adopt(world, other, "of C", log_start=6)
        assert again == found
        assert failure(read(world, 1, 1)) is TierFailure.ABSENT
        for base in (5, 7):
            assert failure(world.copy(1, copy_of(other, base, 8, 1, f"at{base}"))) is TierFailure.ELSEWHERE
        copied(world, copy_of(other, 6, 8, 1, "uuid2"))
        assert read(world, 7, 1) == bytes_from(other, 7, 8)
        assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}
        assert world.faults() == []

    def test_10_a_table_that_was_never_begun_is_adopted_too(self, world: TierWorld) -> None:
        found = adopt(world, OF_A, "of A", log_start=2)
        assert (found.lineage.incarnation, found.start_offset, found.end_offset, found.segments) == (1, 2, 2, 0)
        assert failure(world.copy(1, copy_of(OF_A, 2, 4, 0, "old"))) is TierFailure.FENCED
        copied(world, copy_of(OF_A, 2, 4, 1, "uuid1"))
        assert facts(world).end_offset == 4
        assert world.faults() == []

    def test_10_a_table_that_lost_its_copies_is_not_adopted(self, world: TierWorld) -> None:
        """A share that is not mounted, say: the history would begin where the leader's log does."""
        request = replace(request_of(OF_B, "of B", 2), is_continued=True)
        assert failure(ask(world, request)) is TierFailure.UNUSABLE
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        found = ask(world, request)
        assert isinstance(found, LineageFacts) and (found.lineage.incarnation, texts(world, 1)) == (1, ["msg 0", "msg 1"])
        copied(world, copy_of(OF_B, 2, 3, 1, "uuid2"))
        other: History = [(5, f"else {n}") for n in range(4)]
        for number in (2, 3):
            # Nothing leads to this history: nothing of it was shown, and the table is the right one all the same.
            again = ask(world, replace(request_of(other, f"C{number}", leader_epoch=9), is_continued=True))
            assert isinstance(again, LineageFacts) and (again.lineage.incarnation, again.end_offset) == (number, 0)

    def test_10_retention_goes_on_over_rows_of_older_incarnations(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 1, 0, "uuid1"), copy_of(OF_A, 1, 4, 0, "uuid2"))
        found = adopt(world, OF_B, "of B", log_start=2)
        copied(world, copy_of(OF_B, 2, 5, 1, "uuid3"))
        oldest = world.ask(lambda done: world.tier(1).oldest(found.lineage, 5, done))
        assert [(file.base_offset, file.end_offset) for file in oldest] == [(0, 1), (1, 2), (2, 5)]
        start = world.ask(lambda done: world.tier(1).delete(found.lineage, Epoch(2), Offset(2), done))
        assert start == 2
        assert texts(world, 1) == ["msg 4", "msg 5", "msg 6"]
        # What the election superseded stays, with its state.
        found = adopt(world, OF_A_AGAIN, "of A", log_start=4)
        assert texts(world, 2) == ["msg 1", "msg 2", "msg 3"]
        state = find(world, 1, 2)
        assert isinstance(state, RemoteState) and (state.segment.segment_id, state.auxiliary) == ("uuid2", b"state at 4")
        assert world.faults() == []

    def test_10_the_table_of_a_deleted_topic_is_taken_over_by_no_one(self, world: TierWorld) -> None:
        copied(world, copy_of(OF_A, 0, 4, 0, "uuid1"))
        adopt(world, OF_B, "of B")
        copied(world, copy_of(OF_B, 0, 4, 1, "uuid2"))
        assert world.ask(lambda done: world.tier(1).drop(GROUP, 3, done)) is None
        for recovery in ("of B", "of A"):
            assert failure(ask(world, request_of(OF_A_AGAIN, recovery, leader_epoch=99))) is TierFailure.FENCED
        assert texts(world, 1) == texts(world, 2) == []
