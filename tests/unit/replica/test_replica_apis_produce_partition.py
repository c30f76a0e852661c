"""The life of an append through the driver: validation, batching of a turn, acknowledgement, idempotence, lost leadership."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft.actions import AppendRecords
from raftlake.replica.config import METADATA_GROUP
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import HEADER_BYTES, assemble_batch, decode_records, iterate_headers
from raftlake.wire.compression import Compression, compress
from replica_cluster import Cluster, batch, produce_request


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def test_an_acknowledged_append_is_durable_on_a_majority_and_readable_everywhere(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("durable")
    result = cluster.produce(group, batch(b"one", b"two"))
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)
    durable = [node_id for node_id, disk in cluster.disks.items() if disk.logs[group].durable_end >= 3]
    assert len(durable) >= 2
    # Whoever the majority can do without is told in the next of its rounds.
    cluster.run(1000, until=lambda: all(node.partitions[group].high_watermark == 3 for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        fetched = cluster.fetch(node, group, 0)
        assert [record.value for record in decode_records(fetched.records or b"")] == [b"one", b"two"]
        assert fetched.high_watermark == 3


def test_requests_of_one_turn_are_one_write_in_order(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("turn")
    leader = cluster.leader(group)
    answers = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"%d" % i))) for i in range(20)]
    writes: list[int] = []
    log = leader.partitions[group].log
    append = log.append
    log.append = lambda chunks, spans: (writes.append(len(spans)), append(chunks, spans))[1]  # type: ignore[method-assign]
    cluster.run(1000, until=lambda: all(answers))
    assert writes == [20]
    assert [answer[0].topics[0].partitions[0].base_offset for answer in answers] == list(range(1, 21))


def test_batches_are_stamped_with_offset_and_epoch_and_keep_their_crc(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("stamped")
    cluster.produce(group, batch(b"a"), batch(b"b", b"c"))
    leader = cluster.leader(group)
    data = leader.partitions[group].log.read(1, 4, 1 << 20)  # type: ignore[arg-type]
    headers = list(iterate_headers(data))
    assert [header.base_offset for header in headers] == [1, 2]
    assert {header.leader_epoch for header in headers} == {leader.partitions[group].core.epoch}
    assert [record.value for record in decode_records(data)] == [b"a", b"b", b"c"]


def test_an_append_is_answered_whose_topic_is_deleted_in_the_same_turn(cluster: Cluster) -> None:
    """It was taken into the log's sequence, and the deletion was applied before it was written: nobody answered, and all later
    answers of its connection waited behind it."""
    (group,) = cluster.create_topic("gone")
    leader = cluster.leader(group)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"late")))
    partition = leader.partitions[group]
    leader.turn.step_appends()
    assert not answers and any(isinstance(action, AppendRecords) for action in partition.outbox)
    leader.hosting.close([group])
    cluster.run(1000, until=lambda: bool(answers))
    assert answers[0].topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_retried_batch_of_an_idempotent_producer_is_acknowledged_once_in_the_log(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("idempotent")
    first = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    again = bytearray(first)
    assert cluster.produce(group, first).base_offset == 1
    retry = cluster.produce(group, again)
    assert (retry.error, retry.base_offset) == (ErrorCode.NONE, 1)
    gap = cluster.produce(group, batch(b"z", producer_id=9, producer_epoch=0, base_sequence=5))
    assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.leader(group).partitions[group].core.log_end == 2


def test_deduplication_survives_failover_and_restart() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    sent = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    again, once_more = bytearray(sent), bytearray(sent)
    assert cluster.produce(group, sent).base_offset == 1
    old = cluster.leader(group).config.node_id
    cluster.stop(old)
    assert cluster.produce(group, again).base_offset == 1
    cluster.start(old)
    cluster.run(500)
    others = [node_id for node_id in cluster.nodes if node_id != old]
    # Only the restarted node and one other stay: its state was rebuilt from the log.
    cluster.stop(others[0])
    assert cluster.produce(group, once_more).base_offset == 1


def numbered(sequence: int) -> bytearray:
    return batch(b"%d" % sequence, producer_id=4_000, producer_epoch=0, base_sequence=sequence)


def test_a_leader_that_was_replaced_without_knowing_it_calls_nothing_a_gap() -> None:
    """Simulator, seed 240 at commit 31c25fb. It lacked what its successor had appended and told of a gap in the numbers
    (OUT_OF_ORDER_SEQUENCE_NUMBER), for which real clients end."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    old = cluster.leader(group)
    me = old.config.node_id
    assert cluster.produce(group, numbered(0)).error is ErrorCode.NONE
    others = [node_id for node_id in cluster.voters if node_id != me]
    cluster.cut(me, *others)
    successors = [cluster.nodes[other] for other in others]
    # A follower gives its leader up after a fetch timeout, a leader itself after one and a half.
    cluster.run(20_000, until=lambda: any(node.partitions[group].is_serving for node in successors))
    successor = next(node for node in successors if node.partitions[group].core.is_leader)
    for sequence in (1, 2):
        assert cluster.produce(group, numbered(sequence), node=successor).error is ErrorCode.NONE
    assert old.partitions[group].core.is_leader, "it has not noticed yet"
    answers = cluster.send(old, ApiKey.PRODUCE, produce_request(group, numbered(3), timeout_ms=60_000))
    cluster.run(10)
    assert not answers
    cluster.run(20_000, until=lambda: bool(answers))
    assert answers[0].topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.produce(group, numbered(3), node=successor).error is ErrorCode.NONE


