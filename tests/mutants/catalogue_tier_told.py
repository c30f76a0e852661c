"""Bugs planted in what a node and `raftlake tier` tell operators of tables: false alarms, and words that are missing."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

LED = "raftlake.replica.tiering.led"
CURRENT = "raftlake.replica.tiering.current_keys"
READER = "raftlake.tier.reader"
VERIFY = "raftlake.tier.verify"
CLI = "raftlake.cli.tier"
LATE = ("unit/replica/test_replica_tiering.py",)
STARTED = ("unit/replica/test_replica_tiering_current_keys.py",)

JUDGED = (
    mutant(
        "table-judged-by-the-keys-of-an-old-snapshot",
        "after kill -9 of all nodes: 'the records between them are gone', and nothing was",
        LED,
        "        if self.is_busy or not self._keys.are_here:\n",
        "        if self.is_busy:\n",
        STARTED,
    ),
    mutant(
        "keys-current-without-an-answer",
        "a read that the quorum did not answer proves nothing",
        CURRENT,
        "        self.are_here = result.error is ErrorCode.NONE\n",
        "        self.are_here = True\n",
        STARTED,
    ),
    mutant(
        "keys-asked-for-once",
        "a leader whose first read failed copies nothing for ever",
        CURRENT,
        "        self._is_asking = False\n        self.are_here",
        "        self.are_here",
        STARTED,
    ),
)

VERIFIED = ("unit/tier/test_tier_verify.py",)
PRINTED = ("unit/cli/test_cli_tier.py",)

WHOSE = (
    mutant(
        "emptied-table-taken-for-a-deleted-topics",
        "rows that somebody else removed must be found",
        READER,
        "bool(epochs) and all(epoch == LAST_EPOCH for epoch in epochs)",
        "bool(epochs)",
        VERIFIED,
    ),
    mutant(
        "deleted-topics-table-told-as-damaged",
        "`verify` failed for good after the deletion of a topic",
        READER,
        "        if self.partitions():\n            return False\n        epochs",
        "        if not self.partitions():\n            return False\n        epochs",
        VERIFIED,
    ),
    mutant(
        "topic-deleted-after-an-election-told-as-damaged",
        "the fences of an older incarnation stand there before the topic is deleted",
        READER,
        "self._epoch(index, self.newest_incarnation(index)) for",
        "self._transaction(epoch_app(self.cluster_id, Lineage(self._group(index), self.newest_incarnation(index) + 1))) for",
        VERIFIED,
    ),
    mutant(
        "emptied-table-of-a-living-topic-is-well",
        "a table that is dropped while the quorum has the topic has lost its rows",
        CLI,
        "    if topic_id not in after.topics and history.is_dropped:\n",
        "    if history.is_dropped:\n",
        PRINTED,
    ),
    mutant(
        "other-topics-table-told-as-well",
        "cp -r of a table over that of another topic",
        VERIFY,
        "    if (elsewhere := history.elsewhere) is not None:\n        return",
        "    if (elsewhere := None) is not None:\n        return",
        VERIFIED,
    ),
    mutant(
        "tables-told-apart-by-their-ids-alone",
        "the place has the name of the topic too",
        READER,
        "named == (self.topic, self.topic_id)",
        "named[1] == self.topic_id",
        VERIFIED,
    ),
    mutant(
        "recovery-reads-a-table-in-the-place-of-another",
        "a recovery would make one topic twice, and lose the other",
        "raftlake.tier.inventory",
        "if (elsewhere := history.elsewhere) is not None:",
        "if (elsewhere := None) is not None:",
        ("unit/tier/test_tier_inventory.py",),
    ),
)

PARTS = "raftlake.replica.tiering.unreadable"
READS = "raftlake.replica.tiering.remote_reads"
KEPT = ("unit/replica/test_replica_tiering_unreadable.py",)
READ = ("unit/replica/test_replica_tiering_remote_reads.py",)

FOR_CONSUMERS = (
    mutant(
        "unreadable-file-told-after-it-was-put-back",
        "status names a file until a read of it succeeds",
        READS,
        "            self.tally.unreadable.read(wanted.lineage.group, wanted.offset, piece.end_offset)\n",
        "",
        READ,
    ),
    mutant(
        "other-file-read-ends-the-alarm",
        "one consumer that gets on hides another one that hangs",
        PARTS,
        "        return self.first is not None and self.last is not None and self.first < end and start <= self.last\n",
        "        return True\n",
        KEPT,
    ),
    mutant(
        "store-that-answers-again-still-told",
        "an outage that is over stands in the status of each place that was asked for",
        PARTS,
        "        if self.error.failure is TierFailure.UNKNOWN:\n            return True\n        return self.first",
        "        return self.first",
        KEPT,
    ),
    mutant(
        "what-cannot-be-read-grows-without-bound",
        "a table with many damaged files costs the node no memory",
        PARTS,
        "        elif len(self._entries) > ENTRIES_MAX:\n",
        "        elif False:\n",
        KEPT,
    ),
    mutant(
        "unreadable-place-never-looked-at-again",
        "nobody reads there any more, and the alarm stays for ever",
        READS,
        "            self.ask(partition, failed.offset)\n            self._look_later(told, failed)\n",
        "            pass\n",
        READ,
    ),
    mutant(
        "unreadable-place-looked-at-once",
        "a file that is put back late",
        READS,
        "            self.ask(partition, failed.offset)\n            self._look_later(told, failed)\n",
        "            self.ask(partition, failed.offset)\n            told.is_awaited = True\n",
        READ,
    ),
    mutant(
        "what-retention-ended-told-as-unreadable",
        "nobody can read what is gone for good",
        READS,
        "            self.tally.unreadable.forget(partition.group, told)\n        else:",
        "            pass\n        if True:",
        READ,
    ),
    mutant(
        "status-silent-on-what-consumers-cannot-read",
        "consumers hang on a file, and status says -",
        "raftlake.cli.tier_facts",
        "for each in (error, *unreadable) if each",
        "for each in (error,) if each",
        PRINTED,
    ),
)

LOGGED = ("unit/tier/test_tier_store_log.py",)

WORDS = (
    mutant(
        "place-of-tables-taken-for-a-damaged-table",
        "the tier.uri as TABLE: 'there is no Delta table', and no word of --tier-uri",
        CLI,
        "        if has_tables(uri):\n",
        "        if False:\n",
        PRINTED,
    ),
    mutant(
        "any-directory-taken-for-a-place-of-tables",
        "advice that leads nowhere",
        "raftlake.cli.tier_undo",
        "any(table_of(below) is not None for below in tables_at(uri))",
        "any(True for below in tables_at(uri)) or True",
        PRINTED,
    ),
    mutant(
        "directories-of-a-table-told-as-broken-tables",
        "--tier-uri with one table: 'move away' its _delta_log",
        READER,
        "    if _LOG in names:\n",
        "    if False:\n",
        PRINTED,
    ),
    mutant(
        "sql-of-a-table-that-is-not-there",
        "a misspelt place becomes a script",
        CLI,
        "    return uri if local_path(uri) is None else _history(uri).uri\n",
        "    return uri\n",
        PRINTED,
    ),
    mutant(
        "any-scheme-taken-for-a-directory",
        "ftp://x/y: 'there is no directory'",
        CLI,
        '    if "://" in place:\n',
        "    if False:\n",
        PRINTED,
    ),
    mutant(
        "immutable-directory-told-as-a-late-commit",
        "'may come later: unable to open file', and no word of rights",
        "raftlake.tier.commits",
        "    if failed is not None and (advice := advice_on(failed)):\n",
        '    if failed is not None and (advice := ""):\n',
        ("unit/tier/test_tier_delta_table.py",),
    ),
    mutant(
        "search-for-credentials-told-in-long-lines",
        "the error is the sixth line, behind five of a thousand letters",
        "raftlake.tier.store_log",
        'LEVELS = "warn,aws_config=error"',
        'LEVELS = "warn"',
        LOGGED,
    ),
    mutant(
        "levels-of-the-operator-replaced",
        "who looks for a fault of the store sees nothing",
        "raftlake.tier.store_log",
        "    environ.setdefault(VARIABLE, LEVELS)\n",
        "    environ[VARIABLE] = LEVELS\n",
        LOGGED,
    ),
)

WAYS_OUT = (
    mutant(
        "column-of-others-stops-the-tier",
        "a table with a column more is copied to no longer, and no command mends it",
        "raftlake.tier.schema",
        "        if name not in wanted and not field.is_nullable:\n",
        "        if name not in wanted:\n",
        ("unit/tier/test_tier_as_left.py",),
    ),
    mutant(
        "column-that-copies-cannot-fill-passed-over",
        "delta-rs refuses each copy, and nobody says why",
        "raftlake.tier.schema",
        "        if name not in wanted and not field.is_nullable:\n",
        "        if False:\n",
        ("unit/tier/test_tier_schema.py",),
    ),
    mutant(
        "oldest-commits-looked-at-alone",
        "the damaged commit of a long table is not named",
        "raftlake.tier.log_damage",
        "names[: -_COMMITS_MAX - 1 : -1]",
        "names[:1]",
        ("unit/tier/test_tier_log_damage.py",),
    ),
    mutant(
        "longest-name-of-a-directory-refused",
        "a topic with a name of 232 characters is not copied",
        "raftlake.tier.store",
        "len(os.fsencode(place.name)) <= NAME_BYTES_MAX",
        "len(os.fsencode(place.name)) < NAME_BYTES_MAX",
        ("unit/tier/test_tier_delta_table.py",),
    ),
    mutant(
        "topic-without-a-table-warned-of-for-ever",
        "the alarm outlives the topic, and nobody can empty a table that cannot be there",
        "raftlake.tier.delta_table",
        "        if not fits(table_uri(self._settings.uri, group)):\n",
        "        if False:\n",
        ("unit/tier/test_tier_delta_table.py",),
    ),
    mutant(
        "deleted-records-need-rows",
        "a partition whose file is lost for good is never copied again",
        "raftlake.replica.tiering.rebuild",
        "max(standing.start_offset, self._kv.state.records_from(self._group))",
        "standing.start_offset",
        ("unit/replica/test_replica_tiering_rebuild.py",),
    ),
    mutant(
        "lost-beginning-needs-no-rows",
        "the second of two: deleted records below where the table began",
        "raftlake.replica.tiering.rebuild",
        "max(standing.start_offset, self._kv.state.records_from(self._group))",
        "self._kv.state.records_from(self._group) or standing.start_offset",
        ("unit/replica/test_replica_tiering_rebuild.py",),
    ),
    mutant(
        "late-copies-not-told",
        "the table is hours behind, no copy fails, and the health check says nothing",
        "raftlake.replica.tiering.tiering",
        "if wait[0] > LATE_LAGS *",
        "if wait[0] > 10 * LATE_LAGS *",
        LATE,
    ),
    mutant(
        "failing-copies-told-as-late",
        "'do not fail', beside the error with which they fail",
        "raftlake.replica.tiering.tiering",
        "if led.failing is None and watched.waits_since_ms is not None",
        "if watched.waits_since_ms is not None",
        LATE,
    ),
    mutant(
        "time-of-a-lag-that-is-over",
        "a row says that nothing waits, and for how long it has waited",
        "raftlake.cli.tier_facts",
        '0 if lag == 0 else said.get("lagMs")',
        'said.get("lagMs")',
        ("unit/cli/test_cli_tier.py",),
    ),
)

TIER_TOLD = (*JUDGED, *WHOSE, *FOR_CONSUMERS, *WORDS, *WAYS_OUT)
