"""One node of three that is started alone after all were stopped: it cannot know what there is, and denies nothing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from pyspark_raftlake.writer import count_partitions
from raftlake import Client, LocalQuorum
from raftlake.client import NoReachableNode
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.local import LocalNode
from waitkit import attempt, wait_until

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 30


def raftlake(node: LocalNode, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *words, "--bootstrap-server", node.address, "--timeout-ms", "4000"]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def require_told(node: LocalNode, words: tuple[str, ...]) -> None:
    """What a command says of a node that nobody leads, whole: the longer word comes after three seconds, and on a busy machine
    only when the command is over."""

    def told() -> bool:
        done = raftlake(node, *words)
        assert (done.returncode, done.stdout) == (1, ""), done.stdout
        assert "does not exist" not in done.stderr
        # Who answers, and what to do.
        wanted = ["LEADER_NOT_AVAILABLE: no node that answers hears of a leader", "no node leads the quorum (answered: node 2"]
        if words[0] == "voters":
            wanted = ["nothing was changed: a leader changes the voters"]
        return all(text in done.stderr for text in wanted)

    attempt(told, f"the whole word of {words}")


def refusal(ask: Callable[[], object]) -> ErrorCode | None:
    """Why the node refuses to say; None when it did not come to answer in time."""
    try:
        ask()
    except RequestRejected as rejected:
        return rejected.code
    except NoReachableNode:
        return None
    raise AssertionError("it was answered")


@contextlib.contextmanager
def served(node: LocalNode) -> Iterator[None]:
    """The node by itself; who waits until it is ready waits for ever."""
    command = [sys.executable, "-m", "raftlake", "serve", "--config", str(node.properties)]
    with (node.directory / "alone.out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def is_up() -> bool:
        assert process.poll() is None, (node.directory / "alone.out").read_text()
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{node.http_address}/health/live", trust_env=False).status_code == 200
        return False

    try:
        wait_until(is_up, f"{node.directory} is served", PATIENCE_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_a_node_that_is_started_alone_denies_nothing_and_says_that_nobody_leads(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum:
        node = quorum.nodes[2]
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("t", 2)
            client.kv.put("k", b"v")
    with served(node):
        commands = (("topics", "list"), ("topics", "describe", "t"), ("consume", "t"), ("voters", "remove", "3"))
        with ThreadPoolExecutor(len(commands)) as threads:
            list(threads.map(partial(require_told, node), commands))
        with Client(node.address, request_timeout_ms=1500) as client:
            for ask in (lambda: client.partitions("t"), client.topics, lambda: count_partitions(client, "t")):
                code = attempt(partial(refusal, ask), "an answer of the node in time")
                assert code is ErrorCode.LEADER_NOT_AVAILABLE
        # As others see it: an error of the topic that passes, and no topic that is denied.
        topic = AdminClient({"bootstrap.servers": node.address}).list_topics("t", timeout=PATIENCE_SECONDS).topics["t"]
        assert topic.error is not None and topic.error.code() == ErrorCode.LEADER_NOT_AVAILABLE
        written = httpx.put(f"http://{node.http_address}/v1/kv/k", content=b"w", trust_env=False, timeout=PATIENCE_SECONDS)
        assert (written.status_code, written.headers["retry-after"]) == (503, "1")
    # A denial does not take the whole time of the request, in which the run would end this test.
    patient = {"request_timeout_ms": 3_600_000}
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.nodes[2].address, **patient) as client:
        assert [topic.name for topic in client.topics()] == ["t"]
        with pytest.raises(RequestRejected, match="does not exist"):
            client.describe_topic("u")
