"""The arithmetic of the quickstart's writer: the gap around an election, and what is missing or doubled."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.quickstart import pulse as quickstart_pulse
from raftlake.quickstart.pulse import Pulse


class NoClient:
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture
def pulse(monkeypatch: pytest.MonkeyPatch) -> Pulse:
    monkeypatch.setattr(quickstart_pulse, "Client", NoClient)
    return Pulse("127.0.0.1:1", "pulse")


def with_acknowledgements(pulse: Pulse, times: dict[int, float]) -> Any:
    for number, at in times.items():
        pulse._acknowledged.append(number)
        pulse._acknowledged_at.append(at)
    return pulse


def test_the_gap_begins_before_the_kill(pulse: Pulse) -> None:
    """The pause that counts is the one that the kill fell into; an earlier, longer one does not."""
    with_acknowledgements(pulse, {0: 1.0, 1: 9.0, 2: 9.1, 3: 9.6, 4: 9.7})
    assert pulse.longest_gap_ms(since_s=9.2) == pytest.approx(500)


def test_a_later_longer_gap_is_the_answer(pulse: Pulse) -> None:
    with_acknowledgements(pulse, {0: 1.0, 1: 1.1, 2: 2.5})
    assert pulse.longest_gap_ms(since_s=1.05) == pytest.approx(1400)


def test_missing_and_doubled_numbers_are_named(pulse: Pulse) -> None:
    """Number 9 was never acknowledged: it may be there, once."""
    with_acknowledgements(pulse, {0: 1.0, 1: 1.1, 2: 1.2})
    assert pulse.missing_and_doubled([b"0", b"1", b"2", b"9"]) == ([], [])
    assert pulse.missing_and_doubled([b"0", b"2", b"2"]) == ([1], [2])
