"""What tests of several files here start, and what has to have ended after them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tiernodekit import PATIENCE_SECONDS, Node, is_running
from waitkit import wait_until


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A shell that runs the tests in the background has them ignore SIGINT, and so would all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.tier.close()
        for worker in node.workers:
            wait_until(lambda pid=worker.pid: not is_running(pid), "a worker ended with its node", PATIENCE_SECONDS)
