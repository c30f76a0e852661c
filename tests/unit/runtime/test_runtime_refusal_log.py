"""Refusals in the log: the first one at once, then few lines, however many there are."""

from __future__ import annotations

import logging

import pytest

from raftlake.runtime.refusal_log import EVERY_SECONDS, FACT_CHARACTERS_MAX, RefusalLog


def test_a_flood_of_refusals_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(logging.getLogger("test"))
    for tick in range(1000):
        refusals.note(100.0 + tick * EVERY_SECONDS / 500, "refusing connection", peer="10.0.0.1", number=tick)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "refusing connection peer=10.0.0.1 number=0",
        "refusing connection peer=10.0.0.1 number=500 untold=499",
    ]
    refusals.note(1000.0, "refusing connection", peer="10.0.0.2")
    assert caplog.records[-1].getMessage() == "refusing connection peer=10.0.0.2 untold=499"
    refusals.note(2000.0, "refusing connection", peer="10.0.0.2")
    assert caplog.records[-1].getMessage() == "refusing connection peer=10.0.0.2"


def test_what_a_line_quotes_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    """A client id may have 32,767 bytes."""
    refusals = RefusalLog(logging.getLogger("test"), logging.ERROR)
    refusals.note(1.0, "closing connection", client="c" * 32_767, fits="f" * FACT_CHARACTERS_MAX)
    (record,) = caplog.records
    cut = "c" * (FACT_CHARACTERS_MAX - 1)
    assert record.getMessage() == f"closing connection client={cut}… fits={'f' * FACT_CHARACTERS_MAX}"
    assert (record.levelno, record.exc_info) == (logging.ERROR, None)


def test_a_traceback_is_told_as_seldom_as_a_line(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(logging.getLogger("test"))
    for tick in range(10):
        refusals.note_bug(1.0 + tick * EVERY_SECONDS / 5, "failed to serve", RuntimeError(f"bug {tick}"))
    told = [(record.getMessage(), str(record.exc_info[1])) for record in caplog.records if record.exc_info]
    assert told == [("failed to serve", "bug 0"), ("failed to serve untold=4", "bug 5")]
