"""The fault that forges epochs: somebody without credentials asks nodes for pre-votes, in a voter's name and in a high epoch.

The epoch is the highest that a node takes from requests, or the one above it, so that honest requests find no room left. Half
of these strikes kill a leader in the same moment. No vote is forged: a vote for a candidate that does not exist can cost
records (docs/reliability.md, known limits).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from raftlake.ports.peer_rpcs import ControlRpc, PeerMessage
from raftlake.raft.leaps import highest_of_requests
from raftlake.raft.messages import VoteRequest
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.node import ReplicaNode
from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.strikes import FaultKind, Params, Stage, draw_victim, victim

#: From whom nodes get them, by the trace.
FORGER = NodeId(-1)


def _draw(rng: Random, settings: Settings) -> Params:
    return {
        **draw_victim(rng, settings),
        "all": int(rng.randrange(3) > 0),
        "above": int(rng.randrange(4) == 0),
        "kills": rng.randrange(2),
    }


def _strike(stage: Stage, params: Params) -> str:
    target = victim(stage, params)
    for node_id in stage.node_ids if params["all"] else (target,):
        stage.forge_epoch(node_id, params["above"])
    if params["kills"]:
        stage.crash(target, "in the moment of a forged epoch")
    return "epochs forged" if params["all"] else "epoch forged"


def forged_requests(node: ReplicaNode, above: int) -> Iterator[ControlRpc]:
    """For each group of the node, a pre-vote in the name of another voter, `above` the highest epoch that is taken from one."""
    for group, partition in node.partitions.items():
        core = partition.core
        name = next(iter(core.other_voters), NodeId(core.local.id + 1))
        request = VoteRequest(
            candidate=ReplicaKey(name),
            epoch=Epoch(highest_of_requests(core, node.engine.now_ms) + above),
            log_end=OffsetAndEpoch(Offset(0), Epoch(0)),
            pre_vote=True,
        )
        yield ControlRpc(cluster_id=None, messages=(PeerMessage(group, request),))


KINDS: tuple[FaultKind, ...] = (FaultKind(name="forge-epoch", interval="forge_interval_ms", draw=_draw, strike=_strike),)
