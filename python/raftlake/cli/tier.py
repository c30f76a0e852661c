"""`raftlake tier`: how far topics are copied to their Delta tables, and whether the tables hold what was copied.

`status` asks the quorum's keys and each node. `verify` reads tables; it needs a quorum only to compare its keys. Findings are
output; that there are any is the error.
"""

from __future__ import annotations

import os
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
    counted,
    note,
    print_json,
    print_table,
)
from raftlake.cli.tier_undo import has_tables, undo
from raftlake.errors import MachineError, RaftlakeError, RequestRejected, WrongState, one_line, unknown_outcome
from raftlake.tier.store_log import quiet

if TYPE_CHECKING:
    from raftlake.cli.tier_facts import QuorumTier
    from raftlake.tier.reader import TopicHistory
    from raftlake.tier.verify import Progress, QuorumKeys, TableReport

app = typer.Typer(help="The remote tier: history as Delta tables.", no_args_is_help=True)
app.command("undo")(undo)

#: Between two words on long work.
PROGRESS_SECONDS = 5.0
#: For one partition: its table is read first.
REBUILD_TIMEOUT_MS = 600_000
REBUILT_COLUMNS = ["Topic", "Partition", "StartOffset", "EndOffset", "Segments", "Bytes", "Error"]
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
        for said in (answer.error, *answer.deleted_topics):
            if said is not None:
                print(f"node {answer.node_id} ({answer.place}): {said}")


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


@app.command("rebuild-metadata")
def rebuild_metadata(
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="With --topic: only this partition.")] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = REBUILD_TIMEOUT_MS,
    as_json: AsJson = False,
) -> None:
    """Make the quorum's keys of the tier anew from the Delta tables: for keys that are lost or say what is not there."""
    from raftlake.cli.tier_facts import read_quorum, rebuild

    if partition is not None and topic is None:
        raise typer.BadParameter("--partition goes with --topic")
    with connect(bootstrap_server, min(timeout_ms, TIMEOUT_MS_DEFAULT)) as client:
        quorum = read_quorum(client)
        leader_id = client.describe_quorum().leader_id
    wanted = sorted(
        (name, index)
        for name, count in quorum.topics.values()
        for index in range(count)
        if topic in (None, name) and partition in (None, index)
    )
    if not wanted:
        raise WrongState("there is no such topic or partition" if topic is not None else "there are no topics")
    place = quorum.nodes.get(leader_id)
    if place is None:
        raise WrongState(f"node {leader_id} leads the quorum and has no http.listener: the keys are made anew over HTTP")
    rows: list[dict[str, object]] = []
    unknown: list[str] = []
    for name, index in wanted:
        row, is_known = rebuild(place, name, index, timeout_ms / 1000)
        rows.append(row)
        unknown += [] if is_known else [f"{name}-{index}"]
        if not as_json:
            note(f"{name}-{index}: {rows[-1]['error'] or 'made anew'}")
    if as_json:
        print_json({"partitions": rows})
    else:
        print_table(REBUILT_COLUMNS, [[_cell(value) for value in row.values()] for row in rows])
    if unknown:
        what = f"the leader was asked to make the keys of {', '.join(unknown)} anew"
        raise unknown_outcome(what, "`raftlake tier status` shows what the keys say")
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        raise TableWrong(f"the keys of {failed} of {len(rows)} partitions were not changed")


