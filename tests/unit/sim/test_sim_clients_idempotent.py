"""Simulated idempotent producers do what real ones do, and break rules; what they are told is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import SEQUENCE_MODULUS
from raftlake.sim.clients.base import RETRY_BACKOFF_MS_MAX
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.idempotent import FAR, WRAPS_WITHIN, Batch, IdempotentProducer
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.sim.oracle import Append, Oracle
from raftlake.wire.batches import BatchHeader, Record, iterate_headers
from raftlake.wire.produce import ProducePartitionResult, ProduceResponse, ProduceTopicResult

QUIET = Settings(
    seed=5, safety_ms=40_000, partitions=1, producers=1, producer_window=5, readers=1, kv_clients=1, think_ms_mean=20
)


def producer_of(cluster: Cluster) -> IdempotentProducer:
    (found,) = [client for client in cluster.clients if isinstance(client, IdempotentProducer)]
    return found


def headers_of(cluster: Cluster) -> list[BatchHeader]:
    """All batches of producers in the final log."""
    batches = cluster.committed.of(cluster.shared.group(0)).batches
    headers = [header for batch in batches for header in iterate_headers(batch.data)]
    return [header for header in headers if header.producer_id >= 0]


def watch(cluster: Cluster, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of one of the oracle's methods from now on."""
    calls: list[tuple[Any, ...]] = []
    honest: Callable[..., Any] = getattr(cluster.oracle, name)

    def watching(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return honest(*args, **named)

    setattr(cluster.oracle, name, watching)
    return calls


@pytest.fixture(scope="module")
def quiet() -> tuple[Cluster, dict[str, list[tuple[Any, ...]]]]:
    cluster = Cluster(replace(QUIET, safety_ms=100_000, readers=0, kv_clients=0))
    calls = {name: watch(cluster, name) for name in ("append_repeated", "misfit_answered", "next_refused")}
    cluster.run()
    return cluster, calls


Quiet = tuple[Cluster, dict[str, list[tuple[Any, ...]]]]


def test_ids_change_epochs_rise_and_sequences_wrap(quiet: Quiet) -> None:
    headers = headers_of(quiet[0])
    assert len({header.producer_id for header in headers}) > 3
    assert len({header.producer_epoch for header in headers}) > 2
    wrapped = [header for header in headers if header.base_sequence + header.record_count > SEQUENCE_MODULUS]
    ended = [header for header in headers if header.base_sequence + header.record_count == SEQUENCE_MODULUS]
    assert wrapped and ended, "over the wrap, and exactly to it"
    later = [header for header in headers if header.producer_epoch > 0]
    assert max(header.base_sequence for header in later) < FAR, "only a first epoch begins near the wrap"
    firsts = {header.producer_id: header.base_sequence for header in reversed(headers)}
    assert 0 in firsts.values() and max(firsts.values()) >= SEQUENCE_MODULUS - WRAPS_WITHIN


def test_rules_are_broken_in_every_way_and_nothing_of_that_is_taken(quiet: Quiet) -> None:
    cluster, calls = quiet
    errors = [error for _, error, _ in calls["misfit_answered"]]
    expected = {expected for _, _, expected in calls["misfit_answered"]}
    assert len(errors) > 15
    assert expected == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH} <= set(errors)
    values = {value for append in cluster.oracle.appends if append.refused for value in append.values}
    assert len(values) >= len(errors)
    assert calls["append_repeated"] and all(error == "NONE" for _, _, error in calls["append_repeated"])


def test_as_many_batches_are_under_way_as_the_settings_say() -> None:
    for window in (1, 5):
        cluster = Cluster(replace(QUIET, safety_ms=5_000, producer_window=window))
        producer, honest, most = producer_of(cluster), IdempotentProducer._send_all, [0]

        def send_all(
            producer: IdempotentProducer = producer,
            honest: Callable[[IdempotentProducer], None] = honest,
            most: list[int] = most,
        ) -> None:
            honest(producer)
            most[0] = max(most[0], producer._unanswered)

        producer._send_all = send_all  # type: ignore[method-assign]
        cluster.run()
        assert most == [window]


def test_with_retention_an_id_that_is_not_known_has_one_batch_under_way() -> None:
    cluster = Cluster(replace(QUIET, safety_ms=5_000, retention_bytes=600, segment_bytes=300))
    producer, honest = producer_of(cluster), producer_of(cluster)._send_all
    seen: list[tuple[bool, int]] = []

    def send_all() -> None:
        honest()
        seen.append((producer._is_known, producer._unanswered))

    producer._send_all = send_all  # type: ignore[method-assign]
    cluster.run()
    assert {count for is_known, count in seen if not is_known} == {1}
    assert max(count for is_known, count in seen if is_known) == 5


