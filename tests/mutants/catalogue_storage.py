"""Planted bugs: the flusher, recovery, retention, snapshots and voter sets."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

FLUSHER = "raftlake.storage.flusher"
DIRECTORY = "raftlake.storage.directory"
RECOVERY = "raftlake.storage.recovery"
RETENTION = "raftlake.replica.partition.retention"
SNAPSHOTS = "raftlake.replica.snapshots.snapshots"
FETCH_SNAPSHOT = "raftlake.raft.handlers.fetch_snapshot"
FETCH_RESPONSE = "raftlake.raft.handlers.fetch_response"
LOG = "raftlake.storage.log"
IN_FLUSHES = ("unit/storage/test_storage_flusher_many.py",)
IN_EPOCH_FILES = ("unit/storage/test_storage_recovery_epochs.py",)
IN_RETENTION = ("unit/replica/test_replica_timers_producer_state_retention.py",)
IN_ROUNDS = ("unit/replica/test_replica_partition_retention_rounds.py",)
IN_LATE_SNAPSHOTS = ("unit/raft/test_raft_late_snapshot.py",)
IN_REFUSED_VOTERS = ("unit/raft/test_raft_refused_voters.py",)
IN_BOUNDARIES = ("unit/storage/test_storage_boundaries.py",)
IN_NAMES = ("unit/storage/test_storage_created_names.py",)
IN_WRITERS = ("unit/storage/test_storage_snapshot_writers.py",)
IN_VOTER_LOGS = ("unit/replica/test_replica_partition_voter_log.py",)

FLUSHES = (
    Mutant(
        name="flush-reported-before-its-last-thread-ended",
        source="a flush of three and more logs is shared among threads; it is over when each of them is",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(Edit(FLUSHER, "        for other in others:\n", "        for other in others[:-1]:\n"),),
    ),
    Mutant(
        name="share-of-one-log-left-out",
        source="three logs on four threads: the second and the third log have a thread each",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(Edit(FLUSHER, "for share in shares[1:] if share]", "for share in shares[1:] if len(share) > 1]"),),
    ),
    Mutant(
        name="last-log-of-a-flush-decides-its-result",
        source="the failure of the second of three logs",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(
            Edit(
                DIRECTORY,
                "            failed = failed or work.log.failure_unless_deleted()\n",
                "            failed = work.log.failure_unless_deleted()\n",
            ),
        ),
    ),
    Mutant(
        name="failed-sync-of-names-unheard",
        source="a segment whose name is not durable is lost with the power, synced bytes and all",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(
            Edit(
                FLUSHER,
                "            sync_descriptor(descriptor)\n        except OSError as error:\n"
                '            work.error = storage_error("sync", path, error)\n',
                "            sync_descriptor(descriptor)\n        except OSError:\n            work.error = None\n",
            ),
        ),
    ),
    Mutant(
        name="failed-epoch-file-stops-the-first-log",
        source="of three epoch files the second cannot be written",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(Edit(FLUSHER, "            work.epochs_error = error\n", "            works[0].epochs_error = error\n"),),
    ),
    Mutant(
        name="epoch-file-of-the-first-log-alone",
        source="of three logs the second begins an epoch",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(
            Edit(
                FLUSHER,
                "            if any(work.epochs for work in works):\n                write_epochs(works)",
                "            if works and works[0].epochs:\n                write_epochs(works)",
            ),
        ),
    ),
)

EPOCH_FILES = (
    Mutant(
        name="epoch-that-begins-too-early-believed",
        source="the epoch file has no checksum; ours looked at the batch before each boundary alone",
        by_tests=True,
        places=IN_EPOCH_FILES,
        edits=(Edit(RECOVERY, "not first.epoch == last.epoch == epoch or", "last.epoch != epoch or"),),
    ),
    Mutant(
        name="epoch-that-begins-inside-a-batch-believed",
        source="the batches before and behind the one with the boundary in it have the right epochs",
        by_tests=True,
        places=IN_EPOCH_FILES,
        edits=(Edit(RECOVERY, " or last.end_offset != end:", ":"),),
    ),
    Mutant(
        name="first-epoch-of-the-file-alone-checked",
        source="the second boundary of three is wrong",
        by_tests=True,
        places=IN_EPOCH_FILES,
        edits=(Edit(RECOVERY, "    for epoch, end in spans:\n", "    for epoch, end in spans[:1]:\n"),),
    ),
    Mutant(
        name="epoch-file-without-a-line-believed",
        source="a log that begins above 0 has an epoch before its first record, and claims it in elections",
        by_tests=True,
        places=IN_EPOCH_FILES,
        edits=(
            Edit(RECOVERY, "return history if not found and known_end == 0 else None", "return None if found else history"),
        ),
    ),
)

DELETIONS = (
    Mutant(
        name="retention-passes-over-a-young-segment",
        source="Kafka stops at the first segment that must stay; timestamps need not ascend",
        by_tests=True,
        places=IN_RETENTION,
        edits=(
            Edit(
                RETENTION,
                "        if not (too_old or too_much or segment.end_offset <= ended):\n            break\n",
                "        if not (too_old or too_much or segment.end_offset <= ended):\n            continue\n",
            ),
        ),
    ),
    Mutant(
        name="segment-that-ends-at-the-high-watermark-stays",
        source="the high watermark is exclusive: all of that segment is committed",
        by_tests=True,
        places=IN_RETENTION,
        edits=(Edit(RETENTION, "segment.end_offset > below", "segment.end_offset >= below"),),
    ),
    Mutant(
        name="retention-a-millisecond-early",
        source="retention.ms is for how long records stay, at least",
        by_tests=True,
        places=IN_RETENTION,
        edits=(Edit(RETENTION, "kept.local_ms < wall_ms", "kept.local_ms <= wall_ms"),),
    ),
    Mutant(
        name="trim-that-came-to-nothing-blocks-the-next",
        source="the log was opened anew while the snapshot for its new start was written",
        by_tests=True,
        places=IN_ROUNDS,
        edits=(Edit(SNAPSHOTS, "meanwhile.\n            self._trimming.pop(partition, None)\n", "meanwhile.\n"),),
    ),
    Mutant(
        name="second-of-two-segments-waits-for-another-round",
        source="a trim deletes a segment a turn, up to the last one that it was asked for",
        by_tests=True,
        places=IN_ROUNDS,
        edits=(Edit(SNAPSHOTS, "        if len(ends) > 1:\n", "        if len(ends) > 2:\n"),),
    ),
    Mutant(
        name="first-snapshot-deletes-the-log-before-it",
        source="two snapshots stay, and the log from the older one on: the newest may be damaged",
        by_tests=True,
        places=IN_ROUNDS,
        edits=(Edit(SNAPSHOTS, "        if len(kept) >= SNAPSHOTS_KEPT:\n", "        if kept:\n"),),
    ),
)

LATE_SNAPSHOTS = (
    Mutant(
        name="late-snapshot-cuts-what-the-leader-was-told-of",
        source="a bug of ours: the log had got to the snapshot, and past it, under another leader; Kafka compares first",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(Edit(FETCH_SNAPSHOT, " or is_in_log:\n", ":\n"),),
    ),
    Mutant(
        name="late-snapshot-of-another-history-taken-for-ours",
        source="the log reaches as far as the snapshot, with other records",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(
            Edit(
                FETCH_SNAPSHOT,
                "not was_awaited and group.history.contains(snapshot_id, group.log_end)",
                "not was_awaited and snapshot_id.offset <= group.log_end",
            ),
        ),
    ),
    Mutant(
        name="late-snapshot-below-the-log-start-loaded",
        source="what is committed never goes back",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(Edit(FETCH_SNAPSHOT, "snapshot_id.offset <= group.high_watermark or is_in_log", "is_in_log"),),
    ),
    Mutant(
        name="snapshot-at-the-high-watermark-loaded",
        source="it brings nothing that is not here, and what is behind it may be counted",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(
            Edit(
                FETCH_SNAPSHOT,
                "snapshot_id.offset <= group.high_watermark or is_in_log",
                "snapshot_id.offset < group.high_watermark or is_in_log",
            ),
        ),
    ),
    Mutant(
        name="snapshot-one-above-the-high-watermark-ignored",
        source="the follower would fetch it for ever",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(
            Edit(
                FETCH_SNAPSHOT,
                "snapshot_id.offset <= group.high_watermark or is_in_log",
                "snapshot_id.offset <= group.high_watermark + 1 or is_in_log",
            ),
        ),
    ),
    Mutant(
        name="snapshot-named-at-the-high-watermark-stops-the-node",
        source="nothing committed would be dropped for it",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(
            Edit(FETCH_SNAPSHOT, "snapshot_id.offset >= group.high_watermark", "snapshot_id.offset > group.high_watermark"),
        ),
    ),
    Mutant(
        name="late-snapshot-changes-the-voters-of-a-campaign",
        source="a bug of ours: the votes are those of the voters that were asked, and who is no voter may not win",
        by_tests=True,
        places=IN_LATE_SNAPSHOTS,
        edits=(Edit(FETCH_SNAPSHOT, "Leader | Prospective | Candidate)", "Leader | Candidate)"),),
    ),
)

VOTERS = (
    Mutant(
        name="voters-of-refused-batches-count",
        source="KIP-853: a set counts once it is in the log, and these never come into it",
        by_tests=True,
        places=IN_REFUSED_VOTERS,
        edits=(Edit(FETCH_RESPONSE, "_take_voters(group, batches[:accepted])", "_take_voters(group, batches)"),),
    ),
    Mutant(
        name="voters-of-the-first-refused-batch-count",
        source="the same, one batch too far",
        by_tests=True,
        places=IN_REFUSED_VOTERS,
        edits=(
            Edit(FETCH_RESPONSE, "_take_voters(group, batches[:accepted])", "_take_voters(group, batches[: accepted + 1])"),
        ),
    ),
    Mutant(
        name="voters-of-an-answer-that-was-refused-whole-count",
        source="the very first batch does not fit",
        by_tests=True,
        places=IN_REFUSED_VOTERS,
        edits=(
            Edit(
                FETCH_RESPONSE,
                "    if accepted == 0:\n        return False\n",
                "    if accepted == 0:\n        _take_voters(group, batches[:1])\n        return False\n",
            ),
        ),
    ),
    Mutant(
        name="voters-that-were-cut-are-found-after-a-restart",
        source="the points that a start begins with go with the records that they tell of",
        by_tests=True,
        places=IN_VOTER_LOGS,
        edits=(Edit(LOG, "                self.start_points.cut(end_offset)\n", ""),),
    ),
)

NAMES_AND_POINTS = (
    Mutant(
        name="deleted-group-ends-the-report-of-a-sync",
        source="of three groups of one sync the first is deleted meanwhile; the others wait for ever",
        by_tests=True,
        places=("unit/replica/test_replica_turn_housekeeping_syncer.py",),
        edits=(
            Edit(
                "raftlake.replica.disk.syncer",
                "                if not partition.deleted:\n                    self._engine.step",
                "                if partition.deleted:\n                    return\n                else:\n"
                "                    self._engine.step",
            ),
        ),
    ),
    Mutant(
        name="checkpoint-of-the-first-log-alone",
        source="the recovery points of all others stand still",
        by_tests=True,
        places=IN_FLUSHES,
        edits=(Edit(DIRECTORY, "log.synced_end for log in usable}", "log.synced_end for log in usable[:1]}"),),
    ),
    Mutant(
        name="name-of-a-new-vote-file-not-synced",
        source="the power fails after the first vote: the file is gone, and the vote may be given twice",
        by_tests=True,
        places=IN_NAMES,
        edits=(
            Edit(
                "raftlake.storage.election_journal",
                "        if is_new:\n            sync_directory(self.path.parent)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="names-in-a-new-partition-not-synced",
        source="its directory appears under its name with all that is in it",
        by_tests=True,
        places=IN_NAMES,
        edits=(Edit("raftlake.storage.partition", "        sync_directory(temporary)\n", ""),),
    ),
    Mutant(
        name="snapshot-finished-after-a-failed-write",
        source="the second of three pieces was not written: the file has a hole",
        by_tests=True,
        places=IN_WRITERS,
        edits=(
            Edit(
                "raftlake.storage.snapshots",
                "        if self._error is None:\n            try:\n                sync_data",
                "        if True:\n            try:\n                sync_data",
            ),
        ),
    ),
    Mutant(
        name="point-tells-the-set-that-was-cut",
        source="a set came to stand where another had been; what was written for that one is not used again",
        by_tests=True,
        places=IN_VOTER_LOGS,
        edits=(
            Edit("raftlake.replica.partition.start_points", "if entry is None or entry[0] is not voters:", "if entry is None:"),
        ),
    ),
    Mutant(
        name="voters-of-a-fetched-snapshot-dropped",
        source="the record that names them lies before the log start",
        by_tests=True,
        places=IN_ROUNDS,
        edits=(Edit("raftlake.replica.snapshots.transfer", ", voters=download.voters)", ")"),),
    ),
)

BOUNDARIES = (
    Mutant(
        name="cut-leaves-one-record-known-as-synced",
        source="the next start takes the cut for damage",
        by_tests=True,
        places=IN_BOUNDARIES,
        edits=(Edit(LOG, "if end_offset <= self.synced_end:", "if end_offset < self.synced_end - 1:"),),
    ),
    Mutant(
        name="time-of-the-batch-at-the-cut-kept",
        source="a batch of one record, and an index entry of its own",
        by_tests=True,
        places=IN_BOUNDARIES,
        edits=(
            Edit(
                "raftlake.storage.index",
                "        keep = bisect_left(self.time_offsets, end_offset)\n        del",
                "        keep = bisect_right(self.time_offsets, end_offset)\n        del",
            ),
        ),
    ),
)

SCRUB = (
    Mutant(
        name="slow-reader-goes-on-amid-what-was-cut",
        source="a bug of ours: other batches stand there now, and a sound log was taken for damaged",
        by_tests=True,
        places=("unit/storage/test_storage_scrub.py",),
        edits=(Edit("raftlake.storage.scrub", "        if end_offset < self._next:\n", "        if False:\n"),),
    ),
)

STORAGE: tuple[Mutant, ...] = (
    *FLUSHES,
    *EPOCH_FILES,
    *DELETIONS,
    *LATE_SNAPSHOTS,
    *VOTERS,
    *NAMES_AND_POINTS,
    *BOUNDARIES,
    *SCRUB,
)
