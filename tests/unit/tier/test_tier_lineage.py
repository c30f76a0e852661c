"""Which files belong to the history of a leader that an unclean election made: the seed's scenarios, and each boundary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlake.raft.types import Epoch, Offset
from raftlake.tier import lineage
from raftlake.tier.lineage import Part, Piece, adopt, agreed, cut_off
from raftlake.tier.plan import Range


def entries(*pairs: tuple[int, int]) -> tuple[tuple[Epoch, Offset], ...]:
    return tuple((Epoch(epoch), Offset(offset)) for epoch, offset in pairs)


def piece(name: str, base: int, end: int, *epochs: tuple[int, int], live: bool = True) -> Piece:
    return Piece(name=name, base_offset=Offset(base), end_offset=Offset(end), epochs=entries(*epochs), is_live=live)


def told(parts: list[Part]) -> list[tuple[str, int, int]]:
    return [(part.piece.name, part.base_offset, part.end_offset) for part in parts]


#: The seed's segments. Its LE-0 is our epoch 0.
OF_A = piece("uuid1", 0, 4, (0, 0))
OF_B = piece("uuid2", 0, 4, (0, 0), (1, 2))


def test_scenario_3_nothing_of_a_segment_that_the_new_leader_lost_stays() -> None:
    """The leader has offset 0 of epoch 0 and offset 1 of epoch 1: it copies both, because the file is cut."""
    assert adopt([piece("uuid1", 0, 2, (0, 0))], entries((0, 0), (1, 1)), Offset(0), Offset(3)) == []


def test_scenario_4_the_table_begins_anew_with_the_log_of_the_new_leader() -> None:
    assert adopt([piece("uuid1", 0, 3, (0, 0))], entries((0, 0), (1, 1)), Offset(0), Offset(3)) == []


def test_scenario_5_the_segments_of_another_history_go_and_those_of_this_one_come_back() -> None:
    superseded = replace(OF_A, is_live=False)
    history = entries((0, 0), (2, 5))
    assert told(adopt([OF_B, superseded], history, Offset(0), Offset(7))) == [("uuid1", 0, 4)]
    assert told(adopt([OF_B, superseded], history, Offset(4), Offset(7))) == [("uuid1", 0, 4)], "local records from 4 on"
    assert adopt([OF_B, superseded], history, Offset(5), Offset(7)) == [], "a gap: nothing of the table leads to the log"


def lost(pieces: list[Piece], history: tuple[tuple[Epoch, Offset], ...], log_start: int) -> Range | None:
    """What a takeover would take out, and nobody else has."""
    parts = adopt(pieces, history, Offset(log_start), Offset(20))
    return cut_off(pieces, history, Offset(log_start), parts)


def test_rows_of_this_history_behind_which_a_hole_lies_would_be_lost() -> None:
    history = entries((0, 0), (2, 10))
    first, second = piece("first", 0, 4, (0, 0)), piece("second", 4, 10, (0, 4))
    assert lost([first, second], history, 10) is None, "the table leads to the log"
    assert lost([first, second], history, 7) is None
    assert lost([first], history, 10) == Range(Offset(0), Offset(4))
    assert lost([first, piece("third", 6, 10, (0, 6))], history, 10) == Range(Offset(0), Offset(4)), "a hole in the table"
    assert lost([], history, 10) is None


def test_rows_that_go_without_a_loss() -> None:
    """Those of another history, those that are superseded already, and those that the log has."""
    history = entries((0, 0), (2, 10))
    assert lost([piece("other", 0, 4, (1, 0))], history, 10) is None
    assert lost([piece("first", 0, 4, (0, 0), live=False)], history, 10) is None
    assert lost([piece("first", 0, 4, (0, 0))], history, 0) is None
    assert lost([piece("behind", 12, 15, (2, 12))], history, 10) is None


def test_a_file_that_stays_is_not_written_anew() -> None:
    old, new = piece("old", 0, 4, (0, 0)), piece("new", 4, 6, (0, 4))
    both = piece("both", 0, 8, (0, 0), live=False)
    assert told(adopt([both, new, old], entries((0, 0)), Offset(0), Offset(9))) == [
        ("old", 0, 4),
        ("new", 4, 6),
        ("both", 6, 8),
    ]
    assert told(adopt([both, new], entries((0, 0)), Offset(0), Offset(9))) == [("both", 0, 4), ("new", 4, 6), ("both", 6, 8)]


def test_a_file_is_cut_where_the_histories_part_when_the_log_begins_behind() -> None:
    """The local log begins amid the file, so the part before it is needed."""
    history = entries((0, 0), (1, 2))
    assert told(adopt([OF_A], history, Offset(1), Offset(9))) == [("uuid1", 0, 2)]
    assert told(adopt([OF_A], history, Offset(2), Offset(9))) == [("uuid1", 0, 2)]
    assert adopt([OF_A], history, Offset(0), Offset(9)) == [], "the log has all of it"
    assert adopt([OF_A], history, Offset(3), Offset(9)) == [], "offset 2 is in neither"


@pytest.mark.parametrize(("end", "parts"), [(3, []), (4, [("uuid1", 0, 4)]), (5, [("uuid1", 0, 4)])])
def test_what_is_not_known_to_be_committed_does_not_stay(end: int, parts: list[tuple[str, int, int]]) -> None:
    assert told(adopt([OF_A], entries((0, 0)), Offset(0), Offset(end))) == parts


def test_rows_from_before_the_first_known_epoch_do_not_stay() -> None:
    assert told(adopt([piece("p", 2, 8, (3, 2), (4, 5))], entries((4, 5)), Offset(6), Offset(9))) == [("p", 5, 8)]


@pytest.mark.parametrize(
    ("mine", "theirs", "ranges"),
    [
        ([(0, 0)], [(0, 0)], [(0, 8)]),
        ([(0, 0), (1, 4)], [(0, 0)], [(0, 4)]),
        ([(0, 0)], [(0, 0), (1, 4)], [(0, 4)]),
        ([(0, 0), (1, 4)], [(0, 0), (2, 4)], [(0, 4)]),
        ([(0, 0), (1, 4)], [(0, 0), (1, 3)], [(0, 3), (4, 8)]),
        ([(0, 0), (1, 4)], [(0, 0), (1, 4), (2, 7)], [(0, 7)]),
        ([(5, 0)], [(0, 0)], []),
    ],
)
def test_ranges_agree_where_the_epochs_are_the_same(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]], ranges: list[tuple[int, int]]
) -> None:
    found = agreed(piece("p", 0, 8, *mine), entries(*theirs), Offset(20))
    assert [(each.base_offset, each.end_offset) for each in found] == ranges


# --- big tables -------------------------------------------------------------------------------------------------------


class Counted(tuple[tuple[Epoch, Offset], ...]):
    """Epochs that count how many of them were looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        Counted.looks += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[tuple[Epoch, Offset]]:
        Counted.looks += len(self)
        return super().__iter__()


