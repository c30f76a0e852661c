"""What a command that waits says of a quorum without a leader."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from raftlake.cli.leader import LeaderWatch, look, why_nobody_leads
from raftlake.replica.config import Endpoint
from raftlake.runtime.recovery import probe
from raftlake.runtime.recovery.probe import Answer
from raftlake.wire.api import ApiKey

ONE, TWO, THREE = (Endpoint("h", port) for port in (1, 2, 3))
NODES = {1: ONE, 2: TWO, 3: THREE}


def knows(leader_id: int) -> Answer:
    return Answer("c", leader_id, NODES)


def test_a_leader_that_says_so_itself_is_one() -> None:
    assert why_nobody_leads({ONE: knows(2), TWO: knows(2), THREE: None}, NODES) is None


def test_a_leader_that_does_not_answer_is_none() -> None:
    """A node that has lost its leader goes on naming it until it has heard of another."""
    text = why_nobody_leads({ONE: None, TWO: None, THREE: knows(1)}, NODES)
    assert text is not None
    assert text.startswith(
        "no node leads the quorum (answered: node 3 (h:3); no answer: node 1 (h:1), node 2 (h:2)). Changes and linearizable"
    )
    assert text.endswith("raftlake recover --help")


def test_a_leader_that_no_longer_takes_itself_for_one_is_none() -> None:
    text = why_nobody_leads({ONE: knows(2), TWO: knows(-1), THREE: knows(2)}, NODES)
    assert text is not None and "no answer" not in text


def test_a_leader_whose_address_nobody_tells_is_believed_in() -> None:
    assert why_nobody_leads({ONE: Answer("c", 9, {1: ONE})}, {1: ONE}) is None


def test_where_nobody_answers_the_command_says_so_by_itself() -> None:
    assert why_nobody_leads({ONE: None, TWO: None}, {}) is None


def test_a_node_that_is_known_by_its_address_alone_is_named_by_it() -> None:
    text = why_nobody_leads({Endpoint("gate", 9): Answer("c", -1, {1: ONE}), ONE: None}, {1: ONE})
    assert text is not None and "(answered: gate:9; no answer: node 1 (h:1))" in text


@pytest.fixture
def leaderless() -> Iterator[Endpoint]:
    """A node that answers, knows no leader, and names another node beside itself, where nobody is."""
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nowhere = unused.getsockname()[1]
    here = server.getsockname()[1]
    stopping = threading.Event()

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    def serve() -> None:
        while not stopping.is_set():
            connection, _ = server.accept()
            with connection:
                while request := connection.recv(100):
                    body = b"\0\0"
                    if request[5] == 3:
                        nodes = [(1, here), (2, nowhere)]
                        body = struct.pack(">i", len(nodes))
                        for node_id, port in nodes:
                            body += struct.pack(">i", node_id) + text("127.0.0.1") + struct.pack(">ih", port, -1)
                        body += text("c") + struct.pack(">ii", -1, 0)
                    connection.sendall(struct.pack(">i", 4 + len(body)) + request[8:12] + body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Endpoint("127.0.0.1", here)
    stopping.set()
    socket.create_connection(("127.0.0.1", here)).close()
    thread.join()
    server.close()


def test_the_nodes_that_are_named_are_asked_too(leaderless: Endpoint) -> None:
    answers, nodes = look([leaderless])
    assert nodes[1] == leaderless and answers[nodes[1]] == Answer("c", -1, nodes)
    assert answers[nodes[2]] is None


@pytest.mark.parametrize(("served", "is_told"), [({ApiKey.API_VERSIONS}, False), ({ApiKey.METADATA}, True), (None, True)])
def test_a_listener_for_peers_is_no_reason_to_think_that_nobody_leads(
    monkeypatch: pytest.MonkeyPatch, served: set[int] | None, is_told: bool
) -> None:
    """A healthy quorum was said to have lost its majority, with the advice to recover one node alone."""
    monkeypatch.setattr(probe, "ask", lambda place, seconds: Answer())
    monkeypatch.setattr(probe, "served_apis", lambda place, seconds: served)
    assert (why_nobody_leads(*look([Endpoint("h", 1)])) is not None) == is_told


def test_who_waits_is_told_once(leaderless: Endpoint) -> None:
    told: list[str] = []
    heard = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        heard.set()

    with LeaderWatch(str(leaderless), tell, after_seconds=0):
        assert heard.wait(10)
    assert len(told) == 1 and "no answer: node 2" in told[0]


def test_who_does_not_wait_is_told_nothing(leaderless: Endpoint) -> None:
    told: list[str] = []
    with LeaderWatch(str(leaderless), told.append, after_seconds=60) as watch:
        pass
    watch._thread.join(10)
    assert not watch._thread.is_alive() and not told
