"""The file system and the logs of the jar on a real quorum: our own suites and Hadoop's contract tests, by JUnit's launcher.

`make test-jvm` runs the same suites on keys in memory, and those that need memory alone.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from raftlake import LocalQuorum

pytestmark = [pytest.mark.java, pytest.mark.process]

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "jvm_shim" / "build"
FETCHED = ROOT / ".cache" / "jvm-tests"
HADOOP = "io.raftlake.spark.hadoop"
OURS = {"files": "io.raftlake.spark.fs", "checkpoints": "io.raftlake.spark.checkpoint", "state": "io.raftlake.spark.state"}
#: Our own suites, in parts that take about a minute at most, Hadoop's, and Hadoop's with all content in blobs.
WHICH = {
    **{part: [f"--include-package={package}"] for part, package in OURS.items()},
    "logs": [f"--exclude-package={package}" for package in (*OURS.values(), HADOOP)],
    "hadoop": [f"--include-package={HADOOP}", "--exclude-classname=.*HadoopBlobsTest.*"],
    "hadoop-blobs": ["--include-classname=.*HadoopBlobsTest.[A-Z].*"],
}
LAUNCHER = "org.junit.platform.console.ConsoleLauncher"


@pytest.mark.parametrize("whose", WHICH)
def test_the_contracts_of_files_and_logs_hold_on_a_quorum(quorum: LocalQuorum, whose: str) -> None:
    import pyspark

    from raftlake import Client

    classes = BUILD / "classes" / "java" / "test"
    assert (FETCHED / "complete").exists() and classes.is_dir(), "run `make test-java`: it fetches and compiles"
    places = [classes, BUILD / "classes" / "java" / "main", BUILD / "resources" / "test", BUILD / "resources" / "main"]
    path = [*map(str, places), f"{FETCHED}/*", f"{Path(pyspark.__file__).parent / 'jars'}/*"]
    where = [f"-Draftlake.test.servers={quorum.http_servers}", f"-Draftlake.test.bootstrap={quorum.bootstrap_servers}"]
    command = ["java", f"@{ROOT}/jvm_shim/src/test/jvm.options", *where, "-cp", ":".join(path), LAUNCHER]
    asked = ["execute", f"--scan-classpath={classes}", *WHICH[whose], "--exclude-tag=memory", "--details=summary"]
    asked.append("--fail-if-no-tests")
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    # It was the quorum that held the files, the large ones too. Hadoop's suites delete theirs.
    with Client(quorum.bootstrap_servers) as client:
        assert whose != "files" or client.kv.list("/fs/test-").entries
        assert whose not in ("files", "hadoop-blobs") or sum(client.read_offset("__raftlake-blobs", range(6)).values()) > 60


def test_the_quorum_tells_its_http_fronts(quorum: LocalQuorum) -> None:
    from pyspark_raftlake.jvm import http_servers

    assert set(http_servers(quorum.bootstrap_servers).split(",")) == set(quorum.http_servers.split(","))