def test_a_file_is_compared_with_the_epochs_of_its_own_offsets() -> None:
    """A long history has thousands of epochs, and a table a hundred thousand files."""
    history = Counted(entries(*((number, 10 * number) for number in range(4_096))))
    Counted.looks = 0
    assert agreed(piece("p", 20_000, 20_010, (2_000, 20_000)), history, Offset(50_000)) == [
        Range(Offset(20_000), Offset(20_010))
    ]
    assert Counted.looks < 100


@pytest.mark.parametrize("is_live", [True, False])
def test_each_file_is_looked_at_a_few_times_however_many_there_are(monkeypatch: pytest.MonkeyPatch, is_live: bool) -> None:
    calls = 0

    def counted(each: Piece, within: Range) -> bool:
        nonlocal calls
        calls += 1
        return stays(each, within)

    stays = lineage._stays
    monkeypatch.setattr(lineage, "_stays", counted)
    files = [piece(f"{number:03}", number, number + 1, (0, number), live=is_live) for number in range(500)]
    assert len(adopt(files, entries((0, 0)), Offset(500), Offset(500))) == 500
    assert calls <= 3 * len(files)


# --- any histories ----------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], list[Piece]]:
    """Epochs by offset of histories that part from one another, and files that were copied from each."""
    first = draw(st.lists(st.integers(0, 1), min_size=4, max_size=14))
    logs = [[sum(first[: n + 1]) for n in range(len(first))]]
    for number in range(draw(st.integers(0, 3))):
        parent = logs[draw(st.integers(0, len(logs) - 1))]
        logs.append(parent[: draw(st.integers(0, len(parent)))] + [10 * (number + 2)] * draw(st.integers(1, 8)))
    pieces: list[Piece] = []
    for number, log in enumerate(logs[:-1] or logs):
        bounds = sorted({0, len(log), *draw(st.lists(st.integers(0, len(log)), max_size=4))})
        for base, end in pairwise(bounds):
            epochs = [(log[n], n) for n in range(base, end) if n == base or log[n] != log[n - 1]]
            if draw(st.integers(0, 4)):
                pieces.append(piece(f"{number}-{base}", base, end, *epochs, live=draw(st.booleans())))
    return logs, pieces


@given(histories(), st.data())
def test_the_table_shows_a_gapless_run_of_the_history_that_the_log_goes_on_from(
    world: tuple[list[list[int]], list[Piece]], data: st.DataObject
) -> None:
    logs, pieces = world
    mine = logs[-1]
    log_start, end = data.draw(st.integers(0, len(mine))), len(mine)
    epochs = entries(*[(mine[n], n) for n in range(end) if n == 0 or mine[n] != mine[n - 1]])
    parts = adopt(pieces, epochs, Offset(log_start), Offset(end))
    shown: list[int] = []
    for part in parts:
        assert part.piece.base_offset <= part.base_offset < part.end_offset <= part.piece.end_offset
        for offset in range(part.base_offset, part.end_offset):
            epoch = [epoch for epoch, start in part.piece.epochs if start <= offset][-1]
            assert epoch == mine[offset]
            shown.append(offset)
    if shown:
        assert shown == list(range(shown[0], shown[-1] + 1)) and shown[0] <= log_start <= shown[-1] + 1
    there = {offset for each in pieces for within in agreed(each, epochs, Offset(end)) for offset in range(*_bounds(within))}
    if shown:
        assert shown[0] - 1 not in there, "the run could begin earlier"
        whole = {each.end_offset for each in pieces}
        assert shown[-1] + 1 in whole or parts[-1].base_offset < log_start, "a cut file at the end that the log has anyway"
    else:
        assert log_start - 1 not in there, "the records before the log's start are there, and are not shown"


def _bounds(within: Range) -> tuple[int, int]:
    return within.base_offset, within.end_offset
