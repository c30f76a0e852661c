"""Consumers with `isolation.level=read_committed`: from the beginning on, at any node, batch after batch.

They do what Kafka's consumers do with the list of aborted transactions in an answer. What they were shown is judged at the end
(`histories.transactions`). Judged at once: no record at or above the last stable offset is shown, and a node's last stable
offset never goes back while it runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, TOPIC, Client, Shared
from raftlake.sim.clients.messages import READ_COMMITTED, ask_fetch
from raftlake.sim.histories.transactions import Shown
from raftlake.sim.invariants.base import Violation
from raftlake.wire.batches import Record, decode_records, iterate_headers
from raftlake.wire.control import ControlType
from raftlake.wire.fetch_response import FetchPartitionResult

BELOW_STABLE = "no record at or above the last stable offset is shown to read_committed"
STABLE_STAYS = "the last stable offset that a node shows never goes back"

_CONTROL_KEY = struct.Struct(">hh")


def committed_records(result: FetchPartitionResult) -> Iterator[Record]:
    """What Kafka's consumer returns of an answer: a producer is aborted from the first offset of an aborted transaction on,
    until its marker. Records below the position asked for come too."""
    data = result.records or b""
    to_come = sorted(result.aborted_transactions or (), key=lambda each: each[1])
    aborted: set[int] = set()
    for header in iterate_headers(data):
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.pop(0)[0])
        batch = data[header.position : header.end_position]
        if header.is_control:
            for record in decode_records(batch, include_control=True):
                if _CONTROL_KEY.unpack_from(record.key or b"")[1] == ControlType.ABORT:
                    aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield from decode_records(batch)


def end_of(result: FetchPartitionResult, position: int) -> int:
    """From where a consumer goes on that has asked from `position` on."""
    return max((header.end_offset for header in iterate_headers(result.records or b"")), default=position)


class CommittedReader(Client):
    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        #: By partition, each run without a step over anything. The last one goes on.
        self.shown: list[list[Shown]] = [[Shown(0, 0)] for _ in range(shared.settings.partitions)]
        self._stable: dict[tuple[NodeId, int, int], int] = {}

    def step(self) -> None:
        shared = self.shared
        if shared.topic_id is None:
            self.give_up()
            return
        partition, self._node_id = self.rng.randrange(shared.settings.partitions), self.any_node()
        position = self.shown[partition][-1].position
        fetch = ask_fetch(TOPIC, partition, position, isolation=READ_COMMITTED)

        def ask(node: ReplicaNode, reply: Any) -> None:
            fetch(node, lambda answer: reply(self._judged(node, partition, answer)))

        shared.calls.call(self._node_id, ask, lambda answer: self._on_answer(partition, answer), CALL_TIMEOUT_MS)

    def _judged(self, node: ReplicaNode, partition: int, answer: Any) -> FetchPartitionResult | None:
        """Runs on the node, in the order in which it answers."""
        if answer.error is not ErrorCode.NONE or not answer.topics:
            return None
        result: FetchPartitionResult = answer.topics[0].partitions[0]
        if result.error is ErrorCode.NONE:
            stable = result.last_stable_offset
            key = node.config.node_id, self.shared.calls.incarnation(node.config.node_id), partition
            known = self._stable.get(key, 0)
            if stable < known:
                raise Violation(STABLE_STAYS, f"node {key[0]}: partition {partition}: {known}, then {stable}")
            if stable > result.high_watermark:
                detail = f"node {key[0]}: partition {partition}: {stable} above the high watermark {result.high_watermark}"
                raise Violation(BELOW_STABLE, detail)
            self._stable[key] = stable
            for header in iterate_headers(result.records or b""):
                if header.end_offset > stable:
                    raise Violation(BELOW_STABLE, f"node {key[0]}: partition {partition}: {header.last_offset} >= {stable}")
        return result

    def _on_answer(self, partition: int, result: Any) -> None:
        if not isinstance(result, FetchPartitionResult):
            self.give_up()
            return
        run = self.shown[partition][-1]
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE and result.log_start_offset > run.position:
            self.shown[partition].append(Shown(result.log_start_offset, result.log_start_offset))
            self.succeed()
        elif result.error is not ErrorCode.NONE:
            self.give_up()
        else:
            self._take(run, result)
            self.say(f"committed {partition}:{run.position} stable={result.last_stable_offset}")
            self.succeed()

    def _take(self, run: Shown, result: FetchPartitionResult) -> None:
        first = run.position
        for record in committed_records(result):
            if record.offset >= first:
                run.records.append((record.offset, record.value or b""))
        run.position = end_of(result, first)
