"""Bugs planted in how a follower takes over where its leader's log begins, and in what was found beside it."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

STATE = "raftlake.raft.state"
RESPONSE = "raftlake.raft.handlers.fetch_response"
PROGRESS = "raftlake.raft.progress"
FETCH = "raftlake.raft.handlers.fetch"
APPEND = "raftlake.raft.handlers.append"
HOUSE = "raftlake.replica.turn.housekeeping"
RULE = "raftlake.replica.partition.retention"
REMOTE_LOG = "raftlake.replica.tiering.remote_log"
SERVER = "raftlake.replica.replication.fetch_server"
HOSTING = "raftlake.replica.hosting.hosting"
NOTED = "raftlake.storage.noted_starts"
LOG = "raftlake.storage.log"
DIRECTORY = "raftlake.storage.directory"

CORE = ("unit/raft/test_raft_log_start.py",)
TABLE = ("unit/replica/test_replica_tiering_remote_log.py",)
NODES = ("unit/replica/test_replica_tiering_remote_log_adopted.py",)
FILES = ("unit/storage/test_storage_noted_starts.py",)
CONTRACT = ("contract/test_storage_log_contract.py",)

SMALL_WORDS = (
    mutant(
        "stray-directory-stops-compaction",
        "hostile test: a directory named x.cleaned stopped all passes over its log for ever",
        "raftlake.storage.cleaned",
        "                continue\n            try:\n",
        "                pass\n            try:\n",
        ("unit/storage/test_storage_cleaned.py",),
    ),
    mutant(
        "killed-worker-with-last-words",
        "hostile test: a worker that SIGKILL ended has said nothing",
        "raftlake.storage.worker_ending",
        "    if status < 0:\n",
        "    if status > 255:\n",
        ("unit/storage/test_storage_worker_ending.py",),
    ),
    mutant(
        "refused-deletion-without-the-range",
        "hostile test: an offset beyond the end was refused without a bound",
        "raftlake.client.reader",
        "            if offset > ends[partition]:\n",
        "            if offset < starts[partition]:\n",
        ("unit/client/test_client_partition_admin.py",),
    ),
)

LOG_START = (
    mutant(
        "log-start-above-the-high-watermark",
        "Kafka: never beyond the follower's own high watermark",
        RESPONSE,
        "    log_start = min(told, group.high_watermark)\n",
        "    log_start = told\n",
        CORE,
    ),
    mutant(
        "log-start-taken-over-backwards",
        "a deposed leader's follower would show deleted records again",
        RESPONSE,
        "log_start > group.shown_log_start:",
        "log_start >= 0:",
        CORE,
    ),
    mutant(
        "log-start-of-the-metadata-log-taken-over",
        "its snapshots decide it",
        RESPONSE,
        "    if group.shares_log_start and log_start",
        "    if log_start",
        CORE,
    ),
    mutant(
        "log-start-kept-over-a-cut",
        "after an unclean recovery the log may end below it",
        STATE,
        "        self.told_log_start = min(self.told_log_start, end)\n",
        "",
        CORE,
    ),
    mutant(
        "local-start-told-of-a-tiered-log",
        "KIP-405: the Fetch response tells the start of the whole log",
        STATE,
        "            return tiered_start\n",
        "            return self.shown_log_start\n",
        CORE,
    ),
    mutant(
        "waiting-replicas-not-told-of-a-deletion",
        "an idle partition's follower never heard of it",
        APPEND,
        "        answer_parked(group, group.role)\n",
        "        pass\n",
        CORE + NODES,
    ),
    mutant(
        "replica-told-again-and-again",
        "Kafka's Raft takes over nothing, and asks again at once",
        FETCH,
        "        progress.told_log_start = group.announced_log_start\n",
        "",
        CORE,
    ),
    mutant(
        "lost-answer-not-repeated",
        "a follower that missed it shows deleted records for good",
        FETCH,
        "        progress.told_log_start = UNKNOWN_OFFSET\n",
        "        pass\n",
        CORE,
    ),
    mutant(
        "start-told-that-cannot-be-taken-over",
        "a follower that knows less to be committed asked again and again",
        PROGRESS,
        "min(group.announced_log_start, request.high_watermark)",
        "group.announced_log_start",
        CORE,
    ),
    mutant(
        "new-leader-tells-its-own-segments",
        "what an earlier leader deleted came back on its followers",
        SERVER,
        "log_start = partition.core.announced_log_start",
        "log_start = partition.core.log_start",
        NODES,
    ),
    mutant(
        "adopted-start-not-shown",
        "hostile test: 3,000 deleted records could be read again after a kill of all nodes",
        REMOTE_LOG,
        "max(self._kv.state.records_from(partition.group), self.adopted_start(partition))",
        "self._kv.state.records_from(partition.group)",
        NODES,
    ),
    mutant(
        "adopted-start-hides-the-table",
        "KIP-405: the quorum's keys say where a tiered partition begins",
        REMOTE_LOG,
        "        if not self.is_on or partition.is_compacted:\n            return partition.core.told_log_start\n",
        "        if partition.core.told_log_start:\n            return partition.core.told_log_start\n",
        NODES,
    ),
    mutant(
        "ended-records-are-shown",
        "simulator, seed 57: a segment that reaches below the table's start showed other records on each node",
        REMOTE_LOG,
        "        return tiered.start_offset\n\n    def local_start",
        "        return FIRST_OFFSET\n\n    def local_start",
        TABLE,
    ),
    mutant(
        "table-from-before-an-unclean-election-hides-the-log",
        "KIP-966: the log may end below the start of the table",
        REMOTE_LOG,
        "if tiered is None or tiered.recovery != recovery_of(self._kv.machine):",
        "if tiered is None:",
        TABLE,
    ),
    mutant(
        "noted-start-not-read-at-a-start",
        "hostile test: the start went back for good where segments had other borders",
        HOSTING,
        "            told_log_start=log.noted_start,\n",
        "",
        NODES,
    ),
    mutant(
        "adopted-start-deletes-nothing",
        "Kafka deletes the segments below the log start whatever the topic keeps",
        HOUSE,
        " and ended <= log.start_offset:",
        ":",
        NODES,
    ),
    mutant(
        "deleted-active-segment-stays",
        "a log that its leader has deleted as a whole kept its last segment",
        RULE,
        " or active.end_offset <= ended):",
        "):",
        NODES,
    ),
    mutant(
        "note-lost-while-the-file-is-written",
        "the last of several deletions was not there after a kill",
        NOTED,
        "        if error is None:\n            self.save()\n",
        "        if error is None:\n            pass\n",
        FILES,
    ),
    mutant(
        "deleted-logs-note-left",
        "a topic of the same name would begin there",
        DIRECTORY,
        "        self._starts.forget(groups)\n",
        "",
        CONTRACT,
    ),
    mutant(
        "noted-start-kept-over-a-reset",
        "a log would begin above its end",
        LOG,
        "            self._pool.room.retrying(lambda: self._starts.lower(self.group, start.offset))\n",
        "",
        CONTRACT,
    ),
    mutant(
        "noted-start-kept-over-a-cut",
        "a log would begin above its end",
        LOG,
        "                self._pool.room.retrying(lambda: self._starts.lower(self.group, end_offset))\n",
        "",
        CONTRACT,
    ),
)