def test_what_has_no_answer_is_sent_again_in_order_or_given_up() -> None:
    """Every third answer is lost. All that is sent comes from the oldest batch without an answer on."""
    cluster = Cluster(QUIET)
    producer = producer_of(cluster)
    honest, counter, given_up = producer._on_answer, [0], [0]

    def losing(batch: Batch, node_id: Any, answer: Any) -> None:
        counter[0] += 1
        honest(batch, node_id, CallFailure.TIMED_OUT if counter[0] % 3 == 0 else answer)

    begin_epoch = producer._begin_epoch

    def begin() -> None:
        given_up[0] += bool(producer._under_way)
        begin_epoch()

    producer._on_answer = losing  # type: ignore[method-assign]
    producer._begin_epoch = begin  # type: ignore[method-assign]
    cluster.safety_end_us = 20_000_000
    cluster.run()
    assert given_up[0] > 2
    assert any(append.base_offset is None and not append.refused for append in cluster.oracle.appends)
    assert len(headers_of(cluster)) > 200


@pytest.mark.parametrize(
    ("error", "is_soon"),
    [(ErrorCode.LEADER_NOT_AVAILABLE, True), (ErrorCode.NOT_LEADER_OR_FOLLOWER, False), (None, False)],
)
def test_what_was_sent_back_comes_again_soon(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode | None, *, is_soon: bool
) -> None:
    """Seed 369544514: each new leader sends an unknown id back once, and the client thought until the next one led."""
    cluster = Cluster(replace(QUIET, think_ms_mean=100_000))
    producer = producer_of(cluster)
    cluster.shared.topic_id = bytes(16)
    delays_ms: list[float] = []
    monkeypatch.setattr(cluster.scheduler, "call_after", lambda delay_us, call: delays_ms.append(delay_us / 1000))
    for _ in range(20):
        batch = producer._new_batch()
        producer._under_way.append(batch)
        producer._unanswered = 1
        part = ProducePartitionResult(0, error or ErrorCode.NONE, base_offset=-1)
        answer = ProduceResponse([ProduceTopicResult("t", None, [part])]), True
        producer._on_answer(batch, NodeId(1), CallFailure.BROKEN if error is None else answer)
        producer._under_way.clear()
    assert len(delays_ms) == 20
    assert (max(delays_ms) <= RETRY_BACKOFF_MS_MAX + 1) == is_soon


def test_a_producer_rests_and_then_repeats_what_has_become_old() -> None:
    cluster = Cluster(replace(QUIET, safety_ms=40_000))
    producer = producer_of(cluster)
    repeats = watch(cluster, "append_repeated")
    rests: list[tuple[int, int]] = []
    honest = producer.succeed

    def succeed(rest_ms: int = 0) -> None:
        if rest_ms:
            rests.append((cluster.scheduler.now_us + rest_ms * 1_000, len(repeats)))
        honest(rest_ms)

    producer.succeed = succeed  # type: ignore[method-assign]
    began = producer._begin

    def begin() -> None:
        assert not rests or cluster.scheduler.now_us > rests[-1][0]
        began()

    producer._begin = begin  # type: ignore[method-assign]
    cluster.run()
    assert len(rests) > 2
    assert all(later > before for (_, before), (_, later) in pairwise(rests)), "each rest ends so"


@pytest.mark.parametrize("is_of_newest_epoch", [False, True])
def test_a_leader_that_was_replaced_need_not_know_a_producer(*, is_of_newest_epoch: bool) -> None:
    """It does not know yet that it was, and lacks what its successor has acknowledged."""
    producer = producer_of(Cluster(QUIET))
    for error in ErrorCode:
        part = ProducePartitionResult(0, error, base_offset=-1)
        answer = ProduceResponse([ProduceTopicResult("t", None, [part])]), is_of_newest_epoch
        heard = producer._heard(NodeId(1), answer)
        if error is ErrorCode.LEADER_NOT_AVAILABLE and not is_of_newest_epoch:
            assert heard is None and producer._leader is None
        else:
            assert heard is not None and heard.error is error
    assert producer._heard(NodeId(1), CallFailure.BROKEN) is None


def test_the_epoch_of_who_answers_is_compared_with_the_newest_one_of_the_asking() -> None:
    cluster = Cluster(replace(QUIET, safety_ms=3_000))
    cluster.run()
    producer, group = producer_of(cluster), cluster.shared.group(0)
    node = next(machine.node for machine in cluster.machines.values() if machine.replicas[group].is_leader)
    assert node is not None
    misfit = Batch(cluster.oracle.misfit_sent(0, "p", (b"x",)), 0, FAR)
    heard: list[bool] = []
    for newer in (0, 1):
        epoch = node.partitions[group].core.epoch + newer
        cluster.shared.leader_epoch = lambda group, epoch=epoch: epoch  # type: ignore[misc]
        producer._ask(misfit)(node, lambda answer: heard.append(answer[1]))
        cluster.run_a_while()
    assert heard == [True, False]


