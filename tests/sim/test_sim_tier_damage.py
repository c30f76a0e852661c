"""A log that decays while its history is copied to the remote tier."""

from __future__ import annotations

import pytest

from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings


@pytest.mark.sim
def test_damage_that_a_copier_meets_after_an_answer_ends_no_node() -> None:
    """The answer to a proposal let the copier go on, outside the turn that looks for damage of the log."""
    Cluster(Settings.draw(950000278)).run()
