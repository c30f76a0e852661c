"""Auxiliary bytes go with their copies, and those of attempts that failed: never those that a shown copy needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, LINEAGE, Moment, segment
from contract.tier_history_contract import OTHER
from raftlake.ports.tier import Lineage, RemoteSegment, RemoteState
from raftlake.raft.types import Epoch, Offset
from raftlake.tier import leftovers
from raftlake.tier.calls import TierSettings
from raftlake.tier.schema import table_uri
from raftlake.tier.table_reads import TableReads
from tierkit import DeltaWorld, local_settings, tier_files


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


@pytest.fixture
def world(settings: TierSettings) -> DeltaWorld:
    return DeltaWorld(settings)


def copied(world: DeltaWorld, base: int, name: str, lineage: Lineage = LINEAGE, epoch: int = 5) -> RemoteSegment:
    made = world.copy(1, segment(base, name, lineage=lineage, epoch=epoch))
    assert isinstance(made, RemoteSegment), made
    return made


def auxiliaries(settings: TierSettings) -> list[str]:
    return [path[10:-4] for path in tier_files(settings, GROUP) if path.startswith("_raftlake/")]


def delete(world: DeltaWorld, until: int, epoch: int = 5) -> None:
    assert isinstance(world.delta(1).delete(LINEAGE, Epoch(epoch), Offset(until)), int)


def test_auxiliary_bytes_go_with_their_copies(settings: TierSettings, world: DeltaWorld) -> None:
    for base in (0, 6, 12):
        copied(world, base, f"s{base}")
    copied(world, 0, "o", OTHER)
    delete(world, 13)
    assert auxiliaries(settings) == ["o", "s12"]


def test_those_of_an_attempt_that_was_killed_go_once_another_copy_is_in_its_place(
    settings: TierSettings, world: DeltaWorld
) -> None:
    world.crash(1, segment(0, "killed"), Moment.BEFORE_COMMIT)
    delete(world, 0)
    # Nothing is in its place yet.
    assert auxiliaries(settings) == ["killed"]
    copied(world, 0, "again")
    world.crash(1, segment(0, "other", lineage=OTHER), Moment.BEFORE_COMMIT)
    delete(world, 0)
    assert auxiliaries(settings) == ["again", "other"]


def test_those_of_a_later_leader_stay(settings: TierSettings, world: DeltaWorld) -> None:
    """Its copy may be under way, as far as this leader knows."""
    world.crash(2, segment(0, "later", epoch=9), Moment.BEFORE_COMMIT)
    copied(world, 0, "a")
    delete(world, 0, epoch=6)
    assert auxiliaries(settings) == ["a", "later"]


def test_those_of_copies_that_optimize_put_together_stay_as_long_as_their_rows(
    settings: TierSettings, world: DeltaWorld
) -> None:
    world.crash(1, segment(0, "killed"), Moment.BEFORE_COMMIT)
    made = [copied(world, base, f"s{base}") for base in (0, 6, 12)]
    DeltaTable(table_uri(settings.uri, GROUP)).optimize.compact()
    for _ in range(3):
        delete(world, 11)
    assert {"s0", "s12", "s6"} <= set(auxiliaries(settings))
    for copy in made:
        assert TableReads(settings).find(LINEAGE, copy.base_offset) == RemoteState(copy, b"producers")
    delete(world, 18)
    assert auxiliaries(settings) == []


def test_a_sweep_reads_few_files_and_the_next_one_goes_on(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_READ_MAX", 2)
    for number in range(4):
        world.crash(1, segment(0, f"killed{number}"), Moment.BEFORE_COMMIT)
    for number in range(3):
        copied(world, 0, f"o{number}", Lineage(GROUP._replace(partition=3 + number), 0))
    copied(world, 0, "again")
    for left in (3, 2, 0):
        delete(world, 0)
        found = [name for name in auxiliaries(settings) if name.startswith("killed")]
        assert len(found) <= left + 1
    for _ in range(2):
        delete(world, 0)
    assert auxiliaries(settings) == ["again", "o0", "o1", "o2"]
