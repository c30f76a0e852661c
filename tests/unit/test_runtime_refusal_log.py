"""Refusals in the log: the first one at once, then few lines, however many there are."""

from __future__ import annotations

import logging

import pytest

from raftlake.runtime.refusal_log import EVERY_SECONDS, RefusalLog


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
