"""A client that reads partitions from the beginning, over the table of the remote tier and the local log behind it.

What it reads is judged by the last bit: at each offset the batch that was committed there, as consumers are shown it, without a
gap and without a double, whichever node answers, and wherever the seam is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.tier import Lineage
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, TOPIC, Client, Shared
from raftlake.sim.clients.calls import Ask
from raftlake.sim.clients.messages import Consumed, ask_fetch, ask_first_offset_since, consumed, latest_offset
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.tier import tiered_in
from raftlake.wire.batches import iterate_headers
from raftlake.wire.shown import without_raft_records

ONE_SPACE = "a consumer reads one offset space over table and log"
NOT_GONE = "no consumer is told that an offset is gone that the table has"
FIRST_OF_A_TIME = "the first record of a time is found in table or log"


@dataclass(frozen=True, slots=True)
class _Asked:
    partition: int
    position: int


@dataclass(frozen=True, slots=True)
class _Sought:
    partition: int
    time_ms: int
    #: The offset of the first record that was read of that time or a later one.
    first: int
    #: The newest epoch of a leader as the question begins.
    leader_epoch: int


class Historian(Client):
    """Reads on, one fetch at a time, and starts over at the end. Now and then it asks where a time begins."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._positions = [0] * shared.settings.partitions
        #: Of the records read since the last start, the offset and the time of each.
        self._times: list[list[tuple[int, int]]] = [[] for _ in self._positions]

    def step(self) -> None:
        if self.shared.topic_id is None:
            self.give_up()
            return
        partition = self.rng.randrange(len(self._positions))
        times = self._times[partition]
        if times and self.rng.randrange(4) == 0:
            self._search(partition, times[self.rng.randrange(len(times))][1])
            return
        asked = _Asked(partition, self._positions[partition])
        ask = self._fetch(asked, wait_ms=(0, 200, 2_000)[self.rng.randrange(3)])
        self.shared.calls.call(self.any_node(), ask, lambda answer: self._on_answer(asked, answer), CALL_TIMEOUT_MS)

    def _fetch(self, asked: _Asked, wait_ms: int) -> Ask:
        fetch = ask_fetch(TOPIC, asked.partition, asked.position, wait_ms)

        def ask(node: ReplicaNode, reply: Any) -> None:
            fetch(node, lambda answer: reply(self._judge(node, asked, answer)))

        return ask

    def _judge(self, node: ReplicaNode, asked: _Asked, answer: Any) -> Consumed | None:
        """Runs on the node, with what it knows as it answers."""
        result = consumed(answer, asked.position)
        group = self.shared.group(asked.partition)
        if result is None:
            return None
        if result.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            tiered = tiered_in(node.kv.machine, Lineage(group, 0))
            # A leader that was replaced and has not heard of it may have less than was read elsewhere.
            is_behind = asked.position > node.partitions[group].log.end_offset
            is_deleted = asked.position < node.kv.state.records_from(group)
            if not is_behind and not is_deleted and (tiered is None or asked.position >= tiered.start_offset):
                raise Violation(NOT_GONE, f"node {node.config.node_id}: {group} offset {asked.position}, the key says {tiered}")
        if result.error is ErrorCode.NONE:
            data = bytes(answer.topics[0].partitions[0].records or b"")
            wanted, end = self.shared.operations.committed_bytes(group, asked.position, result.next_offset)
            wanted = without_raft_records(wanted, [header for header in iterate_headers(wanted) if header.is_control])
            # What was committed this very moment is not noted yet.
            if data != wanted and not (end < result.next_offset and data.startswith(wanted)):
                bases = [header.base_offset for header in iterate_headers(data)]
                raise Violation(ONE_SPACE, f"node {node.config.node_id}: {group} from {asked.position}: batches at {bases}")
            if data and asked.position < node.partitions[group].log.start_offset:
                self.shared.operations.coverage.note("old offsets read")
        if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
            self.shared.operations.coverage.note("old offsets not readable")
        return result

    def _on_answer(self, asked: _Asked, answer: Any) -> None:
        partition = asked.partition
        if not isinstance(answer, Consumed):
            self.give_up()
        elif answer.error is ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start > asked.position:
            self._start_over(partition, answer.log_start)
            self.give_up()
        elif answer.error is not ErrorCode.NONE:
            self.give_up()
        elif answer.next_offset > asked.position:
            for record in answer.records:
                self.shared.oracle.record_seen(partition, record.offset, record.value or b"", answer.high_watermark)
            self._times[partition] += [(record.offset, record.timestamp_ms) for record in answer.records]
            self._positions[partition] = answer.next_offset
            self.say(f"history {partition}:{answer.next_offset}")
            self.succeed()
        elif asked.position >= answer.high_watermark:
            self._start_over(partition, 0)
            self.succeed()
        else:
            # The piece is on its way.
            self.retry_soon()

    def _start_over(self, partition: int, position: int) -> None:
        self._positions[partition] = position
        self._times[partition].clear()

    def _search(self, partition: int, time_ms: int) -> None:
        """Where the time of a record begins that was read."""
        first = next(known for known, known_ms in self._times[partition] if known_ms >= time_ms)
        sought = _Sought(partition, time_ms, first, self.shared.leader_epoch(self.shared.group(partition)))
        search = ask_first_offset_since(TOPIC, partition, time_ms)

        def ask(node: ReplicaNode, reply: Any) -> None:
            search(node, lambda answer: reply(self._judge_search(node, sought, latest_offset(answer))))

        def on_answer(answer: object) -> None:
            if answer is True:
                self.shared.operations.coverage.note("times found")
                self.succeed()
            else:
                self.give_up()

        self.shared.calls.call(self.any_node(), ask, on_answer, CALL_TIMEOUT_MS)

    def _judge_search(self, node: ReplicaNode, sought: _Sought, listed: tuple[int, int] | None) -> bool:
        """Runs on the node. Whether it had an answer."""
        group = self.shared.group(sought.partition)
        led = node.partitions.get(group)
        if listed is None or led is None:
            return False
        # A leader that was replaced may not have it yet.
        is_newest = led.core.is_leader and led.core.epoch >= sought.leader_epoch
        is_found = listed[0] == sought.first or self._is_marker(sought.partition, listed[0], sought.first)
        # The leader before may have deleted from the table what this node has not heard of.
        start = max(node.remote_log.start_offset(led), self.shared.operations.table_start(group))
        if is_newest and not is_found and sought.first >= start:
            detail = f"node {node.config.node_id}: {group}: {sought.first} is of {sought.time_ms} ms, and not {listed[0]}"
            raise Violation(FIRST_OF_A_TIME, detail)
        return True

    def _is_marker(self, partition: int, offset: int, first: int) -> bool:
        """Whether a marker stands at an offset before the first record of a time. It has a time too, as in Kafka."""
        data, _ = self.shared.operations.committed_bytes(self.shared.group(partition), offset, offset + 1)
        headers = list(iterate_headers(data)) if offset < first else []
        return any(header.is_control and header.is_transactional for header in headers)
