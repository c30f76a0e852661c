"""What commits of other programs have done to a table, as its log tells it. Pure: the content of commits comes in.

The tier's own commits are named (`CALL_KEY`). Others may rewrite files (`dataChange` is false: OPTIMIZE), and may change what
is no file. Whatever else adds or removes files has changed the table. It is as the tier left it again once all files that
others added are gone, and all that they removed are back: by RESTORE, by a delete, by `raftlake tier undo`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

#: In each commit of the tier: what tells it from all others.
CALL_KEY = "raftlake.call"
#: The version up to which the tier knew the table to be as it left it.
CLEAN_KEY = "raftlake.clean"
#: The partition whose files the tier goes by from this commit on, whoever wrote them.
ACCEPTED_KEY = "raftlake.accepted"
#: What to do then: `undo_advice` names the table.
UNDO = (
    "`raftlake tier undo {table}` takes back what another program has done, and keeps all copies; RESTORE would lose newer ones"
)
#: What to do where no commit tells what was done.
PUT_BACK = (
    "its log does not tell who did it: put missing files back from a copy of the store and delete rows that were added, "
    "then `raftlake tier rebuild-metadata`"
)
#: The partition of a file whose commit does not tell it: any.
_ANY = -1
_PARTITION = "partition"


def undo_advice(table: str, advice: str = UNDO) -> str:
    """An advice with the place of a table, to be pasted into a shell."""
    return advice.format(table=shlex.quote(table))


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a commit adds or removes."""

    path: str
    #: With its deletion vector, which makes it another one.
    key: str
    partition: int
    changes_data: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    version: int
    operation: str
    #: Since 1970; None where it does not tell.
    time_ms: int | None
    is_ours: bool
    clean_to: int | None
    accepted: int | None
    added: tuple[FileChange, ...]
    removed: tuple[FileChange, ...]

    def words(self) -> str:
        """Which commit it is, for operators."""
        if self.time_ms is None:
            return f"version {self.version}, {self.operation}"
        when = datetime.fromtimestamp(self.time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"version {self.version}, {self.operation}, {when}"


def parse_commit(version: int, content: bytes) -> Commit:
    """A file of the table's log. ValueError where it is none."""
    info: dict[str, Any] = {}
    changes: dict[str, list[FileChange]] = {"add": [], "remove": []}
    for line in content.splitlines():
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo") or info
        for kind, found in changes.items():
            if (file := action.get(kind)) is not None:
                found.append(_change(file))
    time_ms = info.get("timestamp")
    return Commit(
        version=version,
        operation=str(info.get("operation", "a commit without a name")),
        time_ms=time_ms if isinstance(time_ms, int) and 0 <= time_ms < 253_402_300_799_000 else None,
        is_ours=CALL_KEY in info,
        clean_to=_number(info.get(CLEAN_KEY)),
        accepted=_number(info.get(ACCEPTED_KEY)),
        added=tuple(changes["add"]),
        removed=tuple(changes["remove"]),
    )


def _number(text: object) -> int | None:
    return None if text is None else int(str(text))


def _change(file: dict[str, Any]) -> FileChange:
    path = str(file["path"])
    values = file.get("partitionValues") or {}
    told = values.get(_PARTITION) or next(
        (part.partition("=")[2] for part in path.split("/") if part.startswith(f"{_PARTITION}=")), ""
    )
    vector = file.get("deletionVector")
    key = path if not vector else f"{path}#{json.dumps(vector, sort_keys=True)}"
    return FileChange(path, key, int(told) if told.isdigit() else _ANY, bool(file.get("dataChange", True)))


@dataclass(slots=True)
class Change:
    """What others have done to one partition, and is not undone."""

    #: The first commit that did, since the partition was last as the tier left it.
    first: Commit
    #: Files that the table shows and others added, and files of the tier that it does not show: paths by key.
    added: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)

    def note(self, added: Sequence[FileChange], removed: Sequence[FileChange]) -> None:
        """One more commit of another program."""
        for file in removed:
            if self.added.pop(file.key, None) is None:
                self.removed[file.key] = file.path
        for file in added:
            if self.removed.pop(file.key, None) is None:
                self.added[file.key] = file.path

    def follow(self, added: Sequence[FileChange], removed: Sequence[FileChange], *, is_ours: bool) -> None:
        """A commit of the tier, or one that has rewritten files. Where those held rows of others, all that was written may: it
        is theirs, and the tier's files that went into it have to come back."""
        if not is_ours and any(file.key in self.added for file in removed):
            self.note(added, removed)
            return
        for file in removed:
            self.added.pop(file.key, None)
        for file in added:
            self.removed.pop(file.key, None)

    def words(self, partition: int) -> str:
        """What was done, for operators."""
        counts = f"{len(self.added)} files that are not the tier's, and lacks {len(self.removed)} that are"
        return f"another program has changed it ({self.first.words()}): partition {partition} has {counts}"


class Ledger:
    """All partitions of a table, from a version on at which it was as the tier left it."""

    def __init__(self, clean_to: int) -> None:
        #: The last version at which all partitions were as the tier left them.
        self.clean_to = clean_to
        self._changes: dict[int, Change] = {}

    def note(self, commit: Commit) -> None:
        """The next commit."""
        if commit.accepted is not None:
            self._changes.pop(commit.accepted, None)
            self._changes.pop(_ANY, None)
        for partition in sorted({file.partition for file in (*commit.added, *commit.removed)}):
            self._note(partition, commit)
        if not self._changes:
            self.clean_to = commit.version

    def _note(self, partition: int, commit: Commit) -> None:
        added = [file for file in commit.added if file.partition == partition]
        removed = [file for file in commit.removed if file.partition == partition]
        change = self._changes.get(partition)
        if not commit.is_ours and any(file.changes_data for file in (*added, *removed)):
            change = self._changes.setdefault(partition, Change(commit))
            change.note(added, removed)
        elif change is not None:
            change.follow(added, removed, is_ours=commit.is_ours)
        if change is not None and not change.added and not change.removed:
            del self._changes[partition]

    def change(self, partition: int) -> Change | None:
        """What others have done to a partition; None where it is as the tier left it."""
        return self._changes.get(partition) or self._changes.get(_ANY)

    def changes(self) -> dict[int, Change]:
        """Those of all partitions, as they are now: later commits do not change what was told."""
        return {
            partition: Change(each.first, dict(each.added), dict(each.removed)) for partition, each in self._changes.items()
        }
