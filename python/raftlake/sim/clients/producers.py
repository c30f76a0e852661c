"""Clients that write to the topic in the plainest way: one creates it, others append batches of unique records.

What is acknowledged or refused goes to the oracle. Producers that repeat what they have sent are in `clients.idempotent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared, Target, wall_ms
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.messages import ask_produce, created_topic_id, produced
from raftlake.sim.clients.topics import create_topic
from raftlake.sim.oracle import Append
from raftlake.wire.batches import build_batch


class Creator(Client):
    """Creates a topic, then is done."""

    def __init__(
        self, shared: Shared, name: str, target: Target | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        self._configs = configs

    def step(self) -> None:
        create_topic(self, self._target.topic, self._target.partitions, self._on_answer, self._configs)

    def _on_answer(self, answer: Any) -> None:
        topic_id = None if isinstance(answer, CallFailure) else created_topic_id(answer)
        if topic_id is None:
            self._look()
        else:
            self._found(topic_id)

    def _look(self) -> None:
        """It may exist all the same: an earlier attempt was unknown."""

        def ask(node: ReplicaNode, reply: Any) -> None:
            topic = node.names.topic(self._target.topic)
            reply(None if topic is None else topic.topic_id)

        self.shared.calls.call(self.any_node(), ask, self._on_look, CALL_TIMEOUT_MS)

    def _on_look(self, answer: Any) -> None:
        if isinstance(answer, bytes):
            self._found(answer)
        else:
            self.give_up()

    def _found(self, topic_id: bytes) -> None:
        assert self._target.topic_id in (None, topic_id)
        self.say(f"topic {self._target.topic} exists")
        self._target.topic_id = topic_id
        self.completed += 1
        self.is_idle = self.is_done = True


class Producer(Client):
    """A plain one: it sends each batch once, and lives with an unknown outcome."""

    def __init__(self, shared: Shared, name: str, partition: int, target: Target | None = None) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        self._partition = partition
        self._sequence = 0
        self._leader: NodeId | None = None

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
            return
        values = tuple(f"{self.name}-{self._sequence + index}".encode() for index in range(self.rng.randrange(1, 4)))
        append = self._target.oracle.append_sent(self._partition, self.name, self._sequence, values, keeps_order=False)
        self._sequence += len(values)
        self._node_id = self.any_node() if self._leader is None else self._leader
        records = [self._target.record(value) for value in values]
        batch = build_batch(records, timestamp_ms=wall_ms(self.shared), compression=self._target.compression(values[0]))
        ask = ask_produce(self._target.topic, self._partition, batch, CALL_TIMEOUT_MS)
        self.shared.calls.call(self._node_id, ask, lambda answer: self._on_answer(append, answer), CALL_TIMEOUT_MS)

    def _on_answer(self, append: Append, answer: Any) -> None:
        if isinstance(answer, CallFailure):
            self._leader = None
            is_refused = answer is CallFailure.REFUSED
        else:
            result = produced(answer, self._node_id)
            self._leader = result.leader_id
            if result.error is ErrorCode.NONE:
                self.say(f"append {append.values[0].decode()} x{len(append.values)} at {self._partition}:{result.base_offset}")
                self._target.oracle.append_acknowledged(append, result.base_offset)
                self.succeed()
                return
            is_refused = result.is_refusal
        if is_refused:
            self._target.oracle.append_refused(append)
        self.give_up()
