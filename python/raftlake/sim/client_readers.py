"""Clients that read the topic: linearizable reads at any node, consuming there, and listing the latest offset.

What an answer shows is judged on the node, in the order in which it is shown; what it promises, where it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports import PeerConnection, ReadOffsetReply, ReadOffsetRpc
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.client_base import CALL_TIMEOUT_MS, TOPIC, Client, Shared
from raftlake.sim.client_calls import CallFailure
from raftlake.sim.client_messages import Consumed, ask_fetch, ask_latest_offset, consumed, latest_offset
from raftlake.sim.clock import US_PER_MS


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a reader's fetch was about."""

    node_id: NodeId
    incarnation: int
    partition: int
    position: int
    read_offset: int


class Reader(Client):
    """Asks any node for a proven offset of a partition, then consumes there; now and then lists the latest offset."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._partition = 0
        self._floor = 0
        self._leader_epoch = -1
        self._incarnation = 0
        self._read_offset = 0
        self._positions = [0] * shared.settings.partitions

    def step(self) -> None:
        shared = self.shared
        if shared.topic_id is None:
            self.give_up()
            return
        self._partition = self.rng.randrange(shared.settings.partitions)
        self._node_id = self.any_node()
        self._incarnation = shared.calls.incarnation(self._node_id)
        self._floor = shared.oracle.floor(self._partition)
        self._leader_epoch = shared.leader_epoch(shared.group(self._partition))
        if self.rng.randrange(4) == 0:
            shared.calls.call(self._node_id, ask_latest_offset(TOPIC, self._partition), self._on_latest, CALL_TIMEOUT_MS)
            return
        rpc = ReadOffsetRpc(
            cluster_id=None, read_timestamp_ms=shared.scheduler.now_us // US_PER_MS, groups=(shared.group(self._partition),)
        )

        def ask(node: ReplicaNode, reply: Any) -> None:
            node.receive(PeerConnection(), rpc, reply)

        shared.calls.call(self._node_id, ask, self._on_offset, CALL_TIMEOUT_MS)

    def _on_latest(self, answer: Any) -> None:
        listed = None if isinstance(answer, CallFailure) else latest_offset(answer)
        if listed is None:
            self.give_up()
            return
        offset, epoch = listed
        self.say(f"latest {self._partition}:{offset} epoch={epoch} floor={self._floor} at {self._node_id}")
        if epoch >= self._leader_epoch:
            # Answered by the newest leader there was: only a deposed one may lag, and its epoch tells clients so.
            self.shared.oracle.latest_answered(self._partition, self._floor, offset, f"node {self._node_id}")
        self.succeed()

    def _on_offset(self, answer: Any) -> None:
        if not isinstance(answer, ReadOffsetReply) or not answer.results or answer.results[0].error is not ErrorCode.NONE:
            self.give_up()
            return
        self._read_offset = answer.results[0].applied_offset
        self.say(f"read {self._partition}:{self._read_offset} floor={self._floor} at {self._node_id}")
        self.shared.oracle.read_answered(self._partition, self._floor, self._read_offset, f"node {self._node_id}")
        self._consume()

    def _consume(self) -> None:
        asked = _Asked(self._node_id, self._incarnation, self._partition, self._positions[self._partition], self._read_offset)
        fetch = ask_fetch(TOPIC, asked.partition, asked.position)

        def ask(node: ReplicaNode, reply: Any) -> None:
            fetch(node, lambda answer: reply(self._judge(asked, answer)))

        self.shared.calls.call(self._node_id, ask, self._on_records, CALL_TIMEOUT_MS)

    def _judge(self, asked: _Asked, answer: Any) -> Consumed | None:
        """Runs on the node: what it shows is judged in the order in which it shows it, not in which it arrives. This client may
        have given up long ago, so only `asked` counts here."""
        result = consumed(answer, asked.position)
        if result is not None and result.error is ErrorCode.NONE:
            oracle, incarnation = self.shared.oracle, self.shared.calls.incarnation(asked.node_id)
            oracle.high_watermark_seen(asked.node_id, incarnation, asked.partition, result.high_watermark)
            if incarnation == asked.incarnation:
                # The read promised that this very process has reached the offset.
                where = f"node {asked.node_id}"
                oracle.consumed_after_read(asked.partition, asked.read_offset, result.high_watermark, where)
        return result

    def _on_records(self, answer: Any) -> None:
        if not isinstance(answer, Consumed) or answer.error is not ErrorCode.NONE:
            # A follower may lag behind what the consumer saw elsewhere; another node will do.
            self._give_up_or_skip(answer)
            return
        for record in answer.records:
            self.shared.oracle.record_seen(self._partition, record.offset, record.value or b"", answer.high_watermark)
        self._positions[self._partition] = max(self._positions[self._partition], answer.next_offset)
        self.succeed()

    def _give_up_or_skip(self, answer: Any) -> None:
        """Where retention has removed what comes next, go on at once with what is left."""
        position = self._positions[self._partition]
        if isinstance(answer, Consumed) and answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start > position:
            self._positions[self._partition] = answer.log_start
            self._consume()
        else:
            self.give_up()
