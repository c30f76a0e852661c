"""Bugs planted in the tier by a stranger to it: boundaries, bounds, what is told, and what OPTIMIZE does to files."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

TIERING = "raftlake.replica.tiering."
TIER = "raftlake.tier."
GATE = "raftlake.replica.kv.tier_gate"
STEPS = tuple(f"unit/replica/test_replica_tiering_{name}.py" for name in ("copier", "checker", "led", "remover"))
SERVICE = ("unit/replica/test_replica_tiering.py",)
GONE = ("unit/replica/test_replica_tiering_gone_topics.py",)
READS = ("unit/replica/test_replica_tiering_remote_reads.py",)
FETCHED = ("unit/replica/test_replica_apis_fetch_remote.py",)
JUDGED = ("unit/replica/test_replica_kv_tier_gate.py",)
ADOPTS = ("unit/replica/test_replica_tiering_adopter.py",)
ADOPTED = ("unit/tier/test_tier_adoption.py",)
DELETED = ("unit/tier/test_tier_delta_deletes.py",)
TABLE_READS = ("unit/tier/test_tier_table_reads.py",)
CONTRACT = ("contract/test_tier_contract.py",)

TOLD = (
    mutant(
        "claims-that-go-well-hide-copies-that-fail",
        "a store that takes small commits in time and no file: the status has no error, and the pause never grows",
        TIERING + "copier",
        "        if not self._has_failed:\n            self._succeed()\n",
        "        self._succeed()\n",
        STEPS,
    ),
    mutant(
        "refused-changes-of-keys-are-no-error",
        "nothing is copied, and nobody knows why",
        TIERING + "step",
        "        elif outcome.status is ProposeStatus.REFUSED:\n",
        "        elif False:\n",
        STEPS,
    ),
    mutant(
        "a-check-that-goes-well-hides-a-refusal",
        "CHECKED is refused each time, and the tier itself has no fault",
        TIERING + "step",
        "        if not self._is_refused:\n            self._settle()\n",
        "        self._settle()\n",
        STEPS,
    ),
    mutant(
        "error-of-a-mended-key-stays",
        "rebuild-metadata was run, nothing is left to copy, and the health check warns for ever",
        TIERING + "copier",
        "            self._settle()\n            return\n        if tiered.end_offset",
        "            return\n        if tiered.end_offset",
        STEPS,
    ),
    mutant(
        "error-of-a-file-that-retention-ended-stays",
        "the alarm names a file that is gone by right",
        TIERING + "checker",
        "            self._settle()\n            return\n",
        "            return\n",
        STEPS,
    ),
    mutant(
        "partition-with-an-error-not-looked-at",
        "nothing waits and nothing is due: no look finds that the error is gone",
        TIERING + "tiering",
        " or led.error is not None):",
        "):",
        SERVICE,
    ),
    mutant(
        "look-that-failed-waits-for-the-interval",
        "one call that failed is an alarm for hours",
        TIERING + "remover",
        "            self._next_look_ms = self._engine.now_ms\n            self._stumble(outcome)\n",
        "            self._stumble(outcome)\n",
        STEPS,
    ),
    mutant(
        "error-of-a-removal-that-is-not-due-stays",
        "rebuild-metadata mended the keys, and the table is small enough",
        TIERING + "remover",
        "self.error is not None and not self._may_end_something(standing.tiered)",
        "False",
        STEPS,
    ),
    mutant(
        "error-of-a-removal-stays-while-all-files-are-young",
        "the same, and what the last look told says that nothing is due",
        TIERING + "remover",
        "                self._settle()\n                return\n",
        "                return\n",
        STEPS,
    ),
    mutant(
        "table-that-is-not-emptied-holds-up-the-others",
        "somebody else's table at the place of one deleted topic keeps all other tables",
        TIERING + "gone_topics",
        "        self._gone = None\n        is_told",
        "        is_told",
        GONE,
    ),
    mutant(
        "dropped-table-hides-one-that-is-not",
        "warnings forget a table that cannot be emptied with the next one that can",
        TIERING + "gone_topics",
        "        self._errors.pop(gone.topic_id, None)\n",
        "        self._errors.clear()\n",
        GONE,
    ),
    mutant(
        "warnings-of-deleted-topics-without-an-end",
        "a store is down while thousands of topics are deleted",
        TIERING + "gone_topics",
        "if is_told or len(self._errors) < TOLD_MAX:",
        "if True:",
        GONE,
    ),
)

KEPT = (
    mutant(
        "local-log-deleted-by-the-keys-of-the-old-history",
        "after an unclean election the new leader's own records are deleted before the table is taken over",
        TIERING + "tiering",
        " or standing.tiered.recovery != recovery_of(machine):",
        ":",
        SERVICE,
    ),
    mutant(
        "gate-fails-over-a-start-behind-another-end",
        "a node's proposal raises in the turn of the metadata log's leader",
        GATE,
        "wanted == replace(standing, copying=copying)",
        "wanted == standing.start(copying)",
        JUDGED,
    ),
    mutant(
        "cut-copy-never-checked",
        "find answers with a later copy, and local disks keep all behind the cut",
        TIERING + "checker",
        "elif _is_next(standing.tiered, outcome.cut or outcome.segment):",
        "elif _is_next(standing.tiered, outcome.segment):",
        STEPS,
    ),
    mutant(
        "cut-copy-not-told",
        "guarantee 7: find tells the copy that holds the offset",
        TIER + "table_reads",
        "None if known.segment == holding else holding",
        "None",
        CONTRACT,
    ),
    mutant(
        "last-copy-told-as-optimize-left-it",
        "the facts beside it are others: each check of it fails",
        TIER + "last_segment",
        "if known is not None and known.is_shown_by(lineage) and known.segment.end_offset - 1 == last_offset:",
        "if False:",
        ("unit/tier/test_tier_last_segment.py",),
    ),
    mutant(
        "state-beside-a-copy-goes-with-its-first-rows",
        "z-order cut it: the facts of the table cannot be read any more, and retention stops",
        TIER + "leftovers",
        " if not any(file.may_have(name) for file in mixed)])",
        "])",
        DELETED,
    ),
    mutant(
        "retention-ends-amid-a-batch",
        "a consumer that begins where the partition begins gets an error for ever",
        TIER + "batch_reads",
        "    return base_of(store, uri, lineage, files, end)\n",
        "    return end\n",
        DELETED,
    ),
    mutant(
        "facts-begin-amid-a-batch",
        "keys that are made anew let the partition begin where no batch does",
        TIER + "batch_reads",
        "or base_of(store, uri, lineage, files, start) == start:",
        "or True:",
        DELETED,
    ),
    mutant(
        "epochs-of-a-lost-beginning-told",
        "the key that is made of them cannot be read",
        TIER + "lineage_facts",
        "return tuple(known[first:])",
        "return tuple(known)",
        ("unit/tier/test_tier_lineage_facts.py",),
    ),
    mutant(
        "verify-lets-any-table-begin-early",
        "only a file that somebody rewrote may hold rows from before the keys' start",
        TIER + "key_checks",
        "begins_before = shown.size is None and ",
        "begins_before = ",
        ("unit/tier/test_tier_key_checks.py",),
    ),
    mutant(
        "file-that-has-ended-ends-again",
        "where a rest of a batch keeps its file, the next removal raises",
        TIERING + "remover",
        "if until is not None and until > start:",
        "if until is not None:",
        STEPS,
    ),
    mutant(
        "bytes-that-are-in-the-table-count-twice",
        "replicas close segments elsewhere: too much goes",
        TIERING + "remover",
        "if each.base_offset >= tiered.end_offset)",
        "if each.end_offset > tiered.end_offset)",
        STEPS,
    ),
    mutant(
        "old-look-at-a-table-put-in-place-of-new-keys",
        "rebuild-metadata after a takeover: the keys end where the takeover did, and nothing is copied any more",
        TIERING + "adopter",
        "if self._facts is not None and self._facts[0] == standing.version:",
        "if self._facts is not None:",
        ADOPTS,
    ),
    mutant(
        "table-that-lost-its-copies-taken-over",
        "a share is not mounted after a recovery: all before the leader's log is hidden",
        TIER + "adoption",
        "            self._require_known()\n",
        "",
        CONTRACT,
    ),
    mutant(
        "only-the-newest-incarnation-has-shown-something",
        "a table that a recovery left empty is taken for a lost one by the next recovery",
        TIER + "adoption",
        "for incarnation in range(self._seen.newest + 1)]\n        ends",
        "for incarnation in (self._seen.newest,)]\n        ends",
        CONTRACT,
    ),
    mutant(
        "leader-never-says-that-copies-came-before-a-takeover",
        "the same as the one before it",
        TIERING + "adopter",
        "is_continued=standing.tiered.end_offset > standing.tiered.start_offset",
        "is_continued=False",
        ADOPTS,
    ),
    mutant(
        "file-kept-in-part-read-for-rows-that-come-back",
        "a power cut in the middle of a takeover: no later one ever succeeds",
        TIER + "adoption_files",
        "*self._superseded(kept)]",
        "*self._superseded(())]",
        ADOPTED,
    ),
    mutant(
        "file-kept-in-part-stays-so",
        "the same: what the election took out is lost",
        TIER + "adoption_files",
        "elif self._store.size(name) != files[0].size:",
        "elif self._store.size(name) is None:",
        ADOPTED,
    ),
    mutant(
        "part-of-a-copy-counts-as-all-of-it",
        "z-order cut a copy into files: total retention by bytes ends too little",
        TIER + "lineage_facts",
        "if known is not None and (known.segment.base_offset, known.segment.end_offset) == (base, end):",
        "if known is not None:",
        DELETED,
    ),
    mutant(
        "log-that-changed-claimed-for-nothing",
        "each claim is a commit, and no call was made",
        TIERING + "copier",
        "            self._own = None\n            self._claimed_at = self._version()\n",
        "            self._own = None\n",
        STEPS,
    ),
    mutant(
        "partition-that-no-topic-can-have-fenced",
        "a drop fences all partitions up to the highest that a key names: four billion",
        TIERING + "gone_topics",
        "if index.isdecimal() and int(index) < PARTITIONS_MAX:",
        "if index.isdecimal():",
        GONE,
    ),
)

CONSUMERS = (
    mutant(
        "state-of-other-offsets-given",
        "a file beside a copy was put back from another place, with its name and a checksum that fits",
        TIER + "known_copies",
        "if not segment.base_offset <= offset < segment.end_offset:",
        "if False:",
        TABLE_READS,
    ),
    mutant(
        "state-of-another-lineage-given",
        "the same, from another partition or from behind an election",
        TIER + "known_copies",
        "named.segment.segment_id != segment_id or not named.is_shown_by(self._lineage)",
        "named.segment.segment_id != segment_id",
        TABLE_READS,
    ),
    mutant(
        "copy-behind-nothing-shown",
        "a share is not mounted at the start: a new table begins in the middle, and local disks let go of records",
        TIER + "delta_table",
        "        if last is None and request.is_continued:\n",
        "        if False:\n",
        CONTRACT,
    ),
    mutant(
        "copier-never-says-that-copies-came-before",
        "the same",
        TIERING + "copier",
        "is_continued=tiered.end_offset > tiered.start_offset",
        "is_continued=False",
        STEPS,
    ),
    mutant(
        "folded-epochs-are-records-that-are-gone",
        "after a thousand epochs a consumer of the oldest records is sent elsewhere",
        TIERING + "remote_log",
        "return OffsetAndEpoch(first[1], epoch)",
        "return OffsetAndEpoch(self.start_offset(partition), epoch)",
        FETCHED,
    ),
    mutant(
        "closed-partition-keeps-its-place-in-the-line",
        "its turn comes when nothing is known of it: KeyError in the loop",
        TIERING + "remote_reads",
        "        self._line.pop(group, None)\n",
        "",
        READS,
    ),
    mutant(
        "read-that-goes-well-forgets-no-failure",
        "the next failure of an offset pauses as long as if it had never been read",
        TIERING + "remote_reads",
        "        self._failed.pop(wanted.key, None)\n",
        "",
        READS,
    ),
    mutant(
        "failures-remembered-without-an-end",
        "consumers ask for ever new offsets of a store that is down",
        TIERING + "remote_reads",
        "        if len(self._failed) > FAILED_MAX:\n            self._failed.popitem(last=False)\n",
        "",
        READS,
    ),
    mutant(
        "search-above-the-high-watermark",
        "a follower that lags tells offsets that it shows to nobody",
        TIERING + "remote_searches",
        "end_offset=min(tiered.end_offset, partition.high_watermark)",
        "end_offset=tiered.end_offset",
        ("unit/replica/test_replica_tiering_remote_searches.py",),
    ),
)

REBUILD = ("unit/replica/test_replica_tiering_rebuild.py",)
STARTS = ("unit/replica/test_replica_tiering_local_start.py",)

REBUILT = (
    mutant(
        "keys-made-anew-by-one-voters-disk",
        "RESTORE, rebuild-metadata, a new leader: nobody is served what lies between the table and its log",
        TIERING + "local_start",
        "done(LocalStarts(max(starts, default=Offset(0))",
        "done(LocalStarts(min(starts, default=Offset(0))",
        STARTS,
    ),
    mutant(
        "keys-made-anew-without-those-who-are-silent",
        "the voter that was down has deleted all that was read back",
        TIERING + "rebuild",
        "            reach = max(reach, standing.safe_offset)\n",
        "",
        REBUILD,
    ),
    mutant(
        "keys-made-anew-while-disks-still-delete",
        "a voter deletes up to the old end after it was asked",
        TIERING + "rebuild",
        "outcome.end_offset < standing.safe_offset",
        "outcome.end_offset < standing.start_offset",
        REBUILD,
    ),
    mutant(
        "own-start-told-before-the-keys-are-known",
        "the same: it had not heard that nothing more is deleted",
        "raftlake.replica.apis.replica_offsets",
        "node.kv.read(True, ",
        "node.kv.read(False, ",
        ("unit/replica/test_replica_apis_replica_offsets.py",),
    ),
    mutant(
        "recovery-takes-what-others-left",
        "a DELETE emptied the table before all disks were lost: nobody hears of the records again",
        TIER + "inventory",
        "change = None if self._may_be_changed else self._table.watch().change(index)",
        "change = None",
        ("unit/tier/test_tier_inventory.py",),
    ),
    mutant(
        "verify-takes-retention-for-a-fault",
        "one look in three at a table that retention works on tells of a file that is missing",
        TIER + "file_checks",
        '        if self._history.is_still_shown(file):\n            what = f"{lacking}',
        '        if True:\n            what = f"{lacking}',
        ("unit/tier/test_tier_file_checks.py",),
    ),
)

HOLDS = ("unit/replica/test_replica_tiering_holder.py",)
MARKERS = ("unit/replica/test_replica_tiering_remote_aborted.py",)
SHOWN = "raftlake.replica.apis.shown_records"
PROCESS = "raftlake.runtime.tier_process"
LANES = ("unit/runtime/test_runtime_tier_process.py",)

#: Found by reading: what one refusal, or one lack of a descriptor or a thread, would stop for good.
SHORTAGES = (
    mutant(
        "hold-that-was-refused-is-not-said-again",
        "local retention goes on deleting what the table has no more",
        TIERING + "holder",
        "        return not (self._is_refused and self._refused())\n",
        "        return True\n",
        HOLDS,
    ),
    mutant(
        "hold-that-was-refused-never-ends-its-error",
        "the table was mended meanwhile, and the health check warns as long as the node leads",
        TIERING + "holder",
        "        return not (self._is_refused and self._refused())\n",
        "        return not self._is_refused\n",
        HOLDS,
    ),
    mutant(
        "refusal-of-a-hold-outlives-its-reason",
        "the same: what the quorum refused is no error of a table that is as the tier left it",
        TIERING + "holder",
        "            self._settle()\n            self._let_go()\n",
        "            self._let_go()\n",
        HOLDS,
    ),
    mutant(
        "step-that-was-refused-before-is-refused-for-ever",
        "the hold ends and begins again without a pause: a proposal each few ms, and nothing is copied",
        TIERING + "step",
        'where it lasts."""\n        self._settle()\n',
        'where it lasts."""\n        self._succeed()\n',
        HOLDS,
    ),
    mutant(
        "marker-without-a-descriptor-stops-the-node",
        "a consumer reads committed records over the end of what only the table has",
        SHOWN,
        "    aborted = node.findings.guarded(partition.group, find)\n",
        "    aborted = find()\n",
        MARKERS,
    ),
    mutant(
        "records-given-whose-marker-cannot-be-read",
        "a consumer takes an aborted transaction for a committed one",
        SHOWN,
        "    aborted = node.findings.guarded(partition.group, find)\n",
        "    aborted = node.findings.guarded(partition.group, find) or []\n",
        MARKERS,
    ),
    mutant(
        "lane-ends-with-an-error-that-nobody-expects",
        "no call of the tier is answered any more, until the node is started again",
        PROCESS,
        "            except Exception as error:\n",
        "            except pickle.PickleError as error:\n",
        LANES,
    ),
    mutant(
        "worker-in-the-middle-of-a-failed-call-asked-again",
        "the next call gets the answer of the one before it",
        PROCESS,
        "        self._give_up(failed.reason)\n",
        "",
        LANES,
    ),
    mutant(
        "lane-whose-thread-cannot-be-started-takes-calls",
        "nobody answers them",
        PROCESS,
        "            try:\n                self._thread.start()\n",
        "            self._is_started = True\n            try:\n                self._thread.start()\n",
        LANES,
    ),
    mutant(
        "killed-worker-left-where-no-thread-can-wait-for-it",
        "a zombie, and descriptors that stay open",
        PROCESS,
        "            self._reap(REAP_SECONDS_MAX)\n",
        "            pass\n",
        LANES,
    ),
    mutant(
        "lane-waits-for-a-worker-that-hangs-in-a-read",
        "a disk that does not answer would hold all calls",
        PROCESS,
        "            self._reap(REAP_SECONDS_MAX)\n",
        "            self._reap()\n",
        LANES,
    ),
)

TIER_REVIEW = (*TOLD, *KEPT, *CONSUMERS, *REBUILT, *SHORTAGES)
