"""The clients of a run: what they ask, of whom, and what they report to the oracle.

Each client has one request at a time and thinks in between. Producers are idempotent (they repeat a batch until it is
acknowledged) or plain (they send each batch once and live with an unknown outcome). Readers do linearizable reads at any node
and consume from it. Key-value clients put, compare-and-set, delete and get at any node. Everything they write is unique, so
that the oracle can tell any two writes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.machine import Entry
from raftlake.ports import GroupId, PeerConnection, ReadOffsetReply, ReadOffsetResult, ReadOffsetRpc
from raftlake.raft.types import NodeId
from raftlake.replica.kv_service import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.client_calls import CallFailure, ClientCalls
from raftlake.sim.client_messages import (
    Consumed,
    ask_create_topic,
    ask_fetch,
    ask_latest_offset,
    ask_produce,
    ask_producer_id,
    consumed,
    created_topic_id,
    latest_offset,
    produced,
    producer_id_of,
)
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.faults import Settings, stream
from raftlake.sim.oracle import MARK_PREFIX, Append, Oracle
from raftlake.sim.trace import Trace
from raftlake.wire.batches import Record, build_batch

TOPIC = "orders"
CALL_TIMEOUT_MS = 4_000


@dataclass(slots=True)
class Shared:
    """What all clients of a run share. `topic_id` is known once the topic exists."""

    settings: Settings
    scheduler: Scheduler
    calls: ClientCalls
    oracle: Oracle
    trace: Trace
    node_ids: tuple[NodeId, ...]
    #: The highest epoch of a group in which any node has led so far.
    leader_epoch: Callable[[GroupId], int]
    topic_id: bytes | None = None
    #: No client begins another request.
    stopped: bool = False

    def group(self, partition: int) -> GroupId:
        assert self.topic_id is not None
        return GroupId(TOPIC, partition, self.topic_id)


class Client:
    """One request at a time; `step` begins the next one."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared = shared
        self.name = name
        self.rng = stream(shared.settings.seed, name)
        #: Requests that ended with what the client wanted, and when the last of them began.
        self.completed = 0
        self.last_completed_began_us = -1
        self.is_idle = True
        #: Wants nothing any more.
        self.is_done = False
        self._began_us = 0
        self._node_id = NodeId(0)

    def start(self) -> None:
        self._think()

    def _think(self) -> None:
        self.is_idle = True
        delay_us = 1_000 + int(self.rng.expovariate(1.0) * self.shared.settings.think_ms_mean * US_PER_MS)
        self.shared.scheduler.call_after(delay_us, self._begin)

    def _begin(self) -> None:
        if self.shared.stopped:
            return
        self.is_idle = False
        self._began_us = self.shared.scheduler.now_us
        self.step()

    def step(self) -> None:
        raise AssertionError("each kind of client has its own step")

    def any_node(self) -> NodeId:
        return self.shared.node_ids[self.rng.randrange(len(self.shared.node_ids))]

    def say(self, what: str) -> None:
        if self.shared.trace.enabled:
            self.shared.trace.write(self.name, what)

    def succeed(self) -> None:
        self.completed += 1
        self.last_completed_began_us = self._began_us
        self._think()

    def give_up(self) -> None:
        self._think()


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

    def step(self) -> None:
        if self.shared.topic_id is None:
            self.give_up()
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
        records = [Record(value=value) for value in append.values]
        batch = build_batch(
            records,
            timestamp_ms=1_700_000_000_000 + self.shared.scheduler.now_us // US_PER_MS,
            producer_id=self._producer_id,
            producer_epoch=0 if self._idempotent else -1,
            base_sequence=append.sequence if self._idempotent else -1,
        )
        self._node_id = self.any_node() if self._leader is None else self._leader
        ask = ask_produce(TOPIC, self._partition, batch, CALL_TIMEOUT_MS)
        self.shared.calls.call(self._node_id, ask, self._on_answer, CALL_TIMEOUT_MS)

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
            self._append = None
            self.succeed()
        elif result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._idempotent:
            # One batch is under way at a time, and none is given up: the log must know the one before it.
            raise AssertionError(f"{self.name}: {append} is out of order")
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
            self.give_up()
            return
        for record in answer.records:
            self.shared.oracle.record_seen(self._partition, record.offset, record.value or b"", answer.high_watermark)
        self._positions[self._partition] = max(self._positions[self._partition], answer.next_offset)
        self.succeed()


