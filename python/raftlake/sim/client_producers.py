"""Clients that write to the topic: one creates it, the others append batches of unique records.

An idempotent producer repeats a batch until it is acknowledged, and now and then one that was acknowledged long ago; a plain
one sends each batch once and lives with an unknown outcome. What is acknowledged or refused goes to the oracle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.producer_state import BATCHES_KEPT
from raftlake.sim.client_base import CALL_TIMEOUT_MS, TOPIC, Client, Shared
from raftlake.sim.client_calls import CallFailure
from raftlake.sim.client_messages import (
    ask_create_topic,
    ask_produce,
    ask_producer_id,
    created_topic_id,
    produced,
    producer_id_of,
)
from raftlake.sim.clock import US_PER_MS, WALL_START_MS
from raftlake.sim.oracle import Append
from raftlake.wire.batches import Record, build_batch

#: So often an idempotent producer says again what it has said.
REPEATS_ONE_IN = 8
#: What a partition says that knows of a gap, or does not know the producer (`producer_state`).
_SEQUENCE_LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.LEADER_NOT_AVAILABLE)


class Creator(Client):
    """Creates the topic, then is done."""

    def step(self) -> None:
        ask = ask_create_topic(TOPIC, self.shared.settings.partitions)
        self.shared.calls.call(self.any_node(), ask, self._on_answer, CALL_TIMEOUT_MS)

    def _on_answer(self, answer: Any) -> None:
        topic_id = None if isinstance(answer, CallFailure) else created_topic_id(answer)
        if topic_id is None:
            self._look()
        else:
            self._found(topic_id)

    def _look(self) -> None:
        """It may exist all the same: an earlier attempt was unknown."""

        def ask(node: ReplicaNode, reply: Any) -> None:
            topic = node.topics.get(TOPIC)
            reply(None if topic is None else topic.topic_id)

        self.shared.calls.call(self.any_node(), ask, self._on_look, CALL_TIMEOUT_MS)

    def _on_look(self, answer: Any) -> None:
        if isinstance(answer, bytes):
            self._found(answer)
        else:
            self.give_up()

    def _found(self, topic_id: bytes) -> None:
        assert self.shared.topic_id in (None, topic_id)
        self.say(f"topic {TOPIC} exists")
        self.shared.topic_id = topic_id
        self.completed += 1
        self.is_idle = self.is_done = True


class Producer(Client):
    """Appends to one partition, batch after batch."""

    def __init__(self, shared: Shared, name: str, partition: int, *, idempotent: bool) -> None:
        super().__init__(shared, name)
        self._partition = partition
        self._idempotent = idempotent
        self._producer_id = -1
        self._sequence = 0
        self._append: Append | None = None
        self._leader: NodeId | None = None
        #: The last batches that were acknowledged, each with its offset: as many as every node remembers.
        self._acknowledged: deque[tuple[Append, int]] = deque(maxlen=BATCHES_KEPT)

    def step(self) -> None:
        if self.shared.topic_id is None:
            self.give_up()
        elif self._append is None and self._acknowledged and self.rng.randrange(REPEATS_ONE_IN) == 0:
            self._repeat()
        elif self._idempotent and self._producer_id < 0:
            self.shared.calls.call(self.any_node(), ask_producer_id(), self._on_producer_id, CALL_TIMEOUT_MS)
        else:
            self._send()

    def _on_producer_id(self, answer: Any) -> None:
        if not isinstance(answer, CallFailure):
            self._producer_id = producer_id_of(answer)
        if self._producer_id < 0:
            self.give_up()
        else:
            self._send()

    def _send(self) -> None:
        append = self._append
        if append is None:
            values = tuple(f"{self.name}-{self._sequence + index}".encode() for index in range(self.rng.randrange(1, 4)))
            append = self.shared.oracle.append_sent(
                self._partition, self.name, self._sequence, values, keeps_order=self._idempotent
            )
            self._append = append
            self._sequence += len(values)
        self._ask(append, self._on_answer)

    def _ask(self, append: Append, done: Callable[[Any], None]) -> None:
        records = [Record(value=value) for value in append.values]
        batch = build_batch(
            records,
            timestamp_ms=WALL_START_MS + self.shared.scheduler.now_us // US_PER_MS,
            producer_id=self._producer_id,
            producer_epoch=0 if self._idempotent else -1,
            base_sequence=append.sequence if self._idempotent else -1,
        )
        self._node_id = self.any_node() if self._leader is None else self._leader
        ask = ask_produce(TOPIC, self._partition, batch, CALL_TIMEOUT_MS)
        self.shared.calls.call(self._node_id, ask, done, CALL_TIMEOUT_MS)

    def _repeat(self) -> None:
        """As if the answer had been lost: one of the last batches comes once more, however long ago that was."""
        append, base_offset = self._acknowledged[self.rng.randrange(len(self._acknowledged))]
        self._ask(append, lambda answer: self._on_repeated(append, base_offset, answer))

    def _on_repeated(self, append: Append, base_offset: int, answer: Any) -> None:
        if isinstance(answer, CallFailure):
            self._leader = None
            self.give_up()
            return
        result = produced(answer, self._node_id)
        self._leader = result.leader_id
        if result.error is ErrorCode.NONE or result.error in _SEQUENCE_LOST:
            self.shared.oracle.append_repeated(append, base_offset, result.base_offset, result.error.name)
            self.succeed()
        else:
            self.give_up()

    def _on_answer(self, answer: Any) -> None:
        append = self._append
        assert append is not None
        if isinstance(answer, CallFailure):
            self._leader = None
            self._on_unknown(refused=answer is CallFailure.REFUSED)
            return
        result = produced(answer, self._node_id)
        self._leader = result.leader_id
        if result.error is ErrorCode.NONE:
            self.say(f"append {append.values[0].decode()} x{len(append.values)} at {self._partition}:{result.base_offset}")
            self.shared.oracle.append_acknowledged(append, result.base_offset)
            if self._idempotent:
                self._acknowledged.append((append, result.base_offset))
            self._append = None
            self.succeed()
        elif result.error in _SEQUENCE_LOST and self._idempotent:
            # One batch is under way at a time, and none is given up: the log must know the one before it.
            raise AssertionError(f"{self.name}: {append} is answered {result.error.name}")
        else:
            self._on_unknown(refused=result.is_refusal)

    def _on_unknown(self, *, refused: bool) -> None:
        """An idempotent producer repeats the batch; a plain one leaves it."""
        if not self._idempotent:
            assert self._append is not None
            if refused:
                self.shared.oracle.append_refused(self._append)
            self._append = None
        self.give_up()
