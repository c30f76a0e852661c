"""Bugs planted in when partitions are copied to the remote tier, and in what the quorum's keys say of it."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Edit, Mutant

COPIER = "raftlake.replica.tiering.copier"
STEP = "raftlake.replica.tiering.step"
TIERING = "raftlake.replica.tiering.tiering"
GATE = "raftlake.replica.kv.tier_gate"
PLAN = "raftlake.tier.plan"
ENTRIES = "raftlake.tier.entries"
ALONE = ("unit/replica/test_replica_tiering_copier.py",)
SERVICE = ("unit/replica/test_replica_tiering.py",)
WORDS = ("unit/replica/test_replica_tiering_words.py",)
PLANNED = ("unit/tier/test_tier_plan.py",)
WRITTEN = ("unit/tier/test_tier_entries.py",)
JUDGED = ("unit/replica/test_replica_kv_tier_gate.py",)

COPIES = (
    Mutant(
        name="tier-shows-what-is-not-committed",
        source="KIP-405: only segments below the last stable offset are copied",
        edits=(Edit(PLAN, "        if segment.end_offset > high_watermark:\n            break\n", ""),),
        places=PLANNED,
    ),
    Mutant(
        name="local-log-deleted-before-the-tier-has-it",
        source="issue 12: local retention only after COPY_FINISHED",
        edits=(
            Edit(
                "raftlake.replica.turn.housekeeping",
                "below, ended = min(below, table.safe), max(ended, table.start)",
                "ended = table.start",
            ),
        ),
        places=("unit/replica/test_replica_turn_actions_restart.py",),
    ),
    Mutant(
        name="copy-of-a-former-leader-replaced-unseen",
        source="a copy that was shown after all is looked for by none, and each new one is refused: fluss#1064",
        edits=(Edit(COPIER, "tiered.copying is not None and self._claimed_at != standing.version", "False"),),
        places=ALONE,
    ),
    Mutant(
        name="lineage-claimed-again-and-again",
        source="redpanda#24247: an upload that never ends",
        edits=(
            Edit(COPIER, "            self._claimed_at = standing.version\n        elif", "            pass\n        elif"),
        ),
        places=ALONE,
    ),
    Mutant(
        name="shown-copy-finished-anywhere",
        source="two leaders finish the same copy, and the second is behind",
        edits=(
            Edit(COPIER, "self._shown is not None and self._shown[0] != standing.version", "False"),
            Edit(
                COPIER, "self._shown is not None and self._shown[1].base_offset == tiered.end_offset", "self._shown is not None"
            ),
        ),
        places=ALONE,
    ),
    mutant(
        "copier-of-an-old-leader-goes-on",
        "a leader that was replaced must not act on what it asked for before",
        STEP,
        "        return not self._is_closed\n",
        "        return True\n",
        ALONE,
    ),
    mutant(
        "epoch-of-the-leader-not-told-to-the-tier",
        "the fence of the table compares leader epochs",
        COPIER,
        "            leader_epoch=self.epoch,\n            epochs=",
        "            leader_epoch=Epoch(0),\n            epochs=",
        ALONE,
    ),
    mutant(
        "lost-answer-tried-under-the-same-name",
        "the first try may still be on its way, and its file is overwritten",
        COPIER,
        "            self._own, self._has_failed = None, True\n",
        "            self._has_failed = True\n",
        ALONE,
    ),
    mutant(
        "retries-without-a-pause",
        "a store that is down is asked a thousand times a second",
        STEP,
        "        self._retry_at_ms = self._engine.now_ms + backoff_ms\n",
        "",
        ALONE,
    ),
    mutant(
        "newest-copies-lose-their-keys",
        "the keys of the newest copies are those that a follower asks for",
        COPIER,
        "known[: max(0, len(known) + 1 - SEGMENT_KEYS_MAX)]",
        "known[SEGMENT_KEYS_MAX - 1 :]",
        ALONE,
    ),
    mutant(
        "second-of-two-segments-left-out",
        "a segment whose end has no saved state is copied with the next one",
        PLAN,
        "        parts.append(Range(max(copied_end, segment.base_offset), segment.end_offset))\n",
        "        parts = [Range(max(copied_end, segment.base_offset), segment.end_offset)]\n",
        PLANNED,
    ),
    mutant(
        "epochs-of-a-copy-begin-before-it",
        "KIP-405: the segment leader epochs are cut to the segment",
        PLAN,
        "(epoch, max(offset, within.base_offset))",
        "(epoch, offset)",
        PLANNED,
    ),
)

SERVED = (
    mutant(
        "followers-do-not-close-segments",
        "local retention deletes closed segments, on each replica",
        TIERING,
        "            self._roll(watched)\n",
        "            if watched.partition.is_serving:\n                self._roll(watched)\n",
        SERVICE,
    ),
    mutant(
        "lag-of-the-newest-record",
        "redpanda#24305: a lag that is not the age of the oldest record",
        TIERING,
        "return self.seen[0][0] if self.seen else None",
        "return self.seen[-1][0] if self.seen else None",
        SERVICE,
    ),
    mutant(
        "copiers-without-number",
        "a thousand partitions propose and copy at once",
        TIERING,
        "            if busy >= BUSY_MAX:\n                return\n",
        "",
        SERVICE,
    ),
    mutant(
        "partitions-that-fail-take-the-turns-of-others",
        "AutoMQ#3006: tables that cannot be written stop those of all topics",
        TIERING,
        "                busy += led.is_busy\n",
        "                busy += 1\n",
        WORDS,
    ),
    mutant(
        "table-behind-a-gap-counted",
        "redpanda#24247: on, off and on again, and readers meet the gap",
        "raftlake.replica.tiering.remote_log",
        "tiered.end_offset >= partition.log.start_offset else None",
        "tiered.end_offset >= 0 else None",
        WORDS,
    ),
    mutant(
        "copier-outlives-its-epoch",
        "a new epoch of the same leader begins with a claim",
        TIERING,
        "(not leads or led.epoch != partition.core.epoch)",
        "(not leads)",
        SERVICE,
    ),
    mutant(
        "waiting-begins-with-the-segment",
        "an idle topic would be rolled as soon as it is written to",
        TIERING,
        "if active.size == 0 or watched.active_base != active.base_offset:",
        "if watched.active_base != active.base_offset:",
        SERVICE,
    ),
)

KEYS = (
    mutant(
        "copy-announced-in-the-name-of-another",
        "a node speaks for itself",
        GATE,
        "    if copying.node_id != source:\n",
        "    if False:\n",
        JUDGED,
    ),
    mutant(
        "end-of-the-copies-moved-by-a-peer",
        "what is told as copied is deleted from local disks",
        GATE,
        "    if wanted != finished and not is_checked:\n",
        "    if False:\n",
        JUDGED,
    ),
    mutant(
        "keys-of-another-partition-dropped",
        "COPY_FINISHED of one partition deletes the keys of another",
        GATE,
        'other.removeprefix(f"{key}/") if other.startswith(f"{key}/") else ""',
        'other.rpartition("/")[2]',
        JUDGED,
    ),
    mutant(
        "epochs-of-a-copy-that-repeat",
        "total apply: an entry that cannot be so means nothing",
        ENTRIES,
        "later[0] <= earlier[0]",
        "later[0] < earlier[0]",
        WRITTEN,
    ),
    mutant(
        "copy-behind-nothing",
        "off by one: an empty copy",
        ENTRIES,
        'found["endOffset"], end + 1, OFFSET_MAX',
        'found["endOffset"], end, OFFSET_MAX',
        WRITTEN,
    ),
)

#: Seeds 809001978 and 809004282 of the simulator: found because copies are proposed without a pause.
FULL_DISKS = (
    mutant(
        "appends-taken-twice-before-a-write-forgotten",
        "a copier waited for ever for the answer to COPY_FINISHED, which was taken before another proposal",
        "raftlake.replica.partition.partition",
        "        self._admitted += admitted\n",
        "        self._admitted = list(admitted)\n",
        ("unit/replica/test_replica_partition_admitted.py",),
    ),
    mutant(
        "written-appends-refused-when-the-group-goes",
        "an append is answered once",
        "raftlake.replica.partition.partition",
        "        del self._admitted[: len(admitted)]\n",
        "",
        ("unit/replica/test_replica_partition_admitted.py",),
    ),
    mutant(
        "lone-voter-without-room-leads-at-once",
        "62 epochs in one turn of a lone voter whose disk was full, each with a sync",
        "raftlake.raft.handlers.lifecycle",
        "is_alone and not event.election_delay_ms:",
        "is_alone:",
        ("unit/raft/test_raft_lifecycle.py",),
    ),
    mutant(
        "last-segment-without-a-start-point-waits",
        "a copy ends where a replica can begin: the last segment waited for an append that never came",
        TIERING,
        "            partition.save_missing_point()\n",
        "            pass\n",
        SERVICE,
    ),
)

TIERING_BUGS = (*COPIES, *SERVED, *KEYS, *FULL_DISKS)
