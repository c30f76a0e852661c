"""What consumers are given of a partition: no control record of Raft, at any node, and never empty batches alone where records
lie behind them."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from asidekit import AtOnce
from enginekit import Ground
from raftlake.errors import ErrorCode, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.apis.fetch import EMPTY_WAIT_MS_MAX
from raftlake.replica.apis.shown_records import READS_MAX, read_shown
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import HEADER_BYTES, Record, build_batch, decode_records, iterate_headers
from remotekit import LOST, RemoteWorld
from replica_cluster import Cluster, batch, fetch_request

MIB = 1 << 20


def shape(data: bytes) -> list[tuple[int, int]]:
    """(base offset, records) of each batch."""
    return [(header.base_offset, header.record_count) for header in iterate_headers(data)]


def require_shown(data: bytes, first: int, end: int) -> None:
    """Whole batches from `first` to `end` with valid CRCs, and none that is a control batch."""
    headers = list(iterate_headers(data))
    assert (headers[0].base_offset, headers[-1].end_offset, headers[-1].end_position) == (first, end, len(data))
    assert all(one.end_offset == other.base_offset for one, other in pairwise(headers))
    assert not any(header.is_control for header in headers)
    assert list(decode_records(data)) == list(decode_records(data, include_control=True))


# --- clusters -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def new_leader(cluster: Cluster, group: GroupId) -> None:
    old = cluster.leader(group).config.node_id
    cluster.stop(old)
    cluster.leader(group)
    cluster.start(old)
    cluster.run(2_000)


def test_no_node_sends_a_consumer_control_records_and_replicas_get_them_all(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a", b"b"))
    new_leader(cluster, group)
    cluster.produce(group, batch(b"c"))
    cluster.run(2_000)
    logs = set()
    for node in cluster.nodes.values():
        partition = node.partitions[group]
        result = cluster.fetch(node, group, 0)
        require_shown(bytes(result.records), 0, result.high_watermark)
        assert [record.value for record in decode_records(result.records)] == [b"a", b"b", b"c"]
        whole = partition.log.read(Offset(0), partition.log.end_offset, MIB)
        assert sum(header.is_control for header in iterate_headers(whole)) >= 2
        logs.add(whole)
    assert len(logs) == 1


def test_a_consumer_of_the_metadata_log_gets_none_either(cluster: Cluster) -> None:
    result = cluster.fetch(cluster.leader(), METADATA_GROUP, 0)
    require_shown(bytes(result.records), 0, result.high_watermark)


def test_batches_without_records_wait_a_moment_for_records(cluster: Cluster) -> None:
    """A consumer that goes on behind its last record alone would ask again at once, and for ever."""
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    for wait_ms, answered_after_ms in ((5_000, EMPTY_WAIT_MS_MAX), (20, 20)):
        answers = cluster.send(leader, ApiKey.FETCH, fetch_request(group, 0, wait_ms=wait_ms))
        cluster.run(answered_after_ms - 2)
        assert not answers
        cluster.run(4)
        assert shape(answers[0].topics[0].partitions[0].records) == [(0, 0)]
        assert not leader.partitions[group]._watermark_waiters
    assert shape(cluster.ask(leader, ApiKey.FETCH, fetch_request(group, 0), wait_ms=1).topics[0].partitions[0].records) == [
        (0, 0)
    ]


def test_a_record_that_comes_meanwhile_comes_with_them_at_once(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    answers = cluster.send(cluster.leader(group), ApiKey.FETCH, fetch_request(group, 0, wait_ms=5_000))
    assert cluster.produce(group, batch(b"a")).error is ErrorCode.NONE
    cluster.run(2)
    end = parse_end(answers[0].topics[0].partitions[0].records)
    assert end == cluster.leader(group).partitions[group].high_watermark


def parse_end(data: bytes) -> int:
    *_, (base, count) = shape(data)
    assert count == 1
    return base + count


def test_a_consumer_at_the_end_hears_of_a_new_leader_a_moment_later(cluster: Cluster) -> None:
    """The request was parked before there was such a batch: its wait becomes short then, and no shorter by further looks."""
    (group,) = cluster.create_topic("t")
    end = cluster.produce(group, batch(b"a")).base_offset + 1
    node = cluster.followers(group)[0]
    cluster.run(1_000)
    answers = cluster.send(node, ApiKey.FETCH, fetch_request(group, end, wait_ms=60_000))
    cluster.stop(cluster.leader(group).config.node_id)
    cluster.run(20_000, until=lambda: node.partitions[group].high_watermark > end)
    assert not answers
    cluster.run(EMPTY_WAIT_MS_MAX + 2)
    assert shape(answers[0].topics[0].partitions[0].records) == [(end, 0)]


def test_a_partition_with_records_is_answered_with_those_of_one_without(cluster: Cluster) -> None:
    first, second = cluster.create_topic("t", 2)
    cluster.produce(second, batch(b"a"))
    leader = cluster.leader(second)
    cluster.run(5_000, until=lambda: leader.partitions[first].high_watermark > 0)
    request = fetch_request(first, 0, wait_ms=5_000)
    request.topics[0].partitions += fetch_request(second, 0).topics[0].partitions
    answers = cluster.send(leader, ApiKey.FETCH, request)
    cluster.run(1)
    sizes = [len(shape(part.records)) for part in answers[0].topics[0].partitions]
    assert sizes[0] >= 1 and sizes[1] >= 2


# --- one partition alone --------------------------------------------------------------------------------------------------


class World(RemoteWorld):
    """The services that a read of one partition needs. A disk that fails is noted in `found`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        tier: Any = self.tier
        self.found: list[object] = []
        findings = SimpleNamespace(found=lambda *what: self.found.append(what), on_too_many=self.found.append)
        reads = RemoteReads(self.ground.engine, self.remote_log, tier, self.tally, AtOnce())
        self.services: Any = SimpleNamespace(remote_reads=reads, findings=findings)

    def read(self, partition: Partition, offset: int, size_max: int = 1) -> Any:
        return read_shown(self.services, partition, offset, size_max)


