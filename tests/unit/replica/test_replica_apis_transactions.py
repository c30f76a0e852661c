"""What transactional producers and tools are answered, at a cluster whose partitions write real markers."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from typing import Any

import pytest

from producerkit import TxnProducer, added, commits_of, committed_values, marker_count, message
from raftlake.errors import ErrorCode, code_of
from raftlake.kv.commands import EndTxn, Put, Txn
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeOutcome
from raftlake.replica.transaction_entry import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    ID_BRACKETS_MAX,
    PARTITIONS_MAX,
    TransactionState,
    transaction_key,
)
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster

E = ErrorCode


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def begun(cluster: Cluster, name: str = "tx", **fields: Any) -> TxnProducer:
    producer = TxnProducer(cluster, name, **fields)
    assert producer.init() is E.NONE
    return producer


# --- transactions from beginning to end ---


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 3)
    one, two = begun(cluster, "one"), begun(cluster, "two")
    assert one.producer_id != two.producer_id
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        for producer in (one, two):
            assert producer.add(*groups[:2]) is E.NONE
        for group in groups[:2]:
            assert one.produce(group, b"1" + value) is E.NONE
            assert two.produce(group, b"2" + value) is E.NONE
        assert one.end(commit) is E.NONE
        assert two.end(not commit) is E.NONE
    one.settle("CompleteCommit")
    two.settle("CompleteAbort")
    for node in cluster.nodes.values():
        for group in groups[:2]:
            cluster.run(2_000, until=lambda group=group, node=node: node.partitions[group].high_watermark >= 13)
            assert committed_values(cluster, group, node) == [b"1a", b"2b", b"1c"]
    assert [marker_count(cluster, group) for group in groups] == [6, 6, 0]


def test_a_transaction_of_one_partition_takes_two_commits_of_the_metadata_log_and_two_of_the_partition(
    cluster: Cluster,
) -> None:
    """The next transaction takes the place of Complete*."""
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    producer.transact([group], b"first")

    def ten_more() -> None:
        for _ in range(10):
            producer.transact([group], b"x")

    assert commits_of(cluster, METADATA_GROUP, ten_more) == 20
    producer.settle("CompleteCommit")
    assert commits_of(cluster, METADATA_GROUP, lambda: cluster.run(5_000)) == 0
    assert cluster.leader(group).partitions[group].log.end_offset == 1 + 22


def test_a_transaction_without_partitions_that_wrote_ends_too(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 2)
    producer = begun(cluster)
    assert producer.add(*groups) is E.NONE
    assert producer.produce(groups[0], b"a") is E.NONE
    assert producer.end(False) is E.NONE
    producer.settle("CompleteAbort")
    assert [marker_count(cluster, group) for group in groups] == [1, 0]


def test_ends_are_answered_alike_when_they_are_asked_for_again(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    for commit in (True, False):
        producer = begun(cluster, f"tx-{commit}")
        assert producer.end(commit) is E.INVALID_TXN_STATE
        assert producer.add(group) is E.NONE
        both = [producer.ask_end(commit), producer.ask_end(commit), producer.ask_end(not commit)]
        cluster.run(5_000, until=lambda both=both: all(both))
        assert [code_of(answers[0].error_code) for answers in both] == [E.NONE, E.NONE, E.INVALID_TXN_STATE]
        producer.settle("CompleteCommit" if commit else "CompleteAbort")
        assert [producer.end(commit), producer.end(not commit)] == [E.NONE, E.INVALID_TXN_STATE]


def test_adding_partitions_again_changes_nothing(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 3)
    producer = begun(cluster)
    assert producer.add(groups[0]) is E.NONE
    assert producer.add(*groups[:2]) is E.NONE
    before = cluster.leader().kv.machine.get(transaction_key("tx"))
    assert [producer.add(group) for group in groups[:2]] == [E.NONE, E.NONE]
    assert cluster.leader().kv.machine.get(transaction_key("tx")) == before
    known = producer.known()
    assert known is not None
    assert known.partitions == {(group.topic_id, group.partition) for group in groups[:2]}


# --- who may ask ---


@pytest.mark.parametrize(
    ("version", "fenced"),
    [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED), (3, E.PRODUCER_FENCED)],
)
def test_older_epochs_and_strangers_are_refused_in_the_words_of_their_version(
    cluster: Cluster, version: int, fenced: ErrorCode
) -> None:
    (group,) = cluster.create_topic("t")
    old, new = begun(cluster), begun(cluster)
    assert (old.producer_id, old.epoch, new.epoch) == (new.producer_id, 0, 1)
    assert old.add(group, version=version) is fenced
    assert new.add(group, version=version) is E.NONE
    assert old.end(True, version=version) is fenced
    stranger = TxnProducer(cluster)
    stranger.producer_id, stranger.epoch = new.producer_id + 1, 1
    unheard = TxnProducer(cluster, "unheard")
    unheard.producer_id, unheard.epoch = new.producer_id, 1
    for other in (stranger, unheard):
        assert other.add(group, version=version) is E.INVALID_PRODUCER_ID_MAPPING
        assert other.end(True, version=version) is E.INVALID_PRODUCER_ID_MAPPING
    assert new.end(True, version=version) is E.NONE


def test_another_node_than_the_coordinator_says_so(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    for node in cluster.followers():
        for error in (producer.init(node=node), producer.add(group, node=node), producer.end(node=node)):
            assert error is E.NOT_COORDINATOR


def test_partitions_that_there_are_not_are_told_and_the_others_are_not_added(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    asked = [group, GroupId("t", 1), GroupId("unheard", 0), METADATA_GROUP]
    answers = producer.ask_add(*asked)
    cluster.run(2_000, until=lambda: bool(answers))
    assert added(answers[0]) == {
        ("t", 0): E.OPERATION_NOT_ATTEMPTED,
        ("t", 1): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("unheard", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("__cluster_metadata", 0): E.INVALID_TOPIC_EXCEPTION,
    }
    assert producer.state() == "Empty"


@pytest.mark.parametrize("length", [0, 1, 256, 257, 32_767, 32_768])
def test_ids_of_any_length_that_kafka_takes(cluster: Cluster, length: int) -> None:
    (group,) = cluster.create_topic("t")
    told: list[Any] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    producer = TxnProducer(cluster, "ü" * (length // 2) + "x" * (length % 2))
    error = producer.init()
    if 1 <= length <= 32_767:
        assert error is E.NONE
        producer.transact([group], b"v")
        producer.settle("CompleteCommit")
        assert told == []
    else:
        assert error is E.INVALID_REQUEST
        assert [f"not {length}" in each.why for each in told] == [True]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_ids_of_as_many_brackets_as_a_node_reads_back(cluster: Cluster, more: int) -> None:
    """An id of more got a producer id whose every request failed, and a key that nobody could delete."""
    (group,) = cluster.create_topic("t")
    told: list[Any] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    producer = TxnProducer(cluster, "[" * (ID_BRACKETS_MAX + more))
    if more <= 0:
        assert producer.init() is E.NONE
        producer.transact([group], b"v")
        producer.settle("CompleteCommit")
        assert told == []
    else:
        assert [producer.init(), producer.init()] == [E.INVALID_REQUEST] * 2
        assert "brackets" in told[0].why
        assert cluster.leader().kv.machine.get(transaction_key(producer.transactional_id)) is None


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [(0, E.INVALID_TRANSACTION_TIMEOUT), (1, E.NONE), (900_000, E.NONE), (900_001, E.INVALID_TRANSACTION_TIMEOUT)],
)
def test_the_time_limit_of_a_transaction_is_limited(cluster: Cluster, timeout_ms: int, error: ErrorCode) -> None:
    assert TxnProducer(cluster, timeout_ms=timeout_ms).init() is error


def test_half_a_producer_is_no_request(cluster: Cluster) -> None:
    producer = begun(cluster)
    for expected in ((producer.producer_id, -1), (-1, 0)):
        assert producer.init(expected=expected) is E.INVALID_REQUEST


def test_there_are_so_many_ids_and_no_more() -> None:
    cluster = Cluster(1, transactional_ids_max=2)
    told: list[Any] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    one, _ = begun(cluster, "one"), begun(cluster, "two")
    assert TxnProducer(cluster, "three").init() is E.POLICY_VIOLATION
    assert ["transactional.ids.max" in each.why for each in told] == [True]
    assert one.init() is E.NONE


def test_a_transaction_has_so_many_partitions_and_no_more() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    node = cluster.leader()
    topic = node.names.topic("t")
    assert topic is not None
    wide = [GroupId("t", index) for index in range(PARTITIONS_MAX + 1)]
    node.names.add(topic.with_partitions(len(wide), None))
    assert producer.add(*wide) is E.POLICY_VIOLATION
    assert producer.add(*wide[1:]) is E.NONE
    assert producer.add(group) is E.POLICY_VIOLATION


# --- InitProducerId (KIP-360) ---


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_names_itself_gets_its_next_epoch_once(cluster: Cluster, version: int) -> None:
    producer = begun(cluster)
    me = (producer.producer_id, producer.epoch)
    for _ in range(3):
        assert producer.init(expected=me, version=version) is E.NONE
        assert (producer.producer_id, producer.epoch) == (me[0], 1)
    assert producer.init(expected=(me[0], 1), version=version) is E.NONE
    assert producer.epoch == 2
    fenced = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
    for stranger in (me, (me[0], 3), (me[0] + 1, 2)):
        assert producer.init(expected=stranger, version=version) is fenced
    known = producer.known()
    assert known is not None
    assert known.epoch == 2


def test_whoever_takes_over_fences_whoever_had_the_id(cluster: Cluster) -> None:
    producer = begun(cluster)
    me = (producer.producer_id, producer.epoch)
    assert begun(cluster).epoch == 1
    assert producer.init(expected=me) is E.PRODUCER_FENCED


def test_two_that_take_over_at_once_get_different_epochs(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    first = begun(cluster)
    assert first.add(group) is E.NONE
    assert first.produce(group, b"lost") is E.NONE
    rivals = [TxnProducer(cluster) for _ in range(3)]
    answers = [rival.ask_init() for rival in rivals]
    cluster.run(20_000, until=lambda: all(answers))
    # 1 is that of the abort, which nobody gets.
    assert [(code_of(each[0].error_code), each[0].producer_epoch) for each in answers] == [
        (E.NONE, 2),
        (E.NONE, 3),
        (E.NONE, 4),
    ]
    assert first.add(group) is E.PRODUCER_FENCED
    assert first.produce(group, b"late") is E.INVALID_PRODUCER_EPOCH
    assert committed_values(cluster, group) == []
    assert cluster.leader(group).partitions[group].last_stable_offset == cluster.leader(group).partitions[group].high_watermark


def test_a_producer_that_begins_anew_over_its_own_transaction_gets_the_epoch_of_the_abort(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    me = (producer.producer_id, producer.epoch)
    assert producer.add(group) is E.NONE
    assert producer.produce(group, b"lost") is E.NONE
    answers = [producer.ask_init(expected=me), producer.ask_init(expected=me)]
    cluster.run(20_000, until=lambda: all(answers))
    assert [(code_of(each[0].error_code), each[0].producer_epoch) for each in answers] == [(E.NONE, 1), (E.NONE, 1)]
    assert producer.init(expected=me) is E.NONE
    assert producer.epoch == 1
    producer.transact([group], b"kept")
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"kept"]


def set_epoch(producer: TxnProducer, epoch: int) -> None:
    """Count the producer's epoch on as by as many InitProducerIds."""
    from dataclasses import replace

    from txnkit import put

    known = producer.known()
    assert known is not None
    put(producer.cluster, replace(known, epoch=epoch))
    producer.epoch = epoch


