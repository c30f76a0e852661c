"""Bugs planted in what is done with a topic's partitions: their records deleted."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

ASKED = ("unit/replica/test_replica_apis_delete_records.py",)
TRIMMED = ("unit/replica/test_replica_record_deletion.py",)
RULED = ("unit/replica/test_replica_reserved_rules.py",)
RECOVERED = ("unit/runtime/test_runtime_recovery_key_space.py", "unit/runtime/test_runtime_recovery_recover.py")

DELETED = (
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

PARTITIONS = DELETED
