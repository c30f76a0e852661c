"""Settings are a function of the seed, cover every fault, and the injector does what they say until its time is over."""

from __future__ import annotations

from dataclasses import fields, replace

from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.faults import FaultInjector, Settings, stream

NODES = tuple(NodeId(node_id) for node_id in (1, 2, 3))


class Recorder:
    """A target that writes down what is done to it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.done: list[tuple[int, str, object]] = []

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return NODES

    def leader_ids(self) -> tuple[NodeId, ...]:
        return NODES[:1]

    def note(self, what: str, about: object) -> None:
        self.done.append((self.scheduler.now_us, what, about))

    def crash(self, node_id: NodeId, reason: str) -> None:
        self.note("crash", node_id)

    def crash_at_port_call(self, node_id: NodeId, calls_left: int) -> None:
        assert calls_left > 0
        self.note("port crash", node_id)

    def resign(self, node_id: NodeId) -> None:
        self.note("resign", node_id)

    def start(self, node_id: NodeId) -> None:
        self.note("start", node_id)

    def pause(self, node_id: NodeId, length_us: int) -> None:
        assert length_us > 0
        self.note("pause", node_id)

    def cut_link(self, source: NodeId, destination: NodeId) -> None:
        assert source != destination
        self.note("cut", (source, destination))

    def heal_links(self) -> None:
        self.note("heal", None)

    def reset_connection(self, client: NodeId, server: NodeId) -> None:
        self.note("reset", (client, server))

    def jump_wall_clock(self, node_id: NodeId, by_ms: int) -> None:
        self.note("jump", node_id)


def test_a_seed_draws_the_same_settings_every_time() -> None:
    for seed in range(50):
        assert Settings.draw(seed) == Settings.draw(seed)
    assert len({Settings.draw(seed) for seed in range(50)}) == 50


def test_streams_of_one_seed_are_apart() -> None:
    assert stream(1, "a").random() != stream(1, "b").random()
    assert stream(1, "a").random() == stream(1, "a").random()


def test_every_fault_is_on_in_some_seeds_and_off_in_others() -> None:
    drawn = [Settings.draw(seed) for seed in range(300)]
    for field in fields(Settings):
        if field.name.endswith("_interval_ms") or field.name in ("flush_stall_ppm", "flush_error_ppm"):
            values = [getattr(settings, field.name) for settings in drawn]
            assert 0 in values and max(values) > 0, field.name
    for rate in ("loss_ppm", "duplicate_ppm", "straggle_ppm"):
        values = [getattr(settings.network, rate) for settings in drawn]
        assert 0 in values and max(values) > 0, rate
    assert {settings.voters for settings in drawn} == {1, 3, 5}
    assert {settings.retention_bytes > 0 for settings in drawn} == {True, False}
    assert {settings.churners > 0 for settings in drawn} == {True, False}


def test_every_setting_is_printed() -> None:
    printed = {line.partition("=")[0] for line in Settings.draw(1).lines()}
    for field in fields(Settings):
        assert any(name == field.name or name.startswith(field.name + ".") for name in printed), field.name


def strikes(**intervals: int) -> tuple[Recorder, FaultInjector]:
    scheduler = Scheduler()
    target = Recorder(scheduler)
    quiet = replace(Settings(seed=5), **intervals)  # type: ignore[arg-type]
    injector = FaultInjector(scheduler, quiet, target, 60_000 * US_PER_MS)
    injector.start()
    scheduler.run_until(200_000 * US_PER_MS)
    return target, injector


def test_nothing_strikes_when_everything_is_off() -> None:
    target, injector = strikes()
    assert target.done == []
    assert injector.counts == {}


def test_each_kind_strikes_about_as_often_as_its_interval_says_and_not_after_the_end() -> None:
    for interval, what in (
        ("crash_interval_ms", "crash"),
        ("port_crash_interval_ms", "port crash"),
        ("pause_interval_ms", "pause"),
        ("reset_interval_ms", "reset"),
        ("wall_jump_interval_ms", "jump"),
    ):
        target, injector = strikes(**{interval: 1_000})
        assert 30 <= len(target.done) <= 100, interval
        assert {done[1] for done in target.done} == {what}
        assert max(at_us for at_us, _, _ in target.done) <= 60_000 * US_PER_MS
        assert sum(injector.counts.values()) == len(target.done)


def test_all_nodes_can_go_down_at_once() -> None:
    target, _ = strikes(crash_all_interval_ms=10_000)
    by_time: dict[int, list[object]] = {}
    for at_us, _, node_id in target.done:
        by_time.setdefault(at_us, []).append(node_id)
    assert by_time
    assert all(nodes == list(NODES) for nodes in by_time.values())


def test_a_graceful_stop_resigns_and_ends_the_process_soon_after() -> None:
    target, injector = strikes(stop_interval_ms=3_000)
    resigned = [(at_us, node_id) for at_us, what, node_id in target.done if what == "resign"]
    crashed = [(at_us, node_id) for at_us, what, node_id in target.done if what == "crash"]
    assert len(resigned) == len(crashed) == injector.counts["graceful stop"] > 5
    for at_us, node_id in resigned:
        assert any(other == node_id and 0 < end_us - at_us < 1_000 * US_PER_MS for end_us, other in crashed)


def test_partitions_come_in_every_kind_and_heal() -> None:
    target, injector = strikes(partition_interval_ms=500, partition_ms_max=400)
    assert set(injector.counts) == {"node cut off", "split", "one-way links", "node deaf or mute"}
    assert any(what == "heal" for _, what, _ in target.done)
    last_cut_us = max(at_us for at_us, what, _ in target.done if what == "cut")
    assert any(what == "heal" and at_us > last_cut_us for at_us, what, _ in target.done)


def test_a_node_that_went_down_is_started_again_in_time() -> None:
    scheduler = Scheduler()
    target = Recorder(scheduler)
    injector = FaultInjector(scheduler, Settings(seed=1, down_ms_max=300), target, 1)
    injector.restart_later(NODES[1])
    scheduler.run_until(300 * US_PER_MS)
    assert [(what, node_id) for _, what, node_id in target.done] == [("start", NODES[1])]