@pytest.mark.parametrize("names_itself", [True, False])
def test_a_producer_whose_epochs_are_used_up_gets_another_id(cluster: Cluster, names_itself: bool) -> None:
    producer = begun(cluster)
    set_epoch(producer, EPOCH_EXHAUSTED - 1)
    old_id = producer.producer_id
    assert producer.init() is E.NONE
    assert (producer.producer_id, producer.epoch) == (old_id, EPOCH_EXHAUSTED)
    me = (old_id, EPOCH_EXHAUSTED)
    assert producer.init(expected=me if names_itself else (-1, -1)) is E.NONE
    first = producer.producer_id
    assert (first != old_id, producer.epoch) == (True, 0)
    again = producer.init(expected=me)
    assert (again, producer.producer_id) == (E.NONE if names_itself else E.PRODUCER_FENCED, first)
    assert producer.epoch == 0


def test_the_last_epoch_is_for_the_abort_alone(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    for names_itself in (True, False):
        producer = begun(cluster, f"tx-{names_itself}")
        set_epoch(producer, EPOCH_EXHAUSTED)
        me = (producer.producer_id, producer.epoch)
        assert producer.add(group) is E.NONE
        assert producer.produce(group, b"lost") is E.NONE
        assert producer.init(expected=me if names_itself else (-1, -1)) is E.NONE
        assert (producer.producer_id != me[0], producer.epoch) == (True, 0)
        producer.transact([group], b"kept")
        producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"kept", b"kept"]


