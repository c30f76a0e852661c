"""Settings are a function of the seed, cover every fault, and the injector does what they say until its time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.faults.injector import ALL_KINDS, FaultInjector, draw_strikes, read_strikes
from raftlake.sim.faults.kinds import KINDS
from raftlake.sim.faults.strikes import Strike

NODES = tuple(NodeId(node_id) for node_id in (1, 2, 3))


class Recorder:
    """A stage that writes down what is done to it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.nodes = NODES
        self.done: list[tuple[int, str, object]] = []

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return self.nodes

    def leader_ids(self) -> tuple[NodeId, ...]:
        return NODES[:1]

    def note(self, what: str, about: object) -> None:
        self.done.append((self.scheduler.now_us, what, about))

    def crash(self, node_id: NodeId, reason: str) -> None:
        self.note("crash", node_id)

    def crash_at_port_call(self, node_id: NodeId, calls_left: int) -> None:
        assert calls_left > 0
        self.note("port crash", node_id)

    def trap_role(self, role: str, calls_left: int, count: int) -> None:
        assert role in ("Leader", "Candidate") and calls_left > 0 and count > 0
        self.note("trap", role)

    def resign(self, node_id: NodeId) -> None:
        self.note("resign", node_id)

    def pause(self, node_id: NodeId, length_us: int) -> None:
        assert length_us > 0
        self.note("pause", node_id)

    def cut_link(self, source: NodeId, destination: NodeId) -> None:
        assert source != destination
        self.note("cut", (source, destination))

    def restore_link(self, source: NodeId, destination: NodeId) -> None:
        self.note("restore", (source, destination))

    def delay_link(self, source: NodeId, destination: NodeId, extra_us: int) -> None:
        self.note("slow" if extra_us else "fast", (source, destination))

    def fill_disk(self, node_id: NodeId, free_bytes: int) -> None:
        self.note("filled" if free_bytes >= 0 else "emptied", node_id)

    def forge_epoch(self, node_id: NodeId, above: int) -> None:
        assert above in (0, 1)
        self.note("forged", node_id)

    def slow_disk(self, node_id: NodeId, factor: int) -> None:
        self.note("slow disk" if factor > 1 else "fast disk", node_id)

    def later(self, delay_us: int, callback: Callable[..., None], *args: object) -> None:
        self.scheduler.call_after(delay_us, callback, *args)

    def reset_connection(self, client: NodeId, server: NodeId) -> None:
        self.note("reset", (client, server))

    def jump_wall_clock(self, node_id: NodeId, by_ms: int) -> None:
        self.note("jump", node_id)

    def jump_clock(self, node_id: NodeId, by_ms: int) -> None:
        assert by_ms > 0
        self.note("skip", node_id)


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
        is_fault = field.name.endswith("_interval_ms") and field.name != "snapshot_interval_ms"
        if is_fault or field.name in ("flush_stall_ppm", "flush_error_ppm"):
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
    injector = FaultInjector(target, draw_strikes(quiet))
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
        ("role_trap_interval_ms", "trap"),
        ("reset_interval_ms", "reset"),
        ("wall_jump_interval_ms", "jump"),
        ("clock_jump_interval_ms", "skip"),
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


def test_partitions_come_in_every_kind_and_end() -> None:
    target, injector = strikes(partition_interval_ms=500, partition_ms_max=400)
    assert set(injector.counts) == {"node cut off", "split", "one-way links", "node deaf or mute", "partial mesh"}
    cut = [about for _, what, about in target.done if what == "cut"]
    restored = [about for _, what, about in target.done if what == "restore"]
    assert sorted(map(str, cut)) == sorted(map(str, restored))


@pytest.mark.parametrize(
    ("interval", "begin", "end"),
    [
        ("slow_link_interval_ms", "slow", "fast"),
        ("left_behind_interval_ms", "slow", "fast"),
        ("slow_disk_interval_ms", "slow disk", "fast disk"),
        ("fill_interval_ms", "filled", "emptied"),
    ],
)
def test_what_is_slow_becomes_fast_again(interval: str, begin: str, end: str) -> None:
    target, _ = strikes(**{interval: 2_000})
    begun = [about for _, what, about in target.done if what == begin]
    ended = [about for _, what, about in target.done if what == end]
    assert len(begun) > 10
    assert sorted(map(str, begun)) == sorted(map(str, ended))


def test_a_leader_that_is_left_behind_loses_its_followers() -> None:
    target, injector = strikes(left_behind_interval_ms=2_000)
    resets = [about for _, what, about in target.done if what == "reset"]
    assert len(resets) == 2 * injector.counts["leader left behind"]


def test_epochs_are_forged_at_one_node_or_at_all_and_half_of_that_kills_a_leader() -> None:
    target, injector = strikes(forge_interval_ms=500)
    counts, killed = injector.counts, [about for _, what, about in target.done if what == "crash"]
    assert set(counts) == {"epoch forged", "epochs forged"}
    assert len(target.done) - len(killed) == counts["epoch forged"] + 3 * counts["epochs forged"]
    assert 0.3 < len(killed) / sum(counts.values()) < 0.7


def test_five_voters_are_cut_as_in_kip_996() -> None:
    """Each of the five still reaches some others, and all of them together are connected."""
    (kind,) = (kind for kind in KINDS if kind.name == "partition")
    scheduler = Scheduler()
    target = Recorder(scheduler)
    target.nodes = tuple(NodeId(node_id) for node_id in range(1, 6))
    assert kind.strike(target, {"leader": 0, "pick": 0, "form": 4, "draw": 7, "ms": 10}) == "partial mesh"
    cut = [about for _, what, about in target.done if what == "cut"]
    assert len(cut) == 10
    reached = {(one, other) for one in target.nodes for other in target.nodes if one < other and (one, other) not in cut}
    assert len(reached) == 5
    assert all(any(node in pair for pair in reached) for node in target.nodes)


# --- strikes --------------------------------------------------------------------------------------------------------


def test_strikes_are_drawn_once_and_can_be_written_down_and_read_again() -> None:
    drawn = draw_strikes(replace(Settings.draw(3), **{kind.interval: 2_000 for kind in ALL_KINDS}))
    assert {strike.kind for strike in drawn} == {kind.name for kind in ALL_KINDS}
    assert [strike.at_us for strike in drawn] == sorted(strike.at_us for strike in drawn)
    lines = ["# a comment", "", *map(str, drawn)]
    assert read_strikes(lines) == drawn
    assert str(Strike(12, "crash", (("leader", 1), ("pick", 17)))) == "12 crash leader=1 pick=17"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x crash", "invalid literal"),
        ("12", "unpack"),
        ("12 nonsense a=1", "unknown kinds"),
        ("12 crash leader", "invalid literal"),
    ],
)
def test_what_is_no_strike_is_refused(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_strikes([line])


def test_one_kind_more_leaves_the_others_where_they_were() -> None:
    quiet = Settings(seed=5)
    crashes = draw_strikes(replace(quiet, crash_interval_ms=1_000))
    both = draw_strikes(replace(quiet, crash_interval_ms=1_000, pause_interval_ms=700))
    assert tuple(strike for strike in both if strike.kind == "crash") == crashes
    assert len(both) > len(crashes)
