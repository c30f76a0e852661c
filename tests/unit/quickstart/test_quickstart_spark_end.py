"""The end of the quickstart's Spark session: the JVM ends, and py4j has no call under way that would print a traceback."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j import clientserver
from py4j.clientserver import ClientServer, FinalizerWorker, JavaParameters, PythonParameters
from pyspark import java_gateway

from raftlake.quickstart import spark as quickstart_spark
from raftlake.quickstart.spark import spark_session
from raftlake.quickstart.stop import Stop

#: A socket that is closed with this resets its connection, as a JVM does that ends with a command unread.
RESET = struct.pack("ii", 1, 0)


class Jvm:
    """The JVM's side of py4j: answers every command, and after its end resets the connection instead. Also its own process."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.has_ended = False
        self.after_its_end: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        self.is_asked = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            # A deletion has four lines: the command, its kind, the object, an end.
            while words := [lines.readline().decode().strip() for _ in range(4)]:
                if not words[0]:
                    return
                self.is_asked.set()
                self.answers.wait()
                if self.has_ended:
                    self.after_its_end.append(words[2])
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return
                connection.sendall(b"!yv\n")

    def terminate(self) -> None:
        self.has_ended = True
        self.answers.set()

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def close(self) -> None:
        self._listener.close()


class Session:
    """What `spark_session` needs of a session, with a real py4j client behind it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.sparkContext = SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client))
        self.drops_when_stopped = 0

    def stop(self) -> None:
        for number in range(self.drops_when_stopped):
            self.client.garbage_collect_object(f"o{number}")


class Builder:
    """`SparkSession.builder`: starts the JVM through pyspark's own `Popen`, as the real one does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self

    def getOrCreate(self) -> Session:
        vars(java_gateway)["Popen"](["java"])
        return self._session


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jvm]:
    made = Jvm()
    monkeypatch.setitem(vars(java_gateway), "Popen", lambda *_, **__: made)
    # py4j's thread looks for dropped objects once a second.
    monkeypatch.setattr(clientserver, "DEFAULT_WORKER_SLEEP_TIME", 0.001)
    yield made
    made.close()


@pytest.fixture
def session(jvm: Jvm, monkeypatch: pytest.MonkeyPatch) -> Session:
    gateway = ClientServer(
        java_parameters=JavaParameters(port=jvm.port), python_parameters=PythonParameters(port=0, eager_load=False)
    )
    made = Session(gateway._gateway_client)
    monkeypatch.setattr(quickstart_spark, "SparkSession", SimpleNamespace(builder=Builder(made)))
    return made


def workers(session: Session) -> list[FinalizerWorker]:
    """The threads that tell the JVM what this session dropped."""
    every = [thread for thread in threading.enumerate() if isinstance(thread, FinalizerWorker)]
    return [thread for thread in every if thread.deque is session.client.finalizer_deque]


def drain(session: Session) -> None:
    """Return when py4j has told, or given up, all that was dropped so far."""
    told = threading.Event()
    if workers(session):
        session.client.finalizer_deque.appendleft((SimpleNamespace(garbage_collect_object=lambda *_: told.set()), "last"))
        assert told.wait(20)


def test_what_python_drops_after_the_jvm_has_ended_is_not_told_to_it(
    jvm: Jvm, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with spark_session(tmp_path, Stop()):
        session.client.garbage_collect_object("o-early")
        drain(session)
        assert jvm.is_asked.is_set()
        session.drops_when_stopped = 50
    assert jvm.has_ended
    session.client.garbage_collect_object("o-late")
    drain(session)
    assert jvm.after_its_end == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_jvm_does_not_end_under_a_call(
    jvm: Jvm, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join(worker: threading.Thread, timeout: float | None = None) -> None:
        jvm.answers.set()
        threading.Thread.join(worker, timeout)

    monkeypatch.setattr(FinalizerWorker, "join", join)
    with spark_session(tmp_path, Stop()):
        jvm.answers.clear()
        session.client.garbage_collect_object("o-under-way")
        assert jvm.is_asked.wait(20)
    assert jvm.has_ended and jvm.after_its_end == []
    assert workers(session) == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_session_that_cannot_be_stopped_is_disconnected_all_the_same(
    jvm: Jvm, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ConnectionError("the JVM is gone")

    monkeypatch.setattr(session, "stop", fail)
    with pytest.raises(ConnectionError), spark_session(tmp_path, Stop()):
        pass
    assert jvm.has_ended and not session.client.is_connected and workers(session) == []
