"""What every test may use: Hypothesis settings, one shared quorum of node processes, one Spark session, Kafka's Java tools.

The quorum is started once per session and shared: a test makes topics of its own (`new_topic`) and leaves the nodes
running. Tests that kill nodes start a quorum of their own.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from sparkfixtures import spark

if TYPE_CHECKING:
    from mixedkit import MixedQuorum
    from raftlake import LocalQuorum

__all__ = ["spark"]
ROOT = Path(__file__).resolve().parent.parent
KAFKA_JARS = ROOT / ".cache" / "kafka-4.3.1"

# No deadline: two busy cores make any wall-clock limit per example flaky. No database: a run leaves nothing behind.
hypothesis.settings.register_profile("raftlake", deadline=None, database=None, print_blob=True)
# One failing example is enough to find a planted bug. Making it small takes longer than finding it.
hypothesis.settings.register_profile(
    "planted bug", hypothesis.settings.get_profile("raftlake"), phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
hypothesis.settings.load_profile("planted bug" if "RAFTLAKE_MUTANT" in os.environ else "raftlake")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """A failure may need the order of its run; `pytest -q` does not show the header that names it."""
    seed = config.getoption("randomly_seed", None)
    if exitstatus == pytest.ExitCode.TESTS_FAILED and isinstance(seed, int):
        terminalreporter.write_line(f"the same order again: pytest --randomly-seed={seed}")


# Child processes (nodes, Spark's Python workers) find the packages of this tree even when raftlake is not installed.
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys(
        [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(ROOT / "python"), str(ROOT / "connector")]
    )
).rstrip(os.pathsep)


@pytest.fixture(scope="session")
def quorum_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the shared quorum: node-1, node-2, node-3."""
    return tmp_path_factory.mktemp("quorum")


@pytest.fixture(scope="session")
def quorum(quorum_dir: Path) -> Iterator[LocalQuorum]:
    """Three nodes, each a process of its own, shared by the whole session."""
    from raftlake import LocalQuorum

    with LocalQuorum(nodes=3, data_dir=quorum_dir) as started:
        yield started


@pytest.fixture
def signals_arrive() -> Iterator[None]:
    """Processes that the test starts do not ignore SIGHUP and SIGINT, although the whole run may (nohup, a shell's `&`)."""
    # A handler of this process is the default action of the programs that it starts.
    wanted = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {signum: signal.signal(signum, action) for signum, action in wanted.items()}
    yield
    for signum, action in before.items():
        signal.signal(signum, action)


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{number}" for number in itertools.count(1))


@pytest.fixture
def new_topic(quorum: LocalQuorum, topic_names: Iterator[str]) -> Callable[..., str]:
    """`new_topic(partitions=1) -> name`: creates a topic that no other test uses, through an ordinary Kafka client."""
    from confluent_kafka.admin import AdminClient

    from librdkit import create_topic

    admin = AdminClient({"bootstrap.servers": quorum.bootstrap_servers})

    def create(partitions: int = 1) -> str:
        name = next(topic_names)
        create_topic(admin, name, partitions)
        return name

    return create


@pytest.fixture(scope="session")
def kafka_tool() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`kafka_tool(main_class, *arguments, stdin=None)`: runs one of Kafka's own command-line tools and returns its output."""
    assert (KAFKA_JARS / "complete").exists(), "run tools/fetch-kafka first (make test-java does)"

    def run(main_class: str, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_JARS}/*", main_class, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, (
            f"{main_class} {arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    return run


@pytest.fixture
def new_quorum(tmp_path: Path) -> Iterator[Callable[..., MixedQuorum]]:
    """`new_quorum(java=(1,), ours=(2, 3), **options)`: a quorum of both kinds of nodes, none of them started (see mixedkit)."""
    from mixedkit import MixedQuorum

    made: list[MixedQuorum] = []

    def make(**options: Any) -> MixedQuorum:
        made.append(MixedQuorum(tmp_path / f"quorum-{len(made)}", KAFKA_JARS, **options))
        return made[-1]

    yield make
    for quorum in made:
        quorum.close()
