"""The judge of real clients' transactions finds each way in which one can be broken, and the kit hears what programs say."""

from __future__ import annotations

import sys

import pytest

from killedkit import PARTITIONS, require_whole
from outcomekit import Ledger, findings, running


def ledger() -> Ledger:
    """0 and 1 are committed, 2 is aborted, and nobody knows of 3 and 4."""
    return Ledger(begun=[0, 1, 2, 3, 4], committed=[0, 1], aborted=[2])


@pytest.mark.parametrize("seen", [[0, 1], [0, 1, 3], [0, 1, 3, 4], [0, 1, 4]])
def test_what_was_not_told_is_in_all_partitions_or_in_none(seen: list[int]) -> None:
    assert findings(ledger(), {0: seen, 1: seen}) == []


@pytest.mark.parametrize(
    ("first", "second", "finding"),
    [
        ([0], [0], "in partition 0 committed, and not there: [1]"),
        ([0, 1], [1], "in partition 1 committed, and not there: [0]"),
        ([0, 1, 2], [0, 1, 2], "in partition 1 aborted, and there: [2]"),
        ([0, 1, 1], [0, 1], "in partition 0 more than once: [1]"),
        ([0, 1, 3], [0, 1], "in partition 1 in another partition alone: [3]"),
        ([0, 1, 9], [0, 1, 9], "in partition 0 never begun: [9]"),
        ([1, 0], [0, 1], "in partition 0 out of order: [1, 0]"),
    ],
)
def test_each_break_is_found(first: list[int], second: list[int], finding: str) -> None:
    assert finding in findings(ledger(), {0: first, 1: second})


def test_a_reading_is_judged_once_all_that_was_committed_is_in_it() -> None:
    whole = {partition: [0, 1] for partition in range(PARTITIONS)}
    readings = iter([{**whole, 0: [0]}, whole])
    assert require_whole(ledger(), lambda: next(readings)) == whole
    with pytest.raises(AssertionError, match="aborted, and there"):
        require_whole(ledger(), lambda: {partition: [0, 1, 2] for partition in whole})


def test_outcomes_are_read_from_a_program_until_its_stdin_is_closed() -> None:
    program = "import sys; print('begun 0\\ncommitted 0\\nbegun 1\\naborted 1\\nbegun 2', flush=True); sys.stdin.read()"
    with running([sys.executable, "-c", program]) as running_one:
        told = running_one.stop()
    assert (told.begun, told.committed, told.aborted, told.unknown) == ([0, 1, 2], [0], [1], {2})


@pytest.mark.parametrize("program", ["print('retried 0')", "import sys; sys.exit('no such topic')"])
def test_a_program_that_says_something_else_or_fails_is_a_failure(program: str) -> None:
    with running([sys.executable, "-c", program]) as running_one, pytest.raises(AssertionError, match=r"retried|no such topic"):
        running_one.stop()
