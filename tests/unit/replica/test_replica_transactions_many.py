"""Very many open transactions: to begin one more, or to end one, takes the work that it takes among few.

Work is counted in lines of Python that a node of one runs, so that neither the machine nor its load counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from producerkit import TxnProducer
from raftlake.errors import ErrorCode
from replica_cluster import Cluster

FEW, MANY = 50, 1_000
MEASURED = 20
#: Keys and offsets have more digits, and a command more bytes.
MORE_AT_MOST = 1.05


class Crowd:
    """Producers that each have one record in an open transaction."""

    def __init__(self) -> None:
        # The invariants of the simulator look at all that there is.
        self.cluster = Cluster(1, is_watched=False)
        (self.group,) = self.cluster.create_topic("t")
        self.producers: list[TxnProducer] = []

    def begin(self, count: int) -> None:
        for _ in range(count):
            producer = TxnProducer(self.cluster, f"tx-{len(self.producers)}", timeout_ms=900_000)
            assert producer.init() is producer.add(self.group) is producer.produce(self.group, b"v") is ErrorCode.NONE
            self.producers.append(producer)

    def end(self, count: int) -> None:
        for _ in range(count):
            producer = self.producers.pop()
            assert producer.end(False) is ErrorCode.NONE
            producer.settle("CompleteAbort")


def lines_of(work: Callable[[], None]) -> int:
    """A loop counts a line each time round, also within a comprehension."""
    count, before = 0, sys.gettrace()

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", ["begin", "end"])
def test_the_work_of_one_transaction_is_the_same_among_few_and_among_many(name: str) -> None:
    crowd = Crowd()
    found = []
    for standing in (FEW, MANY):
        crowd.begin(standing - len(crowd.producers))
        found.append(lines_of(lambda: getattr(crowd, name)(MEASURED)))
    among_few, among_many = found
    assert among_many <= MORE_AT_MOST * among_few


def test_the_measure_finds_a_search_through_all_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()
    index = crowd.cluster.leader().kv.state.transactions
    found = index.of

    def slow(producer_id: int) -> Any:
        for key in index.by_key:
            if index.by_key[key].producer_id == producer_id:
                return found(producer_id)
        return None

    monkeypatch.setattr(index, "of", slow)
    lines = []
    for standing in (FEW, 5 * FEW):
        crowd.begin(standing - len(crowd.producers))
        lines.append(lines_of(lambda: crowd.begin(MEASURED)))
    assert lines[1] > MORE_AT_MOST * lines[0]
