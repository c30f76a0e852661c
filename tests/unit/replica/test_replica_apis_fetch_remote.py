"""Consumers of offsets that are only in the remote tier: one offset space over table and log, at leaders and followers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ORDERS
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.apis.fetch import REMOTE_PIECES_MAX, _check_offset, _divergence
from raftlake.replica.apis.offsets import _epoch_end
from raftlake.replica.node import ReplicaNode
from raftlake.replica.tiering import remote_reads
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import decode_records, iterate_headers
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlake.wire.shown import without_raft_records
from remotekit import DAMAGED, LOST, HistoryTier, RemoteWorld
from replica_cluster import Cluster, batch, fetch_request

MIB = 1 << 20
#: Local logs keep little, and are trimmed as soon as the table has it.
TIERED = {
    "has_tier": True,
    "segment_bytes": 300,
    "tier_target_lag_ms": 1_000,
    "local_retention_bytes": 400,
    "retention_check_interval_ms": 250,
}


def value(number: int) -> bytes:
    return b"value %05d" % number


def write(cluster: Cluster, group: GroupId, first: int, count: int) -> None:
    for number in range(first, first + count):
        cluster.produce(group, batch(value(number)))


def shown(data: bytes) -> bytes:
    """Batches as the log has them, as consumers see them."""
    return without_raft_records(data, [header for header in iterate_headers(data) if header.is_control])


def is_trimmed(cluster: Cluster, group: GroupId, to: int = 1) -> bool:
    return all(node.partitions[group].log.start_offset >= to for node in cluster.nodes.values())


@dataclass
class Consumer:
    """Reads on from where it is, and never skips."""

    cluster: Cluster
    group: GroupId
    position: int = 0

    def __post_init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.batches: list[bytes] = []

    def poll(self, node: ReplicaNode, **fields: Any) -> Any:
        given = {"wait_ms": 2_000, "bytes_max": 500, **fields}
        result = self.cluster.fetch(node, self.group, self.position, **given)
        assert result.error is ErrorCode.NONE, result
        data = bytes(result.records or b"")
        for header in iterate_headers(data):
            assert header.base_offset == self.position, "no gap, and no double"
            self.position = header.end_offset
            self.batches.append(data[header.position : header.end_position])
        self.seen += [(record.offset, record.value) for record in decode_records(data) if record.value is not None]
        return result

    def read_to(self, end: int, node: ReplicaNode, **fields: Any) -> None:
        for _ in range(1_000):
            if self.position >= end:
                return
            self.poll(node, **fields)
        raise AssertionError(f"at {self.position} of {end}")


@pytest.fixture(scope="module")
def tiered() -> tuple[Cluster, GroupId]:
    """A partition of forty records whose local logs hold the last few."""
    cluster = Cluster(**TIERED)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 0, 40)
    cluster.run(60_000, until=lambda: is_trimmed(cluster, group, 30))
    return cluster, group


def test_a_consumer_reads_from_the_beginning_over_the_seam_at_any_node(tiered: tuple[Cluster, GroupId]) -> None:
    cluster, group = tiered
    end = cluster.leader(group).partitions[group].high_watermark
    log = cluster._world.store._committed.of(group)  # type: ignore[union-attr]
    for node in cluster.nodes.values():
        consumer = Consumer(cluster, group)
        first = consumer.poll(node)
        assert (first.log_start_offset, first.high_watermark, first.last_stable_offset) == (0, end, end)
        assert first.aborted_transactions is None
        consumer.read_to(end, node)
        assert [seen for _, seen in consumer.seen] == [value(number) for number in range(40)]
        assert b"".join(consumer.batches) == b"".join(map(shown, (each.data for each in log.batches))), "to the last bit"
        assert node.read_tally.reads


def test_the_seam_moves_while_a_consumer_reads() -> None:
    cluster = Cluster(**TIERED)
    (group,) = cluster.create_topic("t")
    consumers = {node_id: Consumer(cluster, group) for node_id in cluster.nodes}
    starts = set()
    for number in range(60):
        write(cluster, group, number, 1)
        cluster.run(400)
        starts.add(cluster.leader(group).partitions[group].log.start_offset)
        if number % 2:
            for node_id, consumer in consumers.items():
                consumer.poll(cluster.nodes[node_id], bytes_max=150)
    for node_id, consumer in consumers.items():
        consumer.read_to(cluster.leader(group).partitions[group].high_watermark, cluster.nodes[node_id])
        assert [seen for _, seen in consumer.seen] == [value(number) for number in range(60)]
    assert len(starts) > 5


def test_read_committed_gets_an_empty_list_of_aborted_transactions(tiered: tuple[Cluster, GroupId]) -> None:
    cluster, group = tiered
    consumer = Consumer(cluster, group)
    result = consumer.poll(cluster.leader(group), isolation_level=1)
    assert result.aborted_transactions == [] and result.records


# --- a request that waits -------------------------------------------------------------------------------------------------


class Held:
    """The tiered cluster's leader, whose reads of the table wait for the test."""

    def __init__(self, cluster: Cluster, group: GroupId) -> None:
        self.cluster, self.group = cluster, group
        self.leader = cluster.leader(group)
        self.tier = HistoryTier({group: b"".join(each.data for each in cluster.store._committed.of(group).batches)})  # type: ignore[union-attr]
        self.reads = self.leader.remote_reads
        self._usual_tier = self.reads._tier
        self.forget()
        self.reads._tier = self.tier  # type: ignore[assignment]

    def forget(self) -> None:
        """What was read and asked for until now."""
        self.reads._tier = self._usual_tier
        self.reads._on_closed(self.leader.partitions[self.group])
        self.reads._under_way = 0

    def send(self, offset: int = 2, **fields: Any) -> list[Any]:
        return self.cluster.send(self.leader, ApiKey.FETCH, fetch_request(self.group, offset, **fields))

    def give(self, index: int = 0) -> None:
        self.cluster.machines[self.leader.config.node_id].run(self.tier.give, index)
        self.cluster.run(2)


