"""`raftlake checkpoints`: the checkpoints of Spark's queries at raftlake://, shown and changed without Spark.

The work is that of `raftlake.checkpoints`. A command that was broken off, by Ctrl-C too, is given again: it ends its work.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    ask,
    connect,
    note,
    print_json,
    print_table,
)
from raftlake.errors import WrongState

if TYPE_CHECKING:
    from raftlake.checkpoints import Changed, Checkpoints, Copied

app = typer.Typer(
    help="Show and change the checkpoints of Spark's queries at raftlake://. A command that was broken off is given again.",
    no_args_is_help=True,
)

CheckpointPath = Annotated[str, typer.Argument(metavar="PATH", help="Like raftlake://orders/main.")]
Source = Annotated[str, typer.Argument(metavar="FROM", help="Like raftlake://orders/main.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="A new place, like raftlake://orders/trial.")]
BaseUri = Annotated[
    str | None,
    typer.Option(
        "--base-uri",
        metavar="file:/DIR",
        help="Where large files go (default: into the quorum; of a fork, beside those of the source).",
    ),
]
_PROGRESS_SECONDS = 1.0
#: Offsets are cut to so many characters in a table; --json shows them whole.
_OFFSETS_CHARS_MAX = 60


class _Progress:
    """Tells of long work, at most once a second."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def __call__(self, what: str, done: int, count: int) -> None:
        if time.monotonic() - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = time.monotonic()
            note(f"{done} of {count} {what}")


@contextlib.contextmanager
def _checkpoints(bootstrap_server: str, timeout_ms: int) -> Iterator[Checkpoints]:
    from raftlake.checkpoints import Checkpoints

    with connect(bootstrap_server, timeout_ms) as client:
        try:
            yield Checkpoints(client, _Progress())
        except KeyboardInterrupt:
            note("broken off: give the same command again to end its work")
            raise


@app.command("list")
def list_(
    within: Annotated[str | None, typer.Argument(metavar="[PATH]", help="Only below this, like raftlake://orders.")] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List checkpoints: path, query, last batch that is committed, bytes in the key space, owner."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        rows = checkpoints.list(within)
    if as_json:
        print_json(rows)
        return
    table = [
        [row["path"], row["query"], _number(row["lastCommitted"]), str(row["keyBytes"]), _owner(row["owner"])] for row in rows
    ]
    print_table(["PATH", "QUERY", "COMMITTED", "BYTES", "OWNER"], table)
    for row in rows:
        if row["brokenOff"]:
            note(f"{row['path']}: `{row['brokenOff']}` was broken off, or still runs")


@app.command("show")
def show(
    path: CheckpointPath,
    last: Annotated[int, typer.Option("--last", min=1, help="So many batches, the newest ones.")] = 10,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show a checkpoint: owner, batches with the offsets of each source, state. --json shows all batches."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        facts = checkpoints.show(path)
    if as_json:
        print_json(facts)
        return
    print(f"path: {facts['path']}")
    print(f"query: {facts['query']}")
    print(f"owner: {_owner(facts['owner'])}")
    if facts["brokenOff"]:
        print(f"broken off: {facts['brokenOff']}")
    print(f"files: {facts['files']}, {facts['bytes']} bytes; {facts['blobs']} of them outside of the key space")
    for operator in facts["state"]:
        stores = f"stores {', '.join(map(str, operator['stores']))}"
        if operator["versions"] is None:
            # The usual case of a young query: a version becomes a file with the first snapshot.
            what = f"{stores}, no snapshot in a file yet; changes of state are in topics of the quorum"
        else:
            what = f"{operator['partitions']} partitions, {stores}, versions {{}} to {{}}".format(*operator["versions"])
        print(f"state {operator['operator']} ({operator['name']}): {what}, {operator['bytes']} bytes")
    table = [
        [str(row["batch"]), "yes" if row["committed"] else "no", "yes" if row["canGoOn"] else "no", _offsets(row["offsets"])]
        for row in facts["batches"][-last:]
    ]
    print_table(["BATCH", "COMMITTED", "CAN GO ON", "OFFSETS"], table)


@app.command("fork")
def fork(
    source: Source,
    target: Target,
    batch: Annotated[int | None, typer.Option("--batch", min=0, help="As of this batch (default: the last committed).")] = None,
    base_uri: BaseUri = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Copy a checkpoint as of a batch, for a new query. The query that uses the source goes on undisturbed."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        copied = checkpoints.fork(source, target, batch=batch, base_uri=base_uri)
    _print_copied(copied, target, as_json)


@app.command("rewind")
def rewind(
    path: CheckpointPath,
    batch: Annotated[int, typer.Option("--batch", min=0, help="The last batch that stays.")],
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Take a checkpoint back to a batch: the next run begins with the one behind it. A query that runs stops with an error."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        changed = checkpoints.rewind(path, batch)
    _print_changed(changed, f"{path} is at batch {batch}: {changed.files} files were removed", as_json)


@app.command("rename")
def rename(
    source: Source,
    target: Target,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Move a checkpoint to another path or pipeline. A query that runs on it stops with an error."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        changed = checkpoints.rename(source, target)
    _print_changed(changed, f"{source} is {target} now", as_json)


@app.command("delete")
def delete(
    path: CheckpointPath,
    is_agreed: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a checkpoint with its state. A query that runs on it stops with an error."""
    if not is_agreed and sys.stdin.isatty():
        is_agreed = ask(f"Type yes to delete {path}, anything else to leave it as it is: ").strip() == "yes"
    if not is_agreed:
        raise WrongState(f"nothing was changed: --yes deletes {path}")
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        changed = checkpoints.delete(path)
    _print_changed(changed, f"{path} is deleted: {changed.files} files", as_json)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A checkpoint on this machine; its query is stopped.")],
    target: Target,
    base_uri: BaseUri = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Copy a checkpoint from a local directory into the quorum: its query goes on there."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        copied = checkpoints.import_(source, target, base_uri=base_uri)
    _print_copied(copied, target, as_json)


@app.command("export")
def export(
    source: Source,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory on this machine.")],
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Copy a checkpoint into a new local directory: its query goes on there. Stop the query before."""
    with _checkpoints(bootstrap_server, timeout_ms) as checkpoints:
        copied = checkpoints.export(source, target)
    _print_copied(copied, str(target), as_json)


def _print_copied(copied: Copied, target: str, as_json: bool) -> None:
    behind = "no batch is committed" if copied.batch is None else f"as of batch {copied.batch}"
    text = f"{target}: query {copied.query}, {behind}, {copied.files} files"
    _print_outcome({"path": target, **asdict(copied)}, text, as_json)


def _print_changed(changed: Changed, text: str, as_json: bool) -> None:
    _print_outcome(asdict(changed), text, as_json)
    if changed.owner is not None and not as_json:
        note(f"taken from {changed.owner}")


def _print_outcome(facts: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        print(text)


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _owner(owner: dict[str, Any] | None) -> str:
    return "-" if owner is None else f"{owner['run']} on {owner['host']} ({owner['pid']}) since {owner['since']}"


def _offsets(offsets: dict[str, Any] | None) -> str:
    if offsets is None:
        return "-"
    text = " ".join(f"{name}={_compact(offset)}" for name, offset in offsets.items())
    return text if len(text) <= _OFFSETS_CHARS_MAX else text[: _OFFSETS_CHARS_MAX - 1] + "…"


def _compact(offset: Any) -> str:
    return json.dumps(offset, separators=(",", ":"), ensure_ascii=False)
