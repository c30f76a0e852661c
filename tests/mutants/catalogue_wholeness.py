"""Bugs planted in what a replica makes of a log that it fetches anew, and in what its leader sends while it compacts."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

WHOLENESS = "raftlake.replica.partition.wholeness"

BY_REPAIRS = ("unit/replica/test_replica_partition_compacted.py",)
BY_WHOLENESS = ("unit/replica/test_replica_partition_wholeness.py",)

REFETCHED_LOGS = (
    mutant(
        "log-of-two-leaders-is-taken-for-whole",
        "simulator, seed 970001333: the second one had removed the tombstone",
        WHOLENESS,
        "        elif self._begun_in != action.leader_epoch:\n",
        "        elif self._begun_in == LAY_HERE:\n",
        BY_REPAIRS,
    ),
    mutant(
        "log-that-is-begun-anew-behind-its-leader-is-taken-for-whole",
        "what the next leader lacks is missed as in a repair",
        WHOLENESS,
        '        """The log is empty: its leader has deleted what lay here, and more."""\n        self.is_whole = False\n',
        '        """The log is empty: its leader has deleted what lay here, and more."""\n',
        BY_WHOLENESS,
    ),
    mutant(
        "first-commit-makes-an-impaired-log-whole",
        "what others counted on may lie behind it",
        WHOLENESS,
        "self._core.impairment is None and self._core.has_caught_up(high_watermark)",
        "self._core.has_caught_up(high_watermark)",
        BY_WHOLENESS,
    ),
    mutant(
        "later-leader-is-taken-for-the-first",
        "the next answer of it would not be looked at",
        WHOLENESS,
        "            require_all_records(self._group, (batch.payload.header for batch in action.batches))\n",
        "            require_all_records(self._group, (batch.payload.header for batch in action.batches))\n"
        "            self._begun_in = action.leader_epoch\n",
        BY_WHOLENESS,
    ),
    mutant(
        "leader-sends-compacted-records-from-memory",
        "found by looking: the older value from memory, and the place of its tombstone from the log",
        "raftlake.replica.compaction.compactor",
        "            self._about_to_compact(partition.group, found.until)\n",
        "",
        BY_REPAIRS,
    ),
    mutant(
        "whole-memory-of-a-group-is-forgotten-with-a-pass",
        "each follower would read back what was just appended",
        "raftlake.replica.replication.recent_appends",
        "key[0] == group and key[1] < end_offset",
        "key[0] == group",
        BY_REPAIRS,
    ),
    mutant(
        "beginning-of-a-damaged-log-is-not-doubted",
        "a bug of ours: a node that was away when the policy came brought deleted keys back",
        WHOLENESS,
        "        self.is_whole = core.impairment is None and log.end_offset > log.start_offset and not log.is_partial\n",
        "        self.is_whole = True\n",
        BY_REPAIRS,
    ),
    mutant(
        "mended-log-is-doubted-for-ever",
        "what is compacted behind what it held does no harm",
        "raftlake.replica.turn.actions",
        "                partition.wholeness.mended()\n",
        "",
        BY_REPAIRS,
    ),
    mutant(
        "restart-makes-a-log-of-a-first-fetch-whole",
        "simulator, seed 1100012778: an observer kept records of an aborted transaction, and missed the marker",
        WHOLENESS,
        " and not log.is_partial\n        #: The epoch",
        "\n        #: The epoch",
        BY_REPAIRS,
    ),
    mutant(
        "observer-notes-what-its-log-is-behind-the-first-batch",
        "a restart in between finds a log that looks whole",
        WHOLENESS,
        "        if is_empty and not self.is_whole and",
        "        if not is_empty and not self.is_whole and",
        BY_WHOLENESS,
    ),
    mutant(
        "log-that-has-caught-up-stays-partial",
        "the observer would fetch it anew after some later restart",
        WHOLENESS,
        "            self._log.note_partial(False)\n",
        "            pass\n",
        BY_WHOLENESS,
    ),
    mutant(
        "voter-that-comes-late-is-doubted",
        "simulator, seed 1110003134: it lost its vote, and with one of three damaged nobody could lead",
        WHOLENESS,
        "            if self._core.is_voter:\n                self.is_whole = True\n            else:\n",
        "            if not self._core.is_voter:\n",
        BY_REPAIRS,
    ),
    mutant(
        "voter-that-comes-late-notes-that-its-log-is-partial",
        "each partition of a new topic would cost two syncs more",
        WHOLENESS,
        "            if self._core.is_voter:\n                self.is_whole = True\n            else:\n",
        "            if True:\n",
        BY_WHOLENESS,
    ),
    mutant(
        "voter-that-lost-its-whole-log-is-trusted",
        "simulator, seed 970001333, where nothing is left",
        WHOLENESS,
        " and not self._log.is_partial and self._core.impairment is None:\n",
        " and not self._log.is_partial:\n",
        BY_WHOLENESS,
    ),
    mutant(
        "voter-that-was-an-observer-is-trusted-when-it-begins-anew",
        "what it begins with may come from two leaders",
        WHOLENESS,
        " and not self._log.is_partial and self._core.impairment is None:\n",
        " and self._core.impairment is None:\n",
        BY_WHOLENESS,
    ),
    mutant(
        "note-of-a-partial-log-is-not-durable",
        "a power loss takes it, and keeps the batches that were synced since",
        "raftlake.storage.partial",
        'replace_file(path / FILE_NAME, b"")',
        'replace_file(path / FILE_NAME, b"", sync=False)',
        ("unit/storage/test_storage_partial.py",),
    ),
    mutant(
        "file-that-was-deleted-comes-back-after-a-power-loss",
        "a log that has caught up would be doubted again",
        "raftlake.storage.files",
        "        path.unlink(missing_ok=True)\n        sync_directory(path.parent)\n",
        "        path.unlink(missing_ok=True)\n",
        ("unit/storage/test_storage_partial.py",),
    ),
    mutant(
        "failed-note-of-a-partial-log-is-tried-again",
        "what a failed sync was to write may be lost",
        "raftlake.storage.log",
        "            self._pool.room.retrying(lambda: partial.note(self.path, is_partial))\n"
        "        except DiskFull:\n"
        "            raise\n"
        "        except StorageError as error:\n"
        "            raise self._fail(error) from error\n",
        "            self._pool.room.retrying(lambda: partial.note(self.path, is_partial))\n"
        "        except DiskFull:\n"
        "            raise\n",
        ("unit/storage/test_storage_partial.py",),
    ),
    mutant(
        "observer-that-knows-no-voter-takes-itself-for-the-only-one",
        "simulator, seed 1120003662: it was to begin its log anew, and stopped at each start",
        "raftlake.replica.disk.alone",
        "running is not None and running.ids:",
        "running is not None:",
        ("unit/replica/test_replica_disk_alone.py",),
    ),
)
