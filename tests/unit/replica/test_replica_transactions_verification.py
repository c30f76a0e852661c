"""Which transactional batches a partition's leader takes: by the quorum's keys, by what is open, by their sequences."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.events import ResignRequested
from raftlake.replica.transaction_entry import TransactionState
from replica_cluster import Cluster, batch
from txnkit import (
    ID,
    PRODUCER,
    ByHand,
    begin,
    decide,
    end,
    fenced,
    hold_keys,
    lead,
    marker_of,
    produce,
    put,
    records,
    result_of,
    send,
    send_to,
    transaction,
    write_marker,
)


@pytest.fixture
def cluster() -> Cluster:
    return ByHand()


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("orders")
    return group


def test_a_batch_of_an_ongoing_transaction_is_appended_and_opens_it(cluster: Cluster, group: GroupId) -> None:
    begin(cluster, group)
    first = produce(cluster, group, records(b"a", sequence=0))
    second = produce(cluster, group, records(b"b", b"c", sequence=1))
    assert [(each.error, each.base_offset) for each in (first, second)] == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]
    partition = cluster.leader(group).partitions[group]
    assert partition.producers.open_transaction(PRODUCER) == 1 == partition.last_stable_offset


REFUSED = {
    "no transaction of the id": (None, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    "another id has the producer": ({"transactional_id": "others"}, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    "an older epoch": ({"epoch": 1}, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
    "nothing is open": ({"state": TransactionState.EMPTY}, 11, ErrorCode.TRANSACTION_ABORTABLE),
    "nothing is open, old client": ({"state": TransactionState.EMPTY}, 10, ErrorCode.INVALID_TXN_STATE),
}


@pytest.mark.parametrize(("fields", "version", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_a_batch_that_may_not_begin_is_refused_in_kafkas_words(
    cluster: Cluster, group: GroupId, fields: dict[str, object] | None, version: int, error: ErrorCode
) -> None:
    if fields is not None:
        begin(cluster, *([] if "state" in fields else [group]), **fields)
    assert produce(cluster, group, records(b"a", sequence=0), version=version).error is error
    assert cluster.leader(group).partitions[group].log.end_offset == 1


def test_the_partition_has_to_be_part_of_the_transaction(cluster: Cluster) -> None:
    one, other = cluster.create_topic("orders", 2)
    begin(cluster, one)
    assert produce(cluster, other, records(b"a", sequence=0)).error is ErrorCode.TRANSACTION_ABORTABLE
    assert produce(cluster, one, records(b"a", sequence=0)).error is ErrorCode.NONE


@pytest.mark.parametrize(("version", "error"), [(11, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)])
def test_while_a_transaction_is_being_ended_clients_are_to_come_again(
    cluster: Cluster, group: GroupId, version: int, error: ErrorCode
) -> None:
    decide(cluster, begin(cluster, group), commit=True)
    assert produce(cluster, group, records(b"a", sequence=0), version=version).error is error


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("version", [10, 11, 12])
def test_with_a_retired_epoch_no_batch_begins_a_transaction(
    cluster: Cluster, group: GroupId, version: int, is_complete: bool
) -> None:
    ended = begin(cluster, group).decided(True).retired()
    put(cluster, ended)
    if is_complete:
        put(cluster, ended.completed())
    refused = produce(cluster, group, records(b"a", sequence=0), version=version)
    assert refused.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.leader(group).partitions[group].log.end_offset == 1


def test_transactional_records_need_the_id_of_their_request(cluster: Cluster, group: GroupId) -> None:
    begin(cluster, group)
    refused = produce(cluster, group, records(b"a", sequence=0), transactional_id=None)
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    plain = produce(cluster, group, batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0), transactional_id=ID)
    assert plain.error is ErrorCode.NONE, "as Kafka: the id alone makes no batch transactional"


def test_transactional_records_need_a_producer(cluster: Cluster, group: GroupId) -> None:
    assert produce(cluster, group, batch(b"a", transactional=True)).error is ErrorCode.INVALID_RECORD


def test_a_batch_outside_of_the_transaction_is_refused_while_it_is_open(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    plain = batch(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=1)
    assert produce(cluster, group, plain).error is ErrorCode.INVALID_TXN_STATE
    other = batch(b"x", producer_id=8, producer_epoch=0, base_sequence=0)
    assert produce(cluster, group, other, transactional_id=None).error is ErrorCode.NONE, "another producer's"
    end(cluster, found, group, commit=True)
    assert produce(cluster, group, plain, transactional_id=None).error is ErrorCode.NONE


def test_a_repeated_batch_is_found_again_also_behind_its_marker(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    data = records(b"a", sequence=0)
    assert produce(cluster, group, data).base_offset == 1
    assert produce(cluster, group, data).base_offset == 1
    end(cluster, found, group, commit=True)
    late = produce(cluster, group, data)
    assert (late.error, late.base_offset) == (ErrorCode.NONE, 1)
    partition = cluster.leader(group).partitions[group]
    assert partition.producers.open_transaction(PRODUCER) is None
    assert partition.log.end_offset == 3


def test_a_batch_that_comes_after_the_marker_begins_nothing(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=False)
    assert write_marker(cluster, group, marker_of(decided, commit=False), at) is ErrorCode.NONE
    late = records(b"b", sequence=1)
    assert produce(cluster, group, late).error is ErrorCode.NOT_ENOUGH_REPLICAS
    put(cluster, decided.completed())
    assert produce(cluster, group, late).error is ErrorCode.TRANSACTION_ABORTABLE
    # Nor does it once the epoch is raised.
    put(cluster, transaction(epoch=1, state=TransactionState.EMPTY))
    assert produce(cluster, group, late).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.leader(group).partitions[group].producers.open_transaction(PRODUCER) is None


def test_a_batch_that_is_queued_behind_the_marker_begins_nothing(cluster: Cluster, group: GroupId) -> None:
    """Both come in one turn, when the transaction is still open."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    leader = cluster.leader(group)
    told: list[ErrorCode] = []
    leader.markers.write(group, marker_of(decided, commit=True), at, told.append)
    late = send(cluster, group, records(b"b", sequence=1))
    cluster.run(5_000, until=lambda: bool(told and late))
    assert told == [ErrorCode.NONE]
    assert result_of(late).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.partitions[group].last_stable_offset == 3 == leader.partitions[group].high_watermark


