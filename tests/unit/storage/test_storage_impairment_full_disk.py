"""Damage that is found on a full disk: it is put aside all the same, and what is tried again goes on where it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, read_all
from contract.file_faults import without_sync
from damagekit import GROUP, Model, copy_of, flip, make_model, reopen, segments
from raftlake.errors import DamagedData
from raftlake.raft.types import Epoch
from raftlake.storage import impairment as impairment_files


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make_model(tmp_path_factory.mktemp("model"), epochs=[4])


@pytest.fixture
def place(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_sync(monkeypatch)
    return copy_of(model, tmp_path)


@pytest.fixture
def batches(model: Model) -> list[Batch]:
    return model[1]


def damage_at(place: Path, number: int, at: int) -> None:
    """Flip a bit of a segment."""
    path = segments(place)[number]
    path.write_bytes(flip(path.read_bytes(), at))


def full_at(call: str, count: int, monkeypatch: pytest.MonkeyPatch, owner: object = os) -> list[int]:
    """From the `count`th on `call` finds no room, until the list that is returned is empty: so many calls are refused."""
    real, refusals, seen = getattr(owner, call), [0], [0]

    def refuse(*given: object, **named: object) -> object:
        seen[0] += 1
        if refusals and seen[0] >= count:
            refusals.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*given, **named)

    monkeypatch.setattr(owner, call, refuse)
    return refusals


@pytest.mark.parametrize("count", [1, 3], ids=["no room at all", "room for a part"])
@pytest.mark.parametrize("number", [0, 1, -1], ids=["first segment", "middle segment", "last segment"])
def test_without_room_for_the_intact_beginning_its_whole_segment_goes(
    place: Path, batches: list[Batch], number: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with a full disk stopped at the first damage, and at each start."""
    base = int(segments(place)[number].stem)
    before = {path.name: path.read_bytes() for path in segments(place)}
    after = list(before)[number]
    damage_at(place, number, 1_000)
    directory = reopen(place)
    monkeypatch.setattr(impairment_files, "COPY_BYTES", 300)
    with monkeypatch.context() as patch:
        full_at("write_at", count, patch, owner=impairment_files)
        told = directory.set_aside(GROUP, DamagedData("found by a test", offset=base), Epoch(4))
    log = directory.open(GROUP)
    log.verify()
    assert log.end_offset == base and f"cut to offset {base}," in told
    assert read_all(log) == data_of(batches[:base])
    impairment = directory.impairment(GROUP)
    assert impairment is not None and impairment[0].end_offset > base, "it knows what it may have acknowledged"
    (aside,) = (place / str(GROUP)).glob("damaged-*")
    assert {path.name for path in aside.iterdir()} == {name for name in before if name >= after}
    assert not list((place / str(GROUP)).glob("*.cut"))
    directory.close()


@pytest.mark.parametrize(("call", "count"), [("rename", 2), ("rename", 4), ("mkdir", 1), ("sync_directory", 2)])
def test_what_is_put_aside_without_room_goes_on_where_it_was_once_the_ballast_is_given_up(
    place: Path, batches: list[Batch], call: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_at(place, 1, 80)
    first = int(segments(place)[1].stem)
    directory = reopen(place)
    monkeypatch.setattr(directory.room, "release", lambda: True)
    with monkeypatch.context() as patch:
        refusals = full_at(call, count, patch, owner={"rename": os, "mkdir": Path}.get(call, impairment_files))
        directory.set_aside(GROUP, DamagedData("found by a test", offset=first), Epoch(4))
        assert not refusals
    log = directory.open(GROUP)
    log.verify()
    assert read_all(log) == data_of(batches[: log.end_offset]) and log.end_offset >= first
    assert len(list((place / str(GROUP)).glob("damaged-*"))) == 1
    directory.close()