def test_a_gap_is_told_by_the_leader_and_closed_by_what_is_missing(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("gap")
    assert cluster.produce(group, numbered(0)).error is ErrorCode.NONE
    assert [cluster.produce(group, numbered(sequence)).error for sequence in (2, 3)] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    assert [cluster.produce(group, numbered(sequence)).base_offset for sequence in (1, 2, 3)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda raw: raw.__setitem__(slice(-1, None), b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        (lambda raw: raw.__delitem__(slice(-3, None)), ErrorCode.CORRUPT_MESSAGE),
        (lambda raw: raw.clear(), ErrorCode.INVALID_RECORD),
    ],
)
def test_damaged_batches_are_refused_and_nothing_is_written(cluster: Cluster, change: object, expected: ErrorCode) -> None:
    group = cluster.create_topic(f"damaged-{cluster.now_ms}")[0]
    raw = batch(b"payload")
    change(raw)  # type: ignore[operator]
    assert cluster.produce(group, raw).error is expected
    assert cluster.leader(group).partitions[group].core.log_end == 1


def sealed(payload: bytes, *, codec: int, count: int) -> bytearray:
    """A batch with a right CRC, whatever its payload is."""
    return assemble_batch(
        payload,
        attributes=codec,
        base_offset=0,
        leader_epoch=-1,
        base_timestamp_ms=1,
        timestamp_ms_max=1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def test_compressed_garbage_with_a_right_crc_is_refused(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("garbage")
    for codec in (1, 2, 3, 4):
        raw = sealed(b"\x00\x01garbage that no codec wrote", codec=codec, count=1)
        assert cluster.produce(group, raw).error is ErrorCode.INVALID_RECORD, codec


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_whose_records_nobody_could_read_is_refused(cluster: Cluster, codec: Compression) -> None:
    """One of them in the log would stop every reader of the partition for good."""
    (group,) = cluster.create_topic(f"unreadable-{codec.name.lower()}")
    whole = bytes(batch(b"one", b"two"))[HEADER_BYTES:]
    for payload, count in ((whole, 3), (whole, 1), (whole[:-1], 2), (whole + b"rest", 2), (b"", 2), (b"\xd0\x0fx", 1)):
        raw = sealed(compress(codec, payload), codec=codec, count=count)
        assert cluster.produce(group, raw).error is ErrorCode.INVALID_RECORD
    assert cluster.produce(group, batch(b"one", b"two")).error is ErrorCode.NONE


def test_clients_may_write_neither_control_batches_nor_the_metadata_log_nor_oversized_batches(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("refused")
    assert cluster.produce(group, batch(b"x", control=True)).error is ErrorCode.INVALID_RECORD
    assert cluster.produce(METADATA_GROUP, batch(b"x")).error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    too_large = batch(bytes(cluster.leader(group).config.message_bytes_max + 1))
    assert cluster.produce(group, too_large).error is ErrorCode.MESSAGE_TOO_LARGE
    assert cluster.produce(group, batch(b"x"), acks=5).error is ErrorCode.INVALID_REQUIRED_ACKS


def test_a_follower_refuses_and_names_the_leader(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("follower")
    leader = cluster.leader(group)
    result = cluster.produce(group, batch(b"x"), node=cluster.followers(group)[0])
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader is not None
    assert result.current_leader.leader_id == leader.config.node_id


def test_acks_zero_is_appended_and_not_answered(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("acks-zero")
    answers = cluster.send(cluster.leader(group), ApiKey.PRODUCE, produce_request(group, batch(b"x"), acks=0))
    cluster.run(50)
    assert answers == [None]
    assert cluster.leader(group).partitions[group].high_watermark == 2


def test_without_a_majority_an_append_times_out_as_unknown_and_is_kept_if_the_next_leader_has_it() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut(me)
    result = cluster.produce(group, batch(b"lost?"), node=leader, timeout_ms=1000)
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    cluster.run(10_000)
    assert not leader.partitions[group].core.is_leader, "check quorum deposes a leader that nobody fetches from"
    cluster.heal()
    cluster.run(5_000)
    ends = {node.partitions[group].log.end_offset for node in cluster.nodes.values()}
    assert len(ends) == 1


def test_appends_in_flight_when_leadership_is_lost_are_unknown_for_plain_producers_and_retriable_for_idempotent_ones() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut(me)
    plain = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"p"), timeout_ms=60_000))
    idempotent = cluster.send(
        leader,
        ApiKey.PRODUCE,
        produce_request(group, batch(b"i", producer_id=3, producer_epoch=0, base_sequence=0), timeout_ms=60_000),
    )
    cluster.run(10_000, until=lambda: bool(plain) and bool(idempotent))
    assert plain[0].topics[0].partitions[0].error is ErrorCode.REQUEST_TIMED_OUT
    assert idempotent[0].topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_zero_is_under_way_until_it_is_written_and_nobody_waits_for_its_commit() -> None:
    """Else a producer that asks for no answer could fill the memory of a leader that cannot commit: it would never be made
    to wait, and each of its appends would be remembered until its time is over."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut(me)
    before = leader.partitions[group].log.end_offset
    answers = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x"), acks=0)) for _ in range(3)]
    assert answers == [[], [], []], "not written yet"
    cluster.run(1)
    assert answers == [[None], [None], [None]]
    assert leader.partitions[group].log.end_offset == before + 3
    assert not leader.partitions[group].waiting


def test_acks_zero_that_is_refused_is_over_too() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    follower = cluster.followers(group)[0]
    answers = cluster.send(follower, ApiKey.PRODUCE, produce_request(group, batch(b"x"), acks=0))
    cluster.run(1)
    assert answers == [None]