@pytest.fixture
def held(tiered: tuple[Cluster, GroupId]) -> Iterator[Held]:
    held = Held(*tiered)
    yield held
    held.forget()


def only(answers: list[Any]) -> Any:
    ((answer),) = answers
    return answer.topics[0].partitions[0]


def bases(result: Any) -> list[int]:
    return [header.base_offset for header in iterate_headers(bytes(result.records or b""))]


def test_a_piece_that_arrives_completes_the_request_that_waits(held: Held) -> None:
    answers = held.send(wait_ms=5_000)
    held.cluster.run(1_000)
    assert answers == [] and held.tier.asked == [2]
    held.give()
    assert bases(only(answers))[:2] == [2, 3]
    assert not held.leader.partitions[held.group]._watermark_waiters


def test_a_request_whose_wait_is_over_leaves_the_piece_to_the_next_one(held: Held) -> None:
    first = held.send(wait_ms=300)
    at_once = held.send(offset=3, wait_ms=0)
    assert bases(only(at_once)) == [] and only(at_once).error is ErrorCode.NONE
    held.cluster.run(301)
    assert bases(only(first)) == [] and held.tier.asked == [2, 3]
    assert all(not wanted.waiters for wanted in held.reads._wanted.values()), "the request is gone"
    held.give()
    held.give()
    for offset in (2, 3):
        assert bases(only(held.send(offset=offset, wait_ms=0)))[0] == offset


