"""Faults that damage the records on a disk: bits that flip, places that become unreadable, ends of logs that are lost.

One voter's log at a time is damaged, so that the others still have its records. A node whose damage has not been found yet
counts as damaged. `disk.decay` is the state of a damaged log.
"""

from __future__ import annotations

from random import Random

from raftlake.raft.types import NodeId
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.strikes import FaultKind, Params, Stage, draw_victim, victim

#: From this byte of a batch on a bit flips: behind the header. A byte beyond the batch's end is counted on from its beginning.
FLIPPED_BYTE = 61


def _draw(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "log": rng.randrange(1 << 16),
        "batch": rng.randrange(1 << 16),
        "byte": FLIPPED_BYTE + rng.randrange(1 << 10) if rng.randrange(2) else -1,
    }


def _strike(stage: Stage, params: Params) -> str:
    if not stage.damage_log(victim(stage, params), params["log"], params["batch"], params["byte"]):
        return ""
    return "bit flipped" if params["byte"] >= 0 else "place unreadable"


def _draw_end(rng: Random, settings: Settings) -> Params:
    late_ms = 64 << rng.randrange(6)
    return {
        **draw_victim(rng, settings),
        "log": rng.randrange(1 << 16),
        "batches": 1 + rng.randrange(6),
        "byte": FLIPPED_BYTE + rng.randrange(1 << 10) if rng.randrange(2) else -1,
        "late_ms": late_ms,
        "after_ms": 1 + rng.randrange(late_ms),
    }


def _strike_end(stage: Stage, params: Params) -> str:
    """A node loses its power and the end of a log, while Fetches that claim the lost records are on their way. So are those of
    the others, so that it may be the late ones that make a majority."""
    node_id = victim(stage, params)
    leader_ids = stage.leader_ids()
    for source in stage.node_ids:
        if source == node_id or source not in leader_ids:
            _delay(stage, source, params["late_ms"])
            lasts_ms = params["after_ms"] + (0 if source == node_id else params["late_ms"])
            stage.later(lasts_ms * US_PER_MS, _delay, stage, source, 0)
    stage.later(params["after_ms"] * US_PER_MS, _lose_end, stage, node_id, params)
    return "end of a log lost"


def _delay(stage: Stage, source: NodeId, extra_ms: int) -> None:
    """All that a node sends comes so much later."""
    for other in stage.node_ids:
        if other != source:
            stage.delay_link(source, other, extra_ms * US_PER_MS)


def _lose_end(stage: Stage, node_id: NodeId, params: Params) -> None:
    if stage.damage_log(node_id, params["log"], -params["batches"], params["byte"]):
        stage.crash(node_id, "the end of a log is lost")


KINDS: tuple[FaultKind, ...] = (
    FaultKind(name="damage", interval="damage_interval_ms", draw=_draw, strike=_strike),
    FaultKind(name="damage-end", interval="damage_end_interval_ms", draw=_draw_end, strike=_strike_end),
)
