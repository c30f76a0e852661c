"""What a copy leaves in a Delta table and beside it, and what becomes of a commit whose fate is not clear."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from contract.tier_contract import GROUP, LINEAGE, Moment, failure, rows_of, segment
from raftlake.ports.tier import CopyRequest, Lineage, LineageEnd, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier import commits as commits_of_tables
from raftlake.tier import delta_table
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.remote_segments import unpack_auxiliary
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.table_reads import TableReads
from raftlake.tier.topic_table import TopicTable, commit_name
from tierkit import DeltaWorld, local_settings, shown_rows, tier_files

APP = "cluster/AAECAwQFBgcICQoLDA0ODw/2/0"


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


@pytest.fixture
def tier(settings: TierSettings) -> DeltaTier:
    return DeltaTier(settings)


def root_of(settings: TierSettings) -> Path:
    return Path(table_uri(settings.uri, GROUP))


def actions_of(settings: TierSettings, version: int) -> dict[str, list[Any]]:
    actions: dict[str, list[Any]] = {}
    for line in (root_of(settings) / commit_name(version)).read_text().splitlines():
        for name, content in json.loads(line).items():
            actions.setdefault(name, []).append(content)
    return actions


def made(answer: RemoteSegment | TierError) -> RemoteSegment:
    assert isinstance(answer, RemoteSegment), answer
    return answer


# --- what is there -----------------------------------------------------------------------------------------------------------


def test_one_commit_has_the_file_the_transactions_and_the_facts(settings: TierSettings, tier: DeltaTier) -> None:
    copy = made(tier.copy(segment(0, "a")))
    actions = actions_of(settings, 1)
    (add,) = actions["add"]
    assert (add["path"], add["partitionValues"], add["dataChange"]) == ("partition=2/a.parquet", {"partition": "2"}, True)
    assert sorted((txn["appId"], txn["version"]) for txn in actions["txn"]) == [(APP, 5), (f"{APP}/epoch", 5)]
    facts = json.loads(actions["commitInfo"][0]["raftlake.segment"])
    assert (facts["base_offset"], facts["end_offset"], facts["epochs"]) == (0, 6, [[5, 0]])
    content = (root_of(settings) / copy.file).read_bytes()
    assert (copy.size, copy.crc) == (len(content), crc32c(content)) == (facts["size"], facts["crc"]) == (add["size"], copy.crc)
    assert tier_files(settings, GROUP) == ["_raftlake/a.aux", "partition=2/a.parquet"]


def test_auxiliary_bytes_come_back_and_damage_in_them_is_found(settings: TierSettings, tier: DeltaTier) -> None:
    copy = made(tier.copy(replace(segment(0, "a"), auxiliary=b"producers of a")))
    reads = TableReads(settings)
    assert reads.find(LINEAGE, Offset(3)) == RemoteState(copy, b"producers of a")
    path = root_of(settings) / "_raftlake/a.aux"
    unpacked = unpack_auxiliary(path.read_bytes())
    assert unpacked is not None and unpacked[0].segment == copy
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for word in ("damaged", "missing"):
        answer = reads.find(LINEAGE, Offset(3))
        assert isinstance(answer, TierError) and answer.failure is TierFailure.DAMAGED
        assert word in answer.reason and "_raftlake/a.aux" in answer.reason
        path.unlink(missing_ok=True)


def test_files_are_durable_before_their_commit_and_the_commit_before_the_answer(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.claim(LINEAGE, Epoch(5))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    commit = TopicTable.commit

    def noted(table: TopicTable, *rest: Any) -> None:
        synced.append("commit")
        commit(table, *rest)

    monkeypatch.setattr(TopicTable, "commit", noted)
    made(tier.copy(segment(0, "a")))
    names = [os.path.relpath(path, root_of(settings)) if path != "commit" else path for path in synced]
    before, after = names[: names.index("commit")], names[names.index("commit") + 1 :]
    assert {"partition=2/a.parquet", "partition=2", "_raftlake/a.aux", "_raftlake", "."} <= set(before)
    assert {commit_name(2), "_delta_log"} <= set(after)


def test_the_hundredth_commit_makes_a_checkpoint_that_keeps_the_fences(settings: TierSettings, tier: DeltaTier) -> None:
    made(tier.copy(segment(0, "a")))
    for _ in range(100):
        assert isinstance(tier.claim(LINEAGE, Epoch(5)), LineageEnd)
    assert (root_of(settings) / "_delta_log/_last_checkpoint").exists()
    for version in range(99):
        (root_of(settings) / commit_name(version)).unlink()
    fresh = DeltaTier(settings)
    assert failure(fresh.copy(segment(6, "b", epoch=4))) is TierFailure.FENCED
    assert failure(fresh.copy(segment(0, "b"))) is TierFailure.ELSEWHERE
    assert made(fresh.copy(segment(6, "b"))).end_offset == 12


@pytest.mark.parametrize("length", [232, 233, 249])
def test_the_longest_topic_name_with_a_directory_is_told(settings: TierSettings, tier: DeltaTier, length: int) -> None:
    lineage = Lineage(GROUP._replace(topic="m" * length), 0)
    answer = tier.copy(segment(0, "a", lineage=lineage))
    if length == 232:
        assert made(answer).end_offset == 6
    else:
        assert failure(answer) is TierFailure.UNUSABLE and isinstance(answer, TierError)
        assert "a topic's name has at most 232 characters on a local path" in answer.reason
        assert len(answer.reason) < 200
    # A deleted topic leaves no alarm behind.
    assert tier.drop(lineage.group, 1) is None


# --- what is left of a failure -----------------------------------------------------------------------------------------------


def test_a_damaged_segment_leaves_no_file(settings: TierSettings, tier: DeltaTier) -> None:
    request = segment(0, "a")
    (batches,) = request.sources
    assert isinstance(batches, bytes)
    broken = replace(request, sources=(batches[:-1] + b"?",))
    assert failure(tier.copy(broken)) is TierFailure.DAMAGED
    assert tier_files(settings, GROUP) == []


def test_a_leader_that_lost_while_it_wrote_takes_its_files_away(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tier.copy(segment(0, "a")))
    write = delta_table.write_segment

    def slowly(*arguments: Any) -> Any:
        written = write(*arguments)
        monkeypatch.setattr(delta_table, "write_segment", write)
        assert isinstance(DeltaTier(settings).claim(LINEAGE, Epoch(6)), LineageEnd)
        return written

    monkeypatch.setattr(delta_table, "write_segment", slowly)
    assert failure(tier.copy(segment(6, "b"))) is TierFailure.FENCED
    assert tier_files(settings, GROUP) == ["_raftlake/a.aux", "partition=2/a.parquet"]


def test_a_process_that_ends_before_its_commit_leaves_files_that_no_commit_names(settings: TierSettings) -> None:
    world = DeltaWorld(settings)
    world.crash(1, segment(0, "a"), Moment.BEFORE_COMMIT)
    assert tier_files(settings, GROUP) == ["_raftlake/a.aux", "partition=2/a.parquet"]
    assert shown_rows(settings, LINEAGE) == []
    vacuumed = DeltaTable(root_of(settings)).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )
    assert vacuumed == ["partition=2/a.parquet"]


# --- commits whose fate is not clear -----------------------------------------------------------------------------------------


Commit = Callable[..., None]


def commits(monkeypatch: pytest.MonkeyPatch, behave: Callable[[Commit, TopicTable, Any], None]) -> list[None]:
    """Let commits be made by `behave`; the list grows with each."""
    commit = TopicTable.commit
    tried: list[None] = []

    def instead(table: TopicTable, *rest: Any) -> None:
        tried.append(None)
        behave(commit, table, rest)

    monkeypatch.setattr(TopicTable, "commit", instead)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        OSError("connection reset"),
        CommitFailedError("Failed to commit transaction: Concurrent transaction failed."),
        CommitFailedError("Failed to commit transaction: timed out"),
        ValueError("checkpoint"),
    ],
    ids=["no answer", "refused by itself", "late", "after it"],
)
def test_a_commit_that_is_in_the_table_is_done_whatever_was_said(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A store that repeats a put whose answer was lost finds the file there: delta-rs takes that for another writer."""

    def lose_the_answer(commit: Commit, table: TopicTable, rest: Any) -> None:
        commit(table, *rest)
        raise error

    tried = commits(monkeypatch, lose_the_answer)
    request = segment(0, "a")
    assert made(tier.copy(request)).segment_id == "a"
    assert isinstance(tier.claim(LINEAGE, Epoch(6)), LineageEnd)
    assert len(tried) == 2
    assert shown_rows(settings, LINEAGE) == rows_of(request)


