"""Bugs planted in what may be deleted with a tier: on local disks, in tables, with a topic. And in where a log begins."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

TIERING = "raftlake.replica.tiering."
GATE = "raftlake.replica.kv.tier_gate"
RULE = "raftlake.tier.retention"
LED = tuple(f"unit/replica/test_replica_tiering_{name}.py" for name in ("checker", "led", "remover"))
SERVICE = ("unit/replica/test_replica_tiering.py",)
WHOLE = ("unit/replica/test_replica_tiering_words.py",)
GONE = ("unit/replica/test_replica_tiering_gone_topics.py",)
JUDGED = ("unit/replica/test_replica_kv_tier_gate.py",)
RULED = ("unit/tier/test_tier_retention.py",)
PLACES = ("unit/replica/test_replica_tiering_remote_log.py",)
LOCAL = ("unit/replica/test_replica_timers_producer_state_retention.py",)

READ_BACK = (
    mutant(
        "local-log-deleted-before-the-read-back",
        "issue 12: local retention only after COPY_FINISHED and a checksum read-back",
        TIERING + "tiering",
        "standing.tiered.local_end)",
        "standing.tiered.end_offset)",
        SERVICE,
    ),
    mutant(
        "damaged-copy-counts-as-read-back",
        "a Parquet file with flipped bytes, and the local log is deleted",
        TIERING + "checker",
        "        if outcome is not None:\n",
        "        if False:\n",
        LED,
    ),
    mutant(
        "copy-read-back-at-once-whatever-it-says",
        "COPY_FINISHED says CHECKED of a copy that the store did not give back",
        TIERING + "copier",
        "            self._is_checked = outcome is None\n",
        "            self._is_checked = True\n",
        LED,
    ),
    mutant(
        "check-of-a-later-copy-covers-one-that-failed",
        "checks follow one another: a copy behind a damaged one must not free it",
        GATE,
        "    is_checked = finished.safe_offset == segment.base_offset and wanted == finished.check(segment)\n",
        "    is_checked = wanted == replace(finished, checked_offset=segment.end_offset)\n",
        JUDGED,
    ),
    mutant(
        "check-taken-back-by-a-peer",
        "CHECKED only goes on",
        GATE,
        "        is_on = standing.safe_offset < wanted.checked_offset\n",
        "        is_on = True\n",
        JUDGED,
    ),
    mutant(
        "who-fails-to-check-stops-the-copies",
        "Aiven#820: one file that hangs, and nothing is tiered any more",
        TIERING + "led",
        "            step.go_on()\n",
        "            step.go_on()\n            if step.error is not None:\n                return\n",
        LED,
    ),
)

TURNS = (
    mutant(
        "copies-checks-and-removals-at-once",
        "one call that changes a lineage at a time",
        TIERING + "led",
        "        if self.is_busy or not self._keys.are_here:\n",
        "        if not self._keys.are_here:\n",
        LED,
    ),
    mutant(
        "copies-starve-the-checks",
        "a partition that is always behind never frees its disk",
        TIERING + "led",
        "                self._steps.remove(step)\n                self._steps.append(step)\n",
        "",
        LED,
    ),
    mutant(
        "removal-starves-the-copies",
        "a removal that waits for COPY_FINISHED, and is always asked first",
        TIERING + "remover",
        "            self._retry_at_ms = self._engine.now_ms + RETRY_BACKOFF_MS\n            self._then()\n",
        "            self._retry_at_ms = self._engine.now_ms + RETRY_BACKOFF_MS\n",
        LED,
    ),
)

REMOVALS = (
    mutant(
        "newest-copy-removed-by-a-wrong-clock",
        "a clock that is ahead leaves a table that nothing follows",
        RULE,
        "if file.end_offset >= copied_end or not (too_old or too_much",
        "if not (too_old or too_much",
        RULED,
    ),
    mutant(
        "total-retention-takes-a-file-too-many",
        "off by one: at least so many bytes stay",
        RULE,
        "too_much = 0 <= self.retention_bytes <= total_bytes - file.log_bytes",
        "too_much = 0 <= self.retention_bytes < total_bytes",
        RULED,
    ),
    mutant(
        "copy-that-is-shown-counted-twice",
        "DELETE_FINISHED takes the table's counts, and COPY_FINISHED adds to them",
        TIERING + "remover",
        "        if outcome.end_offset == tiered.end_offset:\n",
        "        if True:\n",
        LED,
    ),
    mutant(
        "table-without-old-files-never-asked-again",
        "the first answer, of an empty table, is remembered for ever",
        TIERING + "remover",
        " if any(file.timestamp_ms_max >= 0 for file in outcome) else None\n",
        "\n",
        LED,
    ),
    mutant(
        "oldest-files-asked-for-in-each-tick",
        "a thousand partitions list the store each second",
        TIERING + "remover",
        "        return self._engine.now_ms >= self._next_look_ms and ",
        "        return ",
        LED,
    ),
    mutant(
        "removal-of-a-former-leader-left-standing",
        "killed at any moment: the next leader finishes what stands",
        TIERING + "remover",
        "        return standing.tiered.deleting is not None or self._may_look(standing.tiered)\n",
        "        return self._may_look(standing.tiered)\n",
        LED,
    ),
    mutant(
        "removal-in-the-name-of-another",
        "a node speaks for itself",
        GATE,
        "    if deleting is None or deleting.node_id != source:\n",
        "    if deleting is None:\n",
        JUDGED,
    ),
    mutant(
        "removal-of-all-by-a-peer",
        "the newest copy of a lineage stays",
        GATE,
        "< wanted.start_offset < standing.end_offset:",
        "< wanted.start_offset <= standing.end_offset:",
        JUDGED,
    ),
    mutant(
        "ended-records-stay-on-local-disks",
        "records that left the table come back with the local log",
        "raftlake.replica.partition.retention",
        " or segment.end_offset <= ended):",
        "):",
        LOCAL,
    ),
    mutant(
        "local-disks-keep-as-much-as-the-table",
        "local.retention.bytes has no effect",
        "raftlake.replica.configs.in_force",
        '_at_most(number("local.retention.bytes"), retention_bytes)',
        "retention_bytes",
        LOCAL,
    ),
)

TOPICS = (
    mutant(
        "keys-forgotten-before-the-table-is-empty",
        "fluss#3483: what is left of a deleted table",
        TIERING + "gone_topics",
        "        if outcome is not None:\n",
        "        if False:\n",
        GONE,
    ),
    mutant(
        "table-of-a-spoilt-topic-dropped",
        "a key that means nothing ends no topic",
        TIERING + "gone_topics",
        "topic_under(gone.name, entry.value) is None:",
        "False:",
        GONE,
    ),
    mutant(
        "former-leader-goes-on-forgetting",
        "an answer for an epoch that is over",
        TIERING + "gone_topics",
        "        if epoch != self._epoch:\n            return False\n",
        "",
        GONE,
    ),
    mutant(
        "highest-partition-by-the-order-of-keys",
        "10 comes before 2",
        TIERING + "gone_topics",
        "max(gone.partitions, int(index) + 1)",
        "int(index) + 1",
        GONE,
    ),
)

TOLD = (
    mutant(
        "removal-under-way-taken-for-a-loss",
        "`tier verify` finds faults in a table that is well",
        "raftlake.tier.key_checks",
        "    elif not is_removing:\n",
        "    else:\n",
        ("unit/tier/test_tier_key_checks.py",),
    ),
    mutant(
        "lost-beginning-taken-for-a-removal",
        "somebody removed old files by hand while a removal was under way",
        "raftlake.tier.key_checks",
        "    if is_removing and shown.start > last.start_offset:\n",
        "    if False:\n",
        ("unit/tier/test_tier_key_checks.py",),
    ),
    mutant(
        "log-begins-where-the-local-disk-does",
        "KAFKA-15351: the log start becomes the local start",
        "raftlake.replica.apis.offsets",
        "            place = remote_log.start_offset(partition)\n        case Special.EARLIEST_LOCAL",
        "            place = partition.log.start_offset\n        case Special.EARLIEST_LOCAL",
        PLACES,
    ),
    mutant(
        "latest-tiered-offset-is-the-next-one",
        "Kafka: the last offset that is in the tier",
        "raftlake.replica.apis.offsets",
        "Offset(copied_end - 1)",
        "copied_end",
        PLACES,
    ),
    mutant(
        "full-disk-does-not-name-the-tier",
        "issue 12: a clear error and an alarm state when local disks push back",
        "raftlake.replica.disk.watch",
        "        return _refusal(low, len(voters)) + self._untaken(partition.group)\n",
        "        return _refusal(low, len(voters))\n",
        WHOLE,
    ),
    mutant(
        "wrong-credentials-are-an-alarm-after-a-while",
        "what no retry mends is told at once",
        TIERING + "led",
        "failing.error.failure is not TierFailure.UNKNOWN or ",
        "",
        WHOLE,
    ),
)

TIER_RETENTION = (*READ_BACK, *TURNS, *REMOVALS, *TOPICS, *TOLD)
