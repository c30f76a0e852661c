"""The fault that fills disks: something else takes what a node's disk has, or all nodes', for a while, and gives it back.

So little is left that the node is low, or full at once: appends, snapshots and votes find no room. A third of these faults
strikes all disks together, so that a majority is low and clients are refused. What a write takes is counted by `space`.
"""

from __future__ import annotations

from random import Random

from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.strikes import FaultKind, Params, Stage, draw_victim, victim

#: What has to stay free on a simulated disk.
MIN_FREE_BYTES = 2_000
#: What may be left: nothing, or up to a little more than has to stay free.
LEFT_BYTES = (0, 40, 400, 1_500, 2_100)


def _draw(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "all": int(rng.randrange(3) == 0),
        "left": LEFT_BYTES[rng.randrange(len(LEFT_BYTES))] + rng.randrange(40),
        "ms": rng.randrange(1, settings.fill_ms_max),
    }


def _strike(stage: Stage, params: Params) -> str:
    nodes = stage.node_ids if params["all"] else (victim(stage, params),)
    for node_id in nodes:
        stage.fill_disk(node_id, params["left"])
        stage.later(params["ms"] * US_PER_MS, stage.fill_disk, node_id, -1)
    return "all disks filled" if params["all"] else "disk filled"


KINDS: tuple[FaultKind, ...] = (FaultKind(name="fill-disk", interval="fill_interval_ms", draw=_draw, strike=_strike),)
