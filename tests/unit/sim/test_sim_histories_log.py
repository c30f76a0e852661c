"""The append log's checker on histories whose verdict is known."""

from __future__ import annotations

import pytest

from raftlake.sim.histories.linearizability import Operation, Outcome
from raftlake.sim.histories.log import Append, End, LogOperation, Read, check_log

Final = dict[int, bytes | None]


def op(start: int, end: int, action: Append | Read | End, outcome: Outcome = Outcome.OK) -> LogOperation:
    return Operation(client="c", invoked_at=start, returned_at=end, outcome=outcome, action=action)


def sent(start: int, end: int, values: bytes, base: int | None, producer: str | None = None, sequence: int = 0) -> LogOperation:
    """An acknowledged append of one-letter values."""
    return op(start, end, Append(letters(values), base, producer, sequence))


def lost(start: int, values: bytes, producer: str | None = None, sequence: int = 0) -> LogOperation:
    return op(start, start + 1, Append(letters(values), None, producer, sequence), Outcome.UNKNOWN)


def refused(start: int, values: bytes) -> LogOperation:
    return op(start, start + 1, Append(letters(values)), Outcome.FAILED)


def read(start: int, end: int, offset: int, values: bytes, high_watermark: int | None = None, view: str = "n1") -> LogOperation:
    records = tuple((offset + index, value) for index, value in enumerate(letters(values)))
    return op(start, end, Read(offset, records, high_watermark, view))


def letters(values: bytes) -> tuple[bytes, ...]:
    return tuple(values[index : index + 1] for index in range(len(values)))


def log(values: bytes, start: int = 0) -> Final:
    """The final log; "." is a control record."""
    return {start + index: None if value == b"." else value for index, value in enumerate(letters(values))}


GOOD: dict[str, tuple[list[LogOperation], Final]] = {
    "nothing": ([], {}),
    "control records are no gaps": ([sent(0, 1, b"a", 1), sent(2, 3, b"b", 3)], log(b".a.b")),
    "overlapping appends in any order": ([sent(0, 9, b"a", 1), sent(1, 8, b"b", 0)], log(b"ba")),
    "an unknown append is there": ([lost(0, b"a"), sent(2, 3, b"b", 1)], log(b"ab")),
    "an unknown append shows up late": ([lost(0, b"a"), sent(2, 3, b"b", 0)], log(b"ba")),
    "an unknown append never shows up": ([lost(0, b"a"), sent(2, 3, b"b", 0)], log(b"b")),
    "a refused append is nowhere": ([refused(0, b"a"), sent(2, 3, b"b", 0)], log(b"b")),
    "reads beside appends": ([sent(0, 9, b"ab", 0), read(1, 2, 0, b"ab", 2), read(1, 2, 1, b"b", 2)], log(b"ab")),
    "a read over a control record": (
        [sent(0, 1, b"a", 0), sent(2, 3, b"b", 2), op(4, 5, Read(0, ((0, b"a"), (2, b"b")), 3))],
        log(b"a.b"),
    ),
    "an end covers what was acknowledged": ([sent(0, 1, b"a", 0), op(2, 3, End(1))], log(b"a")),
    "an end beside an append": ([sent(0, 9, b"a", 0), op(2, 3, End(0)), op(4, 5, End(1)), op(6, 7, End(1))], log(b"a")),
    "retention took the beginning": ([sent(0, 1, b"a", 0), lost(2, b"bc"), sent(4, 5, b"d", 3)], log(b"cd", start=2)),
    "each node has its own high watermark": (
        [sent(0, 1, b"ab", 0), read(2, 3, 0, b"ab", 2, "n1"), read(4, 5, 0, b"a", 1, "n2")],
        log(b"ab"),
    ),
    "a producer's order": ([lost(0, b"a", "p", 0), sent(2, 3, b"b", 1, "p", 1)], log(b"ab")),
}

