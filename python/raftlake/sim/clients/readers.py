"""Clients that read the topic: linearizable reads at any node, consuming there or anywhere, and listing the latest offset.

What an answer shows is judged on the node, in the order in which it is shown; what it promises, where it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ReadOffsetReply, ReadOffsetRpc
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, TOPIC, Client, Shared
from raftlake.sim.clients.calls import Ask, CallFailure
from raftlake.sim.clients.messages import Consumed, ask_fetch, ask_latest_offset, consumed, latest_offset
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.oracle import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a reader's fetch was about."""

    node_id: NodeId
    incarnation: int
    partition: int
    position: int
    read_offset: int
    #: What a leader of this epoch or a newer one must have committed.
    floor: int
    leader_epoch: int


class Reader(Client):
    """Asks any node for a proven offset of a partition, then consumes there; now and then lists the latest offset, or consumes
    at a node that has proven nothing."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._partition = 0
        self._floor = 0
        self._leader_epoch = -1
        self._incarnation = 0
        self._read_offset = 0
        self._positions = [0] * shared.settings.partitions
        self._awaited: set[int] = set()

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
        what = self.rng.randrange(4)
        if what == 0:
            shared.calls.call(self._node_id, ask_latest_offset(TOPIC, self._partition), self._on_latest, CALL_TIMEOUT_MS)
            return
        if what == 1:
            # Like most consumers, and at once: a node that proves an offset first is one that serves.
            self._read_offset = 0
            self._await_leader(self._partition)
            self._consume()
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

    def _await_leader(self, partition: int) -> None:
        """Fetch from the partition's next leader too, as soon as it leads: only there its own epoch may not be committed."""
        if partition in self._awaited:
            return
        self._awaited.add(partition)
        shared = self.shared
        group = shared.group(partition)

        def fetch_early(node_id: NodeId) -> None:
            self._awaited.discard(partition)
            asked = _Asked(
                node_id=node_id,
                incarnation=shared.calls.incarnation(node_id),
                partition=partition,
                position=self._positions[partition],
                read_offset=0,
                floor=shared.oracle.floor(partition),
                leader_epoch=shared.leader_epoch(group),
            )
            shared.calls.call(node_id, self._fetch(asked), lambda answer: None, CALL_TIMEOUT_MS)

        shared.leader_waiters.setdefault(group, []).append(fetch_early)

    def _consume(self) -> None:
        asked = _Asked(
            node_id=self._node_id,
            incarnation=self._incarnation,
            partition=self._partition,
            position=self._positions[self._partition],
            read_offset=self._read_offset,
            floor=self._floor,
            leader_epoch=self._leader_epoch,
        )
        self.shared.calls.call(self._node_id, self._fetch(asked), self._on_records, CALL_TIMEOUT_MS)

    def _fetch(self, asked: _Asked) -> Ask:
        fetch = ask_fetch(TOPIC, asked.partition, asked.position)

        def ask(node: ReplicaNode, reply: Any) -> None:
            fetch(node, lambda answer: reply(self._judge(node, asked, answer)))

        return ask

    def _judge(self, node: ReplicaNode, asked: _Asked, answer: Any) -> Consumed | None:
        """Runs on the node: what it shows is judged in the order in which it shows it, not in which it arrives. This client may
        have given up long ago, so only `asked` counts here."""
        result = consumed(answer, asked.position)
        if result is not None and result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # As from a ListOffsets for EARLIEST_LOCAL: what the table alone has is not asked for.
            local = node.partitions[self.shared.group(asked.partition)].log.start_offset
            return replace(result, log_start=max(result.log_start, local))
        if result is not None and result.error is ErrorCode.NONE:
            oracle, incarnation = self.shared.oracle, self.shared.calls.incarnation(asked.node_id)
            core = node.partitions[self.shared.group(asked.partition)].core
            shown = Shown(
                node_id=asked.node_id,
                incarnation=incarnation,
                partition=asked.partition,
                epoch=core.epoch,
                leads=core.is_leader,
                high_watermark=result.high_watermark,
            )
            oracle.high_watermark_seen(shown, asked.position)
            if shown.leads and shown.epoch >= asked.leader_epoch:
                oracle.latest_answered(asked.partition, asked.floor, shown.high_watermark, f"node {asked.node_id}")
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
        """Where retention has removed what comes next, go on at once with what is left on the node's disk."""
        position = self._positions[self._partition]
        if isinstance(answer, Consumed) and answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start > position:
            self._positions[self._partition] = answer.log_start
            self._consume()
        else:
            self.give_up()
