"""A transactional producer at a simulated cluster: it says what those of Kafka say. And what the coordinator knows of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from raftlake.errors import ErrorCode, code_of
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.transaction_entry import Transaction
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records, iterate_headers
from replica_cluster import Cluster, batch
from txnkit import fetch_committed, send

INIT_VERSION, ADD_VERSION, END_VERSION = 5, 3, 4
#: KIP-890 part 2: the end raises the epoch, and a batch brings its partition with it.
RAISING_END_VERSION, ADDING_PRODUCE_VERSION = 5, 12


def message(api: str, version: int, name: str, **fields: Any) -> Any:
    """A request of Kafka's schemas."""
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.request"), name)(**fields)


class TxnProducer:
    """`producer_id` and `epoch` are what it was told last. With `raises` it speaks transaction.version 2."""

    def __init__(
        self, cluster: Cluster, transactional_id: str = "tx", *, timeout_ms: int = 60_000, raises: bool = False
    ) -> None:
        self.raises = raises
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[GroupId, int] = {}

    # --- what it asks the coordinator; the answers appear in the lists ---

    def ask_init(
        self, *, expected: tuple[int, int] = (-1, -1), version: int = INIT_VERSION, node: ReplicaNode | None = None
    ) -> list[Any]:
        fields: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": timedelta(milliseconds=self.timeout_ms),
        }
        if version >= 3:
            fields |= {"producer_id": expected[0], "producer_epoch": expected[1]}
        return self._send(node, ApiKey.INIT_PRODUCER_ID, version, "init_producer_id", "InitProducerIdRequest", fields)

    def ask_add(self, *groups: GroupId, version: int = ADD_VERSION, node: ReplicaNode | None = None) -> list[Any]:
        module = importlib.import_module(f"kio.schema.add_partitions_to_txn.v{version}.request")
        by_topic: dict[str, list[int]] = {}
        for group in groups:
            by_topic.setdefault(group.topic, []).append(group.partition)
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": tuple(
                module.AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes)) for name, indexes in by_topic.items()
            ),
        }
        name = "AddPartitionsToTxnRequest"
        return self._send(node, ApiKey.ADD_PARTITIONS_TO_TXN, version, "add_partitions_to_txn", name, fields)

    def ask_end(self, commit: bool, *, version: int | None = None, node: ReplicaNode | None = None) -> list[Any]:
        version = (RAISING_END_VERSION if self.raises else END_VERSION) if version is None else version
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        return self._send(node, ApiKey.END_TXN, version, "end_txn", "EndTxnRequest", fields)

    def _send(
        self, node: ReplicaNode | None, key: ApiKey, version: int, api: str, name: str, fields: dict[str, Any]
    ) -> list[Any]:
        asked = message(api, version, name, **fields)
        return self.cluster.send(node or self.cluster.leader(), key, asked, version=version)

    def _answer(self, answers: list[Any], wait_ms: int = 20_000) -> Any:
        self.cluster.run(wait_ms, until=lambda: bool(answers))
        return answers[0]

    # --- the same, and waiting for the answer ---

    def init(self, **fields: Any) -> ErrorCode:
        answer = self._answer(self.ask_init(**fields))
        if answer.error_code == 0:
            self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
            self._sequences.clear()
        return code_of(answer.error_code)

    def add(self, *groups: GroupId, **fields: Any) -> ErrorCode:
        """The one error of all partitions."""
        errors = set(added(self._answer(self.ask_add(*groups, **fields))).values())
        (error,) = errors
        return error

    def end(self, commit: bool = True, **fields: Any) -> ErrorCode:
        answer = self._answer(self.ask_end(commit, **fields))
        if self.raises and answer.error_code == 0:
            self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
            self._sequences.clear()
        return code_of(answer.error_code)

    def ask_produce(self, group: GroupId, *values: bytes) -> list[Any]:
        """Repeated it is the same batch, until one is answered well."""
        sequence = self._sequences.get(group, 0)
        data = batch(
            *values, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, transactional=True
        )
        version = ADDING_PRODUCE_VERSION if self.raises else ADDING_PRODUCE_VERSION - 1
        return send(self.cluster, group, data, version=version, transactional_id=self.transactional_id)

    def produce(self, group: GroupId, *values: bytes) -> ErrorCode:
        error: ErrorCode = self._answer(self.ask_produce(group, *values)).topics[0].partitions[0].error
        if error is ErrorCode.NONE:
            self._sequences[group] = self._sequences.get(group, 0) + len(values)
        return error

    def transact(self, groups: Sequence[GroupId], *values: bytes, commit: bool = True) -> None:
        """One whole transaction, which succeeds."""
        assert self.raises or self.add(*groups) is ErrorCode.NONE
        for group in groups:
            assert self.produce(group, *values) is ErrorCode.NONE
        assert self.end(commit) is ErrorCode.NONE

    # --- what is known of it ---

    def known(self, node: ReplicaNode | None = None) -> Transaction | None:
        """As the leader of the metadata log has applied it, or that node."""
        return (node or self.cluster.leader()).transactions.of(self.transactional_id)

    def state(self, node: ReplicaNode | None = None) -> str:
        found = self.known(node)
        return "" if found is None else found.state.value

    def settle(self, state: str, wait_ms: int = 20_000) -> None:
        """Wait until the transaction is that, and so on all nodes."""
        self.cluster.run(wait_ms, until=lambda: all(self.state(node) == state for node in self.cluster.nodes.values()))


def added(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    """What AddPartitionsToTxn was answered for each partition."""
    return {
        (topic.name, part.partition_index): code_of(part.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    }


def committed_values(cluster: Cluster, group: GroupId, node: ReplicaNode | None = None) -> list[bytes]:
    """What a consumer that reads what is committed has of a partition, all of it."""
    found = fetch_committed(cluster, node or cluster.leader(group), group)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    values: list[bytes] = []
    open_aborted: set[int] = set()
    data = bytes(found.records or b"")
    for header in iterate_headers(data):
        for producer_id, first_offset in aborted:
            if first_offset <= header.base_offset:
                open_aborted.add(producer_id)
        if header.is_control:
            open_aborted.discard(header.producer_id)
            aborted = [each for each in aborted if each[0] != header.producer_id or each[1] > header.base_offset]
        elif header.producer_id not in open_aborted:
            values += [record.value or b"" for record in decode_records(data[header.position : header.end_position])]
    return values


def marker_count(cluster: Cluster, group: GroupId) -> int:
    """Control batches of transactions in the leader's log."""
    partition = cluster.leader(group).partitions[group]
    data = partition.log.read(partition.log.start_offset, partition.log.end_offset, 1 << 30)
    return sum(header.is_control and header.is_transactional for header in iterate_headers(data))


def commits_of(cluster: Cluster, group: GroupId, do: Callable[[], None]) -> int:
    """By how many offsets the log of a group grows while something is done."""
    before = cluster.leader(group).partitions[group].log.end_offset
    do()
    return cluster.leader(group).partitions[group].log.end_offset - before
