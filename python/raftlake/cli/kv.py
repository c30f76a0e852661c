"""`raftlake kv`: the key-value space from the shell.

Reads are linearizable unless --stale. Values are bytes: `get` prints them as they are, --json and `watch` show them as text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    as_bytes,
    connect,
    print_json,
    text_facts,
)
from raftlake.errors import ConfigError, RaftlakeError

if TYPE_CHECKING:
    from raftlake.client.types import KvPage

app = typer.Typer(help="Read and change the key-value space.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(metavar="KEY")]
Stale = Annotated[
    bool, typer.Option("--stale", help="What some node has applied, which may be old, instead of a linearizable read.")
]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", min=0, help="Only if the key has this version (0: does not exist).")
]


class KeyMissing(RaftlakeError):
    """`kv get` of a key that does not exist: an error, so that scripts notice."""


@app.command("get")
def get(
    key: Key,
    stale: Stale = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Print a key's value as it is; exit code 1 when the key does not exist."""
    with connect(bootstrap_server, timeout_ms) as client:
        entry = client.kv.get(key, linearizable=not stale)
    if entry is None:
        raise KeyMissing(f"key {key!r} does not exist")
    if as_json:
        print_json({"key": key, "version": entry.version, **text_facts("value", entry.value)})
        return
    value = entry.value or b""
    sys.stdout.buffer.write(value)
    if sys.stdout.isatty() and not value.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


@app.command("put")
def put(
    key: Key,
    value: Annotated[str | None, typer.Argument(help="The value as text; '-' reads standard input.")] = None,
    file: Annotated[Path | None, typer.Option(help="Take the value from this file.")] = None,
    if_version: IfVersion = None,
    create: Annotated[bool, typer.Option("--create", help="Only if the key does not exist.")] = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Set a key and print its new version; exit code 3 when it is not known whether it was set."""
    if create and if_version is not None:
        raise typer.BadParameter("give one of --create and --if-version")
    if (value is None) == (file is None):
        raise typer.BadParameter("give the value as an argument, as '-' for standard input, or with --file")
    data = _value(value, file)
    with connect(bootstrap_server, timeout_ms) as client:
        version = client.kv.put(key, data, if_version=if_version, create=create)
    _print_version(key, version, as_json)


@app.command("delete")
def delete(
    key: Annotated[str | None, typer.Argument(metavar="[KEY]")] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="Delete every key that begins with this, at most 10,000, and print how many.")
    ] = None,
    if_version: IfVersion = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete a key (fine when it does not exist) and print the version; exit code 3 when it is not known whether it is gone."""
    if (key is None) == (prefix is None):
        raise typer.BadParameter("give a key or --prefix")
    if prefix is not None:
        if if_version is not None:
            raise typer.BadParameter("give --if-version with a key")
        with connect(bootstrap_server, timeout_ms) as client:
            deleted = client.kv.delete_prefix(prefix)
        if as_json:
            print_json({"prefix": prefix, "version": deleted.version, "deleted": deleted.count})
        else:
            print(deleted.count)
        return
    assert key is not None
    with connect(bootstrap_server, timeout_ms) as client:
        version = client.kv.delete(key, if_version=if_version)
    _print_version(key, version, as_json)


@app.command("list")
def list_(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many keys.")] = None,
    values: Annotated[bool, typer.Option("--values", help="Values too.")] = False,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Only keys without this character behind the prefix, and where the others go on."),
    ] = None,
    stale: Stale = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the keys below a prefix: version, size, key and, with --values, value, a tab between them. With --delimiter '-' and
    '-' stand before what deeper keys begin with."""
    if delimiter is not None and len(delimiter) != 1:
        raise typer.BadParameter("--delimiter is one character")
    rows: list[dict[str, Any]] = []
    with connect(bootstrap_server, timeout_ms) as client:
        after: str | None = None
        more = True
        while more and (limit is None or len(rows) < limit):
            page_limit = 1000 if limit is None else min(1000, limit - len(rows))
            options: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter}
            page = client.kv.list(prefix, after=after, limit=page_limit, values=values, linearizable=not stale, **options)
            rows += _rows(page, values)
            more = page.more
            after = page.last
    if as_json:
        print_json(rows)
        return
    for row in rows:
        if "prefix" in row:
            print(f"-\t-\t{row['prefix']}")
            continue
        print("\t".join([str(row["version"]), str(row["size"]), row["key"], *([row["value"] or ""] if values else [])]))


@app.command("watch")
def watch(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]")] = "",
    from_version: Annotated[
        int | None, typer.Option("--from", min=0, help="Begin with the changes after this version (default: now).")
    ] = None,
    max_events: Annotated[int | None, typer.Option(min=1, help="End after so many changes.")] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
) -> None:
    """Print each change below a prefix as a line of JSON until Ctrl-C; a deleted key has the value null."""
    with connect(bootstrap_server, timeout_ms) as client:
        for count, event in enumerate(client.kv.watch(prefix, from_version=from_version), start=1):
            facts = {"key": event.key, "version": event.version, **text_facts("value", event.value)}
            print(json.dumps(facts, ensure_ascii=False), flush=True)
            if count == max_events:
                return


def _rows(page: KvPage, values: bool) -> list[dict[str, Any]]:
    """Keys and prefixes of a page, in their order."""
    rows: dict[str, dict[str, Any]] = {name: {"prefix": name} for name in page.prefixes}
    for entry in page.entries:
        row: dict[str, Any] = {"key": entry.key, "version": entry.version, "size": entry.size}
        rows[entry.key] = row | text_facts("value", entry.value) if values else row
    return [rows[name] for name in sorted(rows)]


def _value(value: str | None, file: Path | None) -> bytes:
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise ConfigError(f"--file: cannot read {file}: {error.strerror}") from error
    assert value is not None
    return sys.stdin.buffer.read() if value == "-" else as_bytes(value)


def _print_version(key: str, version: int, as_json: bool) -> None:
    if as_json:
        print_json({"key": key, "version": version})
    else:
        print(version)
