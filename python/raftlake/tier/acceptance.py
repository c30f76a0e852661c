"""`RemoteTier.accept` on a Delta table: from now on the tier goes by what the table shows of a partition, whoever wrote it.

That is for the operator to say: `raftlake tier rebuild-metadata`. What others did may have cut the table short, or may have put
back what was missing. One commit notes where the table ends now. It sets the `txn` of the last offset, so no copy that was
judged before comes behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.arrow.records import KernelLoader
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.raft.types import Offset
from raftlake.tier.as_left import changed, require_as_left, shown_files
from raftlake.tier.batch_reads import base_of, batches_of
from raftlake.tier.commits import Action, commit_once
from raftlake.tier.failures import TierProblem
from raftlake.tier.foreign_commits import ACCEPTED_KEY
from raftlake.tier.known_copies import KnownCopies
from raftlake.tier.later_version import version_that_reaches
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.schema import end_app
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import TopicTable
from raftlake.tier.wholeness import end_of, start_of


def accept_table(
    table: TopicTable,
    cluster_id: str,
    lineage: Lineage,
    needed: tuple[Offset | None, Offset | None],
    loader: KernelLoader,
) -> None:
    """TierProblem (CHANGED) where the table shows no gapless run with each offset once, or one that lacks what is `needed`:
    where it begins at the latest, and where it ends at the earliest. DAMAGED where rows in files of others are not the batches
    that the log had. Nothing is done then."""
    files, fault = shown_files(table, lineage)
    if fault is not None:
        raise changed(table, lineage.group.partition, f"partition {lineage.group.partition} is not whole: {fault}")
    last = table.transaction(end_app(cluster_id, lineage))
    start = start_of(files) if files or last is None else last + 1
    begin, reach = needed
    if begin is not None and start is not None and start > begin:
        what = f"partition {lineage.group.partition} shows nothing of the offsets {begin} to {start - 1}"
        raise changed(table, lineage.group.partition, what)
    end = end_of(files) if files or last is None else last + 1
    if reach is not None and end is not None and end < reach:
        raise _too_short(table, lineage, end, reach)
    try:
        require_as_left(table, cluster_id, lineage)
    except TierProblem as problem:
        if problem.error.failure is not TierFailure.CHANGED or not files:
            raise
        _require_batches(table, lineage, files, loader)
        _commit(table, cluster_id, lineage, files)


def _too_short(table: TopicTable, lineage: Lineage, end: int, reach: Offset) -> TierProblem:
    """With such an end a leader could copy nothing more, and no reader would be served what the table shows."""
    topic, partition = lineage.group.topic, lineage.group.partition
    what = f"partition {partition} ends at {end}, and on the disk of a voter its log begins at {reach}, or may"
    if table.watch().change(partition) is not None:
        return changed(table, partition, what)
    version = version_that_reaches(table, lineage, reach)
    advice = (
        "no version in its log shows what is between: put missing files back from a copy of the store. Where other voters have "
        "these records, take that voter out of the quorum, and add it again with an empty disk"
    )
    if version is not None:
        advice = (
            f"RESTORE it to version {version}, which shows what is between; then `raftlake tier rebuild-metadata --topic "
            f"{topic} --partition {partition}`; then `raftlake tier undo TABLE`, which keeps the copies of other partitions"
        )
    return TierProblem(TierFailure.CHANGED, f"the table at {table.uri}: {what}: {advice}")


def _require_batches(table: TopicTable, lineage: Lineage, files: Sequence[TableFile], loader: KernelLoader) -> None:
    """The rows in files of others are read as consumers read them."""
    change = table.watch().change(lineage.group.partition)
    others = set() if change is None else set(change.added.values())
    all_files = LineageFiles(files)
    copies = KnownCopies(table.store, table.uri, lineage, all_files)
    for file in files:
        if file.path in others:
            base = base_of(table.store, table.uri, lineage, all_files, file.offset_min or 0)
            known = copies.at(file.offset_max or 0)
            end = all_files.end if known is None else min(all_files.end, known.segment.end_offset)
            for _ in batches_of(table.store, table.uri, lineage, all_files, base, end, loader):
                pass


def _commit(table: TopicTable, cluster_id: str, lineage: Lineage, files: Sequence[TableFile]) -> None:
    seen = {file.path for file in files}
    partition = lineage.group.partition

    def unmoved() -> list[Action]:
        if {file.path for file in table.files(partition)} != seen:
            raise TierProblem(TierFailure.ELSEWHERE, f"{table.uri}: {lineage.group} changed meanwhile: try again")
        return []

    end = end_of(files)
    assert end is not None
    commit_once(
        table,
        unmoved,
        transactions={end_app(cluster_id, lineage): end - 1},
        metadata={ACCEPTED_KEY: str(partition)},
        retries_max=0,
    )
