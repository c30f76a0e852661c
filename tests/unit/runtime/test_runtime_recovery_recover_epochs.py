"""Recovery where epochs have come to an end: a new line of them behind the records, or one line that says what to do."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import outcomes_of_kills, without_sync
from raftlake.cli import recover as cli_recover
from raftlake.errors import WrongState
from raftlake.raft.types import EPOCH_LEAP_MAX, EPOCH_MAX, ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.recovery.recover import EPOCH_USABLE_MAX, EPOCHS_AHEAD, PENDING_NAME, Recovery, epoch_behind
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.election_journal import COPY_NAME, FILE_NAME
from recoverkit import ORDERS, begin, make_survivor, recover

GROUPS = (ORDERS, METADATA_GROUP)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_sync(monkeypatch)
    return make_survivor(tmp_path)


def exhaust(place: Path, epoch: int = EPOCH_MAX) -> None:
    """What BeginQuorumEpoch of an unknown replica left behind: the epoch of both groups is the last there is."""
    elections = FileElectionStore(place)
    elections.save({group: ElectionState(Epoch(epoch), NodeId(9), ReplicaKey(NodeId(9))) for group in GROUPS})
    elections.close()


def states(place: Path) -> list[ElectionState | None]:
    elections = FileElectionStore(place)
    found = [elections.load(group) for group in GROUPS]
    elections.close()
    return found


@pytest.mark.parametrize("exhausted", [EPOCH_MAX, EPOCH_MAX + 1, EPOCH_USABLE_MAX - EPOCHS_AHEAD + 1])
def test_epochs_that_came_to_an_end_begin_anew_behind_the_records(place: Path, exhausted: int) -> None:
    exhaust(place, exhausted)
    recover(place)
    assert states(place) == [ElectionState(Epoch(4 + EPOCHS_AHEAD))] * 2
    directory = FileLogDirectory(place, post=None)
    for group in GROUPS:
        assert directory.open(group).epochs[-1][0] == 4 + EPOCHS_AHEAD
    directory.close()


def test_only_the_groups_whose_epochs_have_ended_begin_a_new_line(place: Path) -> None:
    elections = FileElectionStore(place)
    elections.save({ORDERS: ElectionState(Epoch(EPOCH_MAX))})
    elections.close()
    recovery = begin(place)
    facts = recovery.examine()
    recovery.close()
    assert [(each.group, each.new_epoch, each.is_new_line) for each in facts] == [
        (ORDERS, 4 + EPOCHS_AHEAD, True),
        (METADATA_GROUP, 6 + EPOCHS_AHEAD, False),
    ]


def test_the_last_epoch_that_leaves_room_is_followed_by_the_next() -> None:
    last = Epoch(EPOCH_USABLE_MAX - EPOCHS_AHEAD)
    assert epoch_behind(ORDERS, Epoch(4), last) == EPOCH_USABLE_MAX
    assert epoch_behind(ORDERS, Epoch(4), Epoch(last + 1)) == 4 + EPOCHS_AHEAD


def test_a_new_line_is_begun_only_where_the_old_epochs_are_too_far_to_be_believed() -> None:
    farthest = EPOCH_MAX - EPOCH_LEAP_MAX - EPOCHS_AHEAD - 1
    assert epoch_behind(ORDERS, Epoch(farthest), EPOCH_MAX) == farthest + EPOCHS_AHEAD
    for records in (farthest + 1, EPOCH_MAX):
        with pytest.raises(WrongState, match=rf"orders-0: it holds records of epoch {records}.*nothing was changed.*dump"):
            epoch_behind(ORDERS, Epoch(records), EPOCH_MAX)


def test_a_log_without_an_epoch_left_is_told_in_one_line_and_left_as_it_is(place: Path) -> None:
    directory = FileLogDirectory(place, post=None)
    fill(directory.open(ORDERS), 1, epoch=EPOCH_MAX)
    directory.close()
    exhaust(place)
    before = states(place)
    recovery = begin(place)
    with pytest.raises(WrongState) as told:
        recovery.examine()
    recovery.close()
    assert "\n" not in str(told.value)
    assert states(place) == before and not (place / PENDING_NAME).exists()


def test_the_epoch_that_was_given_up_does_not_return_with_a_damaged_file(place: Path) -> None:
    exhaust(place)
    recover(place)
    for name in (FILE_NAME, COPY_NAME):
        path = place / name
        whole = path.read_bytes()
        assert b"%d" % EPOCH_MAX not in whole
        path.write_bytes(whole + b"garbage\n")
        assert states(place) == [ElectionState(Epoch(4 + EPOCHS_AHEAD))] * 2


def test_a_recovery_that_was_killed_is_finished_in_the_line_that_was_planned(place: Path, tmp_path: Path) -> None:
    exhaust(place)
    number = itertools.count()

    def start() -> Recovery:
        copy = tmp_path / f"run-{next(number)}"
        shutil.copytree(place, copy)
        return begin(copy)

    def act(recovery: Recovery) -> None:
        recovery.perform(recovery.examine(), "mine")

    def look(recovery: Recovery) -> bool:
        copy = recovery.data_dir
        recovery._logs.abandon()
        was_pending = (copy / PENDING_NAME).exists()
        if was_pending:
            planned = json.loads((copy / PENDING_NAME).read_bytes())
            assert [each[3] for each in planned["groups"]] == [4 + EPOCHS_AHEAD] * 2
            recover(copy)
            assert states(copy) == [ElectionState(Epoch(4 + EPOCHS_AHEAD))] * 2
        return was_pending

    assert True in outcomes_of_kills(start, act, look)


def test_the_words_say_what_must_happen_to_the_other_nodes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exhaust(place)
    recovery = begin(place)
    facts = recovery.examine()
    recovery.close()
    cli_recover.describe(facts, "mine", is_resumed=False)
    said = capsys.readouterr().out
    assert f"orders-0: its epochs end at {EPOCH_MAX}, so it begins a new line of them at {4 + EPOCHS_AHEAD}." in said
    assert "Start no other node with its present directory again. Keep that" in said
