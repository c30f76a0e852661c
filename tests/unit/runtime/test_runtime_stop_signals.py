"""Which signals end a process in good order."""

from __future__ import annotations

import signal

import pytest

from raftlake.runtime.stop_signals import stop_signals


@pytest.mark.parametrize(("handler", "is_asked"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_a_closed_terminal_asks_a_process_to_stop_unless_it_was_told_to_ignore_that(
    handler: signal.Handlers, is_asked: bool
) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert stop_signals()[:2] == (signal.SIGTERM, signal.SIGINT)
        assert (signal.SIGHUP in stop_signals()) == is_asked
    finally:
        signal.signal(signal.SIGHUP, before)
