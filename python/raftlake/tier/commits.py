"""Commits to the Delta table of a topic: each one once, for what the table shows when it is made.

A commit of a process that was given up may still be on its way to the store. So a commit that failed counts as done, or as not
done, only when the table says so.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from deltalake.transaction import AddAction, RemoveAction

from raftlake.ports.tier import Lineage, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.failures import STORE_ERRORS, TierProblem, advice_on, is_conflict, words_of
from raftlake.tier.schema import epoch_app
from raftlake.tier.segment_file import SegmentFile
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import RETRIES_MAX, TopicTable

Action: TypeAlias = AddAction | RemoveAction

#: How often a call judges anew after a commit of the same lineage came first.
_ATTEMPTS_MAX = 5
#: The same for a commit that any other one stands in the way of.
_ATTEMPTS_ALONE_MAX = 40


def commit_once(
    table: TopicTable,
    judge: Callable[[], Sequence[Action]],
    *,
    transactions: Mapping[str, int],
    metadata: Mapping[str, str] | None = None,
    call: str = "",
    retries_max: int = RETRIES_MAX,
) -> None:
    """Commit once what `judge` gives for the table as it is, or raise TierProblem. The table is refreshed when this returns.
    `retries_max`: how often delta-rs may go behind other commits without asking `judge`."""
    name = call or str(uuid.uuid4())
    table.refresh()
    attempts = _ATTEMPTS_MAX if retries_max else _ATTEMPTS_ALONE_MAX
    for _ in range(attempts):
        actions = judge()
        seen = table.version
        failed: BaseException | None = None
        try:
            table.commit(name, actions, transactions, metadata or {}, retries_max)
        except STORE_ERRORS as error:
            failed = error
        if _is_committed(table, name, seen, failed):
            return
    raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: other writers came first {attempts} times")


def _is_committed(table: TopicTable, call: str, seen: int, failed: BaseException | None) -> bool:
    """Whether a commit is in the table after all. False only where it can never come there."""
    try:
        table.refresh()
        if table.commit_of(call, seen) is not None:
            table.sync(seen)
            return True
    except (TierProblem, *STORE_ERRORS) as error:
        raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: a commit may be done: {words_of(error)}") from error
    if failed is not None and is_conflict(failed):
        return False
    words = "it is not in the table" if failed is None else words_of(failed)
    if failed is not None and (advice := advice_on(failed)):
        # An earlier try of the same commit may have reached the store.
        what = f"{table.uri}: cannot write a commit: {words}: {advice} (the commit may be done all the same)"
        raise TierProblem(TierFailure.UNKNOWN, what) from failed
    raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: a commit may be done or come later: {words}") from failed


def require_newest(table: TopicTable, cluster_id: str, lineage: Lineage, leader_epoch: Epoch) -> None:
    """TierProblem (FENCED) where a later leader has written or claimed."""
    newest = table.transaction(epoch_app(cluster_id, lineage))
    if newest is not None and newest > leader_epoch:
        raise TierProblem(
            TierFailure.FENCED,
            f"{table.uri}: a leader of epoch {newest} has {lineage.group}, that of epoch {leader_epoch} writes no more",
        )


def add_action(lineage: Lineage, written: SegmentFile) -> AddAction:
    """Show a file that is complete in the store."""
    return AddAction(
        path=written.segment.file,
        size=written.segment.size,
        partition_values={"partition": str(lineage.group.partition)},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=written.statistics,
    )


def remove_action(file: TableFile) -> RemoveAction:
    """Show a file no more."""
    return RemoveAction(
        path=file.path,
        deletion_timestamp=time.time_ns() // 1_000_000,
        data_change=True,
        partition_values={"partition": str(file.partition)},
        size=file.size,
    )
