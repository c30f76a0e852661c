"""The kinds of faults that strike nodes, their disks' speed, their clocks and the links between them.

Each kind is a draw and an effect (see `strikes`). Rates that need no moment of their own (lost messages, slow syncs) are
settings of the network and the machines. Faults that last end by themselves.
"""

from __future__ import annotations

from random import Random

from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.strikes import FaultKind, Params, Stage, draw_victim, victim

# --- nodes ----------------------------------------------------------------------------------------------------------


def _crash(stage: Stage, params: Params) -> str:
    stage.crash(victim(stage, params), "fault")
    return "crash"


def _draw_port_crash(rng: Random, settings: Settings) -> Params:
    return {**draw_victim(rng, settings), "calls": rng.randrange(1, 20)}


def _port_crash(stage: Stage, params: Params) -> str:
    stage.crash_at_port_call(victim(stage, params), params["calls"])
    return "crash at port call"


TRAPPED_ROLES = ("Leader", "Candidate")


def _draw_trap(rng: Random, settings: Settings) -> Params:
    role = rng.randrange(2)
    return {"role": role, "calls": rng.randrange(1, 5 if role else 12), "count": rng.randrange(1, 4)}


def _trap(stage: Stage, params: Params) -> str:
    """The next leader dies with the few records in its log that no other node has, or only one."""
    stage.trap_role(TRAPPED_ROLES[params["role"]], params["calls"], params["count"])
    return "trap for a new leader"


def _crash_all(stage: Stage, params: Params) -> str:
    for node_id in stage.node_ids:
        stage.crash(node_id, "fault on all")
    return "crash of all"


def _draw_stop(rng: Random, settings: Settings) -> Params:
    return {**draw_victim(rng, settings), "after_ms": rng.randrange(1, 1_000)}


def _stop(stage: Stage, params: Params) -> str:
    """Graceful: resign, and the process ends a moment later."""
    node_id = victim(stage, params)
    stage.resign(node_id)
    stage.later(params["after_ms"] * US_PER_MS, stage.crash, node_id, "stopped")
    return "graceful stop"


def _draw_pause(rng: Random, settings: Settings) -> Params:
    return {**draw_victim(rng, settings), "ms": rng.randrange(1, settings.pause_ms_max)}


def _pause(stage: Stage, params: Params) -> str:
    stage.pause(victim(stage, params), params["ms"] * US_PER_MS)
    return "pause"


# --- clocks and disks -----------------------------------------------------------------------------------------------


def _draw_wall_jump(rng: Random, settings: Settings) -> Params:
    return {**draw_victim(rng, settings), "by_ms": rng.randrange(-60_000, 60_000)}


def _wall_jump(stage: Stage, params: Params) -> str:
    stage.jump_wall_clock(victim(stage, params), params["by_ms"])
    return "wall clock jump"


def _draw_clock_jump(rng: Random, settings: Settings) -> Params:
    return {**draw_victim(rng, settings), "by_ms": rng.randrange(1, 10_000)}


def _clock_jump(stage: Stage, params: Params) -> str:
    stage.jump_clock(victim(stage, params), params["by_ms"])
    return "monotonic clock jump"


def _draw_slow_disk(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "factor": 1 << rng.randrange(2, 10),
        "ms": rng.randrange(1, settings.slow_disk_ms_max),
    }


def _slow_disk(stage: Stage, params: Params) -> str:
    node_id = victim(stage, params)
    stage.slow_disk(node_id, params["factor"])
    stage.later(params["ms"] * US_PER_MS, stage.slow_disk, node_id, 1)
    return "slow disk"


# --- links ----------------------------------------------------------------------------------------------------------

Link = tuple[NodeId, NodeId]
PARTITIONS = ("node cut off", "split", "one-way links", "node deaf or mute", "partial mesh")
#: KIP-996's topology: five voters; these pairs of them do not reach each other.
PARTIAL_MESH_CUTS = ((0, 1), (0, 3), (0, 4), (1, 2), (1, 4))


def _draw_partition(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "form": rng.randrange(len(PARTITIONS)),
        "draw": rng.randrange(1 << 30),
        "ms": rng.randrange(1, settings.partition_ms_max),
    }


def _partition(stage: Stage, params: Params) -> str:
    nodes = stage.node_ids
    if len(nodes) < 2:
        return ""
    name = PARTITIONS[params["form"]]
    links = dict.fromkeys(_cut_links(name, nodes, victim(stage, params), Random(params["draw"])))
    for link in links:
        stage.cut_link(*link)
        stage.later(params["ms"] * US_PER_MS, stage.restore_link, *link)
    return name


