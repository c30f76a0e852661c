"""One simulated machine: power, pauses, crashes inside a turn, slow and failing syncs; and how clients reach it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from raftlake.errors import InvariantViolation, RaftlakeError, StorageError
from raftlake.kv.commands import put
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.cluster import Cluster
from raftlake.sim.disk.power import ClosedLog
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.syncs import Syncs
from raftlake.sim.invariants import Violation
from raftlake.sim.machine import Machine

ONE = NodeId(1)


def cluster_of(voters: int = 1, **settings: int) -> Cluster:
    cluster = Cluster(Settings(seed=1, voters=voters, **settings))  # type: ignore[arg-type]
    cluster.restarts_by_itself = False
    cluster.start_all()
    return cluster


def run(cluster: Cluster, ms: int) -> None:
    for _ in range(max(ms // 100, 1)):
        cluster.run_a_while()


def machine_of(cluster: Cluster) -> Machine:
    return cluster.machines[ONE]


def leads(cluster: Cluster) -> bool:
    replica = machine_of(cluster).replicas.get(METADATA_GROUP)
    return replica is not None and replica.is_leader


def ask(node: ReplicaNode, reply: Any) -> None:
    reply("answer")


def ask_in_vain(node: ReplicaNode, reply: Any) -> None:
    """Never answered."""


def call(cluster: Cluster, question: Any = ask, timeout_ms: int = 1_000) -> list[Any]:
    answers: list[Any] = []
    cluster.calls.call(ONE, question, answers.append, timeout_ms)
    assert answers == []
    return answers


def test_a_machine_keeps_its_disk_and_nothing_else() -> None:
    cluster = cluster_of()
    run(cluster, 2_000)
    assert leads(cluster)
    epoch = machine_of(cluster).replicas[METADATA_GROUP].epoch
    first = machine_of(cluster).node
    cluster.crash(ONE, "test")
    assert (machine_of(cluster).node, machine_of(cluster).incarnation) == (None, 0)
    assert machine_of(cluster).replicas == {}
    cluster.start(ONE)
    assert machine_of(cluster).node is not first
    run(cluster, 2_000)
    assert leads(cluster)
    assert machine_of(cluster).replicas[METADATA_GROUP].epoch > epoch


def test_starting_a_running_machine_and_crashing_a_dead_one_change_nothing() -> None:
    cluster = cluster_of()
    node = machine_of(cluster).node
    cluster.start(ONE)
    assert machine_of(cluster).node is node
    cluster.crash(ONE, "test")
    cluster.crash(ONE, "test")
    cluster.start(ONE)
    assert machine_of(cluster).incarnation == 2


@pytest.mark.parametrize("calls_left", range(1, 12))
def test_a_machine_may_lose_power_at_any_port_call_of_a_turn(calls_left: int) -> None:
    cluster = cluster_of(voters=3)
    cluster.crash_at_port_call(ONE, calls_left)
    run(cluster, 2_000)
    assert machine_of(cluster).node is None
    cluster.start(ONE)
    run(cluster, 3_000)
    assert METADATA_GROUP in machine_of(cluster).replicas


def test_a_paused_machine_does_nothing_and_then_everything() -> None:
    cluster = cluster_of()
    run(cluster, 2_000)
    cluster.pause(ONE, 3_000 * US_PER_MS)
    answers = call(cluster, timeout_ms=10_000)
    run(cluster, 2_500)
    assert answers == []
    run(cluster, 1_000)
    assert answers == ["answer"]


def test_healing_ends_a_pause_for_what_came_meanwhile_too() -> None:
    cluster = cluster_of()
    run(cluster, 2_000)
    cluster.pause(ONE, 8_000 * US_PER_MS)
    answers = call(cluster, timeout_ms=10_000)
    run(cluster, 100)
    assert answers == [] and not machine_of(cluster).gets_time
    cluster.heal()
    run(cluster, 100)
    assert answers == ["answer"] and machine_of(cluster).gets_time


def test_what_a_paused_process_was_sent_dies_with_it() -> None:
    cluster = cluster_of()
    run(cluster, 2_000)
    cluster.pause(ONE, 1_000 * US_PER_MS)
    answers = call(cluster, timeout_ms=10_000)
    run(cluster, 100)
    cluster.crash(ONE, "test")
    cluster.start(ONE)
    run(cluster, 3_000)
    assert answers == [CallFailure.BROKEN]


def test_a_failed_sync_stops_the_node() -> None:
    cluster = cluster_of(flush_error_ppm=1_000_000)
    run(cluster, 2_000)
    assert machine_of(cluster).node is None
    assert machine_of(cluster).syncs.failed == 1


def test_a_stalled_sync_holds_the_first_record_back() -> None:
    cluster = cluster_of(flush_stall_ppm=1_000_000, flush_stall_ms_max=1_000_000)
    run(cluster, 2_000)
    assert leads(cluster)
    assert machine_of(cluster).replicas[METADATA_GROUP].high_watermark <= 0
    assert machine_of(cluster).syncs.stalled >= 1


def stop_with(cluster: Cluster, error: RaftlakeError) -> None:
    run(cluster, 1_000)
    node = machine_of(cluster).node
    assert node is not None
    machine_of(cluster).run(lambda: node.engine.fail(error))


@pytest.mark.parametrize("ends", ["slow disk ends", "all faults end"])
def test_a_sync_that_was_begun_on_a_slow_disk_does_not_outlast_the_fault(ends: str) -> None:
    """Seeds 770000206 and 770001176: a sync drawn while "syncs take 512 times as long" went on until after the run."""
    cluster = cluster_of(flush_us_mean=1_000)
    run(cluster, 2_000)
    machine = machine_of(cluster)
    cluster.slow_disk(ONE, 1 << 20)
    assert machine.node is not None
    outcomes: list[ProposeOutcome] = []
    for name in ("one", "two"):
        machine.run(machine.node.kv.propose, put(name, b"value"), outcomes.append)
        run(cluster, 500)
    assert outcomes == []
    if ends == "slow disk ends":
        cluster.slow_disk(ONE, 1)
    else:
        cluster.heal()
    run(cluster, 100)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.DONE] * 2


def test_even_syncs_take_the_mean_and_on_a_slow_disk_a_multiple_of_it() -> None:
    began: list[int] = []
    settings = Settings(seed=1, flush_is_even=True, flush_us_mean=980)
    syncs = Syncs(settings, Random(1), lambda delay_us, callback, *args: began.append(delay_us))
    for factor in (1, 1, 5):
        syncs.slow_down(factor)
        syncs.begin(lambda: None, lambda: None)
    assert began == [1_000, 1_000, 20 + 5 * 980]


def test_a_pause_ends_when_the_process_is_told_to_go_on_and_its_input_comes_in_order() -> None:
    cluster = cluster_of()
    run(cluster, 1_000)
    machine, seen = machine_of(cluster), list[str]()
    machine.pause(60_000_000)
    for word in ("first", "second"):
        machine.run(seen.append, word)
    run(cluster, 5_000)
    assert not seen
    machine.resume()
    assert seen == ["first", "second"]
    machine.run(seen.append, "third")
    run(cluster, 60_000)
    assert seen == ["first", "second", "third"], "nothing is left of the pause that was to end later"


@pytest.mark.parametrize("timers_last", [False, True])
def test_what_came_behind_a_timer_is_read_before_it_by_a_process_whose_timers_come_last(timers_last: bool) -> None:
    cluster = cluster_of()
    run(cluster, 2_000)
    machine, seen = machine_of(cluster), list[str]()
    node = machine.node
    assert node is not None
    on_deadline = node.on_deadline
    node.on_deadline = lambda: (seen.append("timer"), on_deadline())[1]  # type: ignore[method-assign, func-returns-value]
    machine.pause(60_000_000)
    machine.run(seen.append, "first")
    run(cluster, 20_000)
    machine.run(seen.append, "second")
    machine.resume(timers_last=timers_last)
    assert seen == (["first", "second", "timer"] if timers_last else ["first", "timer", "second"])


def test_a_late_sync_ends_once_in_its_turn_and_not_after_a_crash() -> None:
    due: list[tuple[int, Any]] = []
    syncs = Syncs(
        Settings(seed=1, voters=1), Random(1), lambda delay_us, callback, *args: due.append((delay_us, lambda: callback(*args)))
    )
    syncs.slow_down(1 << 20)
    ended: list[str] = []
    for name in ("first", "second", "third"):
        syncs.begin(lambda name=name: ended.append(name), lambda: None)  # type: ignore[misc]
    syncs.slow_down(1)
    syncs.slow_down(1)
    for _, callback in sorted(due, key=lambda entry: entry[0]):
        callback()
    assert ended == ["first", "second", "third"]
    syncs.slow_down(1 << 20)
    syncs.begin(lambda: ended.append("dead"), lambda: None)
    syncs.power_lost()
    due.clear()
    syncs.slow_down(1)
    assert not due


def test_a_node_that_its_disk_stopped_is_down_one_that_is_wrong_ends_the_run() -> None:
    cluster = cluster_of()
    stop_with(cluster, StorageError("a disk"))
    assert machine_of(cluster).node is None
    with pytest.raises(InvariantViolation, match="ours"):
        stop_with(cluster_of(), InvariantViolation("ours"))
    with pytest.raises(ClosedLog, match="let go"):
        stop_with(cluster_of(), ClosedLog("let go of"))


def test_a_log_that_is_damaged_stays_closed_until_there_is_room_to_set_that_aside() -> None:
    """Seed 1160000119: the last block of the disk was taken, and a start that found damage raised."""
    cluster = cluster_of(voters=3)
    run(cluster, 2_000)
    machine = machine_of(cluster)
    log = machine.disk.logs[METADATA_GROUP]
    assert log.damage(0, 70) is not None
    machine.crash("power")
    machine.disk.space.fill(0)
    assert machine.disk.space.give_up_ballast()
    machine.disk.space.fill(0)
    machine.start()
    run(cluster, 5_000)
    assert machine.node is not None and METADATA_GROUP not in machine.node.partitions
    machine.heal()
    run(cluster, 5_000)
    assert METADATA_GROUP in machine.node.partitions
    assert machine.disk.impairment(METADATA_GROUP) is None


def test_a_driver_that_spins_is_told() -> None:
    cluster = cluster_of(turn_delay_us_max=1)
    run(cluster, 1_000)
    node = machine_of(cluster).node
    assert node is not None
    honest = node.run_turn

    def spinning() -> None:
        honest()
        node.engine.request_turn()

    node.run_turn = spinning  # type: ignore[method-assign]
    node.engine.request_turn()
    with pytest.raises(Violation, match="spins"):
        run(cluster, 1_000)


# --- clients --------------------------------------------------------------------------------------------------------


def test_a_client_is_answered_once() -> None:
    cluster = cluster_of()
    answers = call(cluster)
    run(cluster, 3_000)
    assert answers == ["answer"]


def test_a_dead_node_refuses_a_client() -> None:
    cluster = cluster_of()
    cluster.crash(ONE, "test")
    answers = call(cluster)
    run(cluster, 3_000)
    assert answers == [CallFailure.REFUSED]


def test_a_node_that_dies_with_a_request_breaks_it_off() -> None:
    cluster = cluster_of()
    answers = call(cluster, ask_in_vain, timeout_ms=9_000)
    run(cluster, 500)
    cluster.crash(ONE, "test")
    run(cluster, 500)
    assert answers == [CallFailure.BROKEN]


def test_an_answer_after_the_clients_patience_is_not_heard() -> None:
    cluster = cluster_of()
    answers = call(cluster, ask_in_vain, timeout_ms=200)
    run(cluster, 3_000)
    assert answers == [CallFailure.TIMED_OUT]


# --- connections of clients ---


def call_all(cluster: Cluster, count: int) -> tuple[list[int], list[Any]]:
    """Calls on one connection: in which order they arrived, and how each ended."""
    connection = cluster.calls.connect(ONE)
    arrived: list[int] = []
    ended: list[Any] = [None] * count
    for number in range(count):

        def ask_number(node: ReplicaNode, reply: Any, number: int = number) -> None:
            arrived.append(number)
            reply(number)

        connection.call(ask_number, lambda answer, number=number: ended.__setitem__(number, answer), 1_000)
    return arrived, ended


def test_calls_of_one_connection_arrive_in_their_order() -> None:
    cluster = cluster_of()
    cluster.calls.settings = replace(cluster.calls.settings, delay_us_mean=50_000)
    arrived, ended = call_all(cluster, 50)
    run(cluster, 3_000)
    assert arrived == ended == list(range(50))


def test_a_call_that_is_lost_takes_the_later_ones_of_its_connection_with_it() -> None:
    cluster = cluster_of()
    cluster.calls.settings = replace(cluster.calls.settings, loss_ppm=50_000)
    arrived, ended = call_all(cluster, 200)
    assert ended == [None] * 200, "nothing happens at once"
    run(cluster, 3_000)
    assert 0 < len(arrived) < 200 and arrived == list(range(len(arrived)))
    assert set(ended[len(arrived) :]) == {CallFailure.TIMED_OUT}
    cluster.calls.settings = replace(cluster.calls.settings, loss_ppm=0)
    assert call(cluster) == [], "another call is not concerned"
    again, _ = call_all(cluster, 3)
    run(cluster, 3_000)
    assert again == [0, 1, 2]


@pytest.mark.parametrize("is_down_first", [False, True])
def test_a_connection_ends_with_the_process_that_got_its_first_call(*, is_down_first: bool) -> None:
    cluster = cluster_of()
    connection = cluster.calls.connect(ONE)
    answers: list[Any] = []
    if is_down_first:
        cluster.crash(ONE, "test")
    connection.call(ask, answers.append, 1_000)
    run(cluster, 500)
    assert answers == [CallFailure.REFUSED if is_down_first else "answer"]
    cluster.crash(ONE, "test")
    cluster.start(ONE)
    connection.call(ask, answers.append, 1_000)
    run(cluster, 500)
    assert answers[1:] == [CallFailure.REFUSED]
    cluster.calls.connect(ONE).call(ask, answers.append, 1_000)
    run(cluster, 500)
    assert answers[2:] == ["answer"]
