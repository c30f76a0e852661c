"""What is copied: the files of a checkpoint that a query needs to go on behind a batch.

A selection is checked before anything is written: WrongState names the file or the version that is not there. Where the changes
of state are kept in topics (`QuorumStateStoreProvider`), a copy has them in files (`logged`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from raftlake.checkpoints.changelog_topics import StoreLog
from raftlake.checkpoints.layout import METADATA, Layout, batch_of, data_files_of, is_after, problems
from raftlake.checkpoints.logged import LoggedState
from raftlake.errors import WrongState

#: Problems that a message names.
_TOLD_MAX = 3


@dataclass(frozen=True)
class Selection:
    """`names` without `metadata`. `read` gives the content of one of them."""

    names: tuple[str, ...]
    batch: int | None
    read: Callable[[str], bytes]


def select(
    what: str,
    names: Collection[str],
    read: Callable[[str], bytes],
    batch: int | None,
    *,
    log_of: Callable[[str], StoreLog] | None = None,
    is_move: bool = False,
) -> Selection:
    """The files for a copy of the checkpoint `what` as of `batch`, by default the last one that is committed.

    `log_of` gives the log of a store, where changes are in topics. `is_move`: the same query goes on elsewhere. A batch that
    was begun and not committed goes with it then, so that the batch has the same offsets when it is repeated.
    """
    layout = Layout.of(names)
    if batch is None:
        if not layout.commits:
            if is_move and not layout.state:
                return Selection(tuple(name for name in sorted(names) if name != METADATA), None, read)
            raise WrongState(f"{what} has no batch that is committed")
        batch = layout.commits[-1]
    kept = [name for name in sorted(names) if name != METADATA and not is_after(name, batch)]
    if is_move:
        kept += [name for name in sorted(names) if name.startswith("offsets/") and (batch_of(name) or 0) > batch]
    require_no_problem(what, batch, problems(layout, batch, read, has_changelog=log_of is not None))
    made: dict[str, Callable[[], bytes]] = {}
    if log_of is not None:
        logged = LoggedState(what, layout, batch, read, log_of)
        kept, made = [name for name in kept if logged.keeps(name)], logged.files
    kept = _without_unused_data(what, frozenset(kept), frozenset(names), read)
    return Selection((*kept, *made), batch, lambda name: made[name]() if name in made else read(name))


def require_no_problem(what: str, batch: int, found: Collection[str]) -> None:
    """WrongState where a query could not go on behind the batch."""
    if found:
        told = "; ".join(list(found)[:_TOLD_MAX]) + (f"; and {len(found) - _TOLD_MAX} more" if len(found) > _TOLD_MAX else "")
        raise WrongState(f"{what}: a query cannot go on behind batch {batch}: {told}")


def _without_unused_data(what: str, kept: frozenset[str], names: frozenset[str], read: Callable[[str], bytes]) -> list[str]:
    """Data files of RocksDB that a snapshot of the selection names, and no others."""
    used: set[str] = set()
    for name in sorted(kept):
        if not (name.startswith("state/") and name.endswith(".zip")):
            continue
        try:
            data = data_files_of(name, read(name))
        except ValueError as error:
            raise WrongState(f"{what}: {error}") from error
        if missing := sorted(data - names):
            raise WrongState(f"{what}: {missing[0]} is not there, and {name} needs it")
        used |= data
    return sorted(name for name in kept if not _is_data(name) or name in used)


def _is_data(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "state" and len(parts) > 3 and parts[-2] in ("SSTs", "logs")
