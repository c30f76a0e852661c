"""What commits of others have done to a table, by the content of commits alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftlake.tier.foreign_commits import ACCEPTED_KEY, CALL_KEY, CLEAN_KEY, Commit, Ledger, parse_commit, undo_advice

TIME = 1_700_000_000_000


def file(path: str, partition: int | None = 2, data: bool = True, **more: Any) -> dict[str, Any]:
    values = {} if partition is None else {"partitionValues": {"partition": str(partition)}}
    return {"path": path, "dataChange": data, **values, **more}


def commit(
    version: int,
    *,
    add: list[dict[str, Any]] | None = None,
    remove: list[dict[str, Any]] | None = None,
    operation: str = "WRITE",
    **info: Any,
) -> Commit:
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": operation, "timestamp": TIME, **info}}]
    actions += [{"add": each} for each in add or []] + [{"remove": each} for each in remove or []]
    return parse_commit(version, "\n".join(map(json.dumps, actions)).encode() + b"\n")


def ours(version: int, **more: Any) -> Commit:
    return commit(version, **{CALL_KEY: "a call"}, **more)


def ledger(*commits: Commit) -> Ledger:
    """A table that was as the tier left it at version 0, with a file `a` of the tier in partition 2."""
    found = Ledger(0)
    for each in commits:
        found.note(each)
    return found


def changed(found: Ledger, partition: int = 2) -> tuple[list[str], list[str]] | None:
    """Files of others, and files of the tier that are missing."""
    change = found.change(partition)
    return None if change is None else (sorted(change.added.values()), sorted(change.removed.values()))


def test_a_commit_is_read() -> None:
    found = commit(7, add=[file("partition=3/x", None)], remove=[file("y", 2, data=False)], operation="MERGE")
    assert (found.version, found.operation, found.is_ours, found.clean_to, found.accepted) == (7, "MERGE", False, None, None)
    assert [(each.path, each.partition, each.changes_data) for each in found.added] == [("partition=3/x", 3, True)]
    assert [(each.path, each.partition, each.changes_data) for each in found.removed] == [("y", 2, False)]
    assert found.words() == "version 7, MERGE, 2023-11-14 22:13:20 UTC"
    assert ours(8, **{CLEAN_KEY: "7", ACCEPTED_KEY: "2"}).clean_to == 7
    assert ours(8, **{CLEAN_KEY: "7", ACCEPTED_KEY: "2"}).accepted == 2


@pytest.mark.parametrize("time_ms", [None, "noon", -1, 10**18])
def test_a_commit_that_says_little_of_itself(time_ms: Any) -> None:
    assert commit(7, timestamp=time_ms).words() == "version 7, WRITE"
    assert parse_commit(3, b'{"protocol":{}}\n\n').words() == "version 3, a commit without a name"
    with pytest.raises(ValueError, match="Expecting"):
        parse_commit(3, b"{")


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ({"add": [file("x")]}, (["x"], [])),
        ({"remove": [file("a")], "operation": "TRUNCATE"}, ([], ["a"])),
        ({"remove": [file("a")], "add": [file("a2")], "operation": "DELETE"}, (["a2"], ["a"])),
        ({"remove": [file("a", data=False)], "add": [file("a2")]}, (["a2"], ["a"])),
        ({"remove": [{"path": "partition=2/a"}]}, ([], ["partition=2/a"])),
        ({"add": [file("a", deletionVector={"id": 1})], "remove": [file("a")]}, (["a"], ["a"])),
    ],
)
def test_what_adds_or_removes_rows_is_a_change(done: dict[str, Any], expected: tuple[list[str], list[str]]) -> None:
    found = ledger(ours(1), commit(2, **done), ours(3))
    assert changed(found) == expected
    assert changed(found, 3) is None and found.clean_to == 1
    change = found.change(2)
    assert change is not None and change.first.version == 2


@pytest.mark.parametrize(
    "done",
    [
        {},
        {"operation": "VACUUM END"},
        {"remove": [file("a", data=False)], "add": [file("b", data=False)], "operation": "OPTIMIZE"},
        {CALL_KEY: "x", "add": [file("b")], "remove": [file("a")]},
    ],
)
def test_commits_without_files_rewritten_files_and_the_tiers_own_are_none(done: dict[str, Any]) -> None:
    found = ledger(ours(1), commit(2, **done))
    assert changed(found) is None and found.clean_to == 2


def test_a_file_that_tells_no_partition_may_be_of_any() -> None:
    found = ledger(commit(1, remove=[file("x", None)]))
    assert changed(found, 5) == changed(found, 2) == ([], ["x"])


# --- undone --------------------------------------------------------------------------------------------------------------


def test_what_is_taken_back_is_no_change_any_more() -> None:
    found = ledger(
        commit(1, add=[file("x")], remove=[file("a"), file("b")]),
        commit(2, remove=[file("x")], add=[file("a")], operation="RESTORE"),
    )
    assert changed(found) == ([], ["b"]) and found.clean_to == 0
    change = found.change(2)
    assert change is not None and change.first.version == 1
    found.note(commit(3, add=[file("b")]))
    assert changed(found) is None and found.clean_to == 3
    found.note(commit(4, add=[file("x")]))
    change = found.change(2)
    assert change is not None and change.first.version == 4, "it began anew"


def test_the_tier_takes_it_back_too() -> None:
    found = ledger(commit(1, add=[file("x")], remove=[file("a")]), ours(2, remove=[file("x")], add=[file("a")]))
    assert changed(found) is None


def test_rewritten_rows_of_others_stay_theirs_and_what_was_merged_with_them_is_missing() -> None:
    found = ledger(
        commit(1, add=[file("x")]),
        commit(2, remove=[file("x", data=False), file("a", data=False)], add=[file("o", data=False)], operation="OPTIMIZE"),
    )
    assert changed(found) == (["o"], ["a"])
    # What the tier shows since then is its own, until it is merged too.
    found.note(ours(3, add=[file("c")]))
    assert changed(found) == (["o"], ["a"])
    found.note(commit(4, remove=[file("o", data=False), file("c", data=False)], add=[file("p", data=False)]))
    assert changed(found) == (["p"], ["a", "c"])
    found.note(ours(5, remove=[file("p")], add=[file("a"), file("c")]))
    assert changed(found) is None and found.clean_to == 5


def test_what_was_merged_without_rows_of_others_stays() -> None:
    found = ledger(
        commit(1, remove=[file("a")], operation="DELETE"),
        commit(2, remove=[file("b", data=False), file("c", data=False)], add=[file("o", data=False)], operation="OPTIMIZE"),
    )
    assert changed(found) == ([], ["a"])


def test_the_command_can_be_pasted() -> None:
    assert undo_advice("/a/b-c").startswith("`raftlake tier undo /a/b-c` takes back")
    assert undo_advice("/a b").startswith("`raftlake tier undo '/a b'` takes back")


def test_files_that_were_rewritten_beside_them_do_not_become_theirs() -> None:
    found = ledger(commit(1, add=[file("x")]), commit(2, remove=[file("a", data=False)], add=[file("o", data=False)]))
    assert changed(found) == (["x"], [])


def test_the_operators_word_counts_for_one_partition() -> None:
    found = ledger(commit(1, remove=[file("a"), file("b", 3)]), ours(2, **{ACCEPTED_KEY: "2"}))
    assert changed(found) is None and changed(found, 3) == ([], ["b"])
    assert found.clean_to == 0 and list(found.changes()) == [3]
    found.note(ours(3, **{ACCEPTED_KEY: "3"}))
    assert found.clean_to == 3


def test_a_change_tells_what_was_done() -> None:
    change = ledger(commit(4, remove=[file("a"), file("b")], add=[file("x")], operation="DELETE")).change(2)
    assert change is not None
    assert change.words(2) == (
        "another program has changed it (version 4, DELETE, 2023-11-14 22:13:20 UTC): partition 2 has 1 files that are not the "
        "tier's, and lacks 2 that are"
    )
