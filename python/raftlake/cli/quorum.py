"""`raftlake describe`: the quorum as its leader sees it.

Owns how the facts are laid out: as by Kafka's kafka-metadata-quorum (KIP-595, "Tooling Support"), text and columns alike, so
that scripts written for one read the other. The facts themselves are `wire.quorum`'s, for HTTP as well.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

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

COLUMNS = ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]


class What(Enum):
    """The one option of KIP-595's own tool: `describe --describe status`, `describe --describe replication`."""

    STATUS = "status"
    REPLICATION = "replication"


def describe(
    status: Annotated[bool, typer.Option("--status", help="A summary: leader, epoch, high watermark, lag, voters.")] = False,
    replication: Annotated[bool, typer.Option("--replication", help="One line per replica.")] = False,
    what: Annotated[What | None, typer.Option("--describe", hidden=True)] = None,
    topic: Annotated[str | None, typer.Option(help="The quorum of this topic's partition, not of the metadata log.")] = None,
    partition: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The partition of --topic.")] = 0,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Describe the quorum: --status or --replication."""
    from raftlake.wire.quorum import replication_facts, status_facts, status_lines

    status, replication = status or what is What.STATUS, replication or what is What.REPLICATION
    if status == replication:
        raise typer.BadParameter("give one of --status and --replication")
    with connect(bootstrap_server, timeout_ms) as client:
        described = client.describe_quorum(topic, partition) if topic is not None else client.describe_quorum()
    if as_json:
        print_json(status_facts(described) if status else replication_facts(described))
    elif status:
        print("\n".join(status_lines(described)))
    else:
        rows = [[str(value) for value in row.values()] for row in replication_facts(described)]
        print_table(COLUMNS, rows)
