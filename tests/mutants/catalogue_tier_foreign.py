"""Bugs planted in what becomes of a table that another program has changed."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

COMMITS = "raftlake.tier.foreign_commits"
WATCH = "raftlake.tier.commit_watch"
AS_LEFT = "raftlake.tier.as_left"
WHOLE = "raftlake.tier.wholeness"
ACCEPT = "raftlake.tier.acceptance"
UNDO = "raftlake.tier.undo"
DELTA = "raftlake.tier.delta_table"
READS = "raftlake.tier.table_reads"
ADOPTION = "raftlake.tier.adoption"
FILES = "raftlake.tier.adoption_files"
INVENTORY = "raftlake.tier.inventory"
HOLDER = "raftlake.replica.tiering.holder"
REBUILD = "raftlake.replica.tiering.rebuild"
GATE = "raftlake.replica.kv.tier_gate"
ENTRIES = "raftlake.tier.entries"
COPIER = "raftlake.replica.tiering.copier"
CHECKER = "raftlake.replica.tiering.checker"

LEDGER = ("unit/tier/test_tier_foreign_commits.py",)
LOOKED = ("unit/tier/test_tier_commit_watch.py",)
LEFT = ("unit/tier/test_tier_as_left.py",)
JUDGED = ("unit/tier/test_tier_wholeness.py",)
CONTRACT = ("contract/test_tier_contract.py",)
SIMULATED = ("contract/test_tier_contract_simulated.py",)
ACCEPTED = ("unit/tier/test_tier_acceptance.py",)
UNDONE = ("unit/tier/test_tier_undo.py",)
HELD = ("unit/replica/test_replica_tiering_holder.py",)
VERIFIED = ("unit/cli/test_cli_tier.py",)
COPIED = ("unit/replica/test_replica_tiering_copier.py",)
CHECKED = ("unit/replica/test_replica_tiering_checker.py",)

TOLD = (
    mutant(
        "optimize-told-as-a-change",
        "OPTIMIZE would stop all copies",
        COMMITS,
        "not commit.is_ours and any(file.changes_data for file in (*added, *removed))",
        "not commit.is_ours",
        LEDGER,
    ),
    mutant(
        "removed-rows-no-change",
        "a RESTORE only removes files: local disks let go of the only readable rows",
        COMMITS,
        "any(file.changes_data for file in (*added, *removed))",
        "any(file.changes_data for file in added)",
        LEDGER,
    ),
    mutant(
        "restored-rows-stay-a-change",
        "the operator has put back what was removed, and copies do not go on",
        COMMITS,
        "            if self.removed.pop(file.key, None) is None:\n                self.added[file.key] = file.path\n\n",
        "            self.added[file.key] = file.path\n\n",
        LEDGER,
    ),
    mutant(
        "optimize-washes-added-rows",
        "OPTIMIZE puts the rows of another program into a new file, and they count as the tier's",
        COMMITS,
        "        if not is_ours and any(file.key in self.added for file in removed):\n",
        "        if False:\n",
        LEDGER,
    ),
    mutant(
        "optimize-takes-copies-out",
        "the copies that OPTIMIZE merged with a row of others do not come back: an undo empties the partition",
        COMMITS,
        "            self.note(added, removed)\n            return\n",
        "            self.note(added, [file for file in removed if file.key in self.added])\n            return\n",
        (*LEDGER, *UNDONE),
    ),
    mutant(
        "one-partition-vouches-for-all",
        "a copy of another partition hides the change from the next process",
        COMMITS,
        "        if not self._changes:\n            self.clean_to",
        "        if commit.is_ours:\n            self.clean_to",
        LEDGER,
    ),
    mutant(
        "planned-undo-changes-by-itself",
        "an undo that was planned for one change is committed over the next one",
        COMMITS,
        "Change(each.first, dict(each.added), dict(each.removed))",
        "each",
        UNDONE,
    ),
    mutant(
        "new-process-trusts-the-newest-commit",
        "a copy may have come behind a change that was made while it was judged",
        WATCH,
        "return (commit.clean_to if version - commit.clean_to <= _READ_MAX else version), known",
        "return number, known",
        LOOKED,
    ),
    mutant(
        "rewritten-files-judged-once",
        "an OPTIMIZE with a bug loses rows after the first look",
        WATCH,
        "            self._whole -= {file.partition for file in (*commit.added, *commit.removed)}\n",
        "            pass\n",
        LOOKED,
    ),
    mutant(
        "gap-between-files-not-seen",
        "a table whose log does not tell who removed rows looks whole",
        WHOLE,
        "        if end is not None and first != end:\n",
        "        if False:\n",
        JUDGED,
    ),
    mutant(
        "rows-not-counted",
        "files that overlap may have rows twice",
        WHOLE,
        "None not in counts and rows != behind - first",
        "None not in counts and rows < behind - first",
        JUDGED,
    ),
    mutant(
        "lost-end-not-seen",
        "rows are gone from the end, and the log of the table was cut",
        AS_LEFT,
        "    if end != last + 1:\n",
        "    if False:\n",
        LEFT,
    ),
)

REFUSED = (
    mutant(
        "copy-behind-a-change",
        "a RESTORE that nobody noticed: the next copy was committed behind the gap",
        DELTA,
        "        require_as_left(table, self._settings.cluster_id, lineage)\n",
        "        pass\n",
        CONTRACT,
    ),
    mutant(
        "read-back-of-a-changed-table",
        "a copy is read back, and local disks let go of rows before it that are gone from the table",
        READS,
        "            require_as_left(view.table, self._settings.cluster_id, lineage)\n",
        "            pass\n",
        CONTRACT,
    ),
    mutant(
        "takeover-of-a-changed-table",
        "what somebody removed is superseded for good",
        ADOPTION,
        "            require_as_left(self._table, self._cluster_id, known)\n",
        "            pass\n",
        CONTRACT,
    ),
    mutant(
        "takeover-empties-a-short-table",
        "the table was restored to a version before the log: all rows that were left went",
        FILES,
        "        if (cut := cut_off(pieces, request.epochs, request.log_start, parts)) is not None:\n",
        "        if (cut := cut_off(pieces, request.epochs, request.log_start, parts)) is not None and False:\n",
        CONTRACT,
    ),
    mutant(
        "simulated-takeover-empties-a-short-table",
        "the simulated tier has to refuse what the real one refuses",
        "raftlake.sim.tier",
        "            if (cut_by := cut_off(pieces, request.epochs, request.log_start, parts)) is not None:\n",
        "            if (cut_by := cut_off(pieces, request.epochs, request.log_start, parts)) is not None and False:\n",
        SIMULATED,
    ),
    mutant(
        "disks-lost-and-rows-twice",
        "`recover --from-tier` begins from a table that shows an offset twice",
        INVENTORY,
        "        if (fault := shown_files(self._table, facts.lineage)[1]) is not None:\n",
        "        if (fault := shown_files(self._table, facts.lineage)[1]) is not None and False:\n",
        ("unit/tier/test_tier_inventory.py",),
    ),
    mutant(
        "disks-let-go-of-what-a-restore-removed",
        "it was read back before the RESTORE: the local log has the only rows",
        ENTRIES,
        "        return self.start_offset if self.is_held else self.safe_offset\n",
        "        return self.safe_offset\n",
        ("unit/tier/test_tier_entries.py",),
    ),
    mutant(
        "hold-never-ends",
        "local disks run full after the table was mended",
        HOLDER,
        "            self._say(standing, is_held=False)\n",
        "            pass\n",
        HELD,
    ),
    mutant(
        "store-without-an-answer-ends-the-hold",
        "nobody knows whether the change is undone",
        HOLDER,
        "_NO_WORD = (TierFailure.CHANGED, TierFailure.UNKNOWN, TierFailure.UNUSABLE)",
        "_NO_WORD = (TierFailure.CHANGED, TierFailure.UNUSABLE)",
        HELD,
    ),
    mutant(
        "refused-steps-wait-after-the-undo",
        "status tells of a change that is undone",
        HOLDER,
        "            step.forget_failure()\n",
        "            pass\n",
        HELD,
    ),
    mutant(
        "hold-changes-more",
        "a node that holds a partition may not move its end",
        GATE,
        "        is_hold = wanted == replace(standing, is_held=wanted.is_held)\n",
        "        is_hold = True\n",
        ("unit/replica/test_replica_kv_tier_gate.py",),
    ),
)

MENDED = (
    mutant(
        "keys-made-anew-over-a-hole",
        "`rebuild-metadata` said 'made anew' over a table with a hole",
        ACCEPT,
        "    if fault is not None:\n",
        "    if False:\n",
        CONTRACT,
    ),
    mutant(
        "keys-made-anew-over-a-lost-beginning",
        "a table without its first rows is a gapless run too",
        ACCEPT,
        "    if begin is not None and start is not None and start > begin:\n",
        "    if False:\n",
        CONTRACT,
    ),
    mutant(
        "key-forgets-where-the-table-began",
        "the tier cannot know it",
        REBUILD,
        "is_known = isinstance(known, Tiered) and known.recovery == recovery_of(self._kv.machine)",
        "is_known = False",
        ("unit/replica/test_replica_tiering_rebuild.py",),
    ),
    mutant(
        "rows-of-others-taken-unread",
        "rows that were put back by hand have to be those of the log",
        ACCEPT,
        "        _require_batches(table, lineage, files, loader)\n",
        "",
        ACCEPTED,
    ),
    mutant(
        "late-copy-behind-a-short-table",
        "a copy that was judged before the table was cut short comes behind the gap",
        ACCEPT,
        "        transactions={end_app(cluster_id, lineage): end - 1},\n",
        "        transactions={},\n",
        (*CONTRACT, *ACCEPTED),
    ),
    mutant(
        "undo-leaves-what-was-removed",
        "the rows of a RESTORE do not come back",
        UNDO,
        "if file.path in going), *comes]",
        "if file.path in going)]",
        UNDONE,
    ),
    mutant(
        "undo-leaves-what-was-added",
        "rows stay there twice",
        UNDO,
        "*(remove_action(file) for file in shown if file.path in going), ",
        "",
        UNDONE,
    ),
    mutant(
        "undo-over-a-later-change",
        "half of what was done is taken back, and the rest counts as the tier's",
        UNDO,
        "        if self._table.watch().changes() != changes:\n",
        "        if False:\n",
        UNDONE,
    ),
    mutant(
        "undo-of-what-is-not-whole",
        "an undo may leave a hole, and copies go on behind it",
        UNDO,
        "        if fault is not None:\n            what = ",
        "        if False:\n            what = ",
        UNDONE,
    ),
    mutant(
        "undo-cuts-the-beginning",
        "files that begin later make one run too, and none at all make no fault",
        UNDO,
        "        if fault is None and begin is not None and (",
        "        if False and (",
        UNDONE,
    ),
    mutant(
        "undo-of-a-deleted-topic",
        "rows of a deleted topic come back",
        UNDO,
        "{} if self._is_dropped else",
        "{} if False else",
        UNDONE,
    ),
    mutant(
        "undo-without-a-yes",
        "a command that changes a table asks first",
        "raftlake.cli.tier_undo",
        "    if not is_agreed:\n        raise",
        "    if False:\n        raise",
        ("unit/cli/test_cli_tier_undo.py",),
    ),
)

#: What operators are told where tables are gone or damaged.
WORDS = (
    mutant(
        "damaged-file-without-advice",
        "status told of a page's checksum, and not that the file is to be put back",
        "raftlake.tier.ordered_rows",
        'super().__init__(TierFailure.DAMAGED, f"{what}: {RESTORE}")',
        "super().__init__(TierFailure.DAMAGED, what)",
        ("unit/tier/test_tier_ordered_rows.py",),
    ),
    mutant(
        "damaged-file-with-its-advice-twice",
        "`verify` has the advice of the kind of a finding",
        "raftlake.tier.file_checks",
        "            what = problem.what.removeprefix(",
        "            what = problem.error.reason.removeprefix(",
        ("unit/tier/test_tier_table_reads.py",),
    ),
    mutant(
        "delete-the-topic-of-an-unmounted-share",
        "the records of a table that is only out of sight were given up",
        "raftlake.tier.topic_table",
        "is gone: {PUT_BACK}",
        "is gone: put it back, or delete and create the topic",
        ("unit/tier/test_tier_delta_table.py",),
    ),
    mutant(
        "disks-lost-and-one-table-named",
        "three damaged tables took three runs",
        INVENTORY,
        "            bad.append(problem)\n",
        "            raise\n",
        ("unit/tier/test_tier_inventory.py",),
    ),
    mutant(
        "store-without-an-answer-told-of-each-table",
        "each table takes as long as a call may",
        INVENTORY,
        "problem.error.failure is TierFailure.UNKNOWN:\n",
        "False:\n",
        ("unit/tier/test_tier_inventory.py",),
    ),
    mutant(
        "tables-unread-where-the-environments-nodes-are-gone",
        "the first step after the loss of all disks read no table",
        "raftlake.cli.tier",
        "            if self._is_required:\n",
        "            if True:\n",
        VERIFIED,
    ),
    mutant(
        "keys-asked-for-and-not-compared",
        "-b asks for keys: without them the answer is no answer",
        "raftlake.cli.tier",
        "            if self._is_required:\n",
        "            if False:\n",
        VERIFIED,
    ),
    mutant(
        "nodes-that-are-gone-asked-for-each-table",
        "each table takes seconds, and says so again",
        "raftlake.cli.tier",
        "            self._servers = None\n            return None\n",
        "            return None\n",
        VERIFIED,
    ),
)


REMOVED = (
    mutant(
        "removed-copy-finished-again",
        "keys made anew ended where it began, and local disks let go of the only rows",
        COPIER,
        "            self._shown, self._own = None, None\n",
        "            pass\n",
        (*COPIED, *CHECKED),
    ),
    mutant(
        "copy-made-twice-under-one-name",
        "its key changed before it was finished: the table shows it already",
        COPIER,
        "            self._shown, self._own = None, None\n",
        "            self._shown = None\n",
        COPIED,
    ),
    mutant(
        "check-of-another-table-counts",
        "the keys were made anew while a copy was read back",
        CHECKER,
        "standing.version == version and _is_next(standing.tiered, segment)",
        "_is_next(standing.tiered, segment)",
        CHECKED,
    ),
    mutant(
        "facts-beside-a-removed-copy-count",
        "a check has to find the rows in the table as it is",
        READS,
        "            if copies.id_at(offset) != segment.segment_id:\n",
        "            if False:\n",
        CONTRACT,
    ),
    mutant(
        "keys-made-anew-before-the-log-begins",
        "`rebuild-metadata` gave up rows that were neither in the table nor on a disk",
        ACCEPT,
        "    if reach is not None and end is not None and end < reach:\n",
        "    if False:\n",
        CONTRACT,
    ),
    mutant(
        "keys-made-anew-without-the-log-of-the-leader",
        "nobody tells where the log begins, and the table may end before it",
        REBUILD,
        "        self._accept(version, standing, reach)\n",
        "        self._accept(version, standing, None)\n",
        ("unit/replica/test_replica_tiering_rebuild.py",),
    ),
    mutant(
        "version-to-restore-is-the-change-itself",
        "RESTORE to it brings nothing back",
        "raftlake.tier.later_version",
        "            return before - 1\n",
        "            return before\n",
        ACCEPTED,
    ),
    mutant(
        "verify-advises-to-give-rows-up",
        "beside `undo` it said that rebuild-metadata makes the keys anew",
        "raftlake.tier.verify",
        "if finding.kind is not Kind.KEYS or (change is None and not is_told):",
        "if True:",
        ("unit/tier/test_tier_key_checks.py",),
    ),
)

TIER_FOREIGN = (*TOLD, *REFUSED, *MENDED, *WORDS, *REMOVED)
