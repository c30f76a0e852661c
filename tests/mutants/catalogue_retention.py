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
)
