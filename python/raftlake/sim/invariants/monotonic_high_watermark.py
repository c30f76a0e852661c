"""MonotonicHighWatermark (RaftEventSimulationTest): while a node runs it never goes back, nor past the log.

What clients see of it over several nodes and restarts is checked by the client oracle.
"""

from __future__ import annotations

from raftlake.sim.invariants.base import Invariant, ReplicaState


class MonotonicHighWatermark(Invariant):
    promise = "a high watermark never goes back"

    def on_high_watermark(self, replica: ReplicaState, before: int) -> None:
        if replica.high_watermark < before:
            raise self.fail(f"node {replica.node_id} {replica.group}: {before} -> {replica.high_watermark}")
        if replica.high_watermark > replica.log.end_offset:
            raise self.fail(
                f"node {replica.node_id} {replica.group}: {replica.high_watermark} is past the log end {replica.log.end_offset}"
            )
