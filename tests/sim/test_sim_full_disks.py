"""Whole clusters whose disks fill up and get room again, one or all of them, under every other fault that their seeds draw.

Nothing that was acknowledged is lost, nothing that was refused appears, and once there is room every client is served.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.faults.faults import Settings

SEEDS = range(1, 13)


def run(seed: int, **changes: int) -> Outcome:
    return Cluster(replace(Settings.draw(seed), fill_interval_ms=2_500, fill_ms_max=6_000, **changes)).run()


@pytest.mark.sim
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_disks_fill_up(seed: int) -> None:
    outcome = run(seed)
    assert outcome.completed > 10
    assert outcome.faults["disk filled"] + outcome.faults.get("all disks filled", 0) > 5


@pytest.mark.sim
def test_writes_find_no_room_and_clients_are_refused() -> None:
    outcomes = [run(seed) for seed in SEEDS[:4]]
    assert sum(outcome.faults.get("write without room", 0) for outcome in outcomes) > 20
    for what in ("low disk", "full disk", "majority low"):
        assert sum(outcome.covered.get(f"turns with a {what}", 0) for outcome in outcomes) > 20


@pytest.mark.sim
def test_a_transaction_is_committed_where_its_leader_had_no_room_to_remember_it() -> None:
    """Retention deleted the records of an open transaction on one voter, and a full disk kept it from saving its producers.

    The voter led, knew of nothing to end and wrote no marker. The coordinator took the transaction for committed, and the other
    replicas kept it open.
    """
    Cluster(Settings.draw(744876267)).run()


@pytest.mark.sim
def test_a_repeated_batch_is_known_where_retention_had_no_room_to_save_the_producers() -> None:
    Cluster(Settings.draw(860001292)).run()
