"""Bugs planted in when retention by time closes the active segment."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

RULE = "raftlake.replica.partition.retention"
HOUSE = "raftlake.replica.turn.housekeeping"
ACTIVE = ("unit/replica/test_replica_partition_retention_active.py",)

RETENTION_BY_TIME = (
    mutant(
        "active-segment-never-closed-for-its-age",
        "retention.ms kept a topic that fills no segment for ever",
        HOUSE,
        "                rolls += 1\n",
        "                continue\n",
        ACTIVE,
    ),
    mutant(
        "active-segment-closed-above-the-high-watermark",
        "KIP-405: only committed segments may go",
        RULE,
        " or active.end_offset > below:",
        ":",
        ACTIVE,
    ),
    mutant(
        "active-segment-closed-behind-a-young-one",
        "Kafka closes it only where all segments may go",
        RULE,
        "    return first_offset_to_keep(segments, kept, wall_ms, below, ended) == active.base_offset",
        "    return True",
        ACTIVE,
    ),
    mutant(
        "control-records-deleted-as-soon-as-they-are-written",
        "the records of a leader have no time, which is older than any",
        RULE,
        " or active.timestamp_ms_max < 0",
        "",
        ACTIVE,
    ),
    mutant(
        "local-log-closed-before-the-table-gave-it-back",
        "issue 12: local retention only after COPY_FINISHED and a checksum read-back",
        HOUSE,
        "wants_roll(segments, kept, wall_ms, below, ended)",
        "wants_roll(segments, kept, wall_ms, partition.high_watermark, ended)",
        ACTIVE,
    ),
    mutant(
        "disk-without-room-stops-the-rounds",
        "a node with a full disk has to delete",
        HOUSE,
        "        except DiskFull as full:\n            self._disk.on_full(full)\n",
        "        except ZeroDivisionError:\n            pass\n",
        ACTIVE,
    ),
    mutant(
        "state-that-was-not-saved-keeps-the-log",
        "nothing is appended to a quiet topic, and so no point was saved again",
        HOUSE,
        "                partition.save_missing_point()\n",
        "                pass\n",
        ACTIVE,
    ),
    mutant(
        "trim-of-a-log-that-was-cut-forgets-producers",
        "seed 1060000922: a batch that came again was appended behind a snapshot that told no producers",
        "raftlake.replica.snapshots.snapshots",
        "        if producers is None and offset > partition.log.start_offset:\n",
        "        if False:\n",
        ("unit/replica/test_replica_snapshot_trimming.py",),
    ),
    mutant(
        "damaged-snapshot-at-the-start-is-left",
        "what nothing tells any more cannot be waited for",
        "raftlake.replica.snapshots.snapshots",
        "        if producers is None and offset > partition.log.start_offset:\n",
        "        if producers is None:\n",
        ("unit/replica/test_replica_snapshot_trimming.py",),
    ),
    mutant(
        "closed-segments-scrubbed-at-once",
        "a node answered nobody for 2 to 4 ms each second",
        "raftlake.replica.disk.scrub",
        "        left = size = min(self._budget, SLICE_BYTES)\n",
        "        left = size = self._budget\n",
        ("unit/replica/test_replica_disk_findings_scrub_syncer.py",),
    ),
    mutant(
        "epochs-that-a-flush-wrote-count-as-durable",
        "a segment begins behind epochs that a power loss can take",
        "raftlake.storage.epochs",
        "        if sync:\n            self._durable_version = version\n",
        "        self._durable_version = version\n",
        ("unit/storage/test_storage_epochs.py",),
    ),
)
