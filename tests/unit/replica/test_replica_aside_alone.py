"""The services for work beside the turns, each alone on an engine."""

from __future__ import annotations

from typing import Any

import pytest

from asidekit import Held
from enginekit import ORDERS, Ground
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.ports.driver import ClientConnection
from raftlake.ports.tier import TIME_MS_MAX
from raftlake.raft.types import Offset
from raftlake.replica.aside.allowance import TURN_BYTES, Allowance
from raftlake.replica.aside.check_line import AT_ONCE, Asker, CheckLine
from raftlake.replica.aside.later_turns import LATER_MS, LaterTurns
from raftlake.replica.aside.record_checks import INLINE_BYTES, RecordChecks, RequestBudget
from raftlake.replica.aside.time_searches import NOTHING, QUESTION_COST, FoundOffset, Question, TimeSearches
from raftlake.replica.disk.findings import Findings
from raftlake.wire.batches import Record, build_batch


def records(*values: bytes, codec: str = "none") -> bytearray:
    made = [Record(offset=index, key=None, value=value) for index, value in enumerate(values)]
    return build_batch(made, timestamp_ms=1_000, compression=codec)


def asker(deadline_ms: int = 1_000) -> Asker:
    return Asker(ClientConnection(), deadline_ms, waits=True)


def test_a_job_is_done_later_and_one_that_raises_brings_nothing() -> None:
    ground, told = Ground(), []
    later = LaterTurns(ground.engine)
    later.submit(lambda: 7, told.append)
    later.submit(lambda: 1 // 0, told.append)
    assert told == []
    ground.run(LATER_MS)
    assert told == [7, None]


def test_small_records_are_checked_at_once_and_large_ones_aside_in_the_order_of_their_connection() -> None:
    ground, held, told = Ground(), Held(), []
    partition = ground.host(ORDERS)
    checks = RecordChecks(ground.engine, Allowance(), held)
    connection, other = asker(), asker()

    def check(who: Asker, *values: bytes) -> None:
        data = records(*values)
        checks.check(partition, who, RequestBudget(len(data)), data, told.append)

    check(connection, b"small")
    assert len(told) == 1 and held.jobs == []
    check(connection, bytes(INLINE_BYTES + 1))
    check(connection, b"behind the large one")
    check(other, b"small")
    assert len(told) == 2 and connection.connection.checks_aside == 2
    held.finish_all()
    assert len(told) == 4 and connection.connection.checks_aside == 0
    assert [headers[0].record_count for headers in told] == [1] * 4


def test_connections_take_turns_and_what_is_too_late_is_left() -> None:
    ground, held, done = Ground(), Held(), []
    line = CheckLine(ground.engine, held)
    first, second, late = asker(), asker(), asker(deadline_ms=0)
    for who, name in ((first, "a"), (first, "b"), (first, "c"), (first, "e"), (second, "d")):
        line.add(who, ORDERS, 1, list, lambda checked, name=name: done.append(name))  # type: ignore[misc]
    assert len(held.jobs) == AT_ONCE and len(line) == 5
    held.finish_all()
    assert done == ["a", "b", "c", "d", "e"]
    ground.run(1)
    refused: list[Any] = []
    line.add(late, ORDERS, 1, list, refused.append)
    assert [each.code for each in refused] == [ErrorCode.REQUEST_TIMED_OUT] and held.jobs == []


def test_a_time_is_searched_within_the_allowance_of_the_turn() -> None:
    ground, held, allowance = Ground(), Held(), Allowance()
    partition = ground.lead(ORDERS)
    ground.append(partition, b"record")
    begin = partition.log.batches[-1].base  # type: ignore[attr-defined]
    searches = TimeSearches(ground.engine, Findings(ground.engine), allowance, held, lambda _: Offset(0))
    found: list[FoundOffset] = []
    together = searches.begin()

    def ask(timestamp: int) -> None:
        searches.ask(together, Question(ORDERS, timestamp, lambda: partition, found.append))

    last_ms = partition.log.batches[-1].timestamp_ms  # type: ignore[attr-defined]
    ask(last_ms)
    assert [(each.error, each.offset) for each in found] == [(ErrorCode.NONE, begin)]
    assert allowance.left <= TURN_BYTES - QUESTION_COST
    allowance.left = 0
    ask(last_ms + 1)
    assert len(found) == 1, "it waits for a later turn"
    ground.run(1)
    assert found[1] == NOTHING and held.jobs == []


@pytest.mark.parametrize("time_ms", [TIME_MS_MAX, -TIME_MS_MAX, -1, TIME_MS_MAX + 1, -TIME_MS_MAX - 1, 2**63 - 1])
@pytest.mark.parametrize("is_large", [False, True], ids=["at once", "aside"])
def test_with_a_tier_times_that_its_tables_cannot_hold_are_refused(time_ms: int, is_large: bool) -> None:
    """One such record would end the copies of its partition for ever. Without a tier all times are fine."""
    ground, held = Ground(), Held()
    partition = ground.host(ORDERS)
    value = bytes(INLINE_BYTES + 1 if is_large else 1)
    data = build_batch([Record(timestamp_ms=time_ms, key=None, value=value)], timestamp_ms=time_ms)
    answers = []
    for is_tiered in (False, True):
        told: list[object] = []
        checks = RecordChecks(ground.engine, Allowance(), held, is_tiered=is_tiered)
        checks.check(partition, asker(), RequestBudget(len(data)), data, told.append)
        held.finish_all()
        answers += told
    plain, tiered = answers
    assert isinstance(plain, list)
    if abs(time_ms) <= TIME_MS_MAX:
        assert isinstance(tiered, list)
    else:
        assert isinstance(tiered, RequestRejected) and tiered.code is ErrorCode.INVALID_TIMESTAMP
        assert str(time_ms) in tiered.message
