"""Bugs planted in recoveries beside Delta tables: what a table tells, what a survivor lacks of it, and who may go on."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

COMPARISON = "raftlake.runtime.recovery.comparison"
RECOVER = "raftlake.runtime.recovery.recover"
TABLES = "raftlake.runtime.recovery.tables"
INVENTORY = "raftlake.tier.inventory"
COMPARED = ("unit/runtime/test_runtime_recovery_comparison.py",)
PLANNED = ("unit/runtime/test_runtime_recovery_tables.py",)
READ = ("unit/tier/test_tier_inventory.py",)
COMMANDS = ("unit/cli/test_cli_recover_tier.py",)

TIER_RECOVER = (
    mutant(
        "empty-mount-point-taken-for-no-tables",
        "a file system that is not mounted: the recovery is an unclean election, and nobody said so",
        COMPARISON,
        "if group.topic_id not in topics}",
        "if group.topic_id in topics}",
        (*COMPARED, *COMMANDS),
    ),
    mutant(
        "absent-directory-taken-for-no-tables",
        "the mount point itself may lie on a file system that is missing",
        "raftlake.cli.recover",
        "        return comparison_of([], copied, uri) if copied else absent(uri)\n",
        "        return comparison_of([], copied, uri)\n",
        COMMANDS,
    ),
    mutant(
        "key-of-a-snapshot-overlooked",
        "retention of the metadata log leaves keys in the snapshot alone",
        "raftlake.runtime.recovery.key_space",
        "    for snapshot_id in reversed(logs.snapshots.ids(METADATA_GROUP)):\n",
        "    for snapshot_id in ():\n",
        ("unit/runtime/test_runtime_recovery_key_space.py",),
    ),
    mutant(
        "survivor-judged-by-where-its-log-ends",
        "KIP-405 scenario 5: a log that is longer than the table, and is another history",
        COMPARISON,
        "        kept = next((each.end_offset for each in ranges if each.base_offset <= base < each.end_offset), base)\n",
        "        kept = min(log_end, end)\n",
        COMPARED,
    ),
    mutant(
        "log-behind-a-gap-taken-for-the-tables",
        "nothing of the table leads to the log: all of its rows would be superseded",
        COMPARISON,
        "    if start < end < log_start:",
        "    if False:",
        COMPARED,
    ),
    mutant(
        "topic-that-the-survivor-never-heard-of",
        "its table shows records, and the recovery forgets the topic without a word",
        COMPARISON,
        "            if group in there or facts is None or facts.end_offset == facts.start_offset:",
        "            if True:",
        COMPARED,
    ),
    mutant(
        "second-recovery-in-the-epoch-of-the-first",
        "rows of two histories have the same epoch at the same offset, and are taken for one",
        RECOVER,
        "Epoch(max(last_epoch, tables.epoch_of(group, self._quorum_group)))",
        "last_epoch",
        COMMANDS,
    ),
    mutant(
        "two-survivors-in-one-epoch",
        "the tables know nothing of the first recovery yet",
        RECOVER,
        "crc32c(self.meta.directory_id) % EPOCHS_SCATTERED",
        "EPOCHS_SCATTERED // 2",
        COMMANDS,
    ),
    mutant(
        "unclean-election-without-the-word",
        "records leave the table because a script gave the cluster id, as it always did",
        "raftlake.cli.recover",
        "        if confirm is not None and losses and not unclean:",
        "        if False:",
        COMMANDS,
    ),
    mutant(
        "tables-that-cannot-be-read-taken-for-none",
        "a store that is away for a minute costs the records that only it shows",
        "raftlake.cli.recover",
        "    if tables.failure is not None:",
        "    if False:",
        COMMANDS,
    ),
    mutant(
        "plan-of-an-interrupted-recovery-compared",
        "the log holds records of the new epoch by then: the recovery could not be finished",
        "raftlake.cli.recover",
        "loaded.tier is None or recovery.is_resumed or",
        "loaded.tier is None or",
        COMMANDS,
    ),
    mutant(
        "restored-for-any-cluster-id",
        "the operator has another cluster in mind",
        "raftlake.cli.recover_from_tier",
        "    if confirm is not None and confirm != plan.cluster_id:",
        "    if False:",
        COMMANDS,
    ),
    mutant(
        "claim-without-rows-forgotten",
        "the restored leader has a lower epoch than its table, and is fenced for good",
        TABLES,
        "Epoch(0) if told is None else told.leader_epoch",
        "Epoch(0)",
        PLANNED,
    ),
    mutant(
        "partition-without-rows-left-out",
        "the partitions behind it move up: keys go to other partitions than before",
        TABLES,
        "for index in range(count or known)",
        "for index in sorted(table.partitions)",
        PLANNED,
    ),
    mutant(
        "epoch-of-the-first-incarnation-alone",
        "a table that was taken over: its newest leader is not seen",
        INVENTORY,
        "for each in range(self._newest(index) + 1))",
        "for each in range(1))",
        READ,
    ),
    mutant(
        "fence-taken-for-the-epoch-of-a-leader",
        "no epoch is left above it: the recovery is refused",
        INVENTORY,
        "(epoch for epoch in epochs if epoch != LAST_EPOCH)",
        "epochs",
        READ,
    ),
    mutant(
        "deleted-topic-comes-back",
        "an empty topic that somebody deleted long ago",
        INVENTORY,
        "            is_dropped = not files and",
        "            is_dropped = False and not files and",
        READ,
    ),
    mutant(
        "table-with-a-hole-taken-for-whole",
        "the loss is told as less than it is",
        INVENTORY,
        "            if first > end:",
        "            if False:",
        READ,
    ),
    mutant(
        "file-that-is-gone-taken-for-there",
        "a consumer finds out, years later",
        INVENTORY,
        "            if file.path not in present and self._table.store.size(file.path) is None:",
        "            if False:",
        READ,
    ),
)
