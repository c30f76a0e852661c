"""The query of `foreachBatch` as Spark has it, without a JVM; `tests/connector_contract` has real ones."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import py4j.java_gateway
import pytest
from py4j.protocol import Py4JError

from pyspark_raftlake.active_query import ActiveQuery

QUERY = str(uuid.UUID(int=7))
STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter"


class Node:
    """Of a plan: a stateful operator where `committed` names those of its two partitions whose state is committed."""

    def __init__(self, *children: Node, committed: list[int] | None = None, output: int = 2) -> None:
        self._children = children
        self.committed = committed
        self.output = output

    def children(self) -> Any:
        return SimpleNamespace(size=lambda: len(self._children), apply=lambda index: self._children[index])

    def checkpointInfoAccumulator(self) -> Any:
        told = [SimpleNamespace(partitionId=lambda number=number: number) for number in self.committed or ()]
        return SimpleNamespace(value=lambda: SimpleNamespace(size=lambda: len(told), get=told.__getitem__))

    def outputPartitioning(self) -> Any:
        return SimpleNamespace(numPartitions=lambda: self.output)

    def stateInfo(self) -> Any:
        return SimpleNamespace(get=lambda: SimpleNamespace(numPartitions=lambda: 2))


class Rows:
    """The rows of a batch, and how often they were read to their end."""

    def __init__(self, version: str | None, plan: Node | Exception | None) -> None:
        self.reads: list[str] = []
        self.sparkSession = self._session(version, plan)
        self.write = self

    @staticmethod
    def _session(version: str | None, plan: Node | Exception | None) -> Any:
        def execution() -> Any:
            if isinstance(plan, Exception):
                raise plan
            return SimpleNamespace(executedPlan=lambda: plan)

        stream = SimpleNamespace(runId=lambda: uuid.UUID(int=9), lastExecution=execution)
        active = {} if plan is None else {QUERY: stream}
        names = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=str))))
        state = SimpleNamespace(activeStreamingQueries=lambda: active)
        return SimpleNamespace(
            conf=SimpleNamespace(get=lambda name: version if name.endswith("checkpointFormatVersion") else None),
            sparkContext=SimpleNamespace(_gateway=SimpleNamespace(jvm=names)),
            _jsparkSession=SimpleNamespace(sharedState=lambda: state),
        )

    def format(self, name: str) -> Rows:
        assert name == "noop"
        return self

    def mode(self, name: str) -> Rows:
        assert name == "append"
        return self

    def save(self) -> None:
        self.reads.append("read")


@pytest.fixture(autouse=True)
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_instance_of(_: Any, node: Node, name: str) -> bool:
        assert name == STATEFUL
        return node.committed is not None

    monkeypatch.setattr(py4j.java_gateway, "is_instance_of", is_instance_of)


@pytest.mark.parametrize(
    ("version", "plan", "reads"),
    [
        ("2", Node(committed=[]), 1),
        ("2", Node(committed=[1]), 1),
        ("2", Node(committed=[0, 1]), 0),
        # Two actions of the function: each has committed.
        ("2", Node(committed=[0, 1, 1, 0]), 0),
        # The first partition twice, as two looks whether there are rows.
        ("2", Node(committed=[0, 0]), 1),
        ("2", Node(Node(Node(committed=[0, 1])), Node(Node(committed=[1]))), 1),
        ("2", Node(Node(), committed=[0, 1]), 0),
        # Without keys there is one partition, wherever its rows come from.
        ("2", Node(committed=[0], output=1), 0),
        ("2", Node(committed=[], output=1), 1),
        ("2", Node(), 0),
        ("1", Node(committed=[]), 0),
        (None, Node(committed=[]), 0),
        ("2", None, 0),
        ("2", Py4JError("a method of another release"), 0),
    ],
)
def test_rows_are_read_where_their_state_is_not_committed(version: str | None, plan: Any, reads: int) -> None:
    rows: Any = Rows(version, plan)
    ActiveQuery(rows.sparkSession, QUERY).read_unread(rows)
    assert len(rows.reads) == reads


def test_the_run_is_told_while_the_query_is_active() -> None:
    assert ActiveQuery(Rows("2", Node()).sparkSession, QUERY).run() == str(uuid.UUID(int=9))
    assert ActiveQuery(Rows("2", None).sparkSession, QUERY).run() is None
