"""Planted bugs in what happens to a replica that lost records, also while voters change."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

IMPAIRMENT = "raftlake.raft.impairment"

DAMAGE: tuple[Mutant, ...] = (
    Mutant(
        name="impaired-replica-votes",
        source="a replica that lost what others count on cannot tell whose log is complete",
        damaged_voters=True,
        edits=(
            Edit(
                "raftlake.raft.handlers.vote",
                "    if group.impairment is not None:\n        return False\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="impaired-replica-campaigns",
        source="the same for the candidate itself",
        damaged_voters=True,
        edits=(
            Edit(
                "raftlake.raft.elections",
                "not group.is_resigning and group.impairment is None",
                "not group.is_resigning",
            ),
        ),
    ),
    Mutant(
        name="impairment-ends-before-the-records-are-back",
        source="whole again is who has synced everything below the high watermark",
        by_tests=True,
        edits=(
            Edit(
                IMPAIRMENT,
                "if high_watermark > group.flushed_end or group.epoch < lost.epoch:",
                "if group.epoch < lost.epoch:",
            ),
        ),
    ),
    Mutant(
        name="impairment-ends-while-an-old-fetch-may-count",
        source="in the epoch of the loss a leader may hold a Fetch that claims the lost records",
        by_tests=True,
        edits=(
            Edit(
                IMPAIRMENT,
                "    if group.epoch == lost.epoch and group.flushed_end < lost.end_offset:\n        return\n",
                "",
            ),
        ),
    ),
)