@pytest.mark.parametrize("raises", [False, True])
def test_the_epoch_of_the_last_abort_begins_no_transaction(cluster: Cluster, raises: bool) -> None:
    """Nothing could end it: an abort raises the epoch."""
    (group,) = cluster.create_topic("t")
    producer = begun(cluster, timeout_ms=1_000, raises=raises)
    set_epoch(producer, EPOCH_EXHAUSTED)
    assert (producer.add(group), producer.produce(group, b"lost")) == (E.NONE, E.NONE)
    producer.settle("CompleteAbort")
    known = producer.known()
    assert known is not None and known.epoch == EPOCH_MAX
    assert producer.add(group) is E.PRODUCER_FENCED
    producer.epoch = EPOCH_MAX
    producer._sequences.clear()
    for _ in range(2):
        assert producer.add(group) is E.PRODUCER_FENCED
        refused = E.INVALID_PRODUCER_EPOCH if raises else E.TRANSACTION_ABORTABLE
        assert producer.produce(group, b"forged") is refused
    assert producer.state() == "CompleteAbort"
    old_id = producer.producer_id
    assert producer.init() is E.NONE
    assert (producer.producer_id != old_id, producer.epoch) == (True, 0)
    producer.transact([group], b"kept")
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"kept"]


@pytest.mark.parametrize("by_time", [True, False])
def test_what_an_earlier_release_began_in_the_last_epoch_ends(cluster: Cluster, by_time: bool) -> None:
    from dataclasses import replace

    from txnkit import put

    (group,) = cluster.create_topic("t")
    producer = begun(cluster, timeout_ms=1_000 if by_time else 60_000)
    assert producer.add(group) is E.NONE
    known = producer.known()
    assert known is not None
    fenced = replace(known.decided(False), epoch=1)
    put(cluster, fenced)
    put(cluster, fenced.completed())
    put(cluster, replace(fenced.completed(), epoch=EPOCH_MAX, state=TransactionState.EMPTY))
    put(cluster, replace(known, epoch=EPOCH_MAX))
    if by_time:
        producer.settle("CompleteAbort")
        assert producer.state() == "CompleteAbort"
    assert producer.init() is E.NONE
    assert (producer.producer_id != known.producer_id, producer.epoch, producer.state()) == (True, 0, "Empty")
    producer.transact([group], b"kept")


