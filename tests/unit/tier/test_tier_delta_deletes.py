"""What a delete and a drop leave in the log of a Delta table, and what they do beside OPTIMIZE, copies and lost answers."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from contract.tier_contract import GROUP, LINEAGE, failure, request_for, rows_of, segment
from contract.tier_history_contract import OTHER
from raftlake.ports.tier import Lineage, LineageEnd, LineageFacts, ReadRequest, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.lineage_files import LineageFiles, lineage_files
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import LAST_EPOCH, table_uri
from raftlake.tier.table_reads import TableReads
from raftlake.tier.topic_table import TopicTable, commit_name
from raftlake.tier.verify import verify_table
from raftlake.wire.batch_header import parse_header
from raftlake.wire.batches import Record, build_batch
from tierkit import local_settings, shown_rows, tier_files

APP = "cluster/AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


@pytest.fixture
def tier(settings: TierSettings) -> DeltaTier:
    tier = DeltaTier(settings)
    for base in (0, 6, 12):
        assert isinstance(tier.copy(segment(base, f"s{base}")), RemoteSegment)
    return tier


def root_of(settings: TierSettings) -> Path:
    return Path(table_uri(settings.uri, GROUP))


def version(settings: TierSettings) -> int:
    return DeltaTable(root_of(settings)).version()


def newest_actions(settings: TierSettings) -> dict[str, list[Any]]:
    actions: dict[str, list[Any]] = {}
    for line in (root_of(settings) / commit_name(version(settings))).read_text().splitlines():
        for name, content in json.loads(line).items():
            actions.setdefault(name, []).append(content)
    return actions


def delete(tier: DeltaTier, until: int, epoch: int = 5) -> Offset | TierError:
    return tier.delete(LINEAGE, Epoch(epoch), Offset(until))


def test_one_commit_removes_the_files_and_sets_the_epoch(settings: TierSettings, tier: DeltaTier) -> None:
    before = version(settings)
    assert delete(tier, 13, epoch=6) == 12
    assert version(settings) == before + 1
    actions = newest_actions(settings)
    assert sorted(each["path"] for each in actions["remove"]) == ["partition=2/s0.parquet", "partition=2/s6.parquet"]
    assert all(each["dataChange"] and each["partitionValues"] == {"partition": "2"} for each in actions["remove"])
    assert [(each["appId"], each["version"]) for each in actions["txn"]] == [(f"{APP}/2/0/epoch", 6)]
    assert "add" not in actions and "metaData" not in actions
    # What is removed goes from disk by VACUUM: queries of older versions may still read it.
    assert "partition=2/s0.parquet" in tier_files(settings, GROUP)
    history = TopicHistory(str(root_of(settings)))
    assert verify_table(history).findings == () and history.offsets(2) == (12, 18)


def test_nothing_to_remove_is_a_commit_of_the_epoch_alone(settings: TierSettings, tier: DeltaTier) -> None:
    """A commit of a process that was given up may be on its way: this one takes its place."""
    before = version(settings)
    assert delete(tier, 3) == 0
    assert version(settings) == before + 1
    assert "remove" not in newest_actions(settings)


Commit = Callable[..., None]


def first_commit(monkeypatch: pytest.MonkeyPatch, behave: Callable[[Commit, TopicTable, Any], None]) -> None:
    """Let the next commit be made by `behave`, and the others as always."""
    commit = TopicTable.commit

    def instead(table: TopicTable, *rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        behave(commit, table, rest)

    monkeypatch.setattr(TopicTable, "commit", instead)


def test_optimize_under_a_delete_leaves_the_rows_that_it_moved(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs takes the removal of a file that is gone for no conflict. The answer is what the table shows."""

    def behind_optimize(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert DeltaTable(root_of(settings)).optimize.compact()["numFilesRemoved"] == 3
        commit(table, *rest)

    first_commit(monkeypatch, behind_optimize)
    assert delete(tier, 12) == 0
    assert sorted(shown_rows(settings, LINEAGE), key=lambda row: row[0]) == rows_of(*(segment(base, "") for base in (0, 6, 12)))
    assert delete(tier, 18) == 18


def test_optimize_under_a_delete_of_all_is_deleted_too(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_optimize(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert DeltaTable(root_of(settings)).optimize.compact()["numFilesRemoved"] == 3
        commit(table, *rest)

    first_commit(monkeypatch, behind_optimize)
    assert delete(tier, 18) == 18
    assert shown_rows(settings, LINEAGE) == []


def test_optimize_that_began_before_a_delete_fails(settings: TierSettings, tier: DeltaTier) -> None:
    """Rows that were deleted must not come back."""
    table = DeltaTable(root_of(settings))
    assert delete(tier, 6) == 6
    with pytest.raises(DeltaError):
        table.optimize.compact()
    assert [row[0] for row in shown_rows(settings, LINEAGE)] == list(range(6, 18))


def test_a_delete_whose_answer_was_lost_is_done(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_the_answer(commit: Commit, table: TopicTable, rest: Any) -> None:
        commit(table, *rest)
        raise CommitFailedError("Failed to commit transaction: timed out")

    first_commit(monkeypatch, lose_the_answer)
    before = version(settings)
    assert delete(tier, 6) == 6
    assert version(settings) == before + 1


def test_a_later_leader_between_the_look_and_the_commit_of_a_delete(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_a_claim(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert isinstance(DeltaTier(settings).claim(LINEAGE, Epoch(6)), LineageEnd)
        commit(table, *rest)

    first_commit(monkeypatch, behind_a_claim)
    assert failure(delete(tier, 6)) is TierFailure.FENCED
    assert len(shown_rows(settings, LINEAGE)) == 18


# --- drop ------------------------------------------------------------------------------------------------------------------


def test_a_drop_is_one_commit_and_a_repeated_one_is_none(settings: TierSettings, tier: DeltaTier) -> None:
    assert isinstance(tier.copy(segment(0, "o", lineage=OTHER)), RemoteSegment)
    assert isinstance(tier.copy(segment(0, "i", lineage=Lineage(GROUP, 1))), RemoteSegment)
    before = version(settings)
    assert tier.drop(GROUP, 5) is None
    assert version(settings) == before + 1
    actions = newest_actions(settings)
    assert len(actions["remove"]) == 5
    fences = {each["appId"]: each["version"] for each in actions["txn"]}
    assert fences == {f"{APP}/{partition}/{incarnation}/epoch": LAST_EPOCH for partition in range(5) for incarnation in (0, 1)}
    assert DeltaTier(settings).drop(GROUP, 5) is None
    assert version(settings) == before + 1


def test_optimize_under_a_drop_brings_nothing_back(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_optimize(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert DeltaTable(root_of(settings)).optimize.compact()["numFilesRemoved"] == 3
        commit(table, *rest)

    first_commit(monkeypatch, behind_optimize)
    assert tier.drop(GROUP, 3) is None
    assert shown_rows(settings, LINEAGE) == []


def test_a_copy_under_a_drop_is_fenced_or_goes_with_the_others(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_a_copy(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert isinstance(DeltaTier(settings).copy(segment(18, "s18")), RemoteSegment)
        commit(table, *rest)

    first_commit(monkeypatch, behind_a_copy)
    assert tier.drop(GROUP, 3) is None
    assert shown_rows(settings, LINEAGE) == []
    assert failure(tier.copy(segment(24, "s24"))) is TierFailure.FENCED


def test_a_table_that_was_removed_by_hand_is_dropped_too(settings: TierSettings, tier: DeltaTier) -> None:
    shutil.rmtree(root_of(settings))
    assert failure(tier.copy(segment(18, "s18"))) is TierFailure.UNUSABLE
    assert tier.drop(GROUP, 3) is None
    assert failure(tier.copy(segment(18, "s18"))) is TierFailure.FENCED


# --- files that OPTIMIZE has cut by their size --------------------------------------------------------------------------

ROWS, BATCH = 6_000, 1_000


@pytest.fixture
def cut(settings: TierSettings) -> LineageFiles:
    """Three copies, of which z-order makes files that end amid batches and amid copies. Values have no pattern: only large
    files are cut."""
    tier, rng = DeltaTier(settings), random.Random(7)
    for number, name in enumerate(("a", "b", "c")):
        batches = bytearray()
        for base in range(number * ROWS, (number + 1) * ROWS, BATCH):
            records = [Record(timestamp_ms=base + n, value=rng.randbytes(200)) for n in range(BATCH)]
            batches += build_batch(records, base_offset=base, leader_epoch=5 + (base >= 4_000), timestamp_ms=0)
        assert isinstance(tier.copy(request_for(bytes(batches), name, 6)), RemoteSegment)
    DeltaTable(root_of(settings)).optimize.z_order(["offset"], target_size=1_000_000)
    files = files_now(settings)
    ends = [(file.offset_max or 0) + 1 for file in files.files]
    assert 3 <= len(ends) <= 6 and any(end % BATCH for end in ends) and any(end % ROWS for end in ends)
    return files


def files_now(settings: TierSettings) -> LineageFiles:
    history = TopicHistory(str(root_of(settings)))
    return lineage_files(history.store, history.uri, history.files(LINEAGE.group.partition), 0)


def test_retention_ends_at_batches_where_files_end_amid_them(settings: TierSettings, cut: LineageFiles) -> None:
    """A consumer that begins where the table begins for clients gets whole batches."""
    reads = TableReads(settings)
    ends = [(file.offset_max or 0) + 1 for file in cut.files]
    told = reads.oldest(LINEAGE, 9)
    assert [file.end_offset for file in told] == [*(end - end % BATCH for end in ends[:-1]), 3 * ROWS]
    assert [file.base_offset for file in told] == [file.offset_min for file in cut.files], "each offset is in one of them"
    for number, file in enumerate(told[:-1]):
        assert not isinstance(delete(DeltaTier(settings), file.end_offset, 6), TierError)
        left = files_now(settings).start
        assert left == (ends[number - 1] if number else 0), "the rest of the batch goes with the file behind it"
        fresh = TableReads(settings)
        got = fresh.read(ReadRequest(lineage=LINEAGE, offset=file.end_offset, end_offset=Offset(3 * ROWS), size_max=1))
        assert isinstance(got, bytes) and parse_header(got).base_offset == file.end_offset
        facts = fresh.facts(LINEAGE)
        assert isinstance(facts, LineageFacts), "and not that the state beside a copy is gone"
        assert facts.start_offset == -(-left // BATCH) * BATCH and facts.end_offset == 3 * ROWS
        assert facts.epochs == (((5, facts.start_offset),) if left < 4_000 else ()) + ((6, max(4_000, facts.start_offset)),)


def test_the_state_beside_a_copy_stays_while_some_of_its_rows_are_shown(settings: TierSettings, cut: LineageFiles) -> None:
    for file in cut.files[:-1]:
        delete(DeltaTier(settings), (file.offset_max or 0) + 1, 6)
        start = files_now(settings).start
        assert start == (file.offset_max or 0) + 1
        kept = [path.stem for path in sorted((root_of(settings) / "_raftlake").glob("*.aux"))]
        assert kept == [name for number, name in enumerate("abc") if (number + 1) * ROWS > start]


def test_the_bytes_of_a_copy_that_was_cut_count_once(settings: TierSettings, cut: LineageFiles) -> None:
    """Else total retention by bytes takes the files for more than they are, and ends too little."""
    assert len([file for file in cut.files if file.segment_id is not None]) > 1, "some hold a part of one copy"
    reads = TableReads(settings)
    facts = reads.facts(LINEAGE)
    assert isinstance(facts, LineageFacts)
    told = reads.oldest(LINEAGE, 9)
    assert abs(sum(file.log_bytes for file in told) - facts.log_bytes) <= facts.log_bytes // 20
