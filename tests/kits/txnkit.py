"""Transactions in a simulated cluster without a coordinator: its keys are put by hand, and its markers sent by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.replica.transaction_entry import Transaction, TransactionState, encode, transaction_key
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import EndMarker, iterate_headers
from raftlake.wire.fetch_response import FetchPartitionResult
from raftlake.wire.produce import ProducePartition, ProducePartitionResult, ProduceRequest, ProduceTopic
from replica_cluster import Cluster, batch

ID = "payments"
PRODUCER = 7


class ByHand(Cluster):
    """No node coordinates: keys change, and markers are sent, by the test alone."""

    def start(self, node_id: NodeId | int, **settings: Any) -> ReplicaNode:
        node = super().start(node_id, **settings)
        node.transactions._notice = lambda: None  # type: ignore[method-assign]
        return node


def transaction(*groups: GroupId, producer_id: int = PRODUCER, **fields: Any) -> Transaction:
    """An ongoing one with these partitions, unless told otherwise."""
    given = {"transactional_id": ID, "epoch": 0, "timeout_ms": 60_000, "state": TransactionState.ONGOING, **fields}
    partitions = frozenset((group.topic_id, group.partition) for group in groups)
    return Transaction(producer_id=producer_id, partitions=partitions, **given)


def put(cluster: Cluster, found: Transaction, *, everywhere: bool = True) -> Offset:
    """Commit the key, and wait until all nodes have applied it unless told otherwise. The end of the command."""
    outcomes: list[ProposeOutcome] = []
    key = transaction_key(found.transactional_id)
    cluster.leader().kv.propose(Txn((), (Put(key, encode(found)),)), outcomes.append, Origin.SELF)
    cluster.run(5_000, until=lambda: bool(outcomes))
    (outcome,) = outcomes
    assert outcome.status is ProposeStatus.DONE and outcome.result is not None and not outcome.result.ignored, outcome
    end = Offset(outcome.result.offset + 1)
    if everywhere:
        cluster.run(2_000, until=lambda: all(node.kv.machine.applied_offset >= end for node in cluster.nodes.values()))
    return end


def begin(cluster: Cluster, *groups: GroupId, **fields: Any) -> Transaction:
    found = transaction(*groups, **fields)
    put(cluster, found)
    return found


def decide(cluster: Cluster, found: Transaction, *, commit: bool) -> tuple[Transaction, Offset]:
    decided = found.decided(commit)
    return decided, put(cluster, decided)


def marker_of(found: Transaction, *, commit: bool, coordinator_epoch: int = 1) -> EndMarker:
    return EndMarker(producer_id=found.producer_id, epoch=found.epoch, commit=commit, coordinator_epoch=coordinator_epoch)


def send_marker(node: ReplicaNode, group: GroupId, marker: EndMarker, decided_at: Offset) -> list[ErrorCode]:
    """What it is answered appears in the returned list."""
    told: list[ErrorCode] = []
    node.engine.begin_input()
    node.markers.write(group, marker, decided_at, told.append)
    return told


def write_marker(cluster: Cluster, group: GroupId, marker: EndMarker, decided_at: int = 0) -> ErrorCode:
    told = send_marker(cluster.leader(group), group, marker, Offset(decided_at))
    cluster.run(10_000, until=lambda: bool(told))
    (error,) = told
    return error


def end(cluster: Cluster, found: Transaction, *groups: GroupId, commit: bool) -> Transaction:
    """Decide, write all markers, complete."""
    decided, at = decide(cluster, found, commit=commit)
    for group in groups:
        assert write_marker(cluster, group, marker_of(decided, commit=commit), at) is ErrorCode.NONE
    put(cluster, decided.completed())
    return decided.completed()


def records(*values: bytes, sequence: int, producer_id: int = PRODUCER, epoch: int = 0, **fields: Any) -> bytearray:
    """A transactional batch."""
    given = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True, **fields}
    return batch(*values, **given)


def request(group: GroupId, data: bytearray, transactional_id: str | None = ID) -> ProduceRequest:
    parts = [ProducePartition(group.partition, memoryview(data))]
    return ProduceRequest(-1, 5_000, transactional_id, [ProduceTopic(group.topic, None, parts)])


def send(
    cluster: Cluster, group: GroupId, data: bytearray, *, version: int = 11, transactional_id: str | None = ID
) -> list[Any]:
    """The answer appears in the returned list."""
    return send_to(cluster, cluster.leader(group), group, data, version=version, transactional_id=transactional_id)


def send_to(
    cluster: Cluster,
    node: ReplicaNode,
    group: GroupId,
    data: bytearray,
    *,
    version: int = 11,
    transactional_id: str | None = ID,
) -> list[Any]:
    """To this node; the answer appears in the returned list."""
    asked = request(group, bytearray(data), transactional_id)
    return cluster.send(node, ApiKey.PRODUCE, asked, version=version)


def result_of(answers: list[Any]) -> ProducePartitionResult:
    result: ProducePartitionResult = answers[0].topics[0].partitions[0]
    return result


def produce(
    cluster: Cluster, group: GroupId, data: bytearray, *, version: int = 11, transactional_id: str | None = ID
) -> ProducePartitionResult:
    answers = send(cluster, group, data, version=version, transactional_id=transactional_id)
    cluster.run(10_000, until=lambda: bool(answers))
    return result_of(answers)


def fetch_committed(
    cluster: Cluster, node: ReplicaNode, group: GroupId, offset: int = 0, **fields: Any
) -> FetchPartitionResult:
    return cluster.fetch(node, group, offset, isolation_level=1, **fields)


def offsets(data: Any) -> list[int]:
    """The base offsets of batches that hold records."""
    return [header.base_offset for header in iterate_headers(data or b"") if header.record_count]


def fenced(found: Transaction) -> Transaction:
    """Aborted by the coordinator: the epoch is raised with the decision."""
    return replace(found, epoch=found.epoch + 1, state=TransactionState.PREPARE_ABORT)


def lead(cluster: Cluster, node: ReplicaNode, group: GroupId) -> None:
    """The others resign until this node leads the group and serves."""
    for _ in range(20):
        leader = cluster.leader(group)
        if leader is node:
            return
        leader.engine.begin_input()
        leader.engine.step(leader.partitions[group], ResignRequested())
        cluster.run(300)
    raise AssertionError(f"node {node.config.node_id} does not get to lead {group}")


def hold_keys(cluster: Cluster, node: ReplicaNode) -> Callable[[], None]:
    """From now on the node applies nothing of the quorum's log, until the returned function is called."""
    advance = node.kv.advance
    node.kv.advance = lambda partition, high_watermark: None  # type: ignore[method-assign]

    def go_on() -> None:
        node.kv.advance = advance  # type: ignore[method-assign]
        partition = node.partitions[METADATA_GROUP]
        cluster.machines[node.config.node_id].run(advance, partition, partition.core.high_watermark)

    return go_on
