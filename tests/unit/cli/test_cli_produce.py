"""What `raftlake produce` says of lines that were not appended."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlake.cli import main as cli
from raftlake.cli import topics as cli_topics
from raftlake.cli.produce import LINES_MAX, ProduceFailed, ProduceUnknown, chunks, failure_text, produce_lines, to_record
from raftlake.cli.topics import require_partition
from raftlake.client import AppendResult, Client, NewRecord, NoReachableNode
from raftlake.errors import ConfigError, ErrorCode, InvalidInput, MachineError, RaftlakeError, RequestRejected, UnknownOutcome

DONE = AppendResult(topic="t", partition=0, offset=1, count=1, timestamp_ms=-1)
REFUSED = RequestRejected(ErrorCode.MESSAGE_TOO_LARGE, "t-0: too much")
UNKNOWN = UnknownOutcome("sent, its outcome is not known")

Outcomes = Sequence[AppendResult | RaftlakeError]


class Told:
    """A client whose appends end as they are told to."""

    def __init__(self, *outcomes: Outcomes | RaftlakeError) -> None:
        self._outcomes = list(outcomes)
        self.appended: list[list[NewRecord]] = []

    def append_each(self, topic: str, records: list[NewRecord]) -> Any:
        self.appended.append(records)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, RaftlakeError):
            raise outcome
        return outcome


def produce(told: Told, lines: list[list[bytes]], key_separator: str | None = None) -> int:
    return produce_lines(cast("Client", told), "t", lines, key_separator, None)


def test_lines_become_records() -> None:
    assert to_record(b"a:b:c", None, 2) == NewRecord(value=b"a:b:c", partition=2)
    assert to_record(b"a:b:c", ":", None) == NewRecord(key=b"a", value=b"b:c")
    with pytest.raises(InvalidInput, match="holds no ':'"):
        to_record(b"abc", ":", None)


def test_many_lines_go_together_and_those_of_a_terminal_alone() -> None:
    lines = [b"%d\r\n" % n for n in range(LINES_MAX)] + [b"last"]
    assert [len(chunk) for chunk in chunks(lines, one_by_one=False)] == [LINES_MAX, 1]
    assert list(chunks([b"a\n", b"b\n"], one_by_one=True)) == [[b"a"], [b"b"]]


def test_an_input_that_cannot_be_read_is_named() -> None:
    def lines() -> Iterator[bytes]:
        yield b"a\n"
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))

    with pytest.raises(MachineError, match="cannot read standard input: Is a directory"):
        list(chunks(lines(), one_by_one=False))


def test_the_records_of_all_chunks_are_counted() -> None:
    assert produce(Told([DONE, DONE], [DONE]), [[b"a", b"b"], [b"c"]]) == 3


def test_a_failure_says_which_lines_were_appended_and_which_were_not() -> None:
    with pytest.raises(ProduceFailed) as caught:
        produce(Told([DONE, DONE], [DONE, REFUSED, DONE]), [[b"a", b"b"], [b"c", b"d", b"e"], [b"f"]])
    assert str(caught.value) == (
        "MESSAGE_TOO_LARGE: t-0: too much; 4 records were appended, not input line 4; nothing behind line 5 was sent"
    )


def test_an_unknown_outcome_is_never_called_a_failure() -> None:
    assert failure_text([DONE, UNKNOWN, UNKNOWN, REFUSED, UNKNOWN], 10) == (
        "sent, its outcome is not known; 11 records were appended, not input line 14, of input lines 12-13, 15 it is not known"
        " whether they were; nothing behind line 15 was sent"
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([DONE, UNKNOWN], 3), ([UNKNOWN, REFUSED], 3), ([REFUSED, DONE, UNKNOWN], 3), ([REFUSED], 1), ([DONE, REFUSED], 1)],
)
def test_the_exit_code_says_whether_the_outcome_of_a_line_is_not_known(outcomes: Outcomes, code: int) -> None:
    """In the second chunk, wherever in it the line stands."""
    with pytest.raises(ProduceFailed) as caught:
        produce(Told([DONE], outcomes), [[b"a"], [b"b"] * len(outcomes)])
    assert isinstance(caught.value, ProduceUnknown) == (code == 3)
    assert cli.failed(caught.value) == code


def test_a_quorum_that_went_away_takes_no_more_lines() -> None:
    told = Told([DONE], NoReachableNode(["h:1"], {}))
    with pytest.raises(ProduceFailed, match=r"1 records were appended, not input lines 2-3; nothing behind line 3 was sent"):
        produce(told, [[b"a"], [b"b", b"c"], [b"d"]])


def test_a_line_without_a_key_stops_its_chunk() -> None:
    told = Told([DONE])
    with pytest.raises(ProduceFailed, match=r"holds no ':'; 1 records were appended, not input lines 2-3"):
        produce(told, [[b"k:v"], [b"k:w", b"nothing"]], ":")
    assert len(told.appended) == 1


@pytest.mark.parametrize(("known", "partition"), [([0], 1), ([0, 1, 2, 3], 9), ([0, 1, 2, 3], 4)])
def test_a_partition_that_the_topic_does_not_have_is_refused(known: list[int], partition: int) -> None:
    with pytest.raises(ConfigError, match=f"--partition: topic 't' has {len(known)} partitions?, not {partition}"):
        require_partition("t", partition, known)
    for existing in (None, *known):
        require_partition("t", existing, known)


@pytest.mark.parametrize("given", [b"", b"a\nb\n"])
def test_a_missing_partition_is_said_before_a_line_is_read(
    given: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when none comes: `raftlake produce orders --partition 9 </dev/null`."""
    told = Told()
    stdin = io.BytesIO(given)

    @contextlib.contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield SimpleNamespace(partitions=lambda topic: [0, 1, 2, 3], append_each=told.append_each)

    monkeypatch.setattr(cli_topics, "connect", connect)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    monkeypatch.setattr(sys, "argv", ["raftlake", "produce", "orders", "--partition", "9"])
    assert cli.run(cli.app) == 1
    assert capsys.readouterr().err == "raftlake: --partition: topic 'orders' has 4 partitions, not 9\n"
    assert told.appended == [] and stdin.tell() == 0