def test_a_request_that_waits_for_more_bytes_takes_what_has_come(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    request = fetch_request(held.group, 2, wait_ms=1_000)
    request.bytes_min = MIB
    answers = held.cluster.send(held.leader, ApiKey.FETCH, request)
    held.give()
    assert answers == []
    held.cluster.run(1_000)
    assert len(bases(only(answers))) > 20


@pytest.mark.parametrize("error", [LOST, DAMAGED])
def test_a_read_that_fails_is_a_storage_error_and_other_offsets_go_on(held: Held, error: Any) -> None:
    answers = held.send(wait_ms=5_000)
    held.cluster.machines[held.leader.config.node_id].run(held.tier.answer, error)
    held.cluster.run(1)
    assert only(answers).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert only(held.send(wait_ms=5_000)).error is ErrorCode.KAFKA_STORAGE_ERROR and not held.tier.reads
    other = held.send(offset=5, wait_ms=5_000)
    held.give()
    assert bases(only(other))[0] == 5
    local = held.leader.partitions[held.group].log.start_offset
    assert bases(only(held.send(offset=local)))[0] == local


def test_a_diverging_consumer_is_told_so_without_a_read(held: Held) -> None:
    epoch = held.leader.partitions[held.group].core.epoch
    result = only(held.send(offset=2, last_fetched_epoch=epoch))
    assert result.diverging_epoch is None and held.tier.asked == [2]
    result = only(held.send(offset=3, last_fetched_epoch=0))
    assert result.error is ErrorCode.NONE and result.diverging_epoch == (0, 0)
    assert held.tier.asked == [2]


def test_a_request_for_many_old_partitions_asks_for_a_few_pieces_at_a_time() -> None:
    cluster = Cluster(1, **TIERED)
    count = 3 * REMOTE_PIECES_MAX
    groups = cluster.create_topic("t", count)
    for number in range(8):
        for group in groups:
            write(cluster, group, number, 1)
    cluster.run(120_000, until=lambda: all(is_trimmed(cluster, group) for group in groups))
    node = cluster.leader()
    tier = HistoryTier({group: b"".join(b.data for b in cluster.store._committed.of(group).batches) for group in groups})  # type: ignore[union-attr]
    node.remote_reads._tier = tier  # type: ignore[assignment]
    asked = [FetchPartition(group.partition, -1, 0, -1, -1, MIB) for group in groups]

    def send(wait_ms: int) -> list[Any]:
        request = FetchRequest(wait_ms_max=wait_ms, bytes_min=1, topics=[FetchTopic("t", None, list(asked))])
        return cluster.send(node, ApiKey.FETCH, request)

    answers = send(5_000)
    assert len(node.remote_reads._wanted) == REMOTE_PIECES_MAX and len(tier.reads) == remote_reads.CALLS_MAX
    seen: set[int] = set()
    for _ in range(200):
        if len(seen) == count:
            break
        if tier.reads:
            cluster.machines[node.config.node_id].run(tier.give)
        cluster.run(2)
        for part in answers[0].topics[0].partitions if answers else ():
            assert part.error is ErrorCode.NONE
            if part.records:
                seen.add(part.index)
        assert len(node.remote_reads._wanted) <= 2 * REMOTE_PIECES_MAX and len(tier.reads) <= remote_reads.CALLS_MAX
        answers = send(5_000)
    assert len(seen) == count, "all of them get their turn"


# --- what is not there ----------------------------------------------------------------------------------------------------


def test_a_start_that_moved_meanwhile_is_out_of_range() -> None:
    world = RemoteWorld()
    partition = world.partition()
    world.say(partition, 4, 8)
    asked = [FetchPartition(0, -1, offset, -1, -1, MIB) for offset in (-1, 3, 4)]
    found = [_check_offset(world.remote_log, partition, part) for part in asked]
    assert found == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2 + [ErrorCode.NONE]


def test_what_a_node_cannot_know_yet_is_not_available() -> None:
    """Its local log begins where the leader's began, and the key that says where the table ends is not applied here."""
    world = RemoteWorld()
    partition = world.partition()
    world.say(partition, 0, 5)
    world.keys.is_current = False
    asked = [FetchPartition(0, -1, offset, -1, -1, MIB) for offset in (-1, 3, 6)]
    found = [_check_offset(world.remote_log, partition, part) for part in asked]
    assert found == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NONE]
    world.keys.answer_reads()
    assert _check_offset(world.remote_log, partition, asked[1]) is ErrorCode.OFFSET_OUT_OF_RANGE, "there really is a gap"


def test_a_node_that_has_not_heard_what_the_table_has_does_not_say_that_it_is_gone() -> None:
    cluster = Cluster(**TIERED)
    (group,) = cluster.create_topic("t")
    write(cluster, group, 0, 20)
    cluster.run(60_000, until=lambda: is_trimmed(cluster, group, 5))
    node = cluster.followers(group)[0]
    cluster.stop(node.config.node_id)
    node = cluster.start(node.config.node_id)
    answers: list[Any] = []
    for _ in range(3_000):
        answers += cluster.send(node, ApiKey.FETCH, fetch_request(group, 2, wait_ms=0))
        cluster.run(1)
        if answers[-1].topics[0].partitions[0].records:
            break
    errors = [answer.topics[0].partitions[0].error for answer in answers]
    assert errors[-1] is ErrorCode.NONE and bases(answers[-1].topics[0].partitions[0])[0] == 2
    unknown = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE}
    assert set(errors) <= unknown | {ErrorCode.NONE}, set(errors)


# --- KIP-320 --------------------------------------------------------------------------------------------------------------


