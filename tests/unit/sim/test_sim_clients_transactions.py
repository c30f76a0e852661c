"""Simulated transactional producers and read_committed consumers: what they do in a quiet run, and what they find broken."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica import transaction_entry
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.transactions import markers as markers_module
from raftlake.replica.transactions import verification
from raftlake.sim.clients.committed_readers import BELOW_STABLE, STABLE_STAYS, CommittedReader
from raftlake.sim.clients.transaction_messages import added_errors, coordinator_of, granted
from raftlake.sim.clients.transactions import TransactionalProducer
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.histories.transactions import (
    ABORT_HOLDS,
    ALL_OR_NOTHING,
    COMMIT_HOLDS,
    COMMITTED_ALL,
    COMMITTED_ONLY,
    ENDS,
    RAISED,
    RETIRED,
)
from raftlake.sim.invariants import Violation
from raftlake.wire.batches import EndMarker

QUIET = Settings(seed=3, safety_ms=10_000, producers=2, readers=1, transactors=3, think_ms_mean=50)


def test_transactions_end_in_every_way_and_are_read() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    producers = [client for client in cluster.clients if isinstance(client, TransactionalProducer)]
    assert len(producers) == 3 and all(client.completed for client in producers)
    assert outcome.covered["transaction committed"] > 8 and outcome.covered["transaction aborted"] > 5
    assert outcome.covered["transaction committed beside a key"] > 5
    assert outcome.covered["transaction aborted beside a key"] > 1
    assert outcome.covered["end_txn came once more, taken"] and outcome.covered["end_txn came once more, refused"] > 1
    assert sum(times for what, times in outcome.covered.items() if what.startswith("transaction over")) > 5
    (reader,) = [client for client in cluster.clients if isinstance(client, CommittedReader)]
    values = {value for runs in reader.shown for run in runs for _, value in run.records}
    assert len([value for value in values if value.startswith(b"transactor")]) > 50
    committed = [each for each in cluster.shared.transactions if each.outcome is True]
    assert any(len(each.acknowledged) > 1 for each in committed)


def test_some_seeds_have_transactions_over_several_partitions() -> None:
    drawn = [Settings.draw(seed) for seed in range(80)]
    found = [settings for settings in drawn if settings.transactors]
    assert 10 < len(found) < 40 and any(settings.partitions > 2 for settings in found)


RAISING = replace(QUIET, transactors=4, raising_transactors=2)


@pytest.mark.parametrize("raising", [1, 2])
def test_epochs_are_raised_used_up_and_repeated_and_batches_come_late(raising: int) -> None:
    cluster = Cluster(replace(RAISING, raising_transactors=raising, safety_ms=20_000))
    covered = cluster.run().covered
    assert covered["transaction committed"] > 8 and covered["transaction aborted"] > 5
    assert covered["transaction committed beside a key"] > 5
    assert covered["another producer id with the end of a transaction"]
    assert covered["end of a transaction once more (NONE)"] and covered["end of a transaction once more (PRODUCER_FENCED)"]
    assert covered["batch of an ended transaction (INVALID_PRODUCER_EPOCH)"] > 3
    producers = [client for client in cluster.clients if isinstance(client, TransactionalProducer)]
    assert all(client.completed for client in producers)


def test_half_of_the_seeds_with_transactions_raise_epochs() -> None:
    drawn = [settings for seed in range(400) if (settings := Settings.draw(seed)).transactors]
    found = [settings.raising_transactors for settings in drawn]
    assert set(found) == {0, 1, 2} and 0.35 < sum(each > 0 for each in found) / len(found) < 0.65


def test_what_an_answer_says_of_a_transaction() -> None:
    coordinator = SimpleNamespace(node_id=2, error_code=0)
    assert coordinator_of(SimpleNamespace(coordinators=(coordinator,))) == 2
    coordinator.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator_of(SimpleNamespace(coordinators=(coordinator,))) is None
    init = SimpleNamespace(error_code=ErrorCode.PRODUCER_FENCED, producer_id=7, producer_epoch=3)
    assert granted(init) == (ErrorCode.PRODUCER_FENCED, 7, 3)
    parts = [SimpleNamespace(partition_error_code=code) for code in (0, ErrorCode.INVALID_TXN_STATE)]
    topics = [SimpleNamespace(results_by_partition=parts[:1]), SimpleNamespace(results_by_partition=parts[1:])]
    added = added_errors(SimpleNamespace(results_by_topic_v3_and_below=topics))
    assert added == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]


def broken(patch: pytest.MonkeyPatch, where: Any, name: str, instead: Any, settings: Settings = QUIET) -> str:
    patch.setattr(where, name, instead)
    with pytest.raises(Violation) as caught:
        Cluster(replace(settings, liveness_ms=10_000)).run()
    return str(caught.value)


def test_a_stable_offset_that_passes_open_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = broken(monkeypatch, Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))
    assert any(promise in told for promise in (COMMITTED_ONLY, COMMITTED_ALL))


def test_aborted_transactions_that_nobody_tells_of_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMMITTED_ONLY in broken(monkeypatch, Partition, "aborted", lambda *_: [])


def test_a_stable_offset_above_the_high_watermark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = broken(monkeypatch, Partition, "last_stable_offset", property(lambda partition: partition.log.end_offset))
    assert any(promise in told for promise in (BELOW_STABLE, COMMITTED_ONLY, COMMITTED_ALL))


def test_a_stable_offset_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Partition.last_stable_offset.fget
    assert honest is not None
    calls = iter(range(10**9))

    def falling(partition: Partition) -> int:
        return max(0, honest(partition) - (3 if next(calls) % 7 == 0 else 0))

    assert STABLE_STAYS in broken(monkeypatch, Partition, "last_stable_offset", property(falling))


def test_one_partition_that_aborts_what_was_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = markers_module.end_marker_batch
    made = iter(range(10**9))

    def wrong(marker: EndMarker, *args: Any, **more: Any) -> bytearray:
        return honest(replace(marker, commit=marker.commit and next(made) % 3 != 0), *args, **more)

    told = broken(monkeypatch, markers_module, "end_marker_batch", wrong)
    assert any(promise in told for promise in (ALL_OR_NOTHING, COMMIT_HOLDS))


def test_transactions_that_are_never_ended_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    written = markers_module.Markers.write

    def some(self: Any, group: Any, marker: EndMarker, *args: Any) -> None:
        if group.partition != 1 or marker.epoch % 2:
            written(self, group, marker, *args)
        else:
            args[-1](markers_module.ErrorCode.NONE)

    told = broken(monkeypatch, markers_module.Markers, "write", some)
    assert any(promise in told for promise in (ENDS, "without faults every client makes progress", COMMIT_HOLDS, ABORT_HOLDS))


def test_a_command_that_comes_once_more_and_ends_the_next_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where commands do not retire the epoch, as Kafka's own ends do not."""
    told = broken(monkeypatch, transaction_entry.Transaction, "retired", lambda transaction: transaction)
    assert RETIRED in told


