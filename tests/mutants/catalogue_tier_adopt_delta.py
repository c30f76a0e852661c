"""Bugs planted in how a Delta table is taken over after an unclean election."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

ADOPTION = "raftlake.tier.adoption"
FILES = "raftlake.tier.adoption_files"
DELTA = "raftlake.tier.delta_table"
READS = "raftlake.tier.table_reads"
ORDERED = "raftlake.tier.ordered_rows"
ROWS = "raftlake.tier.row_checks"
CONTRACT = ("contract/test_tier_contract.py",)
ADOPTED = ("unit/tier/test_tier_adoption.py",)

TIER_ADOPT_DELTA = (
    mutant(
        "adoption-goes-behind-optimize",
        "delta-rs takes the removal of a file that is gone for no conflict: rows are shown twice",
        ADOPTION,
        "            commit_once(table, actions, transactions=transactions, retries_max=0)\n",
        "            commit_once(table, actions, transactions=transactions)\n",
        ADOPTED,
    ),
    mutant(
        "adoption-does-not-look-again",
        "a copy that came between the look and the commit stays, and shows the older history",
        ADOPTION,
        "            self._require_unmoved()\n",
        "",
        ADOPTED,
    ),
    mutant(
        "leader-of-an-older-incarnation-copies-on",
        "the old leader comes back, and its records come behind those of the new history",
        ADOPTION,
        "        found = {epoch_app(cluster_id, each): LAST_EPOCH for each in older}\n",
        "        found = dict[str, int]()\n",
        CONTRACT,
    ),
    mutant(
        "repeated-adoption-begins-another-incarnation",
        "the answer was lost, and what was copied since then is superseded",
        ADOPTION,
        "        if begun is None:\n",
        "        if True:\n",
        CONTRACT,
    ),
    mutant(
        "adopted-table-begins-anywhere",
        "the table has a gap to the log: nothing tells where its first copy has to begin",
        ADOPTION,
        "        if end_offset > 0:\n",
        "        if False:\n",
        CONTRACT,
    ),
    mutant(
        "empty-adopted-table-taken-for-damaged",
        "nothing of the table leads to the log, and each claim says that somebody removed its rows",
        DELTA,
        "last == table.transaction(begin_app(cluster_id, lineage))",
        "False",
        CONTRACT,
    ),
    mutant(
        "superseded-file-left-to-vacuum",
        "KIP-405 scenario 5: the second election needs what the first one removed",
        FILES,
        "                self._supersede(source.files)\n",
        "",
        ADOPTED,
    ),
    mutant(
        "superseded-file-not-durable-before-the-commit",
        "the power fails, and VACUUM takes the only copy of what was superseded",
        FILES,
        "        self._store.sync([name])\n",
        "",
        ADOPTED,
    ),
    mutant(
        "superseded-file-never-comes-back",
        "KIP-405 scenario 5: offsets 0 to 3 of A are lost to readers of the table",
        FILES,
        "for source in [*live, *self._superseded(kept)]",
        "for source in live",
        CONTRACT,
    ),
    mutant(
        "cut-copy-keeps-the-state-of-its-end",
        "a follower begins with sequence numbers of records that its leader never had",
        FILES,
        "known.auxiliary if known is not None and run.is_ended else None",
        "known.auxiliary if known is not None else None",
        CONTRACT,
    ),
    mutant(
        "copy-that-lost-its-beginning-loses-its-state",
        "no follower can begin behind a copy whose end is in the table",
        FILES,
        "known.auxiliary if known is not None and run.is_ended else None",
        "None",
        CONTRACT,
    ),
    mutant(
        "one-copy-in-two-files-parted",
        "rows in a file that stays name a copy whose state is that of records that went",
        FILES,
        "        extents = [self._extent(file) for file in files]\n",
        "        extents = [(file.offset_min or 0, file.offset_max or 0) for file in files]\n",
        ADOPTED,
    ),
    mutant(
        "state-of-a-cut-copy-given",
        "a follower begins without the producers' sequence numbers, and takes their retries for new records",
        READS,
        "            if known.auxiliary:\n",
        "            if True:\n",
        CONTRACT,
    ),
    mutant(
        "older-incarnation-reads-newer-rows",
        "after OPTIMIZE a node that has not heard of the election gives records of both histories",
        ORDERED,
        '        is_one = pc.less_equal(self.batch.column("incarnation"), incarnation).fill_null(False)\n',
        '        is_one = pc.greater_equal(self.batch.column("incarnation"), 0).fill_null(False)\n',
        ADOPTED,
    ),
    mutant(
        "verify-finds-fault-with-rows-that-came-back",
        "rows of an older incarnation behind those of a newer one, as scenario 5 leaves them",
        ROWS,
        '                if name == "incarnation" and before < self._newest_incarnation:\n',
        "                if False:\n",
        CONTRACT,
    ),
    mutant(
        "empty-adopted-table-told-by-its-first-incarnation",
        "a query of tables only begins where a history ended that an election superseded",
        "pyspark_raftlake.tables",
        "known.history.last_offset(partition, known.history.newest_incarnation(partition))",
        "known.history.last_offset(partition, 0)",
        ("connector/test_connector_tables.py",),
    ),
)
