"""Producers of transaction.version 2 at a whole cluster: epochs, batches that come late, ends that are repeated, older ones
beside (KIP-890 part 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from producerkit import TxnProducer, commits_of, committed_values, marker_count
from raftlake.errors import ErrorCode, code_of
from raftlake.kv.commands import EndTxn, Put, Txn
from raftlake.kv.keys import node_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.transaction_entry import EPOCH_EXHAUSTED
from raftlake.replica.transactions import additions
from raftlake.wire.batches import iterate_headers
from replica_cluster import Cluster
from txnkit import lead, put, records, send

E = ErrorCode


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.run(20_000, until=lambda: all(node.finalized_transaction_version() == 2 for node in made.nodes.values()))
    return made


def begun(cluster: Cluster, name: str = "tx", **fields: Any) -> TxnProducer:
    producer = TxnProducer(cluster, name, raises=True, **fields)
    assert producer.init() is E.NONE
    return producer


def set_epoch(producer: TxnProducer, epoch: int) -> None:
    """Count the producer's epoch on as by as many InitProducerIds."""
    known = producer.known()
    assert known is not None
    put(producer.cluster, replace(known, epoch=epoch))
    producer.epoch = epoch


def lead_elsewhere(cluster: Cluster, *groups: GroupId) -> None:
    """Another node than the coordinator leads these."""
    other = next(node for node in cluster.nodes.values() if node is not cluster.leader())
    for group in groups:
        lead(cluster, other, group)


def end_markers(cluster: Cluster, group: GroupId) -> list[tuple[int, int]]:
    """Producer id and epoch of each in the leader's log."""
    partition = cluster.leader(group).partitions[group]
    data = partition.log.read(partition.log.start_offset, partition.log.end_offset, 1 << 30)
    found = iterate_headers(data)
    return [(each.producer_id, each.producer_epoch) for each in found if each.is_control and each.is_transactional]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_each_transaction_has_an_epoch_and_batches_bring_their_partitions(cluster: Cluster, is_elsewhere: bool) -> None:
    groups = cluster.create_topic("t", 3)
    if is_elsewhere:
        lead_elsewhere(cluster, *groups)
    producer = begun(cluster)
    for number in range(6):
        assert producer.epoch == number
        producer.transact(groups[:2], b"%d" % number, commit=number % 2 == 0)
    producer.settle("CompleteAbort")
    for group in groups[:2]:
        assert committed_values(cluster, group) == [b"0", b"2", b"4"]
        assert end_markers(cluster, group) == [(producer.producer_id, epoch) for epoch in range(1, 7)]
    assert marker_count(cluster, groups[2]) == 0


def test_a_transaction_takes_as_many_commits_as_one_of_older_producers(cluster: Cluster) -> None:
    groups = cluster.create_topic("t", 3)
    for group in groups:
        lead(cluster, cluster.leader(), group)
    producer = begun(cluster)
    producer.transact(groups[:1], b"first")

    def ten_more() -> None:
        for _ in range(10):
            answers = [producer.ask_produce(group, b"x") for group in groups]
            cluster.run(5_000, until=lambda answers=answers: all(answers))
            assert [each[0].topics[0].partitions[0].error for each in answers] == [E.NONE] * 3
            assert producer.end() is E.NONE

    # All partitions of a turn are added by one command, and the next transaction takes the place of Complete*.
    assert commits_of(cluster, METADATA_GROUP, ten_more) == 20


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_batch_of_an_ended_transaction_never_gets_into_the_next_one(cluster: Cluster, is_elsewhere: bool) -> None:
    """The late Produce of KIP-890: its predecessor is in the log, so that its sequence fits."""
    known, unknown = cluster.create_topic("t", 2)
    if is_elsewhere:
        lead_elsewhere(cluster, known, unknown)
    producer = begun(cluster)
    assert producer.produce(known, b"kept") is E.NONE
    late = {
        known: records(b"late", sequence=1, producer_id=producer.producer_id, epoch=producer.epoch),
        unknown: records(b"late", sequence=0, producer_id=producer.producer_id, epoch=producer.epoch),
    }

    def come_late() -> list[ErrorCode]:
        answers = [send(cluster, group, data, version=12, transactional_id="tx") for group, data in late.items()]
        cluster.run(20_000, until=lambda: all(answers))
        return [each[0].topics[0].partitions[0].error for each in answers]

    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert come_late() == [E.INVALID_PRODUCER_EPOCH] * 2, "nothing is open"
    assert producer.produce(known, b"next") is E.NONE
    assert come_late() == [E.INVALID_PRODUCER_EPOCH] * 2, "the next transaction is open"
    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert [committed_values(cluster, group) for group in late] == [[b"kept", b"next"], []]