@app.command("verify")
def verify(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A topic's table: a directory, or s3://...")] = None,
    tier_uri: Annotated[str | None, typer.Option("--tier-uri", metavar="URI", help="All tables there (tier.uri).")] = None,
    topic: Annotated[str | None, typer.Option(help="With --tier-uri: only the tables of this topic.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the checks as SQL for Spark and DuckDB, and read no row.")] = False,
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
    if bool(table) == bool(tier_uri):
        raise typer.BadParameter("give a TABLE, or --tier-uri")
    if topic is not None and not tier_uri:
        raise typer.BadParameter("--topic goes with --tier-uri")
    quiet(os.environ)
    try:
        from raftlake.tier.verify_sql import checks_sql

        uris = _uris(table, tier_uri, topic)
    except ModuleNotFoundError as error:
        raise MachineError(f"the tier needs the package {error.name}: pip install 'raftlake[tier]'") from error
    if sql:
        print("\n\n".join(checks_sql(_place_for_engines(uri)) for uri in uris))
        return
    source = context.get_parameter_source("bootstrap_server")
    quorum = _Quorum(bootstrap_server, timeout_ms, is_required=source is not None and source.name == "COMMANDLINE")
    reports: list[TableReport] = []
    for uri in uris:
        reports.append(_report(uri, quorum, is_one_of_many=not table))
        if not as_json:
            _print_report(reports[-1])
    findings = sum(len(report.findings) for report in reports)
    if as_json:
        from raftlake.cli.tier_facts import report_facts

        print_json({"ok": not findings, "tables": [report_facts(report) for report in reports]})
    if findings:
        wrong = sum(bool(report.findings) for report in reports)
        tables = "1 table" if len(reports) == 1 else f"{wrong} of {len(reports)} tables"
        raise TableWrong(f"{counted(findings, 'finding')} in {tables}")


def _uris(table: str | None, tier_uri: str | None, topic: str | None) -> list[str]:
    """The tables that are meant. Raises ConfigError for a store that there is none of, WrongState where there is no table."""
    from raftlake.runtime.settings.tier import parse_tier_uri
    from raftlake.tier.reader import require_no_secret, tables_at

    place = str(table or tier_uri)
    require_no_secret(place)
    if "://" in place:
        parse_tier_uri("TABLE" if table else "--tier-uri", place)
    if table:
        return [table]
    uris = tables_at(place, topic)
    if not uris:
        what = "no table" if topic is None else f"no table of topic {topic!r}"
        raise WrongState(f"{place} has {what}: is it the tier.uri of the nodes?")
    return uris


def _place_for_engines(uri: str) -> str:
    """A table on this machine has to be there, and is named from everywhere. What a store elsewhere has is not asked."""
    from raftlake.tier.store import local_path

    return uri if local_path(uri) is None else _history(uri).uri


def _history(uri: str) -> TopicHistory:
    """A table. Where there is none, WrongState says whether there are tables below."""
    from raftlake.tier.reader import TopicHistory

    try:
        return TopicHistory(uri)
    except WrongState as error:
        if has_tables(uri):
            raise WrongState(f"{error}, and there are tables below it: give --tier-uri {uri}") from error
        raise


class _Quorum:
    """The quorum whose keys are compared, if any is named. The environment names one for other commands too: where it does not
    answer, tables are read all the same, since they need no node."""

    def __init__(self, bootstrap_server: str | None, timeout_ms: int, *, is_required: bool) -> None:
        self._servers = bootstrap_server
        self._timeout_ms = timeout_ms
        self._is_required = is_required

    def read(self) -> QuorumTier | None:
        """Its keys as they are now; None without a quorum. One that did not answer is not asked again."""
        if self._servers is None:
            return None
        from raftlake.cli.tier_facts import read_quorum
        from raftlake.client.errors import NoReachableNode

        try:
            with connect(self._servers, self._timeout_ms) as client:
                return read_quorum(client)
        except (NoReachableNode, RequestRejected) as error:
            if self._is_required:
                raise
            note(f"the quorum's keys are not compared, only the tables are read: {one_line(error)}")
            self._servers = None
            return None


def _report(uri: str, quorum: _Quorum, *, is_one_of_many: bool) -> TableReport:
    from raftlake.tier.verify import unreadable, verify_table

    try:
        history, keys = _open(uri, quorum)
    except WrongState as error:
        if not is_one_of_many:
            raise
        return unreadable(uri, str(error))
    return verify_table(history, keys, _Watch().tell)


def _open(uri: str, quorum: _Quorum) -> tuple[TopicHistory, QuorumKeys | None]:
    """A table, with the quorum's keys from before it was opened and from after that."""
    from raftlake.tier.verify import QuorumKeys
    from raftlake.wire.ids import id_to_text

    before = quorum.read()
    history = _history(uri)
    after = quorum.read()
    if before is None or after is None:
        return history, None
    topic_id = id_to_text(history.topic_id)
    if after.cluster_id is not None and after.cluster_id != history.cluster_id:
        raise WrongState(f"{history.uri} is of cluster {history.cluster_id}, the nodes are of {after.cluster_id}")
    if topic_id not in after.topics and history.is_dropped:
        return history, None
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
    headers = ["Partition", "StartOffset", "EndOffset", "Rows", "Files", "Segments", "Batches", "CrcChecked", "AbortedRows"]
    facts = [part_facts(part) for part in report.partitions]
    if facts:
        print_table(headers, [[_cell(value) for value in part.values()] for part in facts])
    for finding in report.findings:
        print(finding.line())
    if report.is_dropped:
        print("its topic was deleted, and it has no row any more")
    print(counted(len(report.findings), "finding") if report.findings else "all is well")
