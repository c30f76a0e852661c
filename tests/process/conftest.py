"""What tests of several files here start, and what has to have ended after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tiernodekit import PATIENCE_SECONDS, Node, is_running
from waitkit import wait_until


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.tier.close()
        for worker in node.workers:
            wait_until(lambda pid=worker.pid: not is_running(pid), "a worker ended with its node", PATIENCE_SECONDS)
