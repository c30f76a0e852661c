"""What the commands share: the options that say which quorum, and how facts are printed."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.leader import LeaderWatch
from raftlake.cli.streams import give_up
from raftlake.errors import printable

if TYPE_CHECKING:
    from raftlake.client import Client

#: The environment's word for the nodes to ask; Spark's options are read from the second one too.
BOOTSTRAP_VARIABLES = ["RAFTLAKE_BOOTSTRAP_SERVER", "RAFTLAKE_BOOTSTRAP_SERVERS"]
BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", envvar=BOOTSTRAP_VARIABLES, metavar="H:P,H:P", help="Nodes to ask first."),
]
TimeoutMs = Annotated[int, typer.Option("--timeout-ms", min=1, help="Give up after so many milliseconds.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: `raftlake local` without options.
LOCAL_NODES = 3
LOCAL_PORT = 9092
BOOTSTRAP_DEFAULT = ",".join(f"127.0.0.1:{LOCAL_PORT + index}" for index in range(LOCAL_NODES))
TIMEOUT_MS_DEFAULT = 15_000
#: A person at a terminal should hear soon that no node is there.
_UNREACHABLE_TIMEOUT_MS = 3_000


@contextlib.contextmanager
def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Client]:
    """A client for one command. Who waits for a quorum without a leader is told so."""
    from raftlake.client import Client

    client = Client(
        bootstrap_server,
        client_id="raftlake-cli",
        request_timeout_ms=timeout_ms,
        unreachable_timeout_ms=min(timeout_ms, _UNREACHABLE_TIMEOUT_MS),
    )
    with client, LeaderWatch(bootstrap_server, note):
        yield client


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: list[str], rows: list[list[str]]) -> None:
    """Columns as wide as their widest cell, cells apart by a tab, as Kafka's tools print them: stable for scripts too. A cell
    with a character that a terminal obeys is printed as Python writes it: others choose the names."""
    lines = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        print("\t".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def note(text: str) -> None:
    """A word to the person at the terminal, apart from the output."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        # The terminal is closed, or its file full: no message can be written.
        give_up(2)


def counted(count: int, thing: str) -> str:
    """So many of a thing whose plural ends in s: `1 record`, `2 records`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def as_bytes(argument: str) -> bytes:
    """An argument byte for byte as it was given, also one that is not UTF-8."""
    return argument.encode("utf-8", errors="surrogateescape")


def as_text(data: bytes | None) -> str | None:
    """Bytes as text for JSON; what is not UTF-8 is shown with backslashes."""
    return None if data is None else data.decode("utf-8", errors="backslashreplace")


def text_facts(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a member of a JSON object; those that are not UTF-8 are given as base64 beside the text."""
    facts = {name: as_text(data)}
    if data is not None and not _is_utf8(data):
        facts[f"{name}Base64"] = base64.b64encode(data).decode("ascii")
    return facts


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def ask(question: str) -> str:
    """The line that the operator types. Ctrl-D is an empty line."""
    try:
        return input(question)
    except EOFError:
        # The cursor still stands behind the question.
        print()
        return ""