# --- what waits ---


def test_what_comes_while_a_transaction_is_being_ended_waits_for_it(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 2)
    producer = begun(cluster)
    producer.transact(groups, b"a")
    assert producer.state() == "PrepareCommit"
    assert producer.add(groups[0]) is E.NONE
    known = producer.known()
    assert known is not None
    assert (known.state.value, known.ended.value, len(known.partitions)) == ("Ongoing", "commit", 1)


def test_what_waits_too_long_is_told_to_come_again() -> None:
    cluster = Cluster(5)
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    assert producer.add(group) is E.NONE
    assert producer.produce(group, b"a") is E.NONE
    coordinator = cluster.leader()
    cluster.overhear(lambda *_: None)
    coordinator.transactions.delivery._group = lambda *_: GroupId("nowhere", 0)  # type: ignore[method-assign]
    assert producer.end() is E.NONE
    begun_ms = cluster.now_ms
    assert producer.add(group) is E.CONCURRENT_TRANSACTIONS
    assert 4_900 <= cluster.now_ms - begun_ms <= 6_000
    assert producer.init() is E.CONCURRENT_TRANSACTIONS
    del coordinator.transactions.delivery._group  # type: ignore[method-assign]
    assert producer.add(group) is E.NONE


# --- end_txn beside other changes ---


