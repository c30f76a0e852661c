"""A standalone Spark cluster on loopback, drivers started by spark-submit, and stops in the phases of a micro-batch.

A stop is a file: `Stops.want` writes the phase into `stop-at`. The first who comes to that phase, the driver or a task, renames
the file to `reached` and waits until `reached` is gone (tests/spark/hooks/Stop.java, and `reach` for Python). Between,
a test kills whom it likes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from class_archive import LIGHT, options
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import LocalQuorum

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / "tests/spark/hooks"
#: The product's classes, with stops where `raftlake.test.hooks` names a directory.
HOOKS_CLASSES = {
    "spark.sql.streaming.checkpointFileManagerClass": "io.raftlake.hooks.PausingFiles",
    "spark.sql.streaming.stateStore.providerClass": "io.raftlake.hooks.PausingState",
}
WORKERS = 2
WORKER_CORES = 4
#: Of one driver: an executor of two threads on each worker, so that two drivers have room at once.
CORES = 4
EXECUTOR_CORES = 2
START_SECONDS = 120
POLL_SECONDS = 0.02


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).resolve().parent


def raftlake_jar() -> Path:
    from pyspark_raftlake.jvm import require_jar

    return require_jar()


def environment() -> dict[str, str]:
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    # What Spark's own scripts would set: a worker finds no release to read the version of Scala from.
    spark = {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **python, **spark, "PYTHONPATH": path}


def build_hooks(directory: Path) -> Path:
    """The jar with the classes that stop."""
    classes = directory / "classes"
    path = f"{raftlake_jar()}:{spark_home()}/jars/*"
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "--release", "17", "-cp", path, "-d", str(classes)]
    command += map(str, sorted(HOOKS.glob("*.java")))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jar = directory / "hooks.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.rglob("*.class"):
            archive.write(file, file.relative_to(classes))
    return jar


class Group:
    """A program in a process group of its own, which its children share. The group ends with this process, however it ends."""

    def __init__(self, command: list[str], directory: Path, output: Path) -> None:
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,
            )
        self._guard = subprocess.Popen(["sh", "-c", "cat; kill -9 0"], stdin=subprocess.PIPE, process_group=self.process.pid)

    def end(self) -> None:
        """kill -9 of all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._guard.communicate()


class Daemon(Group):
    """A master or a worker. Executors are of their worker's group, and at its address."""

    def __init__(self, kind: str, directory: Path, host: str, *arguments: str) -> None:
        directory.mkdir(parents=True)
        self._log = directory / "log"
        command = ["java", "-Xmx256m", *LIGHT.split(), "-cp", f"{spark_home()}/jars/*", f"org.apache.spark.deploy.{kind}"]
        super().__init__([*command, "--host", host, "--port", "0", "--webui-port", "0", *arguments], directory, self._log)

    def await_line(self, pattern: str) -> str:
        """The first group of the first line of its log that fits."""

        def found() -> re.Match[str] | None:
            text = self._log.read_text(errors="replace")
            assert self.process.poll() is None, text[-3000:]
            return re.search(pattern, text)

        return str(wait_until(found, f"{pattern} in {self._log}", START_SECONDS).group(1))

    def kill(self) -> None:
        """Alone: what becomes of its executors is Spark's business."""
        self.process.kill()
        self.process.wait()


