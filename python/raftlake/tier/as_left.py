"""Whether a partition of a table is as the tier left it, or another program has added or removed rows.

Each commit of the tier, and each check of a copy, asks first. The answer goes by the commits since the last look. The files are
judged once by their statistics: when a process opens the table, and when others have touched the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raftlake.ports.tier import Lineage, TierFailure
from raftlake.tier.failures import TierProblem
from raftlake.tier.foreign_commits import PUT_BACK, undo_advice
from raftlake.tier.lineage_files import lineage_files
from raftlake.tier.schema import end_app, newest_incarnation
from raftlake.tier.store import absolute
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import TopicTable
from raftlake.tier.wholeness import end_of, fault_in


def require_as_left(table: TopicTable, cluster_id: str, lineage: Lineage) -> None:
    """TierProblem (CHANGED) where another program has added or removed rows of the partition."""
    watch, partition = table.watch(), lineage.group.partition
    if (change := watch.change(partition)) is not None:
        raise changed(table, partition, change.words(partition))
    if watch.is_whole(partition):
        return
    if (fault := fault_of(table, cluster_id, lineage)) is not None:
        raise changed(table, partition, f"partition {partition} is not as the tier left it: {fault}")
    watch.note_whole(partition)


def changed(table: TopicTable, partition: int, what: str) -> TierProblem:
    """What is answered then."""
    return TierProblem(TierFailure.CHANGED, f"the table at {table.uri}: {what}: {advice(table, partition)}")


def advice(table: TopicTable, partition: int) -> str:
    """What to do where a partition is not as the tier left it."""
    return PUT_BACK if table.watch().change(partition) is None else undo_advice(absolute(table.uri))


def fault_of(table: TopicTable, cluster_id: str, lineage: Lineage, listed: Sequence[TableFile] | None = None) -> str | None:
    """What is wrong with the files of a partition, by their statistics and the tier's last commit. `listed`: see
    `shown_files`."""
    newest = newest_incarnation(table.transaction, cluster_id, lineage.group)
    if lineage.incarnation < (newest or 0):
        return None
    files, fault = shown_files(table, lineage, listed)
    if fault is not None or not files:
        return fault
    last, end = table.transaction(end_app(cluster_id, lineage)), end_of(files)
    if last is None:
        # An incarnation that begins with rows of older ones says where they end.
        return None if lineage.incarnation else f"it has files ({files[0].path}), and the tier has copied nothing"
    if end != last + 1:
        return f"it ends at {end}, and the tier's last commit shows the offsets up to {last}"
    return None


def shown_files(
    table: TopicTable, lineage: Lineage, listed: Sequence[TableFile] | None = None
) -> tuple[list[TableFile], str | None]:
    """The files of a partition, in the order of their offsets, and what keeps them from being one run. `listed` are those that
    the table shall show; without them, those that it shows."""
    listed = table.files(lineage.group.partition) if listed is None else listed
    says = {file.path for file in listed if file.has_range}
    found = lineage_files(table.store, table.uri, listed, lineage.incarnation).files
    # Where rows had to tell the range, nothing is known of their number.
    files = [file if file.path in says else replace(file, rows=None) for file in found]
    known = {file.path for file in files}
    other = next((file.path for file in listed if file.path not in known), None)
    if other is not None:
        return files, f"{other} has no row of the tier"
    return files, fault_in(files)
