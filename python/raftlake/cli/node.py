"""Commands that run nodes or look at their files: local, format, serve, dump.

`local` runs a whole quorum, and keeps the settings that it is given in its directory. `serve` runs one node, and keeps nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from raftlake.cli.output import LOCAL_NODES, LOCAL_PORT, AsJson, note, print_json


def local(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many nodes; an odd number makes sense.")] = LOCAL_NODES,
    data_dir: Annotated[
        Path | None, typer.Option(help="Keep the data in DIR/node-1.. and continue it (default: temporary).")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Kafka port of the first node, the others follow.")] = LOCAL_PORT,
    http_port: Annotated[int, typer.Option(min=1, max=65535, help="HTTP port of the first node, the others follow.")] = 8092,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set one setting on all nodes; may be given more than once. DIR keeps it; an empty VALUE takes it out.",
        ),
    ] = None,
) -> None:
    """Run a whole quorum in this terminal, one process per node; Ctrl-C stops it.

    Prints `ready bootstrap.servers=... http.servers=...` once a leader serves. A node that was killed stays down until
    `raftlake serve --config DIR/node-N/node.properties` starts it again.
    """
    from raftlake.local import LocalQuorum
    from raftlake.runtime.settings.names import gather
    from raftlake.runtime.stop_signals import stop_signals

    stopping = threading.Event()

    def stop(_signum: int, _frame: FrameType | None) -> None:
        stopping.set()

    # While nodes start, Ctrl-C ends the start; from then on it is a request to stop.
    signals = stop_signals()
    for signum in signals:
        if signum != signal.SIGINT:
            signal.signal(signum, _interrupt)
    given = {each.spelling: each.value for each in gather(None, {}, settings or []).values()}
    with LocalQuorum(nodes=nodes, data_dir=data_dir, port=port, http_port=http_port, settings=given, note=note) as quorum:
        for signum in signals:
            signal.signal(signum, stop)
        print(f"ready bootstrap.servers={quorum.bootstrap_servers} http.servers={quorum.http_servers}", flush=True)
        running = quorum.running()
        while not stopping.wait(0.2):
            alive = quorum.running()
            for node_id in running:
                if node_id not in alive:
                    properties = quorum.nodes[node_id].properties
                    note(f"node {node_id} ended; start it again with: raftlake serve --config {properties}")
            running = alive
        note("stopping")


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def format_(
    data_dir: Annotated[Path, typer.Option(help="The directory of one node; created when absent.")],
    node_id: Annotated[int, typer.Option(min=0, help="The node's id, unique in its quorum.")],
    cluster_id: Annotated[
        str | None, typer.Option(help="The id that all nodes of the quorum share (default: the first leader makes one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a directory the data directory of one node (writes meta.properties). Repeating the command changes nothing."""
    from raftlake.runtime.format import format_data_dir
    from raftlake.storage.modes import require_owner
    from raftlake.wire.ids import id_to_text

    require_owner(data_dir)
    meta = format_data_dir(data_dir, node_id, cluster_id)
    facts = {
        "dataDir": str(data_dir),
        "nodeId": int(meta.node_id),
        "directoryId": id_to_text(meta.directory_id),
        "clusterId": meta.cluster_id,
    }
    if as_json:
        print_json(facts)
    else:
        print(f"formatted {data_dir} for node {meta.node_id} of cluster {meta.cluster_id or '(chosen by the first leader)'}")


def serve(
    config: Annotated[Path, typer.Option(help="The node's settings, a properties file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given more than once.")
    ] = None,
) -> None:
    """Run one node in the foreground until SIGTERM, Ctrl-C, or the end of its terminal."""
    from raftlake.runtime.early_reader import start_early_reader
    from raftlake.runtime.settings.settings import load_settings

    loaded = load_settings(config, environ=os.environ, overrides=settings or [])
    reader = start_early_reader(loaded)
    from raftlake.runtime import server

    raise typer.Exit(server.serve(loaded, reader=reader))


def dump(
    file: Annotated[
        Path, typer.Argument(help="A segment, snapshot, index, quorum-state, election-states, epoch or meta file.")
    ],
    records: Annotated[bool, typer.Option("--records", help="Show each record, not only each batch.")] = False,
) -> None:
    """Print a file of a data directory as text. Exit code 1 where it is damaged."""
    from raftlake.storage.dump import dump as dump_lines

    is_damaged = False
    for line in dump_lines(file, records=records):
        print(line)
        is_damaged = is_damaged or line.startswith(("damaged", "| damaged", "torn or damaged"))
    if is_damaged:
        raise typer.Exit(1)
