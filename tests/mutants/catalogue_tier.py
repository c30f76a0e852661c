"""Planted bugs in the remote tier: fences, the fate of commits, what is taken for the last copy, rows that are no records."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Mutant

DELTA = "raftlake.tier.delta_table"
TABLE_COMMITS = "raftlake.tier.commits"
TABLE = "raftlake.tier.topic_table"
LAST = "raftlake.tier.last_segment"
FILE = "raftlake.tier.segment_file"
SOURCE = "raftlake.tier.batch_source"
SCHEMA = "raftlake.tier.schema"
SEGMENT = "raftlake.arrow.segment"
PROCESS = "raftlake.runtime.tier_process"
BACKGROUND = "raftlake.background"

CONTRACT = ("contract/test_tier_contract.py",)
COMMITS = ("unit/tier/test_tier_delta_table.py",)
LASTS = ("unit/tier/test_tier_last_segment.py",)
SCHEMAS = ("unit/tier/test_tier_schema.py",)
SEGMENTS = ("unit/arrow/test_arrow_segment.py",)
PROCESSES = ("unit/runtime/test_runtime_tier_process.py",)
STANDS_BACK = ("unit/background/test_background.py",)
SETTINGS = ("unit/runtime/test_runtime_settings_tier.py",)

TIER: tuple[Mutant, ...] = (
    mutant(
        "tier-copy-beside-the-end-of-its-lineage",
        "Aiven: offsets came twice after a change of leaders",
        DELTA,
        "        if last is not None and last + 1 != request.base_offset:\n",
        "        if last is not None and last + 1 < request.base_offset:\n",
        CONTRACT,
    ),
    mutant(
        "tier-two-writers-both-committed",
        "Fluss 2648: the commit was not fenced, both jobs committed",
        TABLE,
        "app_transactions=[Transaction(app, version) for app, version in transactions.items()],",
        "app_transactions=[],",
        CONTRACT,
    ),
    mutant(
        "tier-copy-does-not-look-at-the-epoch",
        "a leader that was deposed goes on copying",
        TABLE_COMMITS,
        "    if newest is not None and newest > leader_epoch:\n",
        "    if False:\n",
        CONTRACT,
    ),
    mutant(
        "tier-copy-does-not-guard-the-epoch",
        "the commit of an older leader, based on what it saw before a claim, goes behind the claim",
        DELTA,
        "                    epoch_app(self._settings.cluster_id, lineage): request.leader_epoch,\n                },\n",
        "                },\n",
        CONTRACT,
    ),
    mutant(
        "tier-claim-without-a-commit-where-the-epoch-is-known",
        "the commit of a process that was given up arrives after the claim",
        DELTA,
        "        commit_once(\n            table,\n            lambda: self._nothing(",
        "        app = epoch_app(self._settings.cluster_id, lineage)\n"
        "        if table.transaction(app) != leader_epoch:\n"
        "          commit_once(\n            table,\n            lambda: self._nothing(",
        COMMITS,
    ),
    mutant(
        "tier-lost-answer-taken-for-a-failure",
        "Fluss 1064: the commit was in the lake, and the rows were copied again",
        TABLE_COMMITS,
        "        if table.commit_of(call, seen) is not None:\n",
        "        if failed is None and table.commit_of(call, seen) is not None:\n",
        COMMITS,
    ),
    mutant(
        "tier-commit-without-an-answer-taken-for-none",
        "a put that timed out may still arrive: the call is not without effect",
        TABLE_COMMITS,
        "    if failed is not None and is_conflict(failed):\n",
        "    if failed is not None:\n",
        COMMITS,
    ),
    mutant(
        "tier-files-of-an-unknown-commit-deleted",
        "the commit is in the table, and its file is gone",
        DELTA,
        "            if not isinstance(problem, TierProblem) or problem.error.failure is not TierFailure.UNKNOWN:\n",
        "            if True:\n",
        COMMITS,
    ),
    mutant(
        "tier-commit-that-is-gone-passed-over",
        "the log was cleaned in between: a refused commit may have been this call's own",
        TABLE,
        "            if content is None:\n                raise FileNotFoundError",
        "            if content is None:\n                continue\n                raise FileNotFoundError",
        COMMITS,
    ),
    mutant(
        "tier-table-that-is-gone-made-anew",
        "a table that begins in the middle looks whole",
        TABLE,
        "            if self._was_seen:\n",
        "            if False:\n",
        COMMITS,
    ),
    mutant(
        "tier-restored-table-not-looked-at",
        "Fluss 2625: of two snapshots the wrong one was taken",
        TABLE,
        "            if self._table is not None and (self._newest is None or self._commit_content() != self._newest):\n",
        "            if False:\n",
        COMMITS,
    ),
    mutant(
        "tier-files-not-synced-before-their-commit",
        "after a loss of power a commit names a file of zeros",
        DELTA,
        "            store.sync([segment.file, auxiliary])\n",
        "",
        COMMITS,
    ),
    mutant(
        "tier-table-of-another-cluster-used",
        "two clusters with a topic of one name and id, restored from one backup, write into one table",
        SCHEMA,
        '        if name.startswith("raftlake.") and found.get(name) != wanted:\n',
        '        if name == "raftlake.topicId" and found.get(name) != wanted:\n',
        SCHEMAS,
    ),
    mutant(
        "tier-last-copy-of-another-incarnation",
        "after an unclean election the new lineage would go on where the old one ended",
        LAST,
        '    return rows.filter(pc.less_equal(rows["incarnation"], lineage.incarnation))\n',
        "    return rows\n",
        LASTS,
    ),
    mutant(
        "tier-removed-file-not-missed",
        "a file was removed by hand, and its segment is deleted locally",
        LAST,
        "    if (size := table.store.size(file.path)) != file.size:\n",
        "    if (size := file.size) != file.size:\n",
        LASTS,
    ),
    mutant(
        "tier-unfinished-segment-shown",
        "the batches end before the offset that was asked for",
        FILE,
        "        decoder.finish(request.end_offset)\n",
        "",
        CONTRACT,
    ),
    mutant(
        "tier-damaged-file-is-finished",
        "pyarrow closes its file on errors too: what is there would be a whole Parquet file without the rest",
        "raftlake.tier.store",
        "        self.closed = True\n\n    def finish",
        "        self.closed = True\n        self._stream.close()\n\n    def finish",
        ("unit/tier/test_tier_store.py",),
    ),
    mutant(
        "tier-window-ends-inside-a-batch",
        "the second window begins in the middle of a batch, which looks like damage",
        SOURCE,
        "                end = _end_of_whole_batches(data) if left else len(data)\n",
        "                end = len(data)\n",
        ("unit/tier/test_tier_batch_source.py",),
    ),
    mutant(
        "segment-gap-between-batches-taken",
        "rows whose offsets have a gap",
        SEGMENT,
        "        if offset != self.next_offset:\n",
        "        if offset < self.next_offset:\n",
        SEGMENTS,
    ),
    mutant(
        "segment-batches-of-other-writers-taken-for-usual-ones",
        "verify would call a sound batch damaged",
        SEGMENT,
        "        for index in _not_canonical(rows, headers, self._loader):\n",
        "        for index in []:\n",
        SEGMENTS,
    ),
    mutant(
        "tier-worker-kept-after-a-deadline",
        "Aiven 820: the call that hangs holds all that come after it",
        PROCESS,
        "        self._give_up(reason)\n",
        '        if "no answer" not in reason:\n            self._give_up(reason)\n',
        PROCESSES,
    ),
    mutant(
        "reader-that-was-started-early-outlives-its-node",
        "nobody may have read",
        PROCESS,
        "        self.readers.close()\n",
        "",
        PROCESSES,
    ),
    mutant(
        "reader-that-was-started-early-is-for-copies",
        "a node that joins waits for a read",
        PROCESS,
        '        self.leaders = lane("raftlake-tier")\n        self.readers = lane("raftlake-tier-reads", reader)\n',
        '        self.leaders = lane("raftlake-tier", reader)\n        self.readers = lane("raftlake-tier-reads")\n',
        PROCESSES,
    ),
    mutant(
        "reader-started-early-without-a-cluster",
        "its tables would be refused as those of another cluster",
        "raftlake.runtime.early_reader",
        "        if cluster_id is not None:\n",
        "        if True:\n",
        ("unit/runtime/test_runtime_early_reader.py",),
    ),
    mutant(
        "reader-that-has-no-cluster-lives-on",
        "a process of 100 MB would wait for settings that never come",
        "raftlake.runtime.early_reader",
        "    reader.kill()\n    return None\n",
        "    return None\n",
        ("unit/runtime/test_runtime_early_reader.py",),
    ),
    mutant(
        "tier-worker-restarted-without-a-pause",
        "a worker that dies at its start would be started as often as the machine can",
        PROCESS,
        "        if self._pause_seconds:\n            self._pause(self._pause_seconds)\n",
        "",
        PROCESSES,
    ),
    mutant(
        "password-of-an-endpoint-in-the-reason",
        "the words of delta-rs name the address as it was given, and logs and clients get them",
        "raftlake.tier.failures",
        "    text = without_secrets(text.replace(",
        "    text = (text.replace(",
        ("unit/tier/test_tier_failures.py",),
    ),
    mutant(
        "password-in-the-place-of-tables-accepted",
        "DescribeConfigs and each reason name the place",
        "raftlake.runtime.settings.tier",
        "        if parts.password is not None:\n",
        "        if parts.password == value:\n",
        SETTINGS,
    ),
    mutant(
        "value-of-an-unknown-setting-shown",
        "an option of Spark's source in a node's settings may be a secret, and the refusal goes to the journal",
        "raftlake.runtime.settings.names",
        'ConfigError(f"{given.spelling}: unknown',
        'ConfigError(f"{given.spelling}={given.value}: unknown',
        SETTINGS,
    ),
    mutant(
        "secrets-in-the-text-of-settings",
        "a settings object in a log line or a traceback",
        "raftlake.tier.calls",
        "field(default_factory=dict, repr=False)",
        "field(default_factory=dict)",
        ("unit/tier/test_tier_failures.py",),
    ),
    mutant(
        "session-of-the-node-made-nice",
        "the node itself would come last",
        BACKGROUND,
        "    if os.getsid(0) == os.getpid():\n",
        "    if True:\n",
        STANDS_BACK,
    ),
    mutant(
        "nice-session-not-tried-again",
        "of three workers that start together, two would take what they can get",
        BACKGROUND,
        "            time.sleep(_PAUSE_SECONDS)\n",
        "            return\n",
        STANDS_BACK,
    ),
    mutant(
        "last-processor-left",
        "two processes that leave different processors leave none",
        BACKGROUND,
        "mine - {min(mine)}",
        "mine - {max(mine)}",
        STANDS_BACK,
    ),
    mutant(
        "only-processor-left",
        "a process without a processor is refused, or takes what it had for all",
        BACKGROUND,
        "        if len(mine) > 1:\n",
        "        if True:\n",
        STANDS_BACK,
    ),
    mutant(
        "slice-of-no-length",
        "who wakes up waits for a slice of the worker",
        BACKGROUND,
        "nice, 0, _SLICE_NS, 0, 0)",
        "nice, 0, 0, 0, 0)",
        STANDS_BACK,
    ),
    mutant(
        "niceness-lost-with-the-slice",
        "the attributes are set together",
        BACKGROUND,
        "os.getpriority(os.PRIO_PROCESS, 0)\n",
        "0\n",
        STANDS_BACK,
    ),
    mutant(
        "compaction-does-not-stand-back",
        "a pass takes the processor of the node",
        "raftlake.storage.compaction_worker",
        "    stand_back()\n",
        "",
        ("unit/storage/test_storage_compactor.py",),
    ),
)