def test_a_newer_epoch_does_not_go_on_with_the_transaction_of_an_older_one(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    put(cluster, fenced(found))
    early = produce(cluster, group, records(b"b", sequence=0, epoch=1))
    assert early.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.leader(group).partitions[group].log.end_offset == 2


def test_the_next_transaction_of_the_same_epoch_goes_on_with_the_sequence(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    end(cluster, found, group, commit=True)
    begin(cluster, group)
    assert produce(cluster, group, records(b"b", sequence=1)).error is ErrorCode.NONE
    assert cluster.leader(group).partitions[group].producers.open_transaction(PRODUCER) == 3


# --- keys that are not applied yet -------------------------------------------------------------------------------------------


def led_elsewhere(cluster: Cluster) -> GroupId:
    """A partition whose leader does not lead the quorum's log."""
    groups = cluster.create_topic("spread", 3)
    return next(group for group in groups if cluster.leader(group) is not cluster.leader())


def test_the_first_batch_of_a_leadership_waits_for_one_read_of_the_keys(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    begin(cluster, group)
    leader = cluster.leader(group)
    reads: list[bool] = []
    read = leader.kv.read
    leader.kv.read = lambda linearizable, done: (reads.append(linearizable), read(linearizable, done))[1]  # type: ignore[method-assign]
    produce(cluster, group, records(b"a", sequence=0))
    begin(cluster, group, producer_id=8, transactional_id="others")
    other = produce(cluster, group, records(b"a", sequence=0, producer_id=8), transactional_id="others")
    assert other.error is ErrorCode.NONE
    assert reads == [True]


def test_batches_keep_their_order_while_the_first_one_waits(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    begin(cluster, group)
    answers = [send(cluster, group, records(b"%d" % sequence, sequence=sequence)) for sequence in range(5)]
    cluster.run(5_000, until=lambda: all(answers))
    assert [(result_of(each).error, result_of(each).base_offset) for each in answers] == [
        (ErrorCode.NONE, offset) for offset in range(1, 6)
    ]


def cut_off_from_the_keys(cluster: Cluster, group: GroupId) -> None:
    """The partition's leader goes on committing with the third node, and hears no more of the quorum's leader."""
    cluster.cut(cluster.leader(group).config.node_id, cluster.leader().config.node_id)


def test_a_key_that_is_not_applied_here_is_looked_up(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    end(cluster, found, group, commit=True)
    cut_off_from_the_keys(cluster, group)
    put(cluster, transaction(group), everywhere=False)
    answers = send(cluster, group, records(b"b", sequence=1))
    cluster.run(50)
    assert not answers
    cluster.heal()
    cluster.run(5_000, until=lambda: bool(answers))
    assert result_of(answers).error is ErrorCode.NONE


def test_a_batch_is_to_come_again_when_the_keys_cannot_be_read(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    cut_off_from_the_keys(cluster, group)
    answers = [send(cluster, group, records(b"a", sequence=sequence)) for sequence in (0, 1)]
    cluster.run(20_000, until=lambda: all(answers))
    assert {result_of(each).error for each in answers} == {ErrorCode.NOT_ENOUGH_REPLICAS}
    cluster.heal()
    begin(cluster, group)
    # What was refused comes again, and before what is behind it.
    assert produce(cluster, group, records(b"a", sequence=1)).error is ErrorCode.LEADER_NOT_AVAILABLE
    assert produce(cluster, group, records(b"a", sequence=0)).error is ErrorCode.NONE


def test_what_waits_for_the_keys_is_answered_when_the_leadership_ends(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    cut_off_from_the_keys(cluster, group)
    leader = cluster.leader(group)
    answers = send(cluster, group, records(b"a", sequence=0))
    cluster.run(20)
    assert not answers
    leader.engine.begin_input()
    leader.engine.step(leader.partitions[group], ResignRequested())
    cluster.run(1_000, until=lambda: bool(answers))
    assert result_of(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_waits_for_the_keys_is_answered_when_the_topic_goes(cluster: Cluster) -> None:
    group = led_elsewhere(cluster)
    cut_off_from_the_keys(cluster, group)
    answers = send(cluster, group, records(b"a", sequence=0))
    cluster.run(20)
    leader = cluster.leader(group)
    leader.hosting.close([group])
    cluster.run(1_000, until=lambda: bool(answers))
    assert result_of(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_looks_at_the_keys_as_of_now(cluster: Cluster) -> None:
    """It has a marker in its log, and the applied keys still call the transaction ongoing: a late batch would begin it anew."""
    group = led_elsewhere(cluster)
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    old, metadata = cluster.leader(group), cluster.leader()
    (third,) = [node for node in cluster.nodes.values() if node not in (old, metadata)]
    go_on = hold_keys(cluster, third)
    decided = found.decided(True)
    at = put(cluster, decided, everywhere=False)
    cluster.run(1_000, until=lambda: old.kv.machine.applied_offset >= at)
    assert write_marker(cluster, group, marker_of(decided, commit=True), at) is ErrorCode.NONE
    cluster.run(1_000, until=lambda: third.partitions[group].log.end_offset == old.partitions[group].log.end_offset)
    cluster.stop(old.config.node_id)
    lead(cluster, third, group)
    stale = third.kv.state.transaction_of(PRODUCER)
    assert stale is not None and stale.is_ongoing, "the case that is to be tested"
    late = send_to(cluster, third, group, records(b"b", sequence=1))
    cluster.run(50)
    assert not late
    go_on()
    cluster.run(10_000, until=lambda: bool(late))
    assert result_of(late).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert third.partitions[group].producers.open_transaction(PRODUCER) is None