def test_a_batch_that_comes_late_into_the_next_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ProducerStates.check

    def deaf(self: ProducerStates, producer_id: int, epoch: int, *args: Any, **more: Any) -> Any:
        try:
            return honest(self, producer_id, epoch, *args, **more)
        except RequestRejected as rejected:
            # Plain producers send older epochs too, to be refused: theirs is 0.
            if rejected.code is not ErrorCode.INVALID_PRODUCER_EPOCH or epoch == 0:
                raise
            return None

    monkeypatch.setattr(verification, "refusal", lambda *_: ErrorCode.NONE)
    told = broken(monkeypatch, ProducerStates, "check", deaf, RAISING)
    assert RAISED in told


def test_an_end_that_tells_the_epoch_as_it_was_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(transaction: transaction_entry.Transaction, commit: bool, _next: int = -1) -> transaction_entry.Transaction:
        return transaction.decided(commit)

    assert RAISED in broken(monkeypatch, transaction_entry.Transaction, "raised", kept, RAISING)


def test_a_producer_that_forgets_its_open_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ProducerStates.end_transaction

    def deaf(self: ProducerStates, marker: EndMarker, *args: Any) -> Any:
        found = honest(self, marker, *args)
        return None if marker.producer_id % 2 == 0 else found

    told = broken(monkeypatch, ProducerStates, "end_transaction", deaf)
    assert any(promise in told for promise in (COMMITTED_ONLY, COMMITTED_ALL))