def children(pid: int) -> Iterator[tuple[int, str]]:
    """(process id, command line) of running children of a process."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


class SparkCluster:
    """A master and workers. Each executor that `executors` names is a child of a worker of this cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: list[Daemon] = []
        self._workers: list[Daemon] = []
        self._master = self._start("master", "master.Master", "127.0.0.1")
        self.url = self._master.await_line(r"Starting Spark master at (spark://\S+)")
        for worker in [self.start_worker() for _ in range(WORKERS)]:
            worker.await_line(r"(Successfully registered with master)")

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for daemon in self._daemons:
            daemon.end()

    def _start(self, name: str, kind: str, host: str, *arguments: str) -> Daemon:
        number = len(self._daemons)
        self._daemons.append(Daemon(kind, self._directory / f"{name}-{number}", host, *arguments))
        return self._daemons[-1]

    def start_worker(self) -> Daemon:
        resources = ["--cores", str(WORKER_CORES), "--memory", "4g", "--work-dir", str(self._directory / "work")]
        # Each on a host of its own, as Spark sees it: it runs no second attempt of a task on the host of the first.
        host = f"127.0.0.{len(self._daemons) + 1}"
        self._workers.append(self._start("worker", "worker.Worker", host, *resources, self.url))
        return self._workers[-1]

    def executors(self) -> list[int]:
        return [
            pid
            for worker in self._workers
            for pid, command in children(worker.process.pid)
            if "CoarseGrainedExecutorBackend" in command
        ]

    def kill_executors(self) -> None:
        """kill -9 of all that there are; of one at least."""
        for pid in wait_until(self.executors, "an executor", START_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def replace_worker(self) -> None:
        """kill -9 of the oldest worker, whose executors end with it; another one begins."""
        self._workers.pop(0).kill()
        self.start_worker()


class Stops:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory

    def want(self, phase: str) -> None:
        part = self.directory / "part"
        part.write_text(phase, encoding="utf-8")
        part.rename(self.directory / "stop-at")

    def is_reached(self) -> bool:
        return (self.directory / "reached").exists()

    def go_on(self) -> None:
        (self.directory / "reached").unlink()

    def give_up(self) -> None:
        for name in ("stop-at", "reached"):
            (self.directory / name).unlink(missing_ok=True)


def reach(directory: str, phase: str) -> None:
    """For a job in Python: see the module."""
    wanted, reached = Path(directory, "stop-at"), Path(directory, "reached")
    try:
        if wanted.read_text(encoding="utf-8") != phase:
            return
        wanted.rename(reached)
    except FileNotFoundError:
        return
    while reached.exists():
        time.sleep(POLL_SECONDS)


def bare_submit(cluster: SparkCluster, job: Path, directory: Path, facts: Mapping[str, Any], conf: Mapping[str, str]) -> None:
    """Run a job to its end in a session that was told nothing of raftlake."""
    directory.mkdir(parents=True)
    settings = [f"spark.driver.extraJavaOptions=-Dderby.system.home={directory}", f"spark.cores.max={CORES}"]
    settings += [f"spark.executor.extraJavaOptions={options()}"]
    settings += [f"spark.sql.warehouse.dir={directory}/warehouse", "spark.executor.memory=600m", "spark.ui.enabled=false"]
    settings += [f"spark.executor.cores={EXECUTOR_CORES}", *(f"{name}={value}" for name, value in conf.items())]
    command = [str(spark_home() / "bin/spark-submit"), "--master", cluster.url]
    command += [part for setting in settings for part in ("--conf", setting)]
    done = subprocess.run(
        [*command, str(job), json.dumps(facts)],
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


class Driver(Group):
    """A driver under spark-submit, with the settings that `raftlake spark-conf` prints. Its job gets `facts` as JSON.

    `stops` is where its processes wait, or None. Spark keeps a query's provider, so drivers that never wait have the class too.
    """

    def __init__(
        self,
        job: Path,
        directory: Path,
        quorum: LocalQuorum,
        facts: Mapping[str, Any],
        *,
        master: str,
        conf: Mapping[str, str],
        hooks: Path,
        stops: Path | None,
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        printed = subprocess.run(
            [sys.executable, "-m", "raftlake", "spark-conf", "--bootstrap-server", quorum.bootstrap_servers],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        settings = dict(line.split("=", 1) for line in printed.stdout.splitlines())
        settings["spark.jars"] += f",{hooks}"
        if stops is not None:
            settings["spark.hadoop.raftlake.test.hooks"] = str(stops)
        settings |= {
            **HOOKS_CLASSES,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": str(EXECUTOR_CORES),
            "spark.cores.max": str(CORES),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
            "spark.executor.extraJavaOptions": options(),
            **conf,
        }
        properties = directory / "raftlake.conf"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        submit = [str(spark_home() / "bin/spark-submit"), "--master", master, "--properties-file", str(properties), str(job)]
        told = json.dumps({**facts, "bootstrap": quorum.bootstrap_servers, "directory": str(directory)})
        self._output = directory / "output"
        super().__init__([*submit, told], directory, self._output)

    def output(self) -> str:
        return self._output.read_text(errors="replace")
