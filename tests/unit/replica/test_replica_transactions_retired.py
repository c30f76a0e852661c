"""Commands that end transactions beside keys, at a whole cluster: what the producer is answered afterwards, and commands that
come once more."""

from __future__ import annotations

from typing import Any

import pytest

from producerkit import TxnProducer, committed_values, message
from raftlake.errors import ErrorCode
from raftlake.kv.commands import EndTxn, Put, Txn
from raftlake.kv.machine import TxnResult
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster
from txnkit import lead

E = ErrorCode


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("t")
    return group


def begun(cluster: Cluster, group: GroupId, value: bytes, name: str = "tx") -> TxnProducer:
    """With one record in an open transaction."""
    producer = TxnProducer(cluster, name)
    assert producer.init() is E.NONE
    assert (producer.add(group), producer.produce(group, value)) == (E.NONE, E.NONE)
    return producer


def command(producer: TxnProducer, value: bytes, *, commit: bool = True) -> Txn:
    return Txn((), (Put("progress", value), EndTxn(producer.producer_id, producer.epoch, commit)))


def send(cluster: Cluster, txn: Txn) -> TxnResult:
    outcomes: list[Any] = []
    cluster.leader().kv.propose(txn, outcomes.append)
    cluster.run(5_000, until=lambda: bool(outcomes))
    assert outcomes[0].result is not None
    result: TxnResult = outcomes[0].result
    return result


def progress(cluster: Cluster) -> bytes | None:
    entry = cluster.leader().kv.machine.get("progress")
    return None if entry is None else entry.value


@pytest.mark.parametrize("waits", [True, False])
def test_a_command_that_comes_once_more_does_not_end_the_next_transaction(
    cluster: Cluster, group: GroupId, waits: bool
) -> None:
    producer = begun(cluster, group, b"first")
    ended = command(producer, b"1")
    assert send(cluster, ended).succeeded
    if waits:
        producer.settle("CompleteCommit")
        assert producer.produce(group, b"zombie") is E.INVALID_PRODUCER_EPOCH
    assert producer.add(group) is E.PRODUCER_FENCED
    last = producer.epoch
    assert (producer.init(), producer.epoch) == (E.NONE, last + 1)
    assert (producer.add(group), producer.produce(group, b"second")) == (E.NONE, E.NONE)
    assert send(cluster, command(producer, b"2")).succeeded
    producer.settle("CompleteCommit")
    assert producer.init() is E.NONE
    assert (producer.add(group), producer.produce(group, b"third")) == (E.NONE, E.NONE)

    late = send(cluster, ended)
    assert (late.succeeded, [producer_id for producer_id, _ in late.refused]) == (False, [producer.producer_id])
    assert (producer.state(), progress(cluster)) == ("Ongoing", b"2")
    assert producer.end(False) is E.NONE
    producer.settle("CompleteAbort")
    assert committed_values(cluster, group) == [b"first", b"second"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_retired_epoch_is_ended_once_more_in_the_same_way_alone(cluster: Cluster, group: GroupId, commit: bool) -> None:
    producer = begun(cluster, group, b"a")
    for number in range(2):
        assert send(cluster, command(producer, b"1", commit=commit)).succeeded
        other = send(cluster, command(producer, b"2", commit=not commit))
        assert (other.succeeded, progress(cluster)) == (False, b"1")
        assert "is Prepare" in other.refused[0][1] or "is Complete" in other.refused[0][1]
        assert [producer.end(commit), producer.end(not commit)] == [E.NONE, E.INVALID_TXN_STATE]
        if number == 0:
            producer.settle("CompleteCommit" if commit else "CompleteAbort")
    asked = message("describe_transactions", 0, "DescribeTransactionsRequest", transactional_ids=("tx",))
    (told,) = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_TRANSACTIONS, asked).transaction_states
    assert told.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert (told.producer_id, told.producer_epoch, told.topics) == (producer.producer_id, producer.epoch, ())


@pytest.mark.parametrize(("version", "fenced"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED), (3, E.PRODUCER_FENCED)])
def test_whoever_goes_on_is_fenced_in_the_words_of_its_version(
    cluster: Cluster, group: GroupId, version: int, fenced: ErrorCode
) -> None:
    producer = begun(cluster, group, b"a")
    assert send(cluster, command(producer, b"1")).succeeded
    assert producer.add(group, version=version) is fenced
    assert producer.end(True, version=version) is E.NONE


def test_the_next_coordinator_knows_of_retired_epochs(cluster: Cluster, group: GroupId) -> None:
    producer = begun(cluster, group, b"a")
    assert send(cluster, command(producer, b"1")).succeeded
    lead(cluster, cluster.followers()[0], METADATA_GROUP)
    producer.settle("CompleteCommit")
    assert producer.add(group) is E.PRODUCER_FENCED
    expected = (producer.producer_id, producer.epoch)
    assert producer.init(expected=expected) is E.NONE
    assert (producer.producer_id, producer.epoch) == (expected[0], expected[1] + 1)
    assert producer.init(expected=expected) is E.NONE
    assert producer.epoch == expected[1] + 1
    producer.transact([group], b"b")
    # Kafka's own end leaves the epoch as it is.
    producer.transact([group], b"c")
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"a", b"b", b"c"]


def test_a_sink_that_asks_for_its_epoch_before_each_batch_is_never_fenced(cluster: Cluster, group: GroupId) -> None:
    for number in range(4):
        producer = begun(cluster, group, b"%d" % number, "sink")
        assert producer.epoch == number
        assert send(cluster, command(producer, b"%d" % number)).succeeded
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"0", b"1", b"2", b"3"]


def test_a_time_limit_that_comes_first_refuses_the_command_with_its_keys(cluster: Cluster, group: GroupId) -> None:
    producer = TxnProducer(cluster, timeout_ms=2_000)
    assert (producer.init(), producer.add(group)) == (E.NONE, E.NONE)
    producer.settle("CompleteAbort")
    late = send(cluster, command(producer, b"1"))
    assert (late.succeeded, progress(cluster)) == (False, None)
    assert late.refused == ((producer.producer_id, f"the producer {producer.producer_id} has the epoch 1, not 0"),)
