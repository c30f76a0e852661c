"""The commits of one table, each looked at once by a process: whether others have changed what the tier left.

Each commit of the tier says up to which version the table was as the tier left it (`CLEAN_KEY`). So a new process looks at the
commits since then, and at no older one. Where the log does not tell, because it was cut or an older tier wrote it, the process
begins with the table as it is: the statistics of its files have to make one gapless run (`as_left`).
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.tier.foreign_commits import Change, Commit, Ledger, parse_commit

#: How far back a commit is looked for that says how far all is well, and how many are read from there on.
_WALK_MAX = 1_000
_READ_MAX = 10_000

#: The content of the commit with this version; None where it is gone.
Read = Callable[[int], bytes | None]


class CommitWatch:
    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        #: The newest version that was looked at.
        self._seen = -1
        #: Partitions whose files were found to make one run, since others last touched them.
        self._whole: set[int] = set()

    @property
    def clean_to(self) -> int | None:
        """The last version at which the whole table was as the tier left it; None before the first look."""
        return None if self._ledger is None else self._ledger.clean_to

    def look(self, version: int, read: Read) -> None:
        """Look at all commits up to a version."""
        if self._ledger is None or version < self._seen:
            self._begin(version, read)
        while self._seen < version:
            content = read(self._seen + 1)
            if content is None:
                self._begin(version, read)
            else:
                self._note(parse_commit(self._seen + 1, content))

    def _begin(self, version: int, read: Read) -> None:
        self._whole.clear()
        clean_to, known = _last_clean(version, read)
        self._ledger = Ledger(clean_to)
        self._seen = clean_to
        for number in range(clean_to + 1, version + 1):
            if (commit := known.get(number)) is None:
                content = read(number)
                if content is None:
                    # Nothing tells what it did. The table itself is judged.
                    self._ledger, self._seen = Ledger(version), version
                    return
                commit = parse_commit(number, content)
            self._note(commit)

    def _note(self, commit: Commit) -> None:
        assert self._ledger is not None
        self._ledger.note(commit)
        self._seen = commit.version
        if not commit.is_ours:
            self._whole -= {file.partition for file in (*commit.added, *commit.removed)}

    def change(self, partition: int) -> Change | None:
        """What others have done to a partition, and is not undone."""
        return None if self._ledger is None else self._ledger.change(partition)

    def changes(self) -> dict[int, Change]:
        """Those of all partitions."""
        return {} if self._ledger is None else self._ledger.changes()

    def is_whole(self, partition: int) -> bool:
        """Its files were judged, and nobody but the tier has touched them since."""
        return partition in self._whole

    def note_whole(self, partition: int) -> None:
        self._whole.add(partition)


def _last_clean(version: int, read: Read) -> tuple[int, dict[int, Commit]]:
    """The version up to which the newest commit that tells it says that all is well, and the commits that were read for that.
    Where none tells it: the version itself."""
    known: dict[int, Commit] = {}
    for number in range(version, max(version - _WALK_MAX, -1), -1):
        content = read(number)
        if content is None:
            break
        commit = known[number] = parse_commit(number, content)
        if commit.is_ours and commit.clean_to is not None:
            return (commit.clean_to if version - commit.clean_to <= _READ_MAX else version), known
        if number == 0:
            return -1, known
    return version, known