def _cut_links(name: str, nodes: tuple[NodeId, ...], target: NodeId, rng: Random) -> list[Link]:
    others = [node for node in nodes if node != target]
    if name == "node cut off":
        return _between([target], others)
    if name == "split":
        one = [node for node in nodes if rng.randrange(2)]
        return _between(one, [node for node in nodes if node not in one])
    if name == "one-way links":
        pairs = [rng.sample(nodes, 2) for _ in range(rng.randrange(1, len(nodes) + 1))]
        return [(source, destination) for source, destination in pairs]
    if name == "node deaf or mute":
        deaf = rng.randrange(2)
        return [(node, target) if deaf else (target, node) for node in others]
    mixed = rng.sample(nodes, len(nodes))
    if len(mixed) < 5:
        return _between([target], others[: len(others) // 2])
    return [link for one, other in PARTIAL_MESH_CUTS for link in _between([mixed[one]], [mixed[other]])]


def _between(one: list[NodeId], other: list[NodeId]) -> list[Link]:
    return [link for left in one for right in other for link in ((left, right), (right, left))]


def _draw_reset(rng: Random, settings: Settings) -> Params:
    return {"draw": rng.randrange(1 << 30)}


def _reset(stage: Stage, params: Params) -> str:
    nodes = stage.node_ids
    if len(nodes) < 2:
        return ""
    client, server = Random(params["draw"]).sample(nodes, 2)
    stage.reset_connection(client, server)
    return "connection reset"


def _draw_slow_link(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "extra_ms": 1 << rng.randrange(3, 11),
        "inward": rng.randrange(3),
        "ms": rng.randrange(1, settings.slow_link_ms_max),
    }


def _slow_link(stage: Stage, params: Params) -> str:
    """All that a node is sent, or sends, or both, comes late for a while."""
    target = victim(stage, params)
    for other in stage.node_ids:
        if other != target:
            if params["inward"] != 0:
                _delay(stage, (other, target), params)
            if params["inward"] != 1:
                _delay(stage, (target, other), params)
    return "slow links"


def _delay(stage: Stage, link: Link, params: Params) -> None:
    stage.delay_link(*link, params["extra_ms"] * US_PER_MS)
    stage.later(params["ms"] * US_PER_MS, stage.delay_link, *link, 0)


def _draw_left_behind(rng: Random, settings: Settings) -> Params:
    gap_ms = rng.randrange(1, 400)
    return {
        "leader": 1,
        "pick": rng.randrange(1 << 16),
        "extra_ms": 256 << rng.randrange(4),
        "gap_ms": gap_ms,
        "ms": gap_ms + 3_000,
    }


def _left_behind(stage: Stage, params: Params) -> str:
    """The connections to a leader break while what was sent to it is still on its way: the others elect the next one at once,
    and the old one goes on hearing its followers as they were."""
    target = victim(stage, params)
    for other in stage.node_ids:
        if other != target:
            _delay(stage, (other, target), params)
            stage.later(params["gap_ms"] * US_PER_MS, stage.reset_connection, other, target)
    return "leader left behind"


KINDS: tuple[FaultKind, ...] = (
    FaultKind(name="crash", interval="crash_interval_ms", draw=draw_victim, strike=_crash),
    FaultKind(name="port-crash", interval="port_crash_interval_ms", draw=_draw_port_crash, strike=_port_crash),
    FaultKind(name="role-trap", interval="role_trap_interval_ms", draw=_draw_trap, strike=_trap),
    FaultKind(name="crash-all", interval="crash_all_interval_ms", draw=lambda rng, settings: {}, strike=_crash_all),
    FaultKind(name="stop", interval="stop_interval_ms", draw=_draw_stop, strike=_stop),
    FaultKind(name="pause", interval="pause_interval_ms", draw=_draw_pause, strike=_pause),
    FaultKind(name="wall-jump", interval="wall_jump_interval_ms", draw=_draw_wall_jump, strike=_wall_jump),
    FaultKind(name="clock-jump", interval="clock_jump_interval_ms", draw=_draw_clock_jump, strike=_clock_jump),
    FaultKind(name="slow-disk", interval="slow_disk_interval_ms", draw=_draw_slow_disk, strike=_slow_disk),
    FaultKind(name="partition", interval="partition_interval_ms", draw=_draw_partition, strike=_partition),
    FaultKind(name="reset", interval="reset_interval_ms", draw=_draw_reset, strike=_reset),
    FaultKind(name="slow-link", interval="slow_link_interval_ms", draw=_draw_slow_link, strike=_slow_link),
    FaultKind(name="left-behind", interval="left_behind_interval_ms", draw=_draw_left_behind, strike=_left_behind),
)
