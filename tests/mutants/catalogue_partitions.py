"""Bugs planted in what is done with a topic's partitions: their records deleted, more of them, and what disks have of them."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

ASKED = ("unit/replica/test_replica_apis_delete_records.py",)
TRIMMED = ("unit/replica/test_replica_record_deletion.py",)
GROW = ("unit/replica/test_replica_apis_create_partitions.py",)
DIRS = ("unit/replica/test_replica_apis_log_dirs.py",)
RULED = ("unit/replica/test_replica_reserved_rules.py",)
RECOVERED = ("unit/runtime/test_runtime_recovery_key_space.py", "unit/runtime/test_runtime_recovery_recover.py")

DELETED = (
    mutant(
        "what-the-leaders-retention-removed-counts-as-deleted",
        "other nodes go on showing what a client was told is deleted",
        "raftlake.replica.apis.delete_records",
        "elif offset <= self._node.kv.state.records_from(partition.group):",
        "elif offset <= self._node.remote_log.start_offset(partition):",
        ASKED,
    ),
    mutant(
        "retention-overtakes-the-last-sync",
        "the report of the sync tells nothing new, and the follower never fetches again",
        "raftlake.raft.handlers.append",
        "        _go_on_from(group, log_start, now_ms)\n",
        "        group.flushed_end = log_start\n",
        ("unit/raft/test_raft_append.py",),
    ),
    mutant(
        "records-deleted-up-to-the-high-watermark-and-not-it",
        "Kafka: the high watermark itself may be asked for",
        "raftlake.replica.apis.delete_records",
        "0 <= offset <= partition.high_watermark",
        "0 <= offset < partition.high_watermark",
        ASKED,
    ),
    mutant(
        "consumers-read-below-the-start-what-the-log-still-has",
        "the segment of the start stays, with deleted records in it",
        "raftlake.replica.apis.fetch",
        "    if offset < remote_log.deleted_below(partition):\n",
        "    if offset < partition.log.start_offset:\n",
        ASKED,
    ),
    mutant(
        "deleted-records-shown-before-the-keys-are-read",
        "a node that has just restarted showed what its disk still had",
        "raftlake.replica.apis.fetch",
        "    if not remote_log.knows_deletions:\n        return ErrorCode.OFFSET_NOT_AVAILABLE\n",
        "",
        ASKED,
    ),
    mutant(
        "deleted-record-found-by-its-time",
        "ListOffsets by time names a record that nobody may read",
        "raftlake.replica.aside.time_searches",
        "        if batch.offset < start:\n",
        "        if False:\n",
        ASKED,
    ),
    mutant(
        "start-goes-back-with-a-later-request",
        "two requests at once: the one with the lower offset comes last",
        "raftlake.replica.reserved_rules",
        "found.offset < before.offset and found.recovery == before.recovery",
        "False",
        (*ASKED, *RULED),
    ),
    mutant(
        "what-cannot-be-trimmed-at-once-is-forgotten",
        "a full disk, or records that the tier has not copied",
        "raftlake.replica.record_deletion",
        "                self._pending[group] = self._engine.now_ms + RETRY_INTERVAL_MS\n",
        "                pass\n",
        TRIMMED,
    ),
    mutant(
        "follower-that-lags-forgets-to-trim",
        "it gets the deleted records after the key",
        "raftlake.replica.record_deletion",
        "            return partition.log.end_offset >= start\n",
        "            return True\n",
        TRIMMED,
    ),
    mutant(
        "start-behind-the-end-of-a-recovered-log",
        "new records stand below a start that the lost nodes had agreed on, and nobody sees them",
        "raftlake.runtime.recovery.key_space",
        "        if start.offset > end or start.recovery == recovery:\n",
        "        if start.recovery == recovery:\n",
        RECOVERED,
    ),
    mutant(
        "second-try-of-a-recovery-forgets-the-starts",
        "a recovery that was killed behind the quorum's log wrote that log again without them",
        "raftlake.runtime.recovery.key_space",
        " or start.recovery == recovery:\n",
        ":\n",
        RECOVERED,
    ),
)

GROWN = (
    mutant(
        "added-partitions-begin-with-the-first-voters",
        "those who voted when the topic was created may be gone",
        "raftlake.replica.reserved",
        "        if voters is None or voters == self.voters_of(self.partitions):\n",
        "        if True:\n",
        GROW,
    ),
    mutant(
        "second-growth-counts-the-whole-topic",
        "a topic of 15 partitions cannot become one of 18 where 20 are allowed",
        "raftlake.replica.kv.room",
        "topic.partitions - (standing.partitions if standing is not None and is_same else 0)",
        "topic.partitions",
        GROW,
    ),
    mutant(
        "same-count-is-an-increase",
        "Kafka: Topic already has 3 partition(s).",
        "raftlake.replica.hosting.topics",
        "        if count == has:\n",
        "        if False:\n",
        GROW,
    ),
    mutant(
        "growth-that-came-second-gives-up",
        "two let a topic grow at once, and the second one was told of no reason",
        "raftlake.replica.hosting.topics",
        "                self.change(name, edit, done)\n",
        "                done(None, ErrorCode.NOT_CONTROLLER, NOTHING_CHANGED)\n",
        GROW,
    ),
    mutant(
        "deletion-without-an-answer-is-refused",
        "the caller is told that nothing changed, and the records are gone",
        "raftlake.client.partition_admin",
        "            undecided.update(partitions)\n",
        "",
        ("unit/client/test_client_partition_admin.py",),
    ),
    mutant(
        "deletion-that-timed-out-at-its-leader-is-refused",
        "the leader has begun, and goes on as soon as others answer",
        "raftlake.client.partition_admin",
        "each not in lost_before and result is not ErrorCode.REQUEST_TIMED_OUT",
        "each not in lost_before",
        ("unit/client/test_client_partition_admin.py",),
    ),
    mutant(
        "refusal-decides-a-lost-deletion-before-it",
        "the node that is not the leader any more may have deleted",
        "raftlake.client.partition_admin",
        "each not in lost_before and result is not",
        "result is not",
        ("unit/client/test_client_partition_admin.py",),
    ),
    mutant(
        "deletion-that-is-done-counts-as-undecided",
        "the error names partitions whose outcome is known",
        "raftlake.client.partition_admin",
        "                if is_refused or not isinstance(result, ErrorCode):\n",
        "                if is_refused and isinstance(result, ErrorCode):\n",
        ("unit/client/test_client_partition_admin.py",),
    ),
    mutant(
        "configs-change-before-the-count-is-refused",
        "the command fails, and old records go by a retention that nobody was told of",
        "raftlake.cli.topics",
        "                require_more(client.describe_topic(topic), partitions)\n",
        "                pass\n",
        ("unit/cli/test_cli_output.py",),
    ),
    mutant(
        "table-shows-names-raw",
        "a transactional id moves the cursor of an operator's terminal",
        "raftlake.cli.output",
        "[printable(cell) for cell in row]",
        "[cell for cell in row]",
        ("unit/cli/test_cli_output.py",),
    ),
    mutant(
        "lost-answer-of-a-growth-is-a-refusal",
        "a retry finds its own work, and calls it a mistake of the caller",
        "raftlake.client.partition_admin",
        "            if code is ErrorCode.INVALID_PARTITIONS and change.may_be_done:\n",
        "            if False:\n",
        ("unit/client/test_client_partition_admin.py",),
    ),
)

SHOWN = (
    mutant(
        "lag-behind-another-leader",
        "a leader that was replaced had more than was ever committed",
        "raftlake.replica.partition.partition",
        "max(end if epoch == core.epoch else 0, ",
        "max(end, ",
        DIRS,
    ),
    mutant(
        "directory-that-is-gone-looks-empty",
        "KAFKA_STORAGE_ERROR, as Kafka says it",
        "raftlake.replica.apis.log_dirs",
        "ErrorCode.NONE if room is not None else ErrorCode.KAFKA_STORAGE_ERROR",
        "ErrorCode.NONE",
        DIRS,
    ),
)

PARTITIONS = (*DELETED, *GROWN, *SHOWN)
