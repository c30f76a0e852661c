"""When the node's turns and timers run on the loop, and what stops it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from raftlake.errors import InvariantViolation, RaftlakeError, StorageError
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.driver import Driver
from raftlake.wire import find_quorum
from raftlake.wire.api import ApiKey
from runtime_fakes import FakeNode, connect, run, served, settle, until


class TurningNode:
    """Counts its turns; its deadline and its fate are the test's."""

    def __init__(self) -> None:
        self.turns = 0
        self.deadlines = 0
        self.deadline_ms: int | None = None
        self.fatal: RaftlakeError | None = None
        self.in_turn: Callable[[], None] = lambda: None

    def run_turn(self) -> None:
        self.turns += 1
        self.in_turn()

    def on_deadline(self) -> None:
        self.deadlines += 1
        self.deadline_ms = None

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms


def driven(test: Callable[[Driver, Any, list[RaftlakeError]], Any]) -> None:
    async def main() -> None:
        stopped: list[RaftlakeError] = []
        driver = Driver(asyncio.get_running_loop(), SystemClock(), stopped.append)
        node = TurningNode()
        driver.attach(node)  # type: ignore[arg-type]
        await test(driver, node, stopped)
        driver.stop()

    run(main())


def test_many_requests_are_one_turn() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        for _ in range(5):
            driver.request_turn()
        assert node.turns == 0
        await settle()
        assert node.turns == 1
        driver.request_turn()
        await settle()
        assert node.turns == 2

    driven(test)


def test_a_turn_may_ask_for_the_next_one() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        node.in_turn = lambda: driver.request_turn() if node.turns < 3 else None
        driver.request_turn()
        await until(lambda: node.turns == 3)

    driven(test)


def test_the_timer_follows_the_nodes_deadline() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        clock = SystemClock()
        node.deadline_ms = clock.now_ms() + 600_000
        driver.request_turn()
        await until(lambda: node.turns == 1)
        node.deadline_ms = started = clock.now_ms() + 5
        driver.request_turn()
        await until(lambda: node.deadlines == 1)
        assert clock.now_ms() >= started - 1
        # A deadline that has passed already fires at once.
        node.deadline_ms = clock.now_ms() - 50
        driver.request_turn()
        await until(lambda: node.deadlines == 2)
        assert stopped == []

    driven(test)


def test_a_fatal_error_of_the_node_stops_everything_once() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        error = StorageError("the disk")

        def fail() -> None:
            node.fatal = error

        node.in_turn = fail
        driver.request_turn()
        await until(lambda: bool(stopped))
        driver.fail(InvariantViolation("later"))
        driver.request_turn()
        await settle()
        assert stopped == [error]
        assert node.turns == 1

    driven(test)


def test_what_nobody_caught_in_the_driver_stops_the_node(caplog: pytest.LogCaptureFixture) -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        def fail() -> None:
            raise KeyError("impossible")

        node.in_turn = fail
        driver.request_turn()
        await until(lambda: bool(stopped))
        (error,) = stopped
        assert isinstance(error, InvariantViolation) and "KeyError: 'impossible'" in str(error)

    with caplog.at_level(logging.ERROR):
        driven(test)
    assert "impossible" in caplog.text


def too_many() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_connection_that_cannot_be_accepted_stops_nothing_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio says so up to a hundred times a second."""

    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        for _ in range(300):
            context = {"message": "socket.accept() out of system resource", "exception": too_many(), "socket": object()}
            asyncio.get_running_loop().call_exception_handler(context)
        await settle()
        assert stopped == []

    with caplog.at_level(logging.INFO):
        driven(test)
    (told,) = caplog.messages
    assert "ulimit -n" in told and all(record.exc_info is None for record in caplog.records)


def test_a_turn_without_a_descriptor_stops_the_node_and_says_what_to_raise() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        def fail() -> None:
            raise too_many()

        node.in_turn = fail
        driver.request_turn()
        await until(lambda: bool(stopped))
        assert "Too many open files" in str(stopped[0]) and "ulimit -n" in str(stopped[0])

    driven(test)


def test_another_error_of_a_listening_socket_stops_the_node() -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        context = {"message": "broken", "exception": OSError(errno.EBADF, "closed"), "socket": object()}
        asyncio.get_running_loop().call_exception_handler(context)
        await until(lambda: bool(stopped))
        assert "ulimit" not in str(stopped[0])

    driven(test)


def test_a_lost_task_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        async def lost() -> None:
            raise ValueError("unseen")

        task = asyncio.ensure_future(lost())
        await settle()
        assert task.done()
        del task
        await settle()
        assert stopped == []

    with caplog.at_level(logging.ERROR):
        driven(test)
    assert "unseen" in caplog.text


def test_what_a_connection_from_outside_breaks_costs_that_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even a bug below the handlers, in reading itself, is no way to stop a node."""

    async def test(driver: Driver, node: TurningNode, stopped: list[RaftlakeError]) -> None:
        async with served(FakeNode()) as on:
            wire = await connect(on.address)
            with monkeypatch.context() as patch:
                patch.setattr("raftlake.runtime.listener.connection.decode_request", lambda frame: 1 // 0)
                wire.send(ApiKey.FIND_QUORUM, 0, find_quorum.FindQuorumRequest(None, []))
                assert await wire.is_closed()
            assert stopped == []
            wire.close()

    with caplog.at_level(logging.ERROR):
        driven(test)
    assert "ZeroDivisionError" in caplog.text
