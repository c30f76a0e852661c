"""The clients of a run: a quiet run exercises each kind, and what they are told reaches the oracle."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.clients.base import HEALED_THINK_MS_MAX, SCRATCH, Client
from raftlake.sim.clients.idempotent import REST_MS, IdempotentProducer
from raftlake.sim.clients.kv import KvClient
from raftlake.sim.clients.messages import REFUSALS, consumed, latest_offset, produced
from raftlake.sim.clients.producers import Creator, Producer
from raftlake.sim.clients.readers import Reader
from raftlake.sim.clients.topics import TopicChurner
from raftlake.sim.clients.workload import make_clients
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.common import LeaderAndEpoch
from raftlake.wire.fetch_response import FetchPartitionResult, FetchResponse, FetchTopicResult
from raftlake.wire.produce import ProducePartitionResult, ProduceResponse, ProduceTopicResult

QUIET = Settings(seed=3, safety_ms=5_000, partitions=2, producers=3, readers=2, kv_clients=2, think_ms_mean=100)


def test_in_a_quiet_run_every_client_gets_what_it_wants() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    assert outcome.completed > 150
    kinds = {type(client): client.completed for client in cluster.clients}
    assert set(kinds) == {Creator, Producer, IdempotentProducer, Reader, KvClient}
    assert all(client.completed > 10 for client in cluster.clients if not isinstance(client, Creator))
    acknowledged = [append for append in cluster.oracle.appends if append.base_offset is not None]
    sent = [append for append in cluster.oracle.appends if not append.refused]
    assert len(acknowledged) >= len(sent) - 3
    assert cluster.oracle.kv_reads and cluster.oracle.kv_writes
    assert any(write.result.succeeded for write in cluster.oracle.kv_writes)
    assert any(not write.result.succeeded for write in cluster.oracle.kv_writes)
    assert all(partition.seen for partition in cluster.oracle.partitions if partition.acknowledged_end)


def test_a_group_that_waits_for_room_speaks_in_no_new_epoch() -> None:
    """Simulator, seed 802002522: a candidate whose vote could not be saved had said nothing, and was taken for one that had
    left its leader."""
    cluster = Cluster(QUIET)
    cluster.start_all()
    cluster.run_a_while()
    machine = cluster.machines[NodeId(1)]
    assert machine.node is not None
    partition = machine.node.partitions[METADATA_GROUP]
    assert machine.epochs() == {METADATA_GROUP: partition.core.epoch}
    machine.node.disk._stalled[METADATA_GROUP] = partition
    assert machine.epochs() == {}


def test_a_client_that_gets_nothing_asks_often_once_the_faults_have_ended() -> None:
    """Simulator, seeds 797017801 and 797020017: three attempts in 15 s, each a moment too late, were called a stuck client."""
    cluster = Cluster(replace(QUIET, think_ms_mean=1_000))
    attempts: list[int] = []

    class Refused(Client):
        def step(self) -> None:
            attempts.append(cluster.scheduler.now_us)
            self.give_up()

    client = Refused(cluster.shared, "refused")
    client.start()
    cluster.heal()
    while cluster.scheduler.now_us < 20_000_000:
        cluster.run_a_while()
    pauses = [after - before for before, after in itertools.pairwise(attempts)]
    assert len(pauses) > 60 and max(pauses) <= (HEALED_THINK_MS_MAX + 1) * US_PER_MS


def test_a_client_stops_where_the_run_says_so_and_tells_what_it_got() -> None:
    cluster = Cluster(QUIET)
    asked: list[int] = []

    class Counting(Client):
        def step(self) -> None:
            asked.append(cluster.scheduler.now_us)
            if len(asked) % 2:
                self.succeed()
            else:
                self.give_up()

    client = Counting(cluster.shared, "counting")
    client.start()
    while len(asked) < 10:
        cluster.run_a_while()
    assert client.completed == (len(asked) + 1) // 2
    assert client.last_completed_began_us in asked
    cluster.shared.stopped = True
    count = len(asked)
    cluster.run_a_while()
    assert len(asked) == count
    assert client.is_idle and not client.is_done


def test_there_are_as_many_clients_as_the_settings_say() -> None:
    cluster = Cluster(QUIET)
    clients = make_clients(cluster.shared, cluster.keyed)
    assert [client.name for client in clients] == [
        "creator", "producer0", "producer1", "producer2", "reader0", "reader1", "kv0", "kv1",
    ]  # fmt: skip


def test_a_topic_is_created_and_deleted_over_and_over() -> None:
    cluster = Cluster(replace(QUIET, churners=2, partitions=1, producers=1, readers=1, kv_clients=1))
    cluster.run()
    churners = [client for client in cluster.clients if isinstance(client, TopicChurner)]
    assert len(churners) == 2 and all(client.completed > 5 for client in churners)
    ids = [group.topic_id for group in cluster.committed.groups() if group.topic == SCRATCH]
    assert len(ids) > 3 and len(set(ids)) == len(ids)


def test_readers_go_on_where_retention_has_removed_records() -> None:
    cluster = Cluster(replace(QUIET, partitions=1, retention_bytes=600, segment_bytes=300))
    cluster.run()
    group = cluster.shared.group(0)
    starts = [int(machine.disk.logs[group].start_offset) for machine in cluster.machines.values()]
    assert min(starts) > 0
    assert {append.keeps_order for append in cluster.oracle.appends} == {True, False}
    assert max(cluster.oracle.partitions[0].seen) > max(starts)


def test_producers_of_both_kinds_take_part() -> None:
    cluster = Cluster(QUIET)
    cluster.run()
    assert {append.keeps_order for append in cluster.oracle.appends} == {True, False}


def test_a_lost_acknowledged_append_fails_the_run() -> None:
    """The whole way: a promise to a client that the log does not keep is told at the end."""
    cluster = Cluster(QUIET)
    honest = cluster.oracle.append_acknowledged
    cluster.oracle.append_acknowledged = lambda append, offset: honest(append, offset + 1)  # type: ignore[method-assign]
    with pytest.raises(Violation, match="acknowledged"):
        cluster.run()


def test_an_unreachable_client_fails_the_run() -> None:
    # Another producer may rest when the faults end.
    cluster = Cluster(replace(QUIET, safety_ms=2_000, liveness_ms=REST_MS + 3_000))
    cluster.clients[1].give_up = lambda: None  # type: ignore[method-assign]
    cluster.clients[1].succeed = lambda rest_ms=0: None  # type: ignore[method-assign]
    with pytest.raises(Violation, match=r"stuck: \['producer0'\]"):
        cluster.run()


def test_an_exception_of_the_driver_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("raftlake.replica.node.ReplicaNode.run_turn", broken)
    with pytest.raises(Violation, match="KeyError"):
        Cluster(QUIET).run()


def produce_answer(error: ErrorCode, base_offset: int, leader: LeaderAndEpoch | None = None) -> ProduceResponse:
    part = ProducePartitionResult(0, error, base_offset=base_offset, current_leader=leader)
    return ProduceResponse([ProduceTopicResult("t", None, [part])])


def test_a_produce_answer_names_the_offset_or_the_leader() -> None:
    answer = produced(produce_answer(ErrorCode.NONE, 7), NodeId(2))
    assert (answer.error, answer.base_offset, answer.leader_id, answer.is_refusal) == (ErrorCode.NONE, 7, 2, False)
    moved = produced(produce_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, LeaderAndEpoch(3, 9)), NodeId(2))
    assert (moved.leader_id, moved.is_refusal) == (3, True)
    lost = produced(produce_answer(ErrorCode.REQUEST_TIMED_OUT, -1, LeaderAndEpoch(-1, 9)), NodeId(2))
    assert (lost.leader_id, lost.is_refusal) == (None, False)
    assert ErrorCode.REQUEST_TIMED_OUT not in REFUSALS


def test_a_fetch_answer_gives_the_records_from_the_position_on() -> None:
    batch = build_batch([Record(value=b"a"), Record(value=b"b")], base_offset=4, timestamp_ms=1)
    part = FetchPartitionResult(0, ErrorCode.NONE, high_watermark=6, records=bytes(batch))
    result = consumed(FetchResponse([FetchTopicResult("t", None, [part])]), 5)
    assert result is not None
    assert [(record.offset, record.value) for record in result.records] == [(5, b"b")]
    assert (result.high_watermark, result.next_offset) == (6, 6)
    assert consumed(FetchResponse([], error=ErrorCode.UNKNOWN_SERVER_ERROR), 5) is None


def test_the_latest_offset_comes_with_its_epoch() -> None:
    cluster = Cluster(replace(QUIET, readers=1))
    seen: list[tuple[int, int]] = []
    honest = cluster.oracle.latest_answered

    def watch(partition: int, floor: int, offset: int, where: str) -> None:
        seen.append((floor, offset))
        honest(partition, floor, offset, where)

    cluster.oracle.latest_answered = watch  # type: ignore[method-assign]
    cluster.run()
    assert seen and all(offset >= floor for floor, offset in seen)


def test_a_refused_list_offsets_answer_has_no_offset() -> None:
    def answer(error: int) -> SimpleNamespace:
        part = SimpleNamespace(offset=5, leader_epoch=2, error_code=error)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])

    assert latest_offset(answer(0)) == (5, 2)
    assert latest_offset(answer(6)) is None


def test_a_leader_that_came_and_went_between_two_questions_counts() -> None:
    """Seed 770001921: a client asked a leader of epoch 9, which was cut off. The leaders of epochs 10 and 11 had come and gone
    since any client had asked. So the answer of the old one was judged as if it were the newest leader, which it was not."""
    cluster = Cluster(replace(QUIET, voters=5))
    cluster.restarts_by_itself = False
    cluster.start_all()
    epochs: list[int] = []
    for _ in range(3):
        leader = None
        while leader is None:
            cluster.run_a_while()
            leader = next((each for each in cluster.replicas() if each.is_leader and each.group == METADATA_GROUP), None)
        epochs.append(leader.epoch)
        cluster.crash(leader.node_id, "test")
    assert epochs == sorted(set(epochs))
    assert cluster.shared.leader_epoch(METADATA_GROUP) == epochs[-1]


class NeverInTheMood(Random):
    """Never draws the one in three that deletes a topic."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        drawn = super().randrange(start, stop, step)
        return max(drawn, 1) if (start, stop) == (3, None) else drawn


def test_a_client_that_deletes_topics_makes_progress_whatever_it_draws() -> None:
    """Seed 770001632: it took a topic for created that was not, and drew an append eleven times in a row."""
    cluster = Cluster(replace(QUIET, churners=1, voters=5))
    (churner,) = [client for client in cluster.clients if isinstance(client, TopicChurner)]
    churner.rng = NeverInTheMood(1)
    cluster.run()
    assert churner.completed > 5


def test_a_node_that_fetches_batch_by_batch_may_have_far_to_go() -> None:
    """Seed 780001614: an observer was cut off for long, and gets one batch with each answer."""
    slow = Settings(
        seed=3, safety_ms=20_000, voters=1, observers=1, partitions=1, producers=4, producer_window=5, think_ms_mean=10
    )
    network = replace(slow.network, delay_us_mean=20_000)
    cluster = Cluster(replace(slow, replica_fetch_bytes_max=1, liveness_ms=5_000, network=network))
    cluster.cut_link(NodeId(2), NodeId(1))
    outcome = cluster.run()
    assert outcome.simulated_ms > slow.safety_ms + 2 * 5_000
