"""`raftlake lag`: how far the streaming queries of Spark are behind, by what their sources write into the quorum.

A query that is down is told of as well, with the time when Spark asked last for something to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby
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
from raftlake.errors import RaftlakeError

if TYPE_CHECKING:
    from raftlake.client import Client, QueryLag

app = typer.Typer(invoke_without_command=True)

#: Spark has asked for nothing for so long: the query is down, or its trigger is rare.
STALE_AFTER_MS = 10 * 60 * 1000


@app.callback()
def lag(
    context: typer.Context,
    query: Annotated[str | None, typer.Option("--query", metavar="ID", help="Only the query with this id or name.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only this topic.")] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A line for each partition, not topic.")] = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show how far each streaming query is behind in each topic: offsets between its position and the end, the age of the
    oldest record that waits, and when Spark asked last. Exit code 1 where no query is as --query or --topic say."""
    if context.invoked_subcommand is not None:
        return
    with connect(bootstrap_server, timeout_ms) as client:
        found = client.query_lags(query, topic, with_times=True)
    now_ms = round(time.time() * 1000)
    if as_json:
        print_json([_facts(each, now_ms) for each in found])
        return
    names = ["Query", "Name", "Topic", *(["Partition", "Position", "End"] if partitions else []), "Lag", "Behind", "Seen"]
    print_table(
        names, [_row(each, now_ms, each[0] if partitions else None) for each in _groups(found, by_partition=partitions)]
    )


@app.command("forget")
def forget(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The id of a streaming query.")],
    force: Annotated[bool, typer.Option("--force", help="Also one that was seen in the last ten minutes.")] = False,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Forget a query that will not go on: its positions, and the ids of its topics. Its checkpoint stays. A query that goes on
    notices no more that a topic was deleted and created again. Exit code 1 where there is no such query, or where it was seen
    in the last ten minutes, and may still run."""
    begun_at = time.monotonic()
    with connect(bootstrap_server, timeout_ms) as client:
        if not force:
            _require_rest(client, query)
        # One deadline for the command.
        found = client.forget_query(query, timeout_ms=max(1.0, timeout_ms - (time.monotonic() - begun_at) * 1000))
    now_ms = round(time.time() * 1000)
    if as_json:
        print_json([_facts(each, now_ms) for each in found])
        return
    seen = f", and was seen {_age(now_ms - max(each.seen_ms for each in found))} ago" if found else ""
    print(f"forgot {query}: it had positions in {len(found)} partitions{seen}")


def _require_rest(client: Client, query: str) -> None:
    from raftlake.client.errors import QueryMissing

    try:
        seen_ms = max(each.seen_ms for each in client.query_lags(query))
    except QueryMissing:
        # There may be ids of topics alone.
        return
    age_ms = round(time.time() * 1000) - seen_ms
    if age_ms <= STALE_AFTER_MS:
        raise RaftlakeError(
            f"query {query} was seen {_age(age_ms)} ago and may still run; if it goes on, it does not notice that a topic was "
            f"created again. Stop it and wait until it is stale, or use --force"
        )


def _groups(found: Iterable[QueryLag], *, by_partition: bool) -> list[list[QueryLag]]:
    """What makes a line each. They come sorted."""

    def line_of(each: QueryLag) -> tuple[str, str, int]:
        return each.query, each.topic, each.partition if by_partition else -1

    return [list(group) for _, group in groupby(found, line_of)]


def _row(group: list[QueryLag], now_ms: int, alone: QueryLag | None) -> list[str]:
    first = group[0]
    known = [each.records for each in group if each.records is not None]
    waiting = [each.waiting_since_ms for each in group if each.waiting_since_ms is not None]
    if not known:
        records = "topic is gone"
    else:
        records = str(sum(known)) if len(known) == len(group) else f"{sum(known)} and more"
    behind = _age(now_ms - min(waiting)) if waiting else ("0 s" if known and not sum(known) else "-")
    places = [] if alone is None else [str(alone.partition), str(alone.position), "-" if alone.end is None else str(alone.end)]
    return [first.query, first.name or "-", first.topic, *places, records, behind, _seen(max(e.seen_ms for e in group), now_ms)]


def _seen(seen_ms: int, now_ms: int) -> str:
    if not seen_ms:
        return "-"
    return f"{_age(now_ms - seen_ms)} ago{', stale' if now_ms - seen_ms > STALE_AFTER_MS else ''}"


def _facts(found: QueryLag, now_ms: int) -> dict[str, Any]:
    return {
        "query": found.query,
        "name": found.name,
        "topic": found.topic,
        "partition": found.partition,
        "position": found.position,
        "end": found.end,
        "lag": found.records,
        "waitingSinceMs": found.waiting_since_ms,
        "batchMs": found.batch_ms,
        "seenMs": found.seen_ms,
        "isStale": now_ms - found.seen_ms > STALE_AFTER_MS,
        "host": found.host,
        "pid": found.pid,
    }


def _age(duration_ms: int) -> str:
    """By the clocks of two machines."""
    seconds = max(0, round(duration_ms / 1000))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} d"