def test_several_transactions_end_with_puts_or_none_of_it_happens(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 2)
    producers = [begun(cluster, f"tx-{number}") for number in range(3)]
    for number, producer in enumerate(producers):
        assert producer.add(*groups) is E.NONE
        assert producer.produce(groups[number % 2], b"%d" % number) is E.NONE
    ends = [EndTxn(producer.producer_id, producer.epoch, True) for producer in producers]
    outcomes: list[ProposeOutcome] = []

    def propose(*ops: Put | EndTxn) -> ProposeOutcome:
        outcomes.clear()
        cluster.leader().kv.propose(Txn((), ops), outcomes.append)
        cluster.run(5_000, until=lambda: bool(outcomes))
        return outcomes[0]

    wrong = EndTxn(producers[2].producer_id, 7, True)
    refused = propose(Put("progress", b"1"), *ends[:2], wrong).result
    assert refused is not None
    assert (refused.succeeded, [producer_id for producer_id, _ in refused.refused]) == (False, [wrong.producer_id])
    assert {producer.state() for producer in producers} == {"Ongoing"}
    done = propose(Put("progress", b"1"), *ends).result
    assert done is not None
    assert done.succeeded
    for producer in producers:
        producer.settle("CompleteCommit")
    assert sorted(committed_values(cluster, groups[0]) + committed_values(cluster, groups[1])) == [b"0", b"1", b"2"]


# --- tools ---


def describe(cluster: Cluster, *ids: str, node: Any = None) -> list[Any]:
    asked = message("describe_transactions", 0, "DescribeTransactionsRequest", transactional_ids=ids)
    answer = cluster.ask(node or cluster.leader(), ApiKey.DESCRIBE_TRANSACTIONS, asked)
    return list(answer.transaction_states)


def listed(cluster: Cluster, *, node: Any = None, version: int = 1, **filters: Any) -> Any:
    given = {"state_filters": (), "producer_id_filters": (), **({"duration_filter": -1} if version else {}), **filters}
    asked = message("list_transactions", version, "ListTransactionsRequest", **given)
    return cluster.ask(node or cluster.leader(), ApiKey.LIST_TRANSACTIONS, asked, version=version)


def test_transactions_are_described(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 3)
    producer, idle = begun(cluster, timeout_ms=7_000), begun(cluster, "idle")
    assert producer.add(*groups[1:]) is E.NONE
    found, empty, unknown, nameless = describe(cluster, "tx", "idle", "unheard", "")
    assert (found.error_code, found.transaction_state, found.producer_id) == (0, "Ongoing", producer.producer_id)
    assert (found.producer_epoch, found.transaction_timeout.total_seconds()) == (0, 7)
    assert [(topic.topic, tuple(topic.partitions)) for topic in found.topics] == [("t", (1, 2))]
    known = producer.known()
    assert known is not None
    assert found.transaction_start_time == datetime.fromtimestamp(known.started_ms / 1000, UTC)
    assert (empty.transaction_state, empty.producer_id, empty.topics) == ("Empty", idle.producer_id, ())
    assert code_of(unknown.error_code) is E.TRANSACTIONAL_ID_NOT_FOUND
    assert code_of(nameless.error_code) is E.INVALID_REQUEST
    (elsewhere,) = describe(cluster, "tx", node=cluster.followers()[0])
    assert code_of(elsewhere.error_code) is E.NOT_COORDINATOR


