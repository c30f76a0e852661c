"""`raftlake quickstart`: the whole road on real data, in about two minutes, with a leader killed on the way.

Starts a quorum of three processes, writes the flights through the Spark sink, streams statistics out of the Spark source,
kills the leader in the middle with SIGKILL, starts it again, and compares the result with the same statistics computed by
pandas. Meanwhile the nodes copy the flights to a Delta table, which is checked and asked in SQL. Exit code 0 only when every
number agrees and no record was lost, doubled or reordered. Leaves the data where it says, and no process behind.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from raftlake.client import Client
from raftlake.errors import ConfigError, MachineError, RaftlakeError
from raftlake.local import LocalQuorum
from raftlake.quickstart import data, history
from raftlake.quickstart.pulse import Pulse
from raftlake.quickstart.stop import Interrupted, Stop, run_stoppable
from raftlake.wire.batches import decode_records
from raftlake.wire.quorum import replication_facts, status_lines

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "flights"
PULSE_TOPIC = "pulse"
PARTITIONS = 4
#: About twelve micro-batches over the whole data set.
BATCHES = 12
#: The leader is killed when this part of the records went through the query.
KILL_AFTER = 0.3
QUERY_TIMEOUT_S = 300.0
ELECTION_TIMEOUT_S = 30.0


class QuickstartFailed(RaftlakeError):
    """A number did not agree, or something did not happen in time."""


def run(data_dir: Path | None = None, rows: int | None = None, kind: type[Tour] | None = None) -> int:
    """The tour, or another `kind` of it. `rows` limits the data set (default: all of it). Returns the exit code; prints as it
    goes."""
    console = Console(highlight=False)
    started = time.perf_counter()
    stop = Stop()
    directory: Path | None = None
    try:
        require_spark()
        history.require_packages()
        if rows is not None and rows < 1:
            raise ConfigError(f"--rows: must be at least 1, got {rows}")
        directory = _own_directory(data_dir)
        run_stoppable((kind or Tour)(console, directory, rows, stop).run, stop)
    except (KeyboardInterrupt, Interrupted):
        if data_dir is None and directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        console.show_cursor(True)
        console.print("[yellow]stopped[/]")
        return 130
    except RaftlakeError as error:
        console.print(f"[bold red]failed:[/] {error}", soft_wrap=True)
        if data_dir is None and directory is not None:
            console.print(f"The data lies in {directory}. {_how_to_remove(directory)}", soft_wrap=True)
        return 1
    console.print(f"[bold green]All agrees.[/] {time.perf_counter() - started:.0f} s in all.")
    console.print(_how_to_remove(directory), soft_wrap=True)
    return 0


def _how_to_remove(directory: Path) -> str:
    return f"To remove the data: rm -r {escape(shlex.quote(str(directory)))}"


def _own_directory(data_dir: Path | None) -> Path:
    """An empty directory: the one that is asked for, or a temporary one."""
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="raftlake-quickstart-"))
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        is_used = any(data_dir.iterdir())
    except OSError as error:
        raise ConfigError(f"--data-dir: {data_dir} cannot be used: {error.strerror}") from error
    if is_used:
        raise ConfigError(f"--data-dir: {data_dir} is not empty; the quickstart wants a folder of its own")
    return data_dir


def require_spark() -> None:
    """Say in one line what is missing, before anything is started."""
    if importlib.util.find_spec("pyspark") is None:
        raise MachineError("Spark is missing: pip install 'raftlake[quickstart]'")
    if shutil.which("java") is None:
        raise MachineError("Java is missing: Spark needs a JDK, 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)")


class Tour:
    """The six steps, in order, on one quorum and one Spark session."""

    def __init__(self, console: Console, directory: Path, rows: int | None, stop: Stop) -> None:
        self.console = console
        self.directory = directory
        self.rows = rows
        self.stop = stop

    def run(self) -> None:
        from raftlake.quickstart.spark import spark_session

        work_dir = self.directory / "spark"
        work_dir.mkdir()
        began = time.perf_counter()
        tier_uri = self.directory / "history"
        with (
            LocalQuorum(nodes=3, data_dir=self.directory, settings=history.settings(tier_uri)) as quorum,
            Client(quorum.bootstrap_servers) as client,
        ):
            self.stop.check()
            client.create_topic(TOPIC, partitions=PARTITIONS)
            client.create_topic(PULSE_TOPIC, partitions=1)
            self._step(1, f"A quorum of three processes serves since {time.perf_counter() - began:.1f} s.")
            self._say(f"bootstrap.servers={quorum.bootstrap_servers} http.servers={quorum.http_servers}")

            flights = data.load_flights(self.rows)
            data.write_parquet(flights, work_dir / "flights.parquet")
            with spark_session(work_dir, self.stop) as spark:
                self._write(spark, quorum, flights.num_rows, work_dir)
                actual = self._stream(spark, quorum, client, flights.num_rows, work_dir)
                self._step(5, "The result against the same statistics by pandas, straight from the data set:")
                self._compare(data.expected_statistics(flights), actual)
                self._count(spark, quorum, flights.num_rows)
            self._history(client, tier_uri, flights)
            self._describe(client)
        self.console.print(
            f"The data lies in {self.directory} (node-1, node-2, node-3: Kafka's file formats; history: Delta tables).",
            soft_wrap=True,
        )

    def _step(self, number: int, text: str) -> None:
        self.stop.check()
        self.console.print(f"[bold cyan]{number}[/]  {text}", soft_wrap=True)

    def _say(self, text: str) -> None:
        self.console.print(f"   {text}", soft_wrap=True)

    def _write(self, spark: SparkSession, quorum: LocalQuorum, rows: int, work_dir: Path) -> None:
        from raftlake.quickstart.spark import write_flights

        began = time.perf_counter()
        with self.console.status(f"a Spark job writes {rows:,} flights into topic {TOPIC}"):
            write_flights(spark, work_dir / "flights.parquet", quorum.bootstrap_servers, TOPIC)
        seconds = time.perf_counter() - began
        self._step(2, f"A Spark job wrote {rows:,} flights into topic {TOPIC}, {PARTITIONS} partitions, in {seconds:.1f} s.")

    def _stream(self, spark: SparkSession, quorum: LocalQuorum, client: Client, rows: int, work_dir: Path) -> pandas.DataFrame:
        """Steps 3 and 4: run the query over all rows and kill the leader on the way."""
        from raftlake.quickstart.spark import start_statistics, statistics_of

        per_trigger = max(1, -(-rows // BATCHES))
        pulse = Pulse(quorum.bootstrap_servers, PULSE_TOPIC)
        pulse.start()
        began = time.perf_counter()
        query = start_statistics(
            spark, quorum.bootstrap_servers, TOPIC, offsets_per_trigger=per_trigger, checkpoint=work_dir / "checkpoint"
        )
        try:
            with Progress(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=self.console, transient=True,
            ) as progress:  # fmt: skip
                task = progress.add_task("streaming query", total=rows)
                self._await_rows(query, int(rows * KILL_AFTER), lambda done: progress.update(task, completed=done))
                failover = kill_leader(quorum, client, pulse, self.stop)
                self._await_rows(query, rows, lambda done: progress.update(task, completed=done))
                caught_up_s = restart(quorum, client, failover.victim, self.stop)
            query.processAllAvailable()
            batches = len({report["batchId"] for report in query.recentProgress if report["numInputRows"]})
            query.stop()
        finally:
            pulse.stop()
        seconds = time.perf_counter() - began
        self._step(3, f"The streaming query took {batches} micro-batches, consistency=linearizable, {seconds:.1f} s.")
        self._show_failover(failover, pulse, caught_up_s)
        self._check_pulse(client, pulse)
        return statistics_of(spark)

    def _await_rows(self, query: StreamingQuery, wanted: int, report: Callable[[int], None]) -> None:
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while True:
            if (error := query.exception()) is not None:
                raise QuickstartFailed(f"the streaming query failed: {error}")
            done = sum(batch["numInputRows"] for batch in query.recentProgress)
            report(done)
            if done >= wanted:
                return
            if time.monotonic() > deadline:
                raise QuickstartFailed(f"the streaming query read {done:,} of {wanted:,} rows in {QUERY_TIMEOUT_S:.0f} s")
            self.stop.sleep(0.05)

    def _show_failover(self, failover: Failover, pulse: Pulse, caught_up_s: float) -> None:
        self._step(4, f"kill -9 of node {failover.victim}, the leader of epoch {failover.epoch_before}, in the middle of it:")
        self._say(
            f"node {failover.elected} leads epoch {failover.epoch_after} after {failover.elected_ms:.0f} ms; "
            f"[bold]{pulse.longest_gap_ms(failover.killed_at):.0f} ms without writes[/] for a client that waits for each one"
        )
        self._say(f"node {failover.victim} started again and caught up after {caught_up_s:.1f} s")

    def _check_pulse(self, client: Client, pulse: Pulse) -> None:
        missing, doubled = pulse.missing_and_doubled(read_values(client, PULSE_TOPIC))
        if missing or doubled:
            raise QuickstartFailed(f"acknowledged appends missing: {missing[:5]}, doubled: {doubled[:5]}")
        self._say(f"{pulse.acknowledged:,} small appends were acknowledged meanwhile: each is there exactly once")

    def _compare(self, expected: pandas.DataFrame, actual: pandas.DataFrame) -> None:
        both = expected.merge(actual, on=list(data.GROUP), how="outer", suffixes=("_expected", "_actual"), indicator=True)
        wrong = both["_merge"] != "both"
        for measure in data.MEASURES:
            wrong |= both[f"{measure}_expected"] != both[f"{measure}_actual"]
        table = Table("measure", "pandas", "raftlake + Spark", "groups that differ")
        for measure in data.MEASURES:
            differs = int((both[f"{measure}_expected"] != both[f"{measure}_actual"]).sum())
            table.add_row(measure, f"{expected[measure].sum():,}", f"{actual[measure].sum():,}", str(differs))
        self.console.print(table)
        if wrong.any():
            raise QuickstartFailed(
                f"{int(wrong.sum())} of {len(both)} groups differ, the first:\n{both[wrong].head(3).to_string()}"
            )
        self._say(f"{len(expected)} groups (carrier, hour), {len(data.MEASURES)} integers each: all equal")

    def _count(self, spark: SparkSession, quorum: LocalQuorum, rows: int) -> None:
        from raftlake.quickstart.spark import count_topic

        found = count_topic(spark, quorum.bootstrap_servers, TOPIC)
        if (found.rows, found.offsets, found.ids, found.id_min, found.id_max) != (rows, rows, rows, 0, rows - 1):
            raise QuickstartFailed(f"the topic should hold {rows:,} flights once each, but: {found}")
        if found.carriers_out_of_order:
            raise QuickstartFailed(f"the flights of {found.carriers_out_of_order} carriers are not in order of departure")
        self._say(f"the topic holds {rows:,} records, {rows:,} different flights, in order: none lost, none doubled")

    def _history(self, client: Client, tier_uri: Path, flights: pyarrow.Table) -> None:
        ends = client.read_offset(TOPIC, list(range(PARTITIONS)))
        began = time.perf_counter()
        with self.console.status(f"the nodes copy the last flights to the table of {TOPIC}"):
            table = history.await_copied(tier_uri, TOPIC, ends, self.stop)
            waited_s = time.perf_counter() - began
            facts = history.examine(table)
        self._step(6, f"A Delta table holds the flights' history (the tour waited {waited_s:.1f} s for the last copy):")
        self._say(f"raftlake tier verify {facts.table}")
        if facts.rows != sum(ends.values()) or facts.carriers != data.flights_by_carrier(flights):
            raise QuickstartFailed(
                f"the table should hold {sum(ends.values()):,} records and the flights of each carrier, but: {facts}"
            )
        log_mb = history.log_bytes(sorted(self.directory.glob("node-*")), TOPIC) / 1e6
        self._say(
            f"{facts.rows:,} records in {facts.files} files, each offset once: nothing wrong; "
            f"{facts.size / 1e6:.1f} MB, the log has {log_mb:.1f} MB"
        )
        self._say(history.CARRIERS_SQL)
        most = list(facts.carriers.items())[:3]
        self._say(f"{', '.join(f'{carrier} {count:,}' for carrier, count in most)}, ...: as pandas counts them")

    def _describe(self, client: Client) -> None:
        """What `raftlake describe --status` and `--replication` print."""
        described = client.describe_quorum()
        for line in status_lines(described):
            self._say(line)
        rows = replication_facts(described)
        shown = ("nodeId", "logEndOffset", "lag", "status")
        for row in [dict(zip(shown, ("NodeId", "LogEndOffset", "Lag", "Status"), strict=True)), *rows]:
            self._say("".join(f"{row[name]!s:<14}" for name in shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    victim: int
    elected: int
    epoch_before: int
    epoch_after: int
    #: `time.perf_counter()` of the kill.
    killed_at: float
    elected_ms: float


def kill_leader(quorum: LocalQuorum, client: Client, pulse: Pulse, stop: Stop) -> Failover:
    """SIGKILL to the node that leads the metadata log; returns when another node leads and a write went through."""
    before = client.describe_quorum()
    killed_at = time.perf_counter()
    quorum.kill(before.leader_id)
    deadline = killed_at + ELECTION_TIMEOUT_S
    while True:
        try:
            after = client.describe_quorum()
        except RaftlakeError:
            after = before
        if after.leader_epoch > before.leader_epoch and after.leader_id not in (-1, before.leader_id):
            break
        if time.perf_counter() > deadline:
            raise QuickstartFailed(f"no new leader {ELECTION_TIMEOUT_S:.0f} s after node {before.leader_id} was killed")
        stop.sleep(0.005)
    elected_ms = 1000 * (time.perf_counter() - killed_at)
    acknowledged = pulse.acknowledged
    while pulse.acknowledged == acknowledged and pulse.is_alive:
        if time.perf_counter() > deadline:
            raise QuickstartFailed(
                f"no write was acknowledged {ELECTION_TIMEOUT_S:.0f} s after node {before.leader_id} was killed"
            )
        stop.sleep(0.005)
    return Failover(
        victim=before.leader_id,
        elected=after.leader_id,
        epoch_before=before.leader_epoch,
        epoch_after=after.leader_epoch,
        killed_at=killed_at,
        elected_ms=elected_ms,
    )


def restart(quorum: LocalQuorum, client: Client, victim: int, stop: Stop) -> float:
    """Start the killed node again; returns the seconds until its log ends where the leader's high watermark was then."""
    began = time.perf_counter()
    target = client.describe_quorum().high_watermark
    quorum.start(victim)
    while True:
        ends = {voter.replica_id: voter.log_end_offset for voter in client.describe_quorum().voters}
        if ends.get(victim, -1) >= target:
            return time.perf_counter() - began
        if time.perf_counter() - began > ELECTION_TIMEOUT_S:
            raise QuickstartFailed(f"node {victim} did not catch up within {ELECTION_TIMEOUT_S:.0f} s: {ends} of {target}")
        stop.sleep(0.02)


def read_values(client: Client, topic: str) -> list[bytes]:
    """All values of partition 0 of a topic, to its linearizable end."""
    end = client.read_stable_offset(topic, [0])[0]
    values: list[bytes] = []
    offset = 0
    while offset < end:
        fetched = client.fetch_raw(topic, 0, offset, limit_offset=end)
        values += [record.value or b"" for buffer in fetched.buffers for record in decode_records(buffer)]
        offset = fetched.next_offset
    return values
