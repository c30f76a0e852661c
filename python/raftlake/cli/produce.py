"""The lines of `raftlake produce`, and the error of a `produce` that could not append them all.

Some lines of one append may be in the log while others were refused. So the error counts the appended lines. It names the lines
that were refused, and the lines with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from raftlake.cli.output import as_bytes
from raftlake.errors import InvalidInput, MachineError, RaftlakeError, UnknownOutcome

if TYPE_CHECKING:
    from raftlake.client import AppendResult, Client, NewRecord

#: Lines that go into one append.
LINES_MAX = 1000


class ProduceFailed(RaftlakeError):
    """Not every line of the input was appended; the message says which."""


class ProduceUnknown(ProduceFailed, UnknownOutcome):
    """Of some lines it is not known whether they were appended."""


def chunks(lines: Iterable[bytes], *, one_by_one: bool) -> Iterator[list[bytes]]:
    """Lines without their ends: one at a time from a terminal, many together from a file or pipe."""
    chunk: list[bytes] = []
    try:
        for line in lines:
            chunk.append(line.removesuffix(b"\n").removesuffix(b"\r"))
            if one_by_one or len(chunk) == LINES_MAX:
                yield chunk
                chunk = []
    except OSError as error:
        raise MachineError(f"cannot read standard input: {error.strerror}") from error
    if chunk:
        yield chunk


def produce_lines(
    client: Client, topic: str, lines: Iterable[list[bytes]], key_separator: str | None, partition: int | None
) -> int:
    """Append all lines, a chunk after the other, and return how many there were; ProduceFailed where one was not appended."""
    appended = 0
    for chunk in lines:
        try:
            outcomes = client.append_each(topic, [to_record(line, key_separator, partition) for line in chunk])
        except RaftlakeError as error:
            # Nothing of this chunk was sent.
            outcomes = (error,) * len(chunk)
        if any(isinstance(outcome, RaftlakeError) for outcome in outcomes):
            is_unknown = any(isinstance(outcome, UnknownOutcome) for outcome in outcomes)
            raise (ProduceUnknown if is_unknown else ProduceFailed)(failure_text(outcomes, appended))
        appended += len(chunk)
    return appended


def to_record(line: bytes, key_separator: str | None, partition: int | None) -> NewRecord:
    """One line as a record; InvalidInput when it should have a key and has none."""
    from raftlake.client import NewRecord

    if key_separator is None:
        return NewRecord(value=line, partition=partition)
    key, found, value = line.partition(as_bytes(key_separator))
    if not found:
        raise InvalidInput(f"--key-separator: line {line[:60]!r} holds no {key_separator!r}")
    return NewRecord(key=key, value=value, partition=partition)


def failure_text(outcomes: Sequence[AppendResult | RaftlakeError], appended_before: int) -> str:
    """The message of the error: its reason, the number of appended lines, and the lines that were refused or are unknown. The
    `appended_before` lines of earlier appends are all in the log."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, RaftlakeError)]
    unknown = [place for place, outcome in enumerate(outcomes, appended_before + 1) if isinstance(outcome, UnknownOutcome)]
    refused = [
        place
        for place, outcome in enumerate(outcomes, appended_before + 1)
        if isinstance(outcome, RaftlakeError) and not isinstance(outcome, UnknownOutcome)
    ]
    told = [f"{appended_before + len(outcomes) - len(failures)} records were appended"]
    if refused:
        told.append(f"not input {_runs(refused)}")
    if unknown:
        told.append(f"of input {_runs(unknown)} it is not known whether they were")
    return f"{failures[0]}; {', '.join(told)}; nothing behind line {appended_before + len(outcomes)} was sent"


def _runs(places: Sequence[int]) -> str:
    """ "line 3", "lines 1-4, 7": ascending numbers, those in a row together."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"line {shown}" if len(places) == 1 else f"lines {shown}"