# --- what is told ---


def with_error(monkeypatch: pytest.MonkeyPatch, error: ErrorCode) -> Cluster:
    """From the tenth on every batch of a producer is refused with this error."""
    seen: list[int] = []

    def check(self: object, pending: PendingAppend) -> None:
        from raftlake.errors import RequestRejected

        seen.append(1)
        if len(seen) > 10:
            raise RequestRejected(error, "as planted")

    monkeypatch.setattr("raftlake.replica.partition.partition.Partition._check_sequence", check)
    return Cluster(replace(QUIET, safety_ms=4_000))


@pytest.mark.parametrize(
    "error", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE]
)
def test_a_next_batch_that_is_refused_fails_the_run(monkeypatch: pytest.MonkeyPatch, error: ErrorCode) -> None:
    with pytest.raises(Violation):
        with_error(monkeypatch, error).run()


def append_of(*, epoch: int = 0, sequence: int = 0, value: bytes = b"a", oracle: Oracle) -> Append:
    return oracle.append_sent(0, "p.1", sequence, (value,), epoch=epoch)


def log_of(*values: bytes) -> list[Record]:
    return [Record(offset=1 + index, value=value) for index, value in enumerate(values)]


def test_a_refusal_of_the_next_batch_is_told_unless_the_id_may_be_unknown() -> None:
    oracle = Oracle(1)
    append = append_of(oracle=oracle)
    for error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        oracle.next_refused(append, error, is_known=True)
    oracle.next_refused(append, ErrorCode.LEADER_NOT_AVAILABLE, is_known=False)
    for error, is_known in (
        (ErrorCode.LEADER_NOT_AVAILABLE, True),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
    ):
        with pytest.raises(Violation, match="next batch"):
            oracle.next_refused(append, error, is_known=is_known)


def test_a_misfit_that_is_taken_or_refused_otherwise_is_told() -> None:
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    oracle = Oracle(1)
    misfit = oracle.misfit_sent(0, "p", (b"x",))
    for error in (expected, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        oracle.misfit_answered(misfit, error, expected)
    for error in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE):
        with pytest.raises(Violation, match="breaks the rules"):
            oracle.misfit_answered(misfit, error, expected)
    oracle.check_partition(0, [])
    with pytest.raises(Violation, match="refused append"):
        oracle.check_partition(0, log_of(b"x"))


def test_a_batch_without_the_one_before_it_is_told() -> None:
    oracle = Oracle(1)
    for sequence, value in enumerate((b"a", b"b", b"c")):
        append_of(sequence=sequence, value=value, oracle=oracle)
    for values in ((), (b"a",), (b"a", b"b"), (b"a", b"b", b"c")):
        oracle.check_partition(0, log_of(*values))
    for values in ((b"b",), (b"a", b"c"), (b"b", b"c")):
        with pytest.raises(Violation, match="without those before it"):
            oracle.check_partition(0, log_of(*values))


def test_what_was_given_up_with_its_epoch_may_be_missing_but_not_come_later() -> None:
    oracle = Oracle(1)
    append_of(sequence=0, value=b"a", oracle=oracle)
    append_of(sequence=1, value=b"b", oracle=oracle)
    append_of(epoch=1, sequence=2, value=b"c", oracle=oracle)
    append_of(epoch=1, sequence=3, value=b"d", oracle=oracle)
    for values in ((b"a", b"c", b"d"), (b"c",), (b"a", b"b", b"c", b"d")):
        oracle.check_partition(0, log_of(*values))
    with pytest.raises(Violation, match="keep their order"):
        oracle.check_partition(0, log_of(b"c", b"a"))
    with pytest.raises(Violation, match="without those before it"):
        oracle.check_partition(0, log_of(b"a", b"d"))


def test_no_batch_begins_at_0_behind_the_wrap_while_the_id_is_not_known() -> None:
    """Seed 782000626: the oldest batch was refused by a node that led a moment later, which took the one at 0 for the first."""
    cluster = Cluster(replace(QUIET, producer_window=5))
    producer = producer_of(cluster)
    cluster.shared.topic_id = bytes(16)
    for is_known in (False, True):
        producer._is_known = is_known
        begins = set()
        for before in range(1, 200):
            producer._next_sequence = SEQUENCE_MODULUS - 1 - before % 5
            producer._new_batch()
            begins.add(producer._next_sequence)
        assert (0 in begins) == is_known
        assert min(begins - {0}) == 1 or is_known
