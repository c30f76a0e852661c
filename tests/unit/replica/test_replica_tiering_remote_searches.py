"""Searches by time over table and local log: what is asked first, and what becomes of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from asidekit import Held
from raftlake.errors import ErrorCode
from raftlake.raft.types import Offset
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.aside.time_searches import MAX_TIMESTAMP, PATIENCE_MS, FoundOffset, Question, TimeSearches
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering import remote_searches
from raftlake.replica.tiering.remote_searches import CALLS_MAX, RemoteSearches
from remotekit import ABSENT, DAMAGED, LOST, RemoteWorld, record

NONE = ErrorCode.NONE


class World(RemoteWorld):
    """The local batches were written at their offset times 1,000 ms behind the start."""

    def __init__(self, *, is_on: bool = True) -> None:
        super().__init__(is_on=is_on)
        engine, tier = self.ground.engine, self.tier
        self.held = Held()
        local = TimeSearches(engine, Findings(engine), Allowance(), self.held, lambda _: Offset(0))
        remote: Any = tier if is_on else None
        self.searches = RemoteSearches(engine, self.remote_log, local, remote, self.tally)
        self.wall_ms = self.ground.time.wall_ms()
        self.error = NONE

    def ask(self, partition: Partition, *timestamps: int) -> list[FoundOffset]:
        """One request; the answers appear in the list that is returned."""
        answers: list[FoundOffset] = []
        request = self.searches.begin()
        for timestamp in timestamps:
            question = Question(
                partition.group,
                timestamp,
                lambda: partition if self.error is NONE else self.error,
                answers.append,
            )
            self.searches.ask(request, question)
        return answers

    def partition(self, index: int = 0, **more: Any) -> Partition:
        partition = super().partition(index, **more)
        self.ground.run(1_000)
        self.ground.append(partition, b"later")
        return partition


@pytest.fixture
def world() -> World:
    return World()


def test_what_the_table_has_is_the_answer(world: World) -> None:
    partition = world.partition()
    answers = world.ask(partition, 500)
    assert answers == []
    asked = world.tier.found(record(3, 700))
    assert (asked.timestamp_ms, asked.start_offset, asked.end_offset) == (500, 0, 8)
    world.ground.run(1)
    assert answers == [(NONE, 700, 3, 1)] and world.tally.searches == 1


def test_what_the_table_does_not_have_is_looked_for_in_the_local_log(world: World) -> None:
    partition = world.partition()
    answers = world.ask(partition, world.wall_ms + 1)
    world.tier.found(None)
    world.ground.run(1)
    assert answers == [(NONE, world.wall_ms + 1_000, 11, 1)]


@pytest.mark.parametrize(
    ("table", "answer"),
    [
        (None, (1_000, 11)),
        (record(3, 999), (1_000, 11)),
        (record(3, 1_000), (1_000, 3)),
        (record(3, 1_001), (1_001, 3)),
    ],
    ids=["nothing", "earlier", "the same", "later"],
)
def test_the_latest_time_is_that_of_table_or_log_and_the_first_of_two(
    world: World, table: Any, answer: tuple[int, int]
) -> None:
    partition = world.partition()
    answers = world.ask(partition, MAX_TIMESTAMP)
    if table is not None:
        table = record(table.offset, world.wall_ms + table.timestamp_ms)
    assert world.tier.found(table).timestamp_ms is None
    world.ground.run(1)
    assert [(each.timestamp_ms - world.wall_ms, each.offset) for each in answers] == [answer]


def test_a_partition_that_is_all_here_is_not_looked_for_in_the_table(world: World) -> None:
    partition = world.partition(local_from=0)
    assert world.ask(partition, world.wall_ms) == [(NONE, world.wall_ms, 1, 1)] and world.tier.searches == []
    world = World(is_on=False)
    partition = world.partition()
    assert world.ask(partition, world.wall_ms) == [(NONE, world.wall_ms, 6, 1)]


@pytest.mark.parametrize("error", [LOST, DAMAGED, ABSENT])
def test_a_failure_is_no_answer(world: World, error: Any) -> None:
    """The local log knows a later record, and who reads on from there misses what the table has."""
    partition = world.partition()
    answers = world.ask(partition, 500)
    world.tier.found(error)
    world.ground.run(1)
    assert answers == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1)]
    assert (world.tally.failures, world.tally.searches) == (1, 0)


def test_what_moved_from_the_log_to_the_table_meanwhile_is_searched_again(world: World) -> None:
    partition = world.partition()
    answers = world.ask(partition, world.wall_ms)
    world.say(partition, 0, 11)
    world.trim(partition, 10)
    world.tier.found(None)
    world.ground.run(1)
    assert answers == [] and world.tier.found(record(8, world.wall_ms)).end_offset == 11
    world.ground.run(1)
    assert answers == [(NONE, world.wall_ms, 8, 1)]


def test_what_was_deleted_meanwhile_is_no_answer(world: World) -> None:
    partition = world.partition()
    answers = world.ask(partition, 500)
    world.say(partition, 4, 8)
    world.tier.found(record(3, 700))
    world.ground.run(1)
    assert answers == [] and world.tier.found(record(4, 800)).start_offset == 4
    world.ground.run(1)
    assert answers == [(NONE, 800, 4, 1)]


def test_a_node_that_leads_no_more_answers_so(world: World) -> None:
    partition = world.partition()
    answers = world.ask(partition, 500, 501, 502)
    world.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.tier.found(record(3, 700))
    world.ground.run(1)
    assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)] * 2, "the second of them is not asked at all"
    world.tier.found(None)
    world.ground.run(1)
    assert len(answers) == 3 and len(set(answers)) == 1
    assert world.ask(partition, 500) == answers[:1] and world.tier.searches == []


def test_a_node_that_has_not_heard_what_the_table_has_does_not_answer(world: World) -> None:
    partition = world.partition()
    world.say(partition, 0, 5)
    world.keys.is_current = False
    assert world.ask(partition, world.wall_ms) == [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1)]
    world.keys.answer_reads()
    assert world.ask(partition, world.wall_ms) == [(NONE, world.wall_ms, 6, 1)], "there is really nothing else"


# --- the line -------------------------------------------------------------------------------------------------------------


def test_few_are_under_way_and_requests_take_turns(world: World) -> None:
    partition = world.partition()
    long = world.ask(partition, *range(1, 7))
    short = world.ask(partition, 7)
    assert [asked.timestamp_ms for asked, _ in world.tier.searches] == [1, 2] and CALLS_MAX == 2
    order: list[int | None] = []
    while world.tier.searches:
        assert len(world.tier.searches) <= CALLS_MAX
        order.append(world.tier.found(record(3, 700)).timestamp_ms)
    assert order == [1, 2, 3, 7, 4, 5, 6]
    world.ground.run(1)
    assert (len(long), len(short)) == (6, 1)


def test_questions_that_have_waited_too_long_and_too_many_are_not_answered_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_searches, "QUESTIONS_MAX", 1)
    partition = world.partition()
    answers = world.ask(partition, 1, 2, 3, 4)
    assert answers == [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1)]
    world.ground.run(PATIENCE_MS)
    world.tier.found(record(3, 700))
    world.tier.found(record(3, 700))
    world.ground.run(1)
    assert [each.error for each in answers] == [ErrorCode.OFFSET_NOT_AVAILABLE] * 2 + [NONE] * 2
    assert world.tier.searches == []
    again = world.ask(partition, 5)
    world.tier.found(record(3, 700))
    world.ground.run(1)
    assert len(again) == 1


def test_a_local_question_does_not_wait_for_the_table(world: World) -> None:
    old, local = world.partition(0), world.partition(1, local_from=0)
    waiting = world.ask(old, 500)
    assert len(world.ask(local, world.wall_ms)) == 1 and waiting == []


def test_a_node_that_lags_searches_no_more_than_it_may_show(world: World) -> None:
    partition = world.partition()
    partition.high_watermark = Offset(5)
    world.ask(partition, 500)
    assert world.tier.searches[0][0].end_offset == 5
