"""When the position of a source is written: seldom, beside the batches, and once more at the end."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.position_keeper import LAST_MS_MAX, REFRESH_MS, PositionKeeper

INTERVAL_MS = 5_000
P = TopicPartition("t", 0)


class Writer:
    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []
        self.failures = 0

    def write(self, offsets: Any, batch_ms: int, seen_ms: int) -> bool:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.written.append((offsets["t"][0], batch_ms, seen_ms))
        return True


class Kept:
    """A keeper without its thread, at times that a test says."""

    def __init__(self) -> None:
        self.now_ms, self.wall_ms = 100.0, 1_000
        self.writer = Writer()
        self.is_known = True
        self.keeper = PositionKeeper(
            lambda: self.writer if self.is_known else None,  # type: ignore[return-value, arg-type]
            INTERVAL_MS,
            lambda: self.now_ms,
            lambda: self.wall_ms,
        )

    def finished(self, offset: int) -> None:
        self.wall_ms += 10
        self.keeper.finished({P: offset})


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_position_that_changes_is_written_once_in_an_interval(kept: Kept) -> None:
    assert kept.keeper.due_ms() is None
    kept.finished(1)
    assert kept.keeper.due_ms() == 0
    kept.keeper.write()
    assert kept.keeper.due_ms() is None
    kept.finished(2)
    kept.finished(3)
    assert kept.keeper.due_ms() == INTERVAL_MS
    kept.now_ms += INTERVAL_MS - 1
    assert kept.keeper.due_ms() == 1
    kept.now_ms += 1
    assert kept.keeper.due_ms() == 0
    kept.keeper.write()
    assert kept.writer.written == [(1, 0, 1010), (3, 1030, 1030)]
    assert kept.keeper.due_ms() is None


def test_a_position_that_stays_is_written_once_a_minute_while_spark_asks(kept: Kept) -> None:
    kept.finished(1)
    kept.keeper.write()
    kept.now_ms += 10 * REFRESH_MS
    assert kept.keeper.due_ms() is None, "Spark asks no more"
    kept.now_ms -= 10 * REFRESH_MS
    kept.finished(1)
    assert kept.keeper.due_ms() == REFRESH_MS
    kept.finished(2)
    assert kept.keeper.due_ms() == INTERVAL_MS


def test_what_fails_is_tried_again_after_an_interval_and_told_once(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.writer.failures = 2
    kept.finished(1)
    kept.keeper.write()
    assert kept.keeper.due_ms() == INTERVAL_MS
    kept.keeper.write()
    kept.finished(2)
    kept.now_ms += INTERVAL_MS
    assert kept.keeper.due_ms() == 0
    kept.keeper.write()
    assert kept.writer.written == [(2, 1020, 1020)]
    assert caplog.text.count("how far the query is cannot be written down") == 1


def test_while_the_query_is_not_known_nothing_is_written_and_nothing_lost(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.is_known = False
    kept.finished(1)
    kept.keeper.write()
    assert (kept.keeper.is_known, kept.keeper.due_ms(), caplog.text) == (False, INTERVAL_MS, "")
    kept.is_known = True
    kept.keeper.write()
    assert kept.keeper.is_known and kept.writer.written == [(1, 0, 1010)]


def test_a_large_position_is_written_less_often(kept: Kept) -> None:
    many = {TopicPartition("t", number): 1 for number in range(4096)}
    kept.keeper.finished(many)
    kept.keeper.write()
    kept.finished(1)
    assert kept.keeper.due_ms() == INTERVAL_MS
    kept.keeper.finished({**many, P: 2})
    assert kept.keeper.due_ms() == 4 * INTERVAL_MS


class SlowWriter(Writer):
    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = threading.Event(), threading.Event()

    def write(self, offsets: Any, batch_ms: int, seen_ms: int) -> bool:
        self.began.set()
        self.may_end.wait()
        return super().write(offsets, batch_ms, seen_ms)


def test_the_last_position_is_written_at_the_end() -> None:
    """While a write is under way another batch ends and the query stops."""
    slow = SlowWriter()
    keeper = PositionKeeper(lambda: slow, INTERVAL_MS)  # type: ignore[return-value, arg-type]
    keeper.finished({P: 1})
    keeper.start()
    assert slow.began.wait(10)
    keeper.finished({P: 2})
    threading.Timer(0.05, slow.may_end.set).start()
    keeper.flush()
    assert [each[0] for each in slow.written] == [1, 2]


def test_an_end_waits_for_no_outage() -> None:
    slow = SlowWriter()
    keeper = PositionKeeper(lambda: slow, INTERVAL_MS)  # type: ignore[return-value, arg-type]
    keeper.finished({P: 1})
    keeper.start()
    began = time.monotonic()
    keeper.flush()
    assert time.monotonic() - began < 2 * LAST_MS_MAX / 1000
    slow.may_end.set()


def test_nothing_is_written_where_the_option_says_so() -> None:
    keeper = PositionKeeper(lambda: None, 0)
    keeper.finished({P: 1})
    keeper.start()
    keeper.flush()
    assert keeper.due_ms() is None and not keeper.is_on
