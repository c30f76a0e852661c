"""A client that deletes old records (DeleteRecords), and reads at the node that said so what must not be there any more.

Asks any node; most lead nothing. An offset may lie amid a batch, at the high watermark or above it. Promises: a node that has
answered shows nothing below, and in the end no node does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared, Target
from raftlake.sim.clients.messages import REFUSED, ask_delete_records, ask_fetch, consumed, deleted_below
from raftlake.sim.invariants.base import Violation

STAYS_DELETED = "deleted records are not shown again"


class Deleter(Client):
    def __init__(self, shared: Shared, name: str, target: Target | None = None) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        #: Below which records are deleted, as it was answered; and what each node said, by its incarnation.
        self.starts: dict[int, int] = {}
        self._said: dict[tuple[NodeId, int, int], int] = {}

    def step(self) -> None:
        shared = self.shared
        target = self._target
        if target.topic_id is None:
            self.give_up()
            return
        partition, self._node_id = self.rng.randrange(target.partitions), self.any_node()
        said = self._said.get((self._node_id, shared.calls.incarnation(self._node_id), partition), 0)
        if said and self.rng.randrange(2):
            self._look_below(partition, self.rng.randrange(said))
            return
        end = target.oracle.floor(partition)
        offset = -1 if self.rng.randrange(6) == 0 else self.rng.randrange(end + 2)
        delete = ask_delete_records(target.topic, partition, offset)

        def ask(node: ReplicaNode, reply: Any) -> None:
            delete(node, lambda answer: reply(self._answered(node.config.node_id, partition, answer)))

        shared.calls.call(self._node_id, ask, lambda start: self._on_deleted(partition, offset, start), CALL_TIMEOUT_MS)

    def _answered(self, node_id: NodeId, partition: int, answer: Any) -> int | None:
        """Runs on the node: from now on it shows nothing below."""
        start = deleted_below(answer)
        if start is not None and start != REFUSED:
            key = node_id, self.shared.calls.incarnation(node_id), partition
            self._said[key] = max(self._said.get(key, 0), start)
        return start

    def _on_deleted(self, partition: int, offset: int, start: Any) -> None:
        if not isinstance(start, int):
            self.give_up()
            return
        if start == REFUSED:
            # A topic that is only compacted keeps its records.
            self.succeed()
            return
        if start < offset:
            raise Violation("what was asked for is deleted", f"partition {partition}: asked for {offset}, begins at {start}")
        # Beyond what was asked for, retention of the node that answered may have begun it.
        deleted = start if offset < 0 else offset
        self.starts[partition] = max(self.starts.get(partition, 0), deleted)
        self.shared.operations.coverage.note("records deleted")
        self.say(f"deleted {partition}:{start}")
        self.succeed()

    def _look_below(self, partition: int, position: int) -> None:
        fetch = ask_fetch(self._target.topic, partition, position)

        def judge(node: ReplicaNode, answer: Any) -> bool:
            result = consumed(answer, position)
            shown = result is not None and result.error is ErrorCode.NONE
            key = node.config.node_id, self.shared.calls.incarnation(node.config.node_id), partition
            if shown and position < self._said.get(key, 0):
                raise Violation(STAYS_DELETED, f"node {node.config.node_id}: partition {partition} shows {position}")
            return result is not None

        def ask(node: ReplicaNode, reply: Any) -> None:
            fetch(node, lambda answer: reply(judge(node, answer)))

        def on_answer(answer: Any) -> None:
            if answer is True:
                self.succeed()
            else:
                self.give_up()

        self.shared.calls.call(self._node_id, ask, on_answer, CALL_TIMEOUT_MS)

    def check(self, nodes: Iterable[ReplicaNode]) -> None:
        """At the end every node knows."""
        for node in nodes:
            for index, start in self.starts.items():
                group: GroupId = self._target.group(index)
                shown = node.remote_log.start_offset(node.partitions[group])
                if shown < start:
                    detail = f"node {node.config.node_id}: {group} begins at {shown}, and {start} was answered"
                    raise Violation(STAYS_DELETED, detail)