def test_of_a_decided_transaction_the_partitions_without_marker_are_described(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 2)
    producer = begun(cluster)
    producer.transact(groups, b"a")
    (found,) = describe(cluster, "tx")
    assert (found.transaction_state, [tuple(topic.partitions) for topic in found.topics]) == ("PrepareCommit", [(0, 1)])
    producer.settle("CompleteCommit")
    (found,) = describe(cluster, "tx")
    assert (found.transaction_state, found.topics, found.transaction_start_time.year) == ("CompleteCommit", (), 1969)


def test_transactions_are_listed_by_state_producer_and_duration(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producers = {name: begun(cluster, name) for name in ("empty", "long", "short", "done")}
    producers["done"].transact([group], b"a")
    assert producers["long"].add(group) is E.NONE
    cluster.run(30_000)
    assert producers["short"].add(group) is E.NONE

    def names(**filters: Any) -> set[str]:
        return {str(state.transactional_id) for state in listed(cluster, **filters).transaction_states}

    assert names() == names(version=0) == set(producers)
    assert names(state_filters=("Ongoing",)) == {"long", "short"}
    assert names(state_filters=("Empty", "CompleteCommit", "Dead")) == {"empty", "done"}
    assert listed(cluster, state_filters=("Dead", "Empty")).unknown_state_filters == ("Dead",)
    assert names(state_filters=("Dead",)) == set()
    assert names(producer_id_filters=(producers["done"].producer_id, 99_999)) == {"done"}
    assert names(duration_filter=20_000) == {"long"}
    assert names(duration_filter=0) == {"long", "short"} or names(duration_filter=0) == {"long"}
    answer = listed(cluster, node=cluster.followers()[0])
    assert (answer.error_code, answer.transaction_states) == (0, ())


def test_the_answers_of_all_versions_are_of_kafkas_schemas(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    for version in range(5):
        producer = TxnProducer(cluster, f"tx-{version}")
        answers = producer.ask_init(version=version)
        cluster.run(5_000, until=lambda answers=answers: bool(answers))
        assert isinstance(
            answers[0], importlib.import_module(f"kio.schema.init_producer_id.v{version}.response").InitProducerIdResponse
        )
        producer.producer_id, producer.epoch = answers[0].producer_id, answers[0].producer_epoch
        assert producer.add(group, version=min(version, 3)) is E.NONE
        assert producer.end(version=version) is E.NONE


def test_a_full_key_space_takes_no_new_id_and_ends_what_is_open() -> None:
    cluster = Cluster(kv_quota_bytes=20_000)
    (group,) = cluster.create_topic("t")
    told: list[Any] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    producer, slow = begun(cluster), begun(cluster, "slow", timeout_ms=5_000)
    for each in (producer, slow):
        assert each.add(group) is E.NONE
        assert each.produce(group, each.transactional_id.encode()) is E.NONE
    outcomes: list[ProposeOutcome] = []
    left = 20_000 - cluster.leader().kv.machine.size - 150
    cluster.leader().kv.propose(Txn((), (Put("users", bytes(left)),)), outcomes.append)
    cluster.run(5_000, until=lambda: bool(outcomes))
    assert TxnProducer(cluster, "x" * 300).init() is E.POLICY_VIOLATION
    assert ["kv.quota.bytes" in each.why for each in told] == [True]
    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    slow.settle("CompleteAbort")
    assert producer.init() is E.NONE
    assert committed_values(cluster, group) == [b"tx"]
