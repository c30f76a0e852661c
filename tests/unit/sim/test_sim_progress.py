"""How long a client is waited for once the faults have ended, and when it is called stuck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.clients.base import Client
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import STANDSTILL_US, Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.convergence import disagreements
from raftlake.sim.network import NetworkSettings

SAFETY_MS, LIVENESS_MS = 2_000, 4_000
QUIET = Settings(seed=3, safety_ms=SAFETY_MS, liveness_ms=LIVENESS_MS, partitions=1, producers=1, readers=1, kv_clients=1)


class Waiting(Client):
    """Served when it asks at a moment that suits."""

    suits: Callable[[], bool] = staticmethod(lambda: False)

    def step(self) -> None:
        if self.suits():
            self.succeed()
        else:
            self.give_up()


def healed(settings: Settings = QUIET) -> tuple[Cluster, Waiting]:
    """A cluster whose faults have just ended, and one more client."""
    cluster = Cluster(settings)
    cluster.start_all()
    for client in cluster.clients:
        client.start()
    waiting = Waiting(cluster.shared, "waiting")
    cluster.clients.append(waiting)
    while cluster.scheduler.now_us < cluster.safety_end_us:
        cluster.run_a_while()
    cluster.heal()
    return cluster, waiting


def waited_ms(cluster: Cluster) -> float:
    return (cluster.scheduler.now_us - cluster.safety_end_us) / US_PER_MS


def wait(cluster: Cluster) -> None:
    cluster._await_progress(cluster.safety_end_us + LIVENESS_MS * US_PER_MS)


@pytest.mark.parametrize(("rest_ms", "until_ms"), [(0, LIVENESS_MS), (1_000, LIVENESS_MS), (9_000, 9_000 + LIVENESS_MS / 2)])
def test_a_client_that_rested_has_half_of_the_time_from_its_first_request_on(rest_ms: int, until_ms: float) -> None:
    """Seed 1040014835: a producer that left its transaction to the timeout rested for 15 s, and was called stuck."""
    cluster, waiting = healed()
    waiting._think(rest_ms, ms_max=0)
    with pytest.raises(Violation, match=r"every client makes progress: stuck: \['waiting'\]"):
        wait(cluster)
    assert waited_ms(cluster) == pytest.approx(until_ms, abs=150)


def test_a_client_is_served_behind_its_rest() -> None:
    cluster, waiting = healed()
    waiting.suits = lambda: True
    waiting._think(9_000, ms_max=0)
    wait(cluster)
    assert waited_ms(cluster) == pytest.approx(9_000, abs=150)


def test_a_client_that_asked_before_is_waited_for_no_longer() -> None:
    """It waits for an answer since then, which never comes."""
    cluster, waiting = healed()
    cluster.shared.is_healed = False
    waiting._think(ms_max=0)
    waiting.give_up = lambda: None  # type: ignore[method-assign]
    cluster.run_a_while()
    assert waiting.asks_us is None and not waiting.is_idle
    with pytest.raises(Violation, match="stuck"):
        wait(cluster)
    assert waited_ms(cluster) == pytest.approx(LIVENESS_MS, abs=150)


def test_where_nodes_fetch_batch_by_batch_whoever_was_served_makes_room() -> None:
    """Seed 1040021913: clients wrote more commands than a leader that lagged could fetch, one for each round trip. It could
    not tell of a new transaction whether its partition belongs to it."""
    cluster, waiting = healed(replace(QUIET, replica_fetch_bytes_max=1))
    waiting.suits = lambda: cluster.shared.room_since_us is not None
    waiting.start()
    wait(cluster)
    assert waited_ms(cluster) == pytest.approx(LIVENESS_MS, abs=500)
    # Those that were served before ask for nothing any more.
    for _ in range(100):
        cluster.run_a_while()
    served = [client.completed for client in cluster.clients]
    for _ in range(20):
        cluster.run_a_while()
    assert [client.completed for client in cluster.clients] == served and all(client.is_idle for client in cluster.clients)


@pytest.mark.parametrize(("fetch_bytes", "until_ms"), [(1, 2 * LIVENESS_MS), (500, LIVENESS_MS)])
def test_a_client_that_is_not_served_then_is_stuck(fetch_bytes: int, until_ms: int) -> None:
    cluster, waiting = healed(replace(QUIET, replica_fetch_bytes_max=fetch_bytes))
    waiting.start()
    with pytest.raises(Violation, match=r"stuck: \['waiting'\]"):
        wait(cluster)
    assert waited_ms(cluster) == pytest.approx(until_ms, abs=150)


def converged(cluster: Cluster, wait_ms: int) -> float:
    """Milliseconds until the nodes of a cluster whose clients rest have the same; fails where they are given up before."""
    began_us = cluster.scheduler.now_us
    cluster.shared.stopped = True
    cluster._await_convergence(began_us + wait_ms * US_PER_MS)
    assert disagreements(cluster.replicas(), len(cluster.node_ids)) == []
    return (cluster.scheduler.now_us - began_us) / US_PER_MS


def snapshot_on_its_way() -> Cluster:
    """The faults have ended, and an observer begins to fetch a snapshot, ten bytes in each slow round trip."""
    sizes = {"snapshot_bytes_between": 500, "snapshot_fetch_bytes_max": 10, "segment_bytes": 300}
    slow = NetworkSettings(delay_us_min=20_000, delay_us_mean=50_000)
    cluster = Cluster(replace(QUIET, voters=1, observers=1, kv_clients=5, think_ms_mean=50, network=slow, **sizes))
    cluster.start(NodeId(1))
    for client in cluster.clients:
        client.start()
    while cluster.scheduler.now_us < cluster.safety_end_us:
        cluster.run_a_while()
    assert cluster.machines[NodeId(1)].replicas[METADATA_GROUP].log.start_offset > 0
    cluster.heal()
    return cluster


def test_a_snapshot_that_arrives_in_small_pieces_is_waited_for() -> None:
    """Seed 1140003860: an observer fetched a snapshot of 23 KB, 100 bytes in each round trip. No log grew meanwhile."""
    cluster = snapshot_on_its_way()
    assert converged(cluster, wait_ms=1_000) > 2 * STANDSTILL_US / US_PER_MS


def test_a_snapshot_that_is_there_is_more_than_all_of_its_bytes_on_their_way() -> None:
    """What lags behind the snapshot still has the whole time."""
    cluster = snapshot_on_its_way()
    cluster.shared.stopped = True
    while (amid := cluster._held())[1] < 500:
        assert disagreements(cluster.replicas(), len(cluster.node_ids)), "bytes on their way are seen"
        cluster.run_a_while()
    while disagreements(cluster.replicas(), len(cluster.node_ids)):
        cluster.run_a_while()
    assert cluster._held() > amid


def test_a_snapshot_that_begins_again_and_again_is_not_waited_for() -> None:
    cluster = snapshot_on_its_way()
    cluster.shared.stopped = True
    observer = cluster.machines[NodeId(2)]

    def strike() -> None:
        observer.crash("test")
        cluster.start(NodeId(2))
        cluster.scheduler.call_after(2_000 * US_PER_MS, strike)

    cluster.scheduler.call_after(2_000 * US_PER_MS, strike)
    cluster._await_convergence(cluster.scheduler.now_us + 1_000 * US_PER_MS)
    assert disagreements(cluster.replicas(), len(cluster.node_ids))
    assert waited_ms(cluster) < 10 * STANDSTILL_US / US_PER_MS
