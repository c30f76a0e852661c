"""Bugs planted in the tier that tests of the house found at the first try: boundaries, bounds, and the order of steps."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

TIERING = "raftlake.replica.tiering."
TIER = "raftlake.tier."
PROCESS = "raftlake.runtime.tier_process"
FROM_TIER = "raftlake.runtime.recovery.from_tier"
CONTRACT = "contract/test_tier_contract.py"
LOG = ("unit/replica/test_replica_tiering_remote_log.py",)
PIECES = ("unit/replica/test_replica_tiering_pieces.py",)
READS = ("unit/replica/test_replica_tiering_remote_reads.py",)
SEARCHES = ("unit/replica/test_replica_tiering_remote_searches.py",)
REMOVED = ("unit/replica/test_replica_tiering_remover.py",)
GONE = ("unit/replica/test_replica_tiering_gone_topics.py",)
ENTRIES = ("unit/tier/test_tier_entries.py",)
DELTA = ("unit/tier/test_tier_delta_table.py", "unit/tier/test_tier_delta_deletes.py")
TABLE_READS = ("unit/tier/test_tier_table_reads.py",)
ADOPTION = ("unit/tier/test_tier_adoption.py",)
WORKER = ("unit/runtime/test_runtime_tier_process.py",)
RECOVERED = ("unit/runtime/test_runtime_recovery_from_tier.py",)

OFFSETS = (
    mutant(
        "copies-that-end-at-the-local-start-do-not-count",
        "the seam itself: the table ends where the local log begins",
        TIERING + "remote_log",
        "tiered.end_offset >= partition.log.start_offset else None",
        "tiered.end_offset > partition.log.start_offset else None",
        LOG,
    ),
    mutant(
        "end-of-an-unknown-epoch-with-that-epoch",
        "KIP-320: the answer names the largest epoch up to the one that is asked for",
        TIERING + "remote_log",
        "return OffsetAndEpoch(epochs[index][1], epochs[index - 1][0])",
        "return OffsetAndEpoch(epochs[index][1], epoch)",
        LOG,
    ),
    mutant(
        "empty-table-has-a-last-offset",
        "LATEST_TIERED of a partition of which nothing is copied yet",
        TIERING + "remote_log",
        "return None if tiered is None or tiered.end_offset == tiered.start_offset else tiered.end_offset",
        "return None if tiered is None else tiered.end_offset",
        LOG,
    ),
    mutant(
        "epoch-that-begins-at-the-new-start-forgotten",
        "a delete ends exactly where an epoch begins",
        TIER + "entries",
        "enumerate(self.epochs) if offset <= until)",
        "enumerate(self.epochs) if offset < until)",
        ENTRIES,
    ),
    mutant(
        "epochs-in-a-key-without-an-end",
        "a partition with a new leader every minute",
        TIER + "entries",
        "(more[1:] if is_known else more))[-EPOCHS_MAX:]",
        "(more[1:] if is_known else more))",
        ENTRIES,
    ),
    mutant(
        "checks-behind-the-end-of-the-copies",
        "a spoilt key lets local disks delete what no table has",
        TIER + "entries",
        'integer(fields["checkedOffset"], 0, end)',
        'integer(fields["checkedOffset"], 0, OFFSET_MAX)',
        ENTRIES,
    ),
    mutant(
        "segment-that-ends-with-the-copies-planned-again",
        "a range without records is announced",
        TIER + "plan",
        "if segment.end_offset <= copied_end:",
        "if segment.end_offset < copied_end:",
        ("unit/tier/test_tier_plan.py",),
    ),
    mutant(
        "file-judged-by-the-first-file-that-has-a-time",
        "old files keep all younger ones company",
        TIER + "retention",
        "for each in files[index:] if",
        "for each in files if",
        ("unit/tier/test_tier_retention.py",),
    ),
    mutant(
        "copy-at-the-start-loses-its-key",
        "DELETE_FINISHED drops the first copy that stays",
        TIERING + "remover",
        "and segment.base_offset < start",
        "and segment.base_offset <= start",
        REMOVED,
    ),
    mutant(
        "leftover-that-ends-at-the-start-stays",
        "a file beside each deleted copy stays for ever",
        TIER + "leftovers",
        "if end is not None and end <= start:",
        "if end is not None and end < start:",
        ("unit/tier/test_tier_leftovers.py",),
    ),
    mutant(
        "fresh-table-begins-anywhere-with-zero",
        "the first epoch of files in a rewritten table",
        TIER + "delta_table",
        "else 0 if last is None else last + 1\n",
        "else 0\n",
        DELTA,
    ),
    mutant(
        "log-that-goes-on-where-the-table-ends-has-state-built",
        "a follower whose local log begins at the leader's needs nothing of the tier",
        TIERING + "remote_log_aux",
        "if not 0 <= start.offset < local.offset:",
        "if not 0 <= start.offset <= local.offset:",
        ("unit/replica/test_replica_tiering_remote_log_aux.py",),
    ),
    mutant(
        "state-at-the-high-watermark-taken",
        "it would put committed records of the log aside for nothing",
        "raftlake.raft.handlers.remote_log_aux",
        "event.snapshot_id.offset <= group.high_watermark:",
        "event.snapshot_id.offset < group.high_watermark:",
        ("unit/raft/test_raft_remote_log_aux.py",),
    ),
    mutant(
        "partition-behind-the-last-one-answered",
        "numbers begin with 0",
        "raftlake.runtime.http.tier",
        "partition >= known.partitions",
        "partition > known.partitions",
        ("unit/runtime/test_runtime_http_tier.py",),
    ),
    mutant(
        "file-that-begins-where-the-copies-end-planned",
        "a topic of which nothing is copied opens a table",
        "pyspark_raftlake.tables",
        "its = [each for each in its if each.start < tiered[each.partition]]",
        "its = [each for each in its if each.start <= tiered[each.partition]]",
        ("connector/test_connector_tables.py",),
    ),
    mutant(
        "rows-of-another-incarnation-behind-the-last-copy",
        "OPTIMIZE puts incarnations into one file",
        TIER + "last_segment",
        "if behind is not None and behind.is_of(lineage.incarnation):",
        "if behind is not None:",
        ("unit/tier/test_tier_last_segment.py",),
    ),
)

BOUNDS = (
    mutant(
        "piece-cut-amid-a-batch",
        "a consumer gets the batch that the high watermark has not passed",
        TIERING + "pieces",
        "bisect_right(self._ends, limit)",
        "len(self._ends)",
        PIECES,
    ),
    mutant(
        "read-piece-keeps-its-room",
        "pieces that nobody reads any more hold up the calls of others",
        TIERING + "pieces",
        "return self.given_to < self.end_offset and now_ms",
        "return now_ms",
        PIECES,
    ),
    mutant(
        "bytes-of-dropped-pieces-count",
        "the cache is full of nothing",
        TIERING + "pieces",
        "        self.size -= len(piece.data)\n",
        "",
        PIECES,
    ),
    mutant(
        "pieces-without-a-number",
        "very many small pieces: their headers take more than their bytes",
        TIERING + "pieces",
        " or len(self._pieces) > PIECES_MAX)",
        ")",
        PIECES,
    ),
    mutant(
        "failing-reads-pause-no-longer",
        "a store that is down is asked by all consumers each second",
        TIERING + "remote_reads",
        "min(BACKOFF_MS << min(count, 10), BACKOFF_MS_MAX)",
        "BACKOFF_MS",
        READS,
    ),
    mutant(
        "piece-that-nobody-wants-read-all-the-same",
        "consumers that went away hold up the others",
        TIERING + "remote_reads",
        "if wanted.waiters or self._engine.now_ms < wanted.asked_at_ms + PATIENCE_MS:",
        "if True:",
        READS,
    ),
    mutant(
        "searches-without-a-number",
        "a client that asks for times in a loop",
        TIERING + "remote_searches",
        "elif self._count >= QUESTIONS_MAX:",
        "elif False:",
        SEARCHES,
    ),
    mutant(
        "searches-wait-for-ever",
        "the client gave up long ago, and its question has its turn",
        TIERING + "remote_searches",
        " or self._engine.now_ms >= search.request.asked_at_ms + PATIENCE_MS",
        "",
        SEARCHES,
    ),
    mutant(
        "decoded-keys-of-deleted-topics-stay",
        "topics come and go for years",
        TIERING + "remote_log",
        "        self._decoded.pop(partition.group, None)\n",
        "        pass\n",
        LOG,
    ),
    mutant(
        "tables-stay-open-without-a-number",
        "each one has the list of its files in memory",
        TIER + "delta_table",
        "        if len(self._tables) > _TABLES_MAX:\n            self._tables.popitem(last=False)\n",
        "",
        DELTA,
    ),
    mutant(
        "cursors-stay-open-without-a-number",
        "each one has some MiB of rows",
        TIER + "table_reads",
        "            if len(self._cursors) > _CURSORS_MAX:\n                self._cursors.popitem(last=False)\n",
        "",
        TABLE_READS,
    ),
    mutant(
        "facts-ask-each-copy",
        "a table of a hundred thousand copies takes hours",
        TIER + "lineage_facts",
        "while len(found) < NEWEST and offset",
        "while offset",
        ("unit/tier/test_tier_lineage_facts.py",),
    ),
    mutant(
        "worker-that-fails-pauses-ever-longer",
        "an hour after a store is back nothing is copied yet",
        PROCESS,
        "min(max(2 * self._pause_seconds, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)",
        "max(2 * self._pause_seconds, PAUSE_SECONDS_MIN)",
        WORKER,
    ),
)

STEPS = (
    mutant(
        "keys-of-a-deleted-topic-that-changed-taken-for-gone",
        "a leader that did not know yet wrote there",
        TIERING + "gone_topics",
        "(outcome.result is None or not outcome.result.succeeded)",
        "outcome.result is None",
        GONE,
    ),
    mutant(
        "commit-answered-before-it-is-durable",
        "local path: delta-rs syncs nothing",
        TIER + "commits",
        "            table.sync(seen)\n",
        "",
        DELTA,
    ),
    mutant(
        "files-of-an-older-version-read",
        "OPTIMIZE and VACUUM: each read fails for files that are gone",
        TIER + "table_reads",
        "self.listed, self.lineages = list_files(self.table.table), {}",
        "self.listed = list_files(self.table.table)",
        TABLE_READS,
    ),
    mutant(
        "offset-behind-the-list-not-looked-for",
        "a consumer at the end of what was listed waits for some seconds",
        TIER + "table_reads",
        "        if not view.files(lineage).holding(request.offset):\n            view.look(self._now())\n",
        "",
        TABLE_READS,
    ),
    mutant(
        "facts-beside-a-copy-may-differ",
        "a file that was put back from another place is taken for checked",
        TIER + "table_reads",
        "if known is None or not _is_of_the_same_copy(known.segment, segment):",
        "if known is None:",
        TABLE_READS,
    ),
    mutant(
        "batch-of-a-later-leader-copied",
        "guarantee 4: what the log has is not what was asked for",
        TIER + "segment_file",
        "    if found and found[-1][0] > request.leader_epoch:\n",
        "    if False:\n",
        (CONTRACT,),
    ),
    mutant(
        "answer-does-not-end-the-pauses",
        "the first failure after a good year pauses as long as the last one before it",
        PROCESS,
        "                self._pause_seconds = 0.0\n                return answer",
        "                return answer",
        WORKER,
    ),
    mutant(
        "logs-begin-in-the-epoch-of-their-start",
        "leaders of later epochs have claimed the table: all that is copied is fenced off",
        FROM_TIER,
        "Epoch(max(partition.facts.leader_epoch, start.epoch))",
        "start.epoch",
        RECOVERED,
    ),
    mutant(
        "metadata-log-begins-in-epoch-zero",
        "leaders of the new quorum are older than those of the partitions",
        FROM_TIER,
        "        begin = metadata_start(newest, int(time.time()))\n",
        "        begin, newest = metadata_start(newest, int(time.time())), Epoch(0)\n",
        RECOVERED,
    ),
    mutant(
        "offsets-that-were-read-read-again",
        "a task that begins amid a file, or is tried again",
        "pyspark_raftlake.table_reader",
        "start = None if offsets is None or offsets.end <= position else offsets.start",
        "start = None if offsets is None else offsets.start",
        ("connector/test_connector_table_reader.py",),
    ),
    mutant(
        "files-that-do-not-tell-their-offsets-left-out",
        "somebody's OPTIMIZE writes no statistics",
        "pyspark_raftlake.seam",
        "return (*self._untold, *found)",
        "return tuple(found)",
        ("connector/test_connector_seam.py",),
    ),
    mutant(
        "older-recovery-adopts-again",
        "a leader of the recovery before the last one",
        TIER + "adoption",
        "        if begun != newest:\n",
        "        if False:\n",
        ADOPTION,
    ),
    mutant(
        "snapshot-for-a-partition-that-is-deleted",
        "its directory is gone meanwhile",
        TIERING + "remote_log_aux",
        "if self._maker is not None and (self.partition.deleted or not self._is_freezing):",
        "if self._maker is not None and not self._is_freezing:",
        ("unit/replica/test_replica_tiering_remote_log_aux.py",),
    ),
    mutant(
        "follower-that-builds-state-never-pauses",
        "a store that is down is asked in a loop",
        "raftlake.raft.handlers.remote_log_aux",
        "    building.failures += 1\n",
        "",
        ("unit/raft/test_raft_remote_log_aux.py",),
    ),
)

TIER_BOUNDARIES = (*OFFSETS, *BOUNDS, *STEPS)