def test_a_commit_without_an_answer_is_unknown_and_its_files_stay(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("connection reset by peer")

    commits(monkeypatch, fail)
    answer = tier.copy(segment(0, "a"))
    assert failure(answer) is TierFailure.UNKNOWN
    assert isinstance(answer, TierError) and "connection reset by peer" in answer.reason
    assert "check" not in answer.reason
    assert "partition=2/a.parquet" in tier_files(settings, GROUP)


def test_a_commit_that_may_not_be_written_says_so(tier: DeltaTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of delta-rs where `_delta_log` is immutable name a file that is not there."""

    def refuse(commit: Commit, table: TopicTable, rest: Any) -> None:
        raise OSError(f"Unable to open file {table.uri}/{commit_name(1)}#1 - Operation not permitted (os error 1)")

    commits(monkeypatch, refuse)
    answer = tier.copy(segment(0, "a"))
    assert failure(answer) is TierFailure.UNKNOWN and isinstance(answer, TierError)
    assert ": cannot write a commit: Unable to open" in answer.reason and "check the credentials and rights" in answer.reason


def test_a_table_that_cannot_be_read_after_a_commit_makes_it_unknown(tier: DeltaTier, monkeypatch: pytest.MonkeyPatch) -> None:
    def then_no_table(commit: Commit, table: TopicTable, rest: Any) -> None:
        commit(table, *rest)
        monkeypatch.setattr(TopicTable, "refresh", refused)

    def refused(table: TopicTable) -> None:
        raise OSError("no route to host")

    commits(monkeypatch, then_no_table)
    assert failure(tier.copy(segment(0, "a"))) is TierFailure.UNKNOWN


def test_a_commit_file_that_is_gone_makes_a_refused_commit_unknown(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been the commit of this call: its files must not be deleted."""

    def done_and_cleaned(commit: Commit, table: TopicTable, rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        seen = table.version
        commit(table, *rest)
        DeltaTier(settings).claim(Lineage(GROUP._replace(partition=0), 0), Epoch(1))
        content = root_of(settings) / commit_name(seen + 1)
        monkeypatch.setattr(Store, "read", lambda store, path: None if path == commit_name(seen + 1) else b"{}")
        assert content.exists()
        raise CommitFailedError("Concurrent transaction failed")

    commits(monkeypatch, done_and_cleaned)
    assert failure(tier.copy(segment(0, "a"))) is TierFailure.UNKNOWN
    assert "partition=2/a.parquet" in tier_files(settings, GROUP)


def test_conflicts_without_end_are_given_up(tier: DeltaTier, monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*_: Any) -> None:
        raise CommitFailedError("Failed to commit transaction: Concurrent transaction failed.")

    tried = commits(monkeypatch, always)
    assert failure(tier.copy(segment(0, "a"))) is TierFailure.UNKNOWN
    assert len(tried) == commits_of_tables._ATTEMPTS_MAX


def test_after_a_conflict_the_same_leader_tries_again(
    tier: DeltaTier, settings: TierSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own claim, made by a process that was given up, came first."""

    def behind_a_claim(commit: Commit, table: TopicTable, rest: Any) -> None:
        if len(tried) == 1:
            monkeypatch.setattr(TopicTable, "commit", commit)
            assert isinstance(DeltaTier(settings).claim(LINEAGE, Epoch(5)), LineageEnd)
        commit(table, *rest)

    tried = commits(monkeypatch, behind_a_claim)
    request = segment(0, "a")
    made(tier.copy(request))
    assert shown_rows(settings, LINEAGE) == rows_of(request)


def test_a_commit_file_that_arrives_after_a_claim_finds_its_place_taken(settings: TierSettings, tmp_path: Path) -> None:
    """The bytes of a commit are on the way to the store when its process ends. The store puts a file only where none is."""
    tier = DeltaTier(settings)
    made(tier.copy(segment(0, "a")))
    seen = DeltaTable(root_of(settings)).version()
    elsewhere = TierSettings(uri=str(tmp_path / "elsewhere"), cluster_id="cluster")
    shutil.copytree(settings.uri, elsewhere.uri)
    made(DeltaTier(elsewhere).copy(segment(6, "b")))
    late = (root_of(elsewhere) / commit_name(seen + 1)).read_bytes()
    assert b'"partition=2/b.parquet"' in late
    # The epoch is known already: the claim writes nevertheless.
    answer = DeltaTier(settings).claim(LINEAGE, Epoch(5))
    assert isinstance(answer, LineageEnd) and answer.last is not None and answer.last.segment_id == "a"
    with pytest.raises(FileExistsError), open(root_of(settings) / commit_name(seen + 1), "xb") as file:
        file.write(late)


def test_commits_of_other_lineages_are_no_conflict(
    settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_others(commit: Commit, table: TopicTable, rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        other = DeltaTier(settings)
        for partition in (0, 1, 3):
            lineage = Lineage(GROUP._replace(partition=partition), 0)
            made(other.copy(segment(0, f"p{partition}", lineage=lineage)))
        commit(table, *rest)

    tried = commits(monkeypatch, behind_others)
    made(tier.copy(segment(0, "a")))
    assert len(tried) == 1
    assert DeltaTable(root_of(settings)).version() == 4


# --- tables ----------------------------------------------------------------------------------------------------------------


def test_a_table_that_is_gone_is_not_begun_anew_in_the_middle(settings: TierSettings, tier: DeltaTier) -> None:
    made(tier.copy(segment(0, "a")))
    shutil.rmtree(root_of(settings))
    for answer in (tier.copy(segment(6, "b")), tier.claim(LINEAGE, Epoch(5)), tier.copy(segment(6, "c"))):
        assert failure(answer) is TierFailure.UNUSABLE
        assert isinstance(answer, TierError) and "is gone" in answer.reason and str(root_of(settings)) in answer.reason
        mount, delete = answer.reason.find("mount its share, or put it back"), answer.reason.find("delete and create the topic")
        assert 0 < mount < delete < answer.reason.find("gives up every record that only the table has")
    assert not root_of(settings).exists()


def test_a_table_that_was_replaced_by_an_older_copy_is_read_anew(
    settings: TierSettings, tier: DeltaTier, tmp_path: Path
) -> None:
    """Put back from a backup: what this process had seen is not what the table says."""
    made(tier.copy(segment(0, "a")))
    shutil.copytree(root_of(settings), tmp_path / "backup")
    made(tier.copy(segment(6, "b")))
    shutil.rmtree(root_of(settings))
    shutil.copytree(tmp_path / "backup", root_of(settings))
    assert failure(tier.copy(segment(12, "c"))) is TierFailure.ELSEWHERE
    assert made(tier.copy(segment(6, "d"))).end_offset == 12


def test_few_tables_stay_open(settings: TierSettings, tier: DeltaTier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "_TABLES_MAX", 2)
    groups = [GROUP._replace(topic=f"t{n}", topic_id=bytes([n] * 16)) for n in range(1, 4)]
    for base in (0, 6):
        for group in groups:
            made(tier.copy(segment(base, f"s{base}", lineage=Lineage(group, 0))))
    assert [group.topic for group in tier._tables] == ["t2", "t3"]
    # One table for all partitions of a topic.
    made(tier.copy(segment(0, "p", lineage=Lineage(groups[2]._replace(partition=9), 0))))
    assert len(tier._tables) == 2


def test_a_tier_that_is_no_directory_is_unusable_and_named(tmp_path: Path) -> None:
    (tmp_path / "tier").write_text("a file")
    answer = DeltaTier(local_settings(tmp_path)).copy(segment(0, "a"))
    assert failure(answer) is TierFailure.UNUSABLE
    assert isinstance(answer, TierError) and str(tmp_path / "tier") in answer.reason


def test_an_empty_range_is_damage(tier: DeltaTier) -> None:
    """Fluss 3892: a batch without records kept tiering waiting."""
    request: CopyRequest = segment(6, "a")
    answer = tier.copy(replace(request, end_offset=request.base_offset))
    assert failure(answer) is TierFailure.DAMAGED
    assert isinstance(answer, TierError) and "no records" in answer.reason