BAD: dict[str, tuple[str, list[LogOperation], Final]] = {
    "an acknowledged append is lost": ("lost", [sent(0, 1, b"a", 0), sent(2, 3, b"b", 1)], log(b".b")),
    "a duplicate": ("doubled", [lost(0, b"a"), sent(2, 3, b"b", 1)], log(b"aba")),
    "acknowledged at another place": ("not where it was acknowledged", [sent(0, 1, b"a", 1)], log(b"a.")),
    "reordered": ("reordered", [sent(0, 1, b"a", 1), sent(2, 3, b"b", 0)], log(b"ba")),
    "an unknown one before what was acknowledged before it": ("reordered", [sent(0, 1, b"a", 1), lost(2, b"b")], log(b"ba")),
    "a producer's batches change places": (
        "producer's order",
        [lost(0, b"a", "p", 0), sent(0, 9, b"b", 0, "p", 1)],
        log(b"ba"),
    ),
    "half a batch": ("torn", [lost(0, b"ab")], log(b"a")),
    "a batch with something inside": ("torn", [lost(0, b"ab"), sent(0, 1, b"x", 1)], log(b"axb")),
    "a refused append is there": ("refused, yet there", [refused(0, b"a")], log(b"a")),
    "what nobody sent": ("invented", [], log(b"a")),
    "a gap": ("gap", [sent(0, 1, b"a", 0), sent(2, 3, b"b", 2)], {0: b"a", 2: b"b"}),
    "a read shows another record": ("another record", [lost(0, b"a"), sent(0, 1, b"b", 0), read(2, 3, 0, b"a")], log(b"b")),
    "a read leaves a record out": (
        "records left out",
        [sent(0, 1, b"abc", 0), op(2, 3, Read(0, ((0, b"a"), (2, b"c"))))],
        log(b"abc"),
    ),
    "a read begins too late": ("records left out", [sent(0, 1, b"ab", 0), op(2, 3, Read(0, ((1, b"b"),)))], log(b"ab")),
    "a read past the high watermark": ("not asked for", [sent(0, 1, b"ab", 0), read(2, 3, 0, b"ab", 1)], log(b"ab")),
    "a read from before it was sent": ("read before it was sent", [read(0, 1, 0, b"a"), sent(2, 3, b"a", 0)], log(b"a")),
    "a stale end": ("stale", [sent(0, 1, b"a", 0), op(2, 3, End(0))], log(b"a")),
    "ends go back": ("stale", [sent(0, 99, b"a", 0), op(2, 3, End(1)), op(4, 5, End(0))], log(b"a")),
    "an end behind a high watermark": ("stale", [sent(0, 99, b"a", 0), read(2, 3, 0, b"a", 1), op(4, 5, End(0))], log(b"a")),
    "an end from the future": ("from the future", [op(0, 1, End(1)), sent(2, 3, b"a", 0)], log(b"a")),
    "an end beyond the log": ("beyond the log", [op(0, 1, End(1))], {}),
    "an end amid a batch": ("amid a batch", [sent(0, 9, b"ab", 0), op(2, 3, End(1))], log(b"ab")),
    "a node shows less than the end that it had reached": (
        "high watermark went back",
        [sent(0, 1, b"ab", 0), op(2, 3, End(2, "n1")), read(4, 5, 0, b"a", 1)],
        log(b"ab"),
    ),
    "the high watermark goes back": (
        "high watermark went back",
        [sent(0, 1, b"ab", 0), read(2, 3, 0, b"ab", 2), read(4, 5, 0, b"a", 1)],
        log(b"ab"),
    ),
}


@pytest.mark.parametrize(("history", "final"), GOOD.values(), ids=GOOD.keys())
def test_a_good_history_passes(history: list[LogOperation], final: Final) -> None:
    assert check_log(history, final) == []


@pytest.mark.parametrize(("kind", "history", "final"), BAD.values(), ids=BAD.keys())
def test_a_bad_history_is_found(kind: str, history: list[LogOperation], final: Final) -> None:
    complaints = check_log(history, final)
    assert kind in {complaint.split(":")[0] for complaint in complaints}, complaints


def test_a_thousand_faults_of_a_kind_are_not_all_listed() -> None:
    history = [op(2 * n, 2 * n + 1, Append((b"%d" % n,), n)) for n in range(1000)]
    complaints = check_log(history, {1000: None})
    assert complaints == []  # the log begins behind them
    complaints = check_log(history, {0: None, **dict.fromkeys(range(1, 1000), None)})
    assert len(complaints) == 11 and complaints[-1] == "lost: and more of them"


def test_a_long_history_is_checked_in_one_pass() -> None:
    """Two hundred thousand appends with reads between them take seconds: nothing is compared with everything."""
    history: list[LogOperation] = []
    for number in range(20_000):
        history.append(op(10 * number, 10 * number + 25, Append((b"%d" % number,), number)))
        if number % 5 == 0:
            history.append(op(10 * number + 26, 10 * number + 27, End(number + 1)))
    final: Final = {number: b"%d" % number for number in range(20_000)}
    assert check_log(history, final) == []
    history[9_000] = op(50_000, 50_001, End(1))
    assert check_log(history, final)
