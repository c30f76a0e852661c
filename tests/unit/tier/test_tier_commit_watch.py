"""Each commit is looked at once by a process, and a new process begins where the tier last said that all is well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftlake.tier import commit_watch
from raftlake.tier.commit_watch import CommitWatch
from raftlake.tier.foreign_commits import CALL_KEY, CLEAN_KEY


class Log:
    """The commits of a table, and which of them were read."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = dict(enumerate(contents))
        self.read: list[int] = []

    @property
    def version(self) -> int:
        return max(self.contents)

    def add(self, *contents: bytes) -> None:
        for content in contents:
            self.contents[self.version + 1] = content

    def content(self, version: int) -> bytes | None:
        self.read.append(version)
        return self.contents.get(version)

    def look(self, watch: CommitWatch) -> CommitWatch:
        self.read.clear()
        watch.look(self.version, self.content)
        return watch


def commit(*actions: dict[str, Any], **info: Any) -> bytes:
    return "\n".join(map(json.dumps, [{"commitInfo": {"operation": "WRITE", **info}}, *actions])).encode()


def ours(clean_to: int | None) -> bytes:
    return commit(**{CALL_KEY: "x"}, **({} if clean_to is None else {CLEAN_KEY: str(clean_to)}))


def foreign(partition: int = 2, path: str = "x", kind: str = "add", *, data: bool = True) -> bytes:
    return commit({kind: {"path": path, "dataChange": data, "partitionValues": {"partition": str(partition)}}})


def test_each_commit_is_read_once() -> None:
    log = Log(commit(), ours(0))
    watch = CommitWatch()
    assert watch.clean_to is None and watch.change(2) is None and watch.changes() == {}
    log.look(watch)
    assert watch.clean_to == 1 and log.read == [1]
    log.look(watch)
    assert log.read == []
    log.add(ours(1), foreign())
    log.look(watch)
    assert log.read == [2, 3] and watch.clean_to == 2 and list(watch.changes()) == [2]


def test_a_new_process_begins_where_all_was_well() -> None:
    log = Log(commit(), *(ours(n) for n in range(50)), foreign(), foreign(3, "y"), ours(50))
    watch = log.look(CommitWatch())
    assert sorted(log.read) == [51, 52, 53]
    assert watch.clean_to == 50 and sorted(watch.changes()) == [2, 3]


def test_a_commit_that_went_behind_others_does_not_vouch_for_them() -> None:
    """It was judged before the commit of the other program, and came behind it."""
    log = Log(commit(), ours(0), ours(1), foreign(), ours(2))
    assert list(log.look(CommitWatch()).changes()) == [2]


def test_a_log_that_does_not_tell_is_not_judged_by_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut, or an older tier wrote all of it: the files tell."""
    log = Log(commit(), foreign(), ours(None), ours(None))
    del log.contents[0], log.contents[1]
    watch = log.look(CommitWatch())
    assert (watch.clean_to, watch.changes()) == (3, {})
    log.add(foreign())
    assert list(log.look(watch).changes()) == [2]
    monkeypatch.setattr(commit_watch, "_WALK_MAX", 3)
    log = Log(commit(), foreign(), *(ours(None) for _ in range(9)))
    assert log.look(CommitWatch()).changes() == {} and len(log.read) == 3
    monkeypatch.setattr(commit_watch, "_WALK_MAX", 100)
    assert list(log.look(CommitWatch()).changes()) == [2]
    log.add(ours(0))
    monkeypatch.setattr(commit_watch, "_READ_MAX", 5)
    assert log.look(CommitWatch()).changes() == {}


def test_a_log_that_was_cut_between_begins_anew() -> None:
    log = Log(commit(), ours(0))
    watch = log.look(CommitWatch())
    log.add(foreign(), ours(1), ours(None))
    del log.contents[2]
    assert log.look(watch).changes() == {} and watch.clean_to == 4


def test_a_table_that_was_put_in_place_of_it_begins_anew() -> None:
    log = Log(commit(), ours(0), foreign())
    watch = log.look(CommitWatch())
    assert watch.changes()
    older = Log(commit(), ours(0))
    assert older.look(watch).changes() == {} and watch.clean_to == 1


def test_files_are_judged_again_once_others_have_touched_them() -> None:
    log = Log(commit(), ours(0))
    watch = log.look(CommitWatch())
    watch.note_whole(2)
    watch.note_whole(3)
    log.add(ours(1), commit())
    log.look(watch)
    assert watch.is_whole(2) and watch.is_whole(3)
    log.add(foreign(3, data=False))
    log.look(watch)
    assert watch.is_whole(2) and not watch.is_whole(3) and watch.changes() == {}
