"""`raftlake tier`: how far topics are copied to their Delta tables, and whether the tables hold what was copied.

`status` asks the quorum's keys and each node. `verify` reads tables; it needs a quorum only to compare its keys. Findings are
output; that there are any is the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLES,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    connect,
    note,
    print_json,
    print_table,
)
from raftlake.errors import MachineError, RaftlakeError, WrongState

if TYPE_CHECKING:
    from raftlake.tier.reader import TopicHistory
    from raftlake.tier.verify import Progress, QuorumKeys, TableReport

app = typer.Typer(help="The remote tier: history as Delta tables.", no_args_is_help=True)

#: Between two words on long work.
PROGRESS_SECONDS = 5.0
COLUMNS = ["Topic", "Partition", "CopiedEnd", "HighWatermark", "Lag", "LagMs", "Segments", "Bytes", "Error"]


class TableWrong(RaftlakeError):
    """`tier verify` found something: an error, so that scripts notice."""


@app.command("status")
def status(
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show how far each partition is copied, its lag, and what stands in the way."""
    from raftlake.cli.tier_facts import ask_nodes, partition_facts, read_quorum

    with connect(bootstrap_server, timeout_ms) as client:
        quorum = read_quorum(client)
    answers = ask_nodes(quorum.nodes, min(timeout_ms / 1000, 5.0))
    rows = partition_facts(quorum, answers)
    if as_json:
        print_json({"partitions": rows, "nodes": [answer.facts() for answer in answers]})
        return
    print_table(COLUMNS, [[_cell(value) for value in row.values()] for row in rows])
    for answer in answers:
        if answer.error is not None:
            print(f"node {answer.node_id} ({answer.place}): {answer.error}")


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


@app.command("verify")
def verify(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A topic's table: a directory, or s3://...")] = None,
    tier_uri: Annotated[str | None, typer.Option("--tier-uri", metavar="URI", help="All tables there (tier.uri).")] = None,
    topic: Annotated[str | None, typer.Option(help="With --tier-uri: only the tables of this topic.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the checks as SQL for Spark and DuckDB, and read nothing.")] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar=BOOTSTRAP_VARIABLES,
            metavar="H:P,H:P",
            help="Compare the keys of this quorum too.",
        ),
    ] = None,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Check that tables hold each offset once, in order, and exactly as produced; exit code 0 only when all is well."""
    if (table is None) == (tier_uri is None):
        raise typer.BadParameter("give a TABLE, or --tier-uri")
    if topic is not None and tier_uri is None:
        raise typer.BadParameter("--topic goes with --tier-uri")
    try:
        from raftlake.tier.reader import tables_at
        from raftlake.tier.verify_sql import checks_sql
    except ModuleNotFoundError as error:
        raise MachineError(f"the tier needs the package {error.name}: pip install 'raftlake[tier]'") from error
    uris = [table] if table is not None else tables_at(str(tier_uri), topic)
    if not uris:
        what = "no table" if topic is None else f"no table of topic {topic!r}"
        raise WrongState(f"{tier_uri} has {what}: is it the tier.uri of the nodes?")
    if sql:
        print("\n\n".join(checks_sql(uri) for uri in uris))
        return
    reports: list[TableReport] = []
    for uri in uris:
        reports.append(_report(uri, bootstrap_server, timeout_ms, is_one_of_many=table is None))
        if not as_json:
            _print_report(reports[-1])
    findings = sum(len(report.findings) for report in reports)
    if as_json:
        from raftlake.cli.tier_facts import report_facts

        print_json({"ok": not findings, "tables": [report_facts(report) for report in reports]})
    if findings:
        wrong = sum(bool(report.findings) for report in reports)
        raise TableWrong(f"{findings} findings in {wrong} of {len(reports)} tables")


def _report(uri: str, bootstrap_server: str | None, timeout_ms: int, *, is_one_of_many: bool) -> TableReport:
    from raftlake.tier.verify import unreadable, verify_table

    try:
        history, keys = _open(uri, bootstrap_server, timeout_ms)
    except WrongState as error:
        if not is_one_of_many:
            raise
        return unreadable(uri, str(error))
    return verify_table(history, keys, _Watch().tell)


def _open(uri: str, bootstrap_server: str | None, timeout_ms: int) -> tuple[TopicHistory, QuorumKeys | None]:
    """A table, with the quorum's keys from before it was opened and from after that."""
    from raftlake.tier.reader import TopicHistory

    if bootstrap_server is None:
        return TopicHistory(uri), None
    from raftlake.cli.tier_facts import read_quorum
    from raftlake.tier.verify import QuorumKeys
    from raftlake.wire.ids import id_to_text

    with connect(bootstrap_server, timeout_ms) as client:
        before = read_quorum(client)
        history = TopicHistory(uri)
        after = read_quorum(client)
    topic_id = id_to_text(history.topic_id)
    if after.cluster_id is not None and after.cluster_id != history.cluster_id:
        raise WrongState(f"{history.uri} is of cluster {history.cluster_id}, the nodes are of {after.cluster_id}")
    if topic_id not in after.topics and topic_id not in after.keys:
        note(f"{history.uri}: the quorum has no topic with the id {topic_id} (any more): its keys are not compared")
        return history, None
    return history, QuorumKeys(before.keys.get(topic_id, {}), after.keys.get(topic_id, {}))


class _Watch:
    """A word now and then while work goes on."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()

    def tell(self, progress: Progress) -> None:
        if self._now() - self._last < PROGRESS_SECONDS:
            return
        self._last = self._now()
        where = f"file {progress.file}" if progress.file is not None else f"{progress.rows} of {progress.rows_total} rows"
        note(f"{progress.table}: partition {progress.partition}: {where}")


def _print_report(report: TableReport) -> None:
    from raftlake.cli.tier_facts import part_facts

    what = "unreadable" if report.topic is None else f"topic {report.topic}, version {report.version}"
    print(f"{report.table} ({what})")
    headers = ["Partition", "StartOffset", "EndOffset", "Rows", "Files", "Segments", "Batches", "CrcChecked"]
    facts = [part_facts(part) for part in report.partitions]
    if facts:
        print_table(headers, [[_cell(value) for value in part.values()] for part in facts])
    for finding in report.findings:
        print(finding.line())
    print(f"{len(report.findings)} findings" if report.findings else "all is well")