def test_an_end_is_answered_alike_until_the_next_transaction_begins(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    for commit in (True, False):
        assert producer.produce(group, b"a") is E.NONE
        answers = [producer.ask_end(commit) for _ in range(3)] + [producer.ask_end(not commit)]
        cluster.run(5_000, until=lambda answers=answers: all(answers))
        told = [(code_of(each.error_code), each.producer_id, each.producer_epoch) for (each,) in answers]
        me = producer.producer_id
        assert told == [(E.NONE, me, producer.epoch + 1)] * 3 + [(E.INVALID_TXN_STATE, -1, -1)]
        producer.settle("CompleteCommit" if commit else "CompleteAbort")
        before = producer.epoch
        assert producer.end(commit) is E.NONE
        assert producer.epoch == before + 1
    assert producer.produce(group, b"b") is E.NONE
    producer.epoch -= 1
    assert producer.end(True) is E.PRODUCER_FENCED


def test_an_abort_where_nothing_was_done_raises_the_epoch(cluster: Cluster) -> None:
    producer = begun(cluster)
    assert (producer.end(True), producer.epoch) == (E.INVALID_TXN_STATE, 0)
    for epoch in (1, 2):
        assert (producer.end(False), producer.epoch, producer.state()) == (E.NONE, epoch, "CompleteAbort")


@pytest.mark.parametrize("commit", [True, False])
def test_an_abort_where_nothing_was_done_waits_for_the_transaction_before(cluster: Cluster, commit: bool) -> None:
    """It must not take the place of Complete*, since it would hide how that one has ended."""
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    producer.transact([group], b"a", commit=commit)
    assert producer.state().startswith("Prepare")
    assert (producer.end(False), producer.epoch) == (E.NONE, 2)
    producer.transact([group], b"b")
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == ([b"a", b"b"] if commit else [b"b"])


def test_the_end_after_a_command_waits_for_the_markers(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    assert producer.produce(group, b"a") is E.NONE
    assert command(cluster, producer).succeeded
    assert (producer.end(True), producer.epoch, producer.state()) == (E.NONE, 1, "CompleteCommit")


def test_the_last_epoch_ends_in_another_producer_id(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    old_id = producer.producer_id
    set_epoch(producer, EPOCH_EXHAUSTED - 1)
    producer.transact([group], b"a")
    assert (producer.producer_id, producer.epoch) == (old_id, EPOCH_EXHAUSTED)
    producer.transact([group], b"b")
    new_id = producer.producer_id
    assert (new_id != old_id, producer.epoch) == (True, 0)
    old = records(b"late", sequence=1, producer_id=old_id, epoch=EPOCH_EXHAUSTED)
    # While the markers are under way the new id waits. Then the old one is fenced.
    assert producer.produce(group, b"c") is E.NONE
    late = send(cluster, group, old, version=12, transactional_id="tx")
    cluster.run(20_000, until=lambda: bool(late))
    assert late[0].topics[0].partitions[0].error is E.INVALID_PRODUCER_EPOCH
    assert producer.end() is E.NONE
    assert (producer.producer_id, producer.epoch) == (new_id, 1)
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"a", b"b", b"c"]
    assert end_markers(cluster, group) == [(old_id, EPOCH_EXHAUSTED), (old_id, EPOCH_EXHAUSTED + 1), (new_id, 1)]


def test_older_producers_and_new_ones_work_beside_each_other(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    old = TxnProducer(cluster, "old")
    assert old.init() is E.NONE
    new = begun(cluster, "new")
    for number in range(3):
        assert old.add(group) is E.NONE
        assert (old.produce(group, b"o%d" % number), new.produce(group, b"n%d" % number)) == (E.NONE, E.NONE)
        assert (old.end(number != 1), new.end(number == 1)) == (E.NONE, E.NONE)
    old.settle("CompleteCommit")
    new.settle("CompleteAbort")
    assert (old.epoch, new.epoch) == (0, 3)
    assert committed_values(cluster, group) == [b"o0", b"n1", b"o2"]


def test_one_producer_may_change_its_version_between_transactions(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    for number, raises in enumerate((True, False, False, True)):
        if raises and not producer.raises:
            # As Kafka's producers do: nothing else tells the end of the transaction before from its own.
            producer.raises = raises
            assert producer.init(expected=(producer.producer_id, producer.epoch)) is E.NONE
        producer.raises = raises
        producer.transact([group], b"%d" % number)
    producer.settle("CompleteCommit")
    assert (producer.epoch, committed_values(cluster, group)) == (3, [b"0", b"1", b"2", b"3"])


def test_a_producer_whose_time_was_over_goes_on_after_its_abort(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster, timeout_ms=1_000)
    assert producer.produce(group, b"lost") is E.NONE
    cluster.run(10_000, until=lambda: producer.state() == "CompleteAbort")
    assert producer.produce(group, b"later") is E.INVALID_PRODUCER_EPOCH
    assert (producer.end(False), producer.epoch) == (E.NONE, 1)
    producer.transact([group], b"kept")
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"kept"]


def test_whoever_takes_over_fences_the_producer_before(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    zombie, heir = begun(cluster), TxnProducer(cluster, "tx", raises=True)
    assert zombie.produce(group, b"lost") is E.NONE
    assert heir.init() is E.NONE
    assert [zombie.end(True), zombie.end(False)] == [E.PRODUCER_FENCED] * 2
    assert zombie.produce(group, b"lost") is E.INVALID_PRODUCER_EPOCH
    heir.transact([group], b"kept")
    heir.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"kept"]


def command(cluster: Cluster, producer: TxnProducer, *, commit: bool = True) -> Any:
    outcomes: list[Any] = []
    txn = Txn((), (Put("progress", b"1"), EndTxn(producer.producer_id, producer.epoch, commit)))
    cluster.leader().kv.propose(txn, outcomes.append)
    cluster.run(5_000, until=lambda: bool(outcomes))
    return outcomes[0].result


def test_commands_end_transactions_of_new_producers_and_retire_their_epochs(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    producer.transact([group], b"a")
    producer.settle("CompleteCommit")
    refused = command(cluster, producer)
    assert not refused.succeeded, "its epoch has no transaction yet, however the one before ended"
    assert producer.produce(group, b"b") is E.NONE
    assert command(cluster, producer).succeeded
    assert (command(cluster, producer).succeeded, producer.end(False)) == (True, E.INVALID_TXN_STATE)
    producer.settle("CompleteCommit")
    assert producer.produce(group, b"zombie") is E.INVALID_PRODUCER_EPOCH
    old = replace_identity(producer)
    # Its own commit succeeds and gives the next epoch, as InitProducerId would.
    assert (producer.end(True), producer.epoch) == (E.NONE, old.epoch + 1)
    producer.transact([group], b"c")
    assert not command(cluster, old).succeeded
    producer.settle("CompleteCommit")
    assert committed_values(cluster, group) == [b"a", b"b", b"c"]


def replace_identity(producer: TxnProducer) -> TxnProducer:
    """Who the producer is now, for a command that comes later."""
    found = TxnProducer(producer.cluster)
    found.producer_id, found.epoch = producer.producer_id, producer.epoch
    return found


# --- nodes that do not know of it ---


def test_no_epoch_is_raised_before_all_nodes_know_of_it(cluster: Cluster) -> None:
    """A node of an older release ignores such a change: its keys would say something else."""
    (group,) = cluster.create_topic("t")
    producer = begun(cluster)
    older = next(node for node in cluster.nodes if node != cluster.leader().config.node_id)
    cluster.stop(older)
    outcomes: list[Any] = []
    cluster.leader().kv.propose(Txn((), (Put(node_key(older), b'{"host": "h", "port": 1}'),)), outcomes.append, Origin.SELF)
    cluster.run(5_000, until=lambda: bool(outcomes))
    assert cluster.leader().finalized_transaction_version() == 0
    assert producer.produce(group, b"a") is E.NONE
    assert (producer.end(), producer.state()) == (E.COORDINATOR_LOAD_IN_PROGRESS, "Ongoing")
    # It comes back with this release.
    cluster.start(older)
    cluster.run(20_000, until=lambda: cluster.leader().finalized_transaction_version() == 2)
    assert (producer.end(), producer.epoch) == (E.NONE, 1)


# --- what waits ---


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_batch_waits_for_the_transaction_before_and_not_for_ever(
    cluster: Cluster, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group,) = cluster.create_topic("t")
    if is_elsewhere:
        lead_elsewhere(cluster, group)
    producer = begun(cluster)
    coordinator = cluster.leader()
    delivery = coordinator.transactions.delivery
    written: list[Callable[[], None]] = []
    honest = delivery._send
    monkeypatch.setattr(delivery, "_send", lambda unit: written.append(lambda: honest(unit)))
    assert (producer.produce(group, b"a"), producer.end()) == (E.NONE, E.NONE)
    answers = producer.ask_produce(group, b"b")
    cluster.run(additions.HOLD_MS - 500)
    assert answers == []
    assert producer.produce(group, b"b") is E.CONCURRENT_TRANSACTIONS
    again = producer.ask_produce(group, b"b")
    cluster.run(500)
    monkeypatch.setattr(delivery, "_send", honest)
    for write in written:
        write()
    delivery.pump()
    cluster.run(5_000, until=lambda: bool(again))
    assert again[0].topics[0].partitions[0].error is E.NONE
