"""The operator's word that a table counts as it is: what is accepted, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from contract.file_faults import without_sync
from contract.tier_contract import GROUP, LINEAGE, failure, segment
from historykit import all_rows, root_of, verify, with_value
from raftlake.ports.tier import LineageFacts, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.topic_table import TopicTable
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    for request in (segment(0, "a"), segment(6, "b"), segment(12, "c")):
        assert isinstance(tier.copy(request), RemoteSegment)
    return settings


def accept(settings: TierSettings) -> LineageFacts | TierError:
    return DeltaTier(settings).accept(GROUP, Offset(0), None)


def refused(settings: TierSettings, kind: TierFailure, *words: str) -> None:
    before = DeltaTable(root_of(settings)).version()
    answer = accept(settings)
    assert failure(answer) is kind and isinstance(answer, TierError)
    assert all(word in answer.reason for word in words), answer.reason
    assert DeltaTable(root_of(settings)).version() == before


def rows_of(settings: TierSettings, first: int, last: int) -> Any:
    rows = all_rows(settings)
    return rows.filter(pc.and_(pc.greater_equal(rows["offset"], first), pc.less_equal(rows["offset"], last)))


def test_rows_that_were_put_back_by_hand_are_accepted(settings: TierSettings) -> None:
    """As other files: only the rows can tell that they are the same."""
    gone = rows_of(settings, 4, 7)
    DeltaTable(root_of(settings)).delete("offset between 4 and 7")
    refused(settings, TierFailure.CHANGED, "8 rows have the offsets 0 to 11, so some are missing")
    write_deltalake(root_of(settings), gone, mode="append")
    assert failure(DeltaTier(settings).copy(segment(18, "next"))) is TierFailure.CHANGED
    answer = accept(settings)
    assert isinstance(answer, LineageFacts) and (answer.start_offset, answer.end_offset) == (0, 18)
    assert isinstance(DeltaTier(settings).copy(segment(18, "next")), RemoteSegment)
    assert [finding.kind.word for finding in verify(settings)] == []


def test_rows_that_are_not_those_of_the_log_are_refused(settings: TierSettings) -> None:
    rows = with_value(rows_of(settings, 6, 11), "value", 7, b"other")
    DeltaTable(root_of(settings)).delete("offset between 6 and 11")
    write_deltalake(root_of(settings), rows, mode="append")
    refused(settings, TierFailure.DAMAGED, "offset 6")


def test_rows_that_are_there_twice_are_refused(settings: TierSettings) -> None:
    write_deltalake(root_of(settings), rows_of(settings, 7, 8), mode="append")
    refused(settings, TierFailure.CHANGED, "some are there twice")


def test_rows_of_nobody_are_refused(settings: TierSettings) -> None:
    rows = with_value(with_value(rows_of(settings, 17, 17), "offset", 17, 40), "incarnation", 40, None)
    write_deltalake(root_of(settings), rows, mode="append")
    refused(settings, TierFailure.CHANGED, "has no row of the tier")


def test_a_table_that_lost_all_rows_is_refused(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete()
    refused(settings, TierFailure.CHANGED, "nothing of the offsets 0 to 17")
    answer = DeltaTier(settings).accept(GROUP, None, None)
    assert failure(answer) is TierFailure.CHANGED


def test_the_version_that_still_reaches_the_log_is_named(settings: TierSettings) -> None:
    """The table was cut short, and was accepted so. Its files are there still."""
    good = DeltaTable(root_of(settings)).version()
    DeltaTable(root_of(settings)).restore(1)
    answer = DeltaTier(settings).accept(GROUP, Offset(0), Offset(13))
    assert failure(answer) is TierFailure.CHANGED and isinstance(answer, TierError)
    assert (
        "ends at 6, and on the disk of a voter its log begins at 13, or may" in answer.reason
        and "raftlake tier undo" in answer.reason
    )
    assert isinstance(accept(settings), LineageFacts)
    answer = DeltaTier(settings).accept(GROUP, Offset(0), Offset(13))
    assert isinstance(answer, TierError) and f"RESTORE it to version {good}" in answer.reason
    DeltaTable(root_of(settings)).restore(good)
    answer = DeltaTier(settings).accept(GROUP, Offset(0), Offset(13))
    assert isinstance(answer, LineageFacts) and answer.end_offset == 18
    assert isinstance(DeltaTier(settings).copy(segment(18, "next")), RemoteSegment)
    assert verify(settings) == []


def test_a_log_that_tells_of_no_such_version_is_told(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).restore(1)
    assert isinstance(accept(settings), LineageFacts)
    answer = DeltaTier(settings).accept(GROUP, Offset(0), Offset(19))
    assert isinstance(answer, TierError) and "no version in its log" in answer.reason and "RESTORE" not in answer.reason


def test_a_copy_on_the_way_does_not_come_behind_the_word(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was judged before the table was cut short. The word sets what it goes by."""
    commit, tier = TopicTable.commit, DeltaTier(settings)

    def late(*rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        DeltaTable(root_of(settings)).restore(2)
        assert isinstance(accept(settings), LineageFacts)
        commit(*rest)

    monkeypatch.setattr(TopicTable, "commit", late)
    assert failure(tier.copy(segment(18, "late"))) is TierFailure.ELSEWHERE
    assert isinstance(tier.copy(segment(12, "again")), RemoteSegment)
    assert verify(settings) == []


def test_a_change_between_the_look_and_the_word_is_looked_at(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(root_of(settings)).restore(2)
    commit = TopicTable.commit

    def late(*rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        DeltaTable(root_of(settings)).delete("offset < 6")
        commit(*rest)

    monkeypatch.setattr(TopicTable, "commit", late)
    answer = accept(settings)
    assert failure(answer) in (TierFailure.ELSEWHERE, TierFailure.CHANGED)
    assert failure(DeltaTier(settings).copy(segment(12, "next", lineage=LINEAGE))) is TierFailure.CHANGED