class KvClient(Client):
    """Reads and changes a few keys at any node."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._counter = 0
        #: What this client last saw of each key: the versions that its compare-and-sets expect.
        self._versions: dict[str, int] = {}
        self._key = ""
        self._floor = 0
        self._mark = b""
        self._txn = Txn(compares=(), ops=())

    def step(self) -> None:
        self._key = f"key/{self.rng.randrange(self.shared.settings.kv_keys)}"
        self._node_id = self.any_node()
        self._floor = self.shared.oracle.kv_floor
        if self.rng.randrange(2):
            self._get()
        else:
            self._change()

    def _get(self) -> None:
        key = self._key

        def ask(node: ReplicaNode, reply: Any) -> None:
            def on_proven(result: ReadOffsetResult) -> None:
                # The state is read at the very moment at which the node says that it may be.
                state = (node.kv.machine.get(key), node.kv.machine.applied_offset)
                reply(state if result.error is ErrorCode.NONE else None)

            node.kv.read(True, on_proven)

        self.shared.calls.call(self._node_id, ask, self._on_state, CALL_TIMEOUT_MS)

    def _on_state(self, answer: Any) -> None:
        if not isinstance(answer, tuple):
            self.give_up()
            return
        entry: Entry | None = answer[0]
        position: int = answer[1]
        self.say(f"get {self._key} = {entry and entry.value.decode()} at {position} floor={self._floor} node={self._node_id}")
        self.shared.oracle.kv_read_answered(self._key, entry, position, self._floor, f"node {self._node_id}")
        self._versions[self._key] = ABSENT if entry is None else entry.version
        self.succeed()

    def _change(self) -> None:
        self._counter += 1
        self._mark = f"{self.name}-{self._counter}".encode()
        self._txn = self._draw_txn()
        txn, forwarded = self._txn, bool(self.rng.randrange(2))

        def ask(node: ReplicaNode, reply: Any) -> None:
            if forwarded:
                node.kv.propose_anywhere(txn, reply)
            else:
                node.kv.propose(txn, reply)

        self.shared.calls.call(self._node_id, ask, self._on_outcome, CALL_TIMEOUT_MS)

    def _draw_txn(self) -> Txn:
        kind = self.rng.randrange(5)
        mark = Put(MARK_PREFIX + self.name, self._mark)
        compares: tuple[Compare, ...] = ()
        if kind in (1, 2, 3):
            compares = (Compare(self._key, self._versions.get(self._key, ABSENT)),)
        if kind == 3:
            other = f"key/{self.rng.randrange(self.shared.settings.kv_keys)}"
            if other != self._key:
                return Txn(compares=compares, ops=(mark, Put(self._key, self._mark), Put(other, self._mark)))
        if kind == 4:
            return Txn(compares=(), ops=(mark, Delete(self._key)))
        return Txn(compares=compares, ops=(mark, Put(self._key, self._mark)))

    def _on_outcome(self, answer: Any) -> None:
        if isinstance(answer, ProposeOutcome) and answer.status is ProposeStatus.DONE and answer.result is not None:
            self.say(f"change {self._key} {self._mark.decode()}: {answer.result}")
            self.shared.oracle.kv_write_answered(self._mark, self._txn, answer.result, self._floor)
            self.succeed()
            return
        if answer is CallFailure.REFUSED or (
            isinstance(answer, ProposeOutcome) and answer.status in (ProposeStatus.REFUSED, ProposeStatus.NOT_LEADER)
        ):
            self.shared.oracle.kv_write_refused(self._mark)
        self.give_up()


def make_clients(shared: Shared) -> list[Client]:
    """The clients that the settings ask for. Every third producer is a plain one."""
    settings = shared.settings
    rng: Random = stream(settings.seed, "clients")
    clients: list[Client] = [Creator(shared, "creator")]
    for index in range(settings.producers):
        partition = rng.randrange(settings.partitions)
        clients.append(Producer(shared, f"producer{index}", partition, idempotent=index % 3 != 2))
    clients.extend(Reader(shared, f"reader{index}") for index in range(settings.readers))
    clients.extend(KvClient(shared, f"kv{index}") for index in range(settings.kv_clients))
    return clients