def append_control(ground: Ground, partition: Partition, type_: int, count: int = 1, **fields: Any) -> None:
    """Control batches as a leader would write them: each with one record."""
    for _ in range(count):
        made = build_batch([Record(key=struct.pack(">hh", 0, type_), value=bytes(6))], timestamp_ms=1, control=True, **fields)
        headers = tuple(iterate_headers(made))
        partition.appending.append(PendingAppend(made, headers, 1 << 40, lambda error, offset: None, idempotent=False))
        ground.append_waiting(partition)


@pytest.mark.parametrize("segment_bytes", [100, MIB])
def test_batches_behind_empty_ones_come_with_them_also_over_the_end_of_a_segment(segment_bytes: int) -> None:
    ground = Ground(segment_bytes=segment_bytes)
    world = World()
    partition = ground.lead()
    append_control(ground, partition, 2, count=3)
    ground.append(partition, b"a" * 80)
    ground.append(partition, b"b")
    assert len(partition.log.segments()) == (1 if segment_bytes == MIB else 6)
    assert shape(world.read(partition, 0).data) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]
    assert shape(world.read(partition, 2).data) == [(2, 0), (3, 0), (4, 1)]
    assert shape(world.read(partition, 4).data) == [(4, 1)]
    assert shape(world.read(partition, 4, MIB).data)[0] == (4, 1)


def test_a_read_ends_at_the_high_watermark_and_after_some_rounds() -> None:
    ground, world = Ground(), World()
    partition = ground.lead()
    append_control(ground, partition, 2, count=READS_MAX + 4)
    ground.append(partition, b"a")
    assert len(shape(world.read(partition, 0).data)) == READS_MAX
    assert shape(world.read(partition, 0, MIB).data)[-1] == (READS_MAX + 5, 1)
    partition.high_watermark = Offset(3)
    assert shape(world.read(partition, 1).data) == [(1, 0), (2, 0)]


def test_a_marker_of_a_transaction_is_shown_as_it_is() -> None:
    ground, world = Ground(), World()
    partition = ground.lead()
    append_control(ground, partition, 1, transactional=True)
    ground.append(partition, b"a")
    data = world.read(partition, 0, MIB).data
    assert shape(data) == [(0, 0), (1, 1), (2, 1)]
    assert [header.is_control for header in iterate_headers(data)] == [False, True, False]
    assert data[HEADER_BYTES:] == partition.log.read(Offset(1), Offset(3), MIB)


def test_what_others_get_of_the_log_keeps_its_control_batches() -> None:
    ground = Ground()
    partition = ground.lead()
    real = partition.read_intact(Offset(0), Offset(1), MIB)
    assert [header.is_control for header in iterate_headers(real)] == [True]
    assert partition.read_intact(Offset(0), Offset(1), MIB, check_crc=False) == real
    assert len(partition.read_shown(Offset(0), Offset(1), MIB)) == HEADER_BYTES < len(real)


def last_is_control(world: World) -> Partition:
    """Of offsets 0 to 5, which the table alone has, the last is Raft's; the log goes on with 6."""
    partition = world.partition(batches=4, local_from=0, copied=5)
    append_control(world.ground, partition, 2)
    world.ground.append(partition, b"z" * 50)
    world.tier.data[partition.group] = partition.log.read(Offset(0), partition.log.end_offset, 1 << 30)
    world.say(partition, 0, 6)
    world.trim(partition, 6)
    return partition


def test_empty_batches_at_the_end_of_the_table_come_with_what_the_log_has_behind_them() -> None:
    world = World()
    partition = last_is_control(world)
    found = world.read(partition, 5)
    assert (found.data, found.missing) == (b"", 5)
    world.services.remote_reads.ask(partition, 5)
    world.tier.give()
    assert shape(world.read(partition, 5).data) == [(5, 0), (6, 1)]


def test_a_piece_behind_empty_batches_that_is_not_here_is_asked_for() -> None:
    world = World()
    partition = last_is_control(world)
    world.services.remote_reads.ask(partition, 0)
    _, done = world.tier.reads.pop()
    done(world.batches(partition, 0, 1))
    found = world.read(partition, 0)
    assert (shape(found.data), found.missing) == ([(0, 0)], 1)
    world.services.remote_reads.ask(partition, 1)
    world.tier.answer(LOST)
    found = world.read(partition, 0)
    assert (found.data, found.error, found.missing) == (b"", ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_damage_behind_empty_batches_is_found_and_told() -> None:
    ground, world = Ground(segment_bytes=100), World()
    partition = ground.lead()
    ground.append(partition, b"a" * 80)
    read = partition.log.read

    def spoilt(start: Offset, limit: Offset, size_max: int) -> bytes:
        data = bytearray(read(start, limit, size_max))
        if start == 1:
            data[-1] ^= 1
        return bytes(data)

    partition.log.read = spoilt  # type: ignore[method-assign]
    assert world.read(partition, 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    ((group, damage),) = world.found  # type: ignore[misc]
    assert group == partition.group and isinstance(damage, StorageError)