class Chain(RemoteWorld):
    """The seed's scenario 5: a log with the epochs (0, 0) and (2, 5), of which the local part begins at 6."""

    def __init__(self) -> None:
        super().__init__()
        self.led = self.partition()
        history = self.led.core.history
        history.reset(OffsetAndEpoch(Offset(6), Epoch(2)))
        history.assign(Epoch(2), Offset(6))
        log: Any = SimpleNamespace(start_offset=Offset(6), end_offset=Offset(11), epochs=((Epoch(2), Offset(6)),))
        self.led.log = log
        self.say_epochs((0, 0), (2, 5))

    def say_epochs(self, *epochs: tuple[int, int]) -> None:
        tiered = self.remote_log.tiered(self.led)
        assert tiered is not None
        version, _ = self.remote_log._decoded[self.led.group]
        entries = tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs)
        self.remote_log._decoded[self.led.group] = (version, replace(tiered, epochs=entries))

    def diverging(self, offset: int, last_fetched_epoch: int) -> Any:
        part = FetchPartition(0, -1, offset, last_fetched_epoch, -1, MIB)
        error, end = _divergence(self.remote_log, self.led, part)
        return error if error is not ErrorCode.NONE else end and (end.epoch, end.end_offset)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(3, 1, (0, 5)), (3, 0, None), (5, 0, None), (6, 0, (0, 5)), (6, 2, None), (7, 2, None), (3, 2, None), (7, 1, (0, 5))],
)
def test_a_consumer_whose_last_epoch_lies_before_the_local_log_is_judged_right(offset: int, epoch: int, diverging: Any) -> None:
    """The seed: "A consumer fetches offset 3, LE-1 from broker B will be fenced"."""
    assert Chain().diverging(offset, epoch) == diverging


@pytest.mark.parametrize(("offset", "diverging"), [(0, None), (1, None), (5, None), (6, (1, 5))])
def test_a_consumer_reads_on_where_the_epochs_of_old_records_are_folded(offset: int, diverging: Any) -> None:
    """The keys tell the last thousand epochs of a table, and nothing of the records before them."""
    chain = Chain()
    chain.say_epochs((2, 5))
    assert chain.diverging(offset, 1) == diverging
    assert chain.diverging(6, 2) is None


@pytest.mark.parametrize("is_known", [True, False])
def test_an_epoch_before_the_first_one_is_denied_only_where_the_table_is_known(is_known: bool) -> None:
    chain = Chain()
    chain.led.core.history.reset(OffsetAndEpoch(Offset(6), Epoch(-1)))
    chain.remote_log._decoded.clear()
    chain.say(chain.led, 0, 5)
    chain.keys.is_current = is_known
    not_yet = ErrorCode.OFFSET_NOT_AVAILABLE
    assert chain.diverging(7, 1) == ((1, 6) if is_known else not_yet)
    assert chain.diverging(6, 1) == (None if is_known else not_yet), "Kafka lets it read the first record"
    assert end_of_epoch(chain, 1) == ((ErrorCode.NONE, 1, 6) if is_known else (not_yet, -1, -1))
    later = chain.diverging(7, 3)
    assert later is (ErrorCode.OFFSET_OUT_OF_RANGE if is_known else not_yet), "no record here has that epoch, nor a later one"


def test_an_epoch_before_the_first_one_that_a_table_tells_ends_where_that_one_begins() -> None:
    """Kafka's LeaderEpochFileCache.endOffsetFor: the epoch that was asked for, with the start offset of the first known one."""
    chain = Chain()
    chain.led.core.log_end = Offset(11)
    chain.say_epochs((2, 3), (4, 5))
    chain.led.core.epoch = Epoch(4)
    for replica in (False, True):
        assert [end_of_epoch(chain, epoch, is_replica=replica) for epoch in (0, 1)] == [
            (ErrorCode.NONE, 0, 3),
            (ErrorCode.NONE, 1, 3),
        ]
        assert end_of_epoch(chain, -1, is_replica=replica) == (ErrorCode.NONE, -1, -1)


def test_the_end_of_an_epoch_before_the_local_log_is_told() -> None:
    chain = Chain()
    chain.led.core.log_end = Offset(11)
    assert [end_of_epoch(chain, epoch)[1:] for epoch in (0, 1)] == [(0, 5), (0, 5)]


def end_of_epoch(chain: Chain, epoch: int, *, is_replica: bool = False) -> tuple[ErrorCode, int, int]:
    """What OffsetForLeaderEpoch tells a client."""
    node: Any = SimpleNamespace(
        engine=chain.ground.engine, remote_log=chain.remote_log, names=SimpleNamespace(why_unknown=lambda group: None)
    )
    schema: Any = importlib.import_module("kio.schema.offset_for_leader_epoch.v4.request")
    asked = schema.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    return _epoch_end(node, ORDERS, asked, is_replica=is_replica)
