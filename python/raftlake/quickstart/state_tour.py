"""`raftlake quickstart --state`: the tour of checkpoints in the quorum, with drivers that are killed and fenced on the way.

A stateful query over the flights runs in driver 1, a process of its own, with its checkpoint and state at `raftlake://`. The
tour kills driver 1, and driver 2 goes on. The tour pauses driver 2, as a host that hangs would, and driver 3 takes over at
once. Then driver 2 wakes up, and is fenced. At the end the tour compares the result with the same statistics by pandas. Exit
code 0 only when every number agrees, and nothing of driver 2 was written after the takeover.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from raftlake.client import Client
from raftlake.errors import MachineError
from raftlake.local import LocalQuorum
from raftlake.quickstart import data
from raftlake.quickstart.stop import Stop
from raftlake.quickstart.tour import BATCHES, PARTITIONS, TOPIC, QuickstartFailed, Tour

if TYPE_CHECKING:
    import pandas

PIPELINE, NAME = "quickstart", "delays"
CHECKPOINT = f"raftlake://{PIPELINE}/{NAME}"
OWNER_KEY = f"/fs-owner/{PIPELINE}/{NAME}"
FILES_PREFIX = f"/fs/{PIPELINE}/{NAME}/"
#: The batches after which driver 1 is killed, and driver 2 paused.
KILL_AFTER_BATCH, PAUSE_AFTER_BATCH = 3, 7
DRIVER_TIMEOUT_S = 300.0
LAST_WORDS_S = 5.0
PAGE = 10_000


class Driver:
    """A driver process, its JVM, and what it has told (`state_driver`)."""

    def __init__(self, number: int, directory: Path, facts: Mapping[str, object], stop: Stop) -> None:
        directory.mkdir()
        self.number = number
        self.events: list[dict[str, Any]] = []
        self._directory = directory
        self._stop = stop
        self._ending = threading.Lock()
        stop.check()
        with (directory / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "raftlake.quickstart.state_driver", json.dumps({**facts, "directory": str(directory)})],
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                # A group of its own, with its JVM: signals go to both, and Ctrl-C of the terminal to none.
                start_new_session=True,
            )
        # A driver that is paused cannot see that the tour is gone, so another process sees it.
        self._guard = subprocess.Popen(
            ["sh", "-c", "cat; kill -s KILL -- -$0", str(self.process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        stop.on_request(self.kill)

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.events.append(json.loads(line))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [told for told in list(self.events) if told["event"] == event]

    @property
    def batches(self) -> list[int]:
        return [told["number"] for told in self.of("batch")]

    def await_event(self, event: str, is_wanted: Callable[[dict[str, Any]], bool] = lambda told: True) -> dict[str, Any]:
        """The first such event. Raises QuickstartFailed when the driver ends without it, or takes too long."""
        deadline = time.monotonic() + DRIVER_TIMEOUT_S
        while True:
            has_ended = self.process.poll() is not None
            if has_ended:
                # Its last words may not be read yet. Its JVM may hold the stream open for a while.
                self._reader.join(LAST_WORDS_S)
            for told in self.of(event):
                if is_wanted(told):
                    return told
            for told in self.of("failed"):
                raise QuickstartFailed(f"driver {self.number} failed: {told['error']}")
            if has_ended or time.monotonic() > deadline:
                what = "has ended" if has_ended else f"took more than {DRIVER_TIMEOUT_S:.0f} s"
                raise QuickstartFailed(
                    f"driver {self.number} {what} before its event '{event}'; its output: {self._directory}/output"
                )
            self._stop.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """To the driver and its JVM."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """All of it is gone when this returns."""
        with self._ending:
            if self.process.poll() is None:
                self.signal(signal.SIGKILL)
            self.process.wait()
            self._guard.communicate()
            self._reader.join()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def ask_for_the_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("end\n")
        self.process.stdin.flush()


class StateTour(Tour):
    """The second tour."""

    def run(self) -> None:
        require_raftlake_jar()
        began = time.perf_counter()
        work_dir = self.directory / "spark"
        work_dir.mkdir()
        drivers: list[Driver] = []
        with LocalQuorum(3, data_dir=self.directory) as quorum, Client(quorum.bootstrap_servers) as client:
            self.stop.check()
            client.create_topic(TOPIC, partitions=PARTITIONS)
            self._step(1, f"A quorum of three processes serves since {time.perf_counter() - began:.1f} s.")
            self._say(f"bootstrap.servers={quorum.bootstrap_servers} http.servers={quorum.http_servers}")
            flights = data.load_flights(self.rows)
            data.write_parquet(flights, work_dir / "flights.parquet")

            def start(*, writes: bool = False) -> Driver:
                facts = {
                    "bootstrap": quorum.bootstrap_servers,
                    "http": quorum.http_servers,
                    "topic": TOPIC,
                    "checkpoint": CHECKPOINT,
                    "offsets_per_trigger": max(1, -(-flights.num_rows // BATCHES)),
                    "flights": str(work_dir / "flights.parquet") if writes else None,
                }
                number = len(drivers) + 1
                drivers.append(Driver(number, work_dir / f"driver-{number}", facts, self.stop))
                return drivers[-1]

            try:
                first = self._begin(start, flights.num_rows)
                second = self._kill(first, start)
                third, fenced = self._fence(second, start, client)
                self._show_fenced(second, fenced)
            finally:
                for driver in drivers:
                    driver.kill()
            self._step(5, "The result of driver 3 against the same statistics by pandas, straight from the data set:")
            self._compare(data.expected_statistics(flights), third)
            self._describe(client)
        self.console.print(
            f"The data lies in {self.directory} (node-1, node-2, node-3: Kafka's file formats; spark: logs of the drivers).",
            soft_wrap=True,
        )

    def _begin(self, start: Callable[..., Driver], rows: int) -> Driver:
        with self.console.status(f"driver 1 writes {rows:,} flights into topic {TOPIC}"):
            first = start(writes=True)
            first.await_event("written")
            first.await_event("batch")
        self._step(2, f"Driver 1 (process {first.process.pid}) wrote {rows:,} flights, and runs a query with state over them:")
        self._say(f"checkpointLocation={CHECKPOINT}, state of RocksDB")
        return first

    def _kill(self, first: Driver, start: Callable[..., Driver]) -> Driver:
        with self.console.status(f"driver 1 runs until batch {KILL_AFTER_BATCH}"):
            first.await_event("batch", lambda told: told["number"] >= KILL_AFTER_BATCH)
        first.kill()
        killed_at = time.perf_counter()
        with self.console.status("driver 2 starts"):
            second = start()
            second.await_event("batch")
        seconds = time.perf_counter() - killed_at
        self._step(3, f"kill -9 of driver 1 after batch {first.batches[-1]}. Driver 2 is process {second.process.pid}:")
        require_next(first, second)
        self._say(
            f"it has no file of driver 1, and went on with batch {second.batches[0]}, {seconds:.1f} s after the kill "
            "(Spark's start included)"
        )
        return second

    def _fence(self, second: Driver, start: Callable[..., Driver], client: Client) -> tuple[pandas.DataFrame, str]:
        """The result of driver 3, and what driver 2 said when it woke up."""
        with self.console.status(f"driver 2 runs until batch {PAUSE_AFTER_BATCH}"):
            second.await_event("batch", lambda told: told["number"] >= PAUSE_AFTER_BATCH)
        second.signal(signal.SIGSTOP)
        with self.console.status("driver 3 starts, and reads to the end"):
            third = start()
            third.await_event("batch")
            third.ask_for_the_end()
            rows = third.await_event("statistics")["rows"]
        self._step(4, f"Driver 2 was paused after batch {second.batches[-1]}, as on a host that hangs. Driver 3 took over:")
        require_next(second, third)
        owner = json.loads(value_of(client, OWNER_KEY))
        if owner["run"] != third.of("running")[0]["run"]:
            raise QuickstartFailed(f"driver 3 should own the checkpoint, but {OWNER_KEY} says {owner}")
        self._say(f"it went on with batch {third.batches[0]} to the last one; no lock had to expire, and no file was deleted")
        self._say(f"raftlake kv get {OWNER_KEY}: run {owner['run']} on host {owner['host']}, process {owner['pid']}")
        before = versions(client)
        second.signal(signal.SIGCONT)
        with self.console.status("driver 2 wakes up"):
            failed = second.await_event("failed", lambda told: True)
        if versions(client) != before:
            raise QuickstartFailed("driver 2 changed files of the checkpoint after driver 3 had taken it over")
        self._say(f"driver 2 woke up, and changed none of the {len(before)} files of the checkpoint. Its error:")
        return frame_of(rows), failed["error"]

    def _show_fenced(self, second: Driver, error: str) -> None:
        run = second.of("running")[0]["run"]
        line = next((line for line in error.splitlines() if "no longer owns this checkpoint" in line and run in line), None)
        if line is None:
            raise QuickstartFailed(f"driver 2 should have been fenced, but failed with: {error}")
        self._say(f"[yellow]{line.strip().removeprefix('Caused by: ')}[/]")


def require_raftlake_jar() -> None:
    """Say in one line that it is missing, before anything is started."""
    try:
        from pyspark_raftlake.jvm import require_jar
    except ModuleNotFoundError as error:
        raise MachineError(f"the package {error.name} is missing: pip install 'raftlake[quickstart]'") from error
    require_jar()


def require_next(before: Driver, after: Driver) -> None:
    """The later driver began where the earlier one ended, which may have finished one batch more than it told."""
    began, ended = after.batches[0], before.batches[-1]
    if began - ended not in (1, 2):
        raise QuickstartFailed(f"driver {after.number} began with batch {began}, and driver {before.number} ended with {ended}")


def value_of(client: Client, key: str) -> bytes:
    entry = client.kv.get(key)
    if entry is None or entry.value is None:
        raise QuickstartFailed(f"the key {key} is missing")
    return entry.value


def versions(client: Client) -> dict[str, int]:
    """The files of the checkpoint, and when each was written."""
    return {entry.key: entry.version for entry in client.kv.list(FILES_PREFIX, limit=PAGE).entries}


def frame_of(rows: list[list[Any]]) -> pandas.DataFrame:
    """The statistics as the comparison wants them."""
    import pandas

    columns = [*data.GROUP, *data.MEASURES]
    return pandas.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[1:], "int64"))
