"""`raftlake sinks`: which batches exactly-once sinks have made visible, who owns the sinks, and what is left of them.

A sink is known by its app: the id of a streaming query, or the `txnAppId` of batch writes (layout: `client/sink_keys.py`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    connect,
    print_json,
    print_table,
)
from raftlake.kv.commands import DeletePrefix

if TYPE_CHECKING:
    from raftlake.client.types import OpenTransaction

app = typer.Typer(help="Exactly-once sinks of Spark: what they have committed.", no_args_is_help=True)

App = Annotated[str, typer.Argument(metavar="APP", help="The id of a streaming query, or a txnAppId.")]


@app.command("list")
def list_(
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT, timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT, as_json: AsJson = False
) -> None:
    """List the sinks: app, the last batch that is visible and its rows, when it was committed, and the owner."""
    from raftlake.cli import sink_facts

    with connect(bootstrap_server, timeout_ms) as client:
        sinks = sink_facts.find(client)
    if as_json:
        print_json([sink.facts() for sink in sinks])
        return
    rows = [
        [sink.app, str(sink.last.batch), str(sink.last.rows), _time(sink.last.at_ms), f"{sink.owner.host}:{sink.owner.pid}"]
        for sink in sinks
    ]
    print_table(["App", "Batch", "Rows", "Committed", "Owner"], rows)


@app.command("show")
def show(
    name: App,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show one sink, with the transactions of its tasks that nobody has ended yet; exit code 1 when there is no such sink."""
    from raftlake.cli import sink_facts

    with connect(bootstrap_server, timeout_ms) as client:
        sink = sink_facts.require(client, name)
        left = sink_facts.open_transactions(client, name)
    if as_json:
        print_json(sink.facts() | {"openTransactions": [_open_facts(each) for each in left]})
        return
    last, owner = sink.last, sink.owner
    rows = [
        ["batch", str(last.batch) if last.batch >= 0 else "none is visible yet"],
        ["rows", f"{last.rows} by {last.tasks} tasks"],
        ["topics", ", ".join(f"{topic} ({count})" for topic, count in last.topics.items())],
        ["committed", f"{_time(last.at_ms)} by run {last.run}"],
        ["owner", owner.describe()],
        ["query", owner.query],
        ["open transactions", str(len(left))],
    ]
    if last.is_replanned:
        what = f"batch {last.batch} was planned anew, with other rows: `raftlake sinks forget {name}` lets it be written"
        rows.append(["refused", what])
    print_table([f"Sink {name}", ""], rows if last.batch >= 0 else [rows[0], *rows[4:]])


@app.command("forget")
def forget(
    name: App,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Forget what a sink has committed, and abort what it has left open; its rows stay. A query of this app that goes on, or
    starts again from an older checkpoint, writes its batches again. Exit code 1 when there is no such sink."""
    from raftlake.cli import sink_facts

    with connect(bootstrap_server, timeout_ms) as client:
        sink = sink_facts.read(client, name)
        left = sink_facts.open_transactions(client, name)
        if not sink.version and not left:
            raise sink_facts.missing(name)
        # The owner loses its sink first: it cannot commit what is aborted behind.
        if sink.version:
            client.kv.txn({}, [DeletePrefix(sink.prefix)], newest={sink.prefix: sink.version})
        sink_facts.abort(client, left)
    if as_json:
        print_json(sink.facts() | {"openTransactions": [_open_facts(each) for each in left]})
    elif not sink.version:
        print(f"{name} was forgotten before, and {len(left)} transactions were open still")
    else:
        print(f"forgot {name}: its last batch was {sink.last.batch}, and {len(left)} transactions were open")


def _open_facts(each: OpenTransaction) -> dict[str, Any]:
    return {"transactionalId": each.transactional_id, "producerId": each.producer_id, "epoch": each.epoch}


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000)) if at_ms else "-"
