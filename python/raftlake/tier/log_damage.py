"""Why a table's log cannot be read: delta-rs does not say which commit is damaged, so its files are looked at."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping

from raftlake.ports.tier import TierFailure
from raftlake.tier.failures import RESTORE, STORE_ERRORS, TierProblem, problem_of, words_of
from raftlake.tier.foreign_commits import parse_commit
from raftlake.tier.store import Store

_LOG = "_delta_log"
_COMMIT = ".json"
#: So many commits are looked at, the newest first. A table of ours has a checkpoint at each hundredth.
_COMMITS_MAX = 1_000


def unread_table(error: BaseException, uri: str, options: Mapping[str, str]) -> TierProblem:
    """The answer to a call that could not read a table: with the damaged commit, where that is the cause."""
    if "json" in str(error).lower():
        with contextlib.suppress(*STORE_ERRORS):
            if (name := _damaged_commit(Store(uri, options))) is not None:
                reason = f"cannot read the table {uri}: its commit {name} is damaged ({words_of(error)}): {RESTORE}"
                return TierProblem(TierFailure.UNUSABLE, reason)
    return problem_of(error, "read the table", uri)


def _damaged_commit(store: Store) -> str | None:
    """The file of the newest commit that is none."""
    names = sorted(name for name in store.names(_LOG) if name.endswith(_COMMIT) and name.removesuffix(_COMMIT).isdigit())
    for name in names[: -_COMMITS_MAX - 1 : -1]:
        path = posixpath.join(_LOG, name)
        content = store.read(path)
        try:
            parse_commit(int(name.removesuffix(_COMMIT)), b"" if content is None else content)
        except (ValueError, KeyError, TypeError, AttributeError):
            return path
    return None
