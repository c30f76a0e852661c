"""Bugs planted where a review found some: starts after a power loss, and writes that a disk or the system has refused."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

LOCK = "raftlake.storage.lock"
DIRECTORY = "raftlake.storage.directory"
RECOVERY = "raftlake.storage.recovery"
RESERVE = "raftlake.storage.reserve"
ABORTED = "raftlake.storage.aborted_index"
FILES = "raftlake.storage.files"
IMPAIRMENT = "raftlake.storage.impairment"
LOG = "raftlake.storage.log"
POINTS = "raftlake.storage.recovery_points"
STARTS = "raftlake.storage.start_points"
IN_BOOTS = ("unit/storage/test_storage_recovery_boots.py",)
IN_RECOVERY = ("unit/storage/test_storage_recovery.py",)
IN_RESERVES = ("unit/storage/test_storage_reserve.py",)
IN_INDEX = ("unit/storage/test_storage_aborted_index.py",)
IN_FILES = ("unit/storage/test_storage_files.py",)
IN_ASIDE = ("unit/storage/test_storage_set_aside_again.py",)
IN_FILE_CONTRACT = ("contract/test_storage_set_aside_contract.py",)
IN_POINTS = ("unit/storage/test_storage_recovery_points.py",)
IN_STARTS = ("unit/storage/test_storage_start_points.py",)

BOOTS = (
    mutant(
        "lock-names-the-boot-before-anything-is-recovered",
        "the start behind one that failed took what a power loss had left for damage",
        LOCK,
        "            self._names_boot = self.is_same_boot\n",
        '            self._names_boot = self._boot != ""\n',
        IN_BOOTS,
    ),
    mutant(
        "first-open-log-speaks-for-all",
        "a start that ended amid its logs has not recovered the others",
        DIRECTORY,
        "        if not self._unrecovered:\n            self._lock.note_recovered()\n",
        "        if groups or not self._unrecovered:\n            self._lock.note_recovered()\n",
        IN_BOOTS,
    ),
    mutant(
        "deleted-log-is-waited-for",
        "damage would be cut as if the power had taken it",
        DIRECTORY,
        "        self._note_recovered(groups)\n",
        "",
        IN_BOOTS,
    ),
)

REFUSED_WRITES = (
    mutant(
        "refused-reserve-is-left-behind-a-sealed-segment",
        "ext4 keeps the blocks that it has found, and a start took them for damage",
        RESERVE,
        "            os.posix_fallocate(file.descriptor(), size, end - size + ahead)\n",
        "            os.posix_fallocate(file.descriptor(), size, end - size + ahead)\n"
        "            return\n"
        "        self._end = end\n",
        IN_RESERVES,
    ),
    mutant(
        "zeros-in-the-place-of-sealed-batches-are-cut",
        "only where each batch is there can zeros be what was reserved",
        RECOVERY,
        "broken.offset != following or not _is_reserve(segment, broken)",
        "not _is_reserve(segment, broken)",
        IN_RECOVERY,
    ),
    mutant(
        "entries-of-the-first-file-count-though-the-second-was-refused",
        "the append was repeated, and a reader that met them twice stopped the node",
        ABORTED,
        "            grown[base] = counts.get(base, 0) + len(data) // ENTRY.size\n",
        "            grown[base] = counts[base] = counts.get(base, 0) + len(data) // ENTRY.size\n",
        IN_INDEX,
    ),
    mutant(
        "cut-counts-entries-of-a-refused-append",
        "the append is repeated, and they are there twice",
        ABORTED,
        "min(self._intact_below(base, end_offset), counts[base])",
        "self._intact_below(base, end_offset)",
        IN_INDEX,
    ),
    mutant(
        "directory-is-opened-when-the-file-is-renamed",
        "without a descriptor the callers went on with a file that was gone",
        FILES,
        "    directory = open_file(new.parent, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n        os.rename(old, new)\n",
        "    os.rename(old, new)\n    directory = open_file(new.parent, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n",
        (*IN_FILES, "unit/storage/test_storage_election_journal.py"),
    ),
    mutant(
        "failed-sync-of-a-name-is-want-of-room",
        "what it was to write may be lost, and no caller goes on",
        FILES,
        '            raise storage_error("sync", new.parent, error) from error\n',
        '            raise storage_error("replace", new, error) from error\n',
        IN_FILES,
    ),
)

TRIED_AGAIN = (
    mutant(
        "damage-is-looked-at-anew-at-each-try",
        "what is cut is found by no second look: the node stopped",
        DIRECTORY,
        "self._damages.get(group) or self._look_at(group, damage)",
        "self._look_at(group, damage)",
        (*IN_ASIDE, *IN_FILE_CONTRACT),
    ),
    mutant(
        "damage-is-remembered-over-an-open",
        "the log may have been cut and have grown by then",
        DIRECTORY,
        "        if log is None:\n            self._damages.pop(group, None)\n",
        "        if log is None:\n",
        (*IN_ASIDE, *IN_FILE_CONTRACT),
    ),
    mutant(
        "damage-is-remembered-when-its-group-is-deleted",
        "it was kept for as long as the node ran",
        DIRECTORY,
        "            self._damages.pop(group, None)\n            self.snapshots.forget(group)\n",
        "            self.snapshots.forget(group)\n",
        IN_ASIDE,
    ),
    mutant(
        "end-of-a-damaged-log-is-known-to-itself-alone",
        "a crash before the mark, and a file that ends early was opened as if nothing were lost",
        DIRECTORY,
        "        if self._points.note({log.group: log.synced_end}):\n",
        "        if False:\n",
        IN_ASIDE,
    ),
    mutant(
        "copy-is-made-again-of-the-copy",
        "the damaged segment that was put aside was written over",
        IMPAIRMENT,
        "if self._segment is None or self._aside is not None:",
        "if self._segment is None:",
        IN_ASIDE,
    ),
    mutant(
        "each-try-makes-a-directory-for-damaged-files",
        "the thousandth stopped the node",
        IMPAIRMENT,
        "                aside.mkdir(DIRECTORY_MODE)\n",
        "                aside.mkdir(DIRECTORY_MODE)\n                sync_directory(self._path)\n",
        IN_ASIDE,
    ),
    mutant(
        "settling-without-a-descriptor-fails-the-log",
        "the next try, a second later, stopped the node",
        LOG,
        "            sync_names(self.path)\n        except DiskFull:\n            raise\n",
        "            sync_names(self.path)\n",
        ("unit/storage/test_storage_log_faults.py",),
    ),
    mutant(
        "second-try-leaves-a-recovery-point-too-high",
        "the log was cut, and after a crash the file called the cut a loss",
        POINTS,
        "            self._is_file_ahead = True\n        self._save_lowered()\n\n    def forget",
        "            self._is_file_ahead = True\n            self._save_lowered()\n\n    def forget",
        IN_POINTS,
    ),
    mutant(
        "second-deletion-leaves-the-recovery-point-of-a-deleted-log",
        "the next log of that name was taken for damaged",
        POINTS,
        "                    del self._points[key]\n            self._is_file_ahead = True\n        self._save_lowered()\n",
        "                    del self._points[key]\n            self._is_file_ahead = True\n            self._save_lowered()\n",
        IN_POINTS,
    ),
    mutant(
        "recovery-points-are-written-at-each-cut",
        "each truncation waited for the disk once more",
        POINTS,
        "        if not self._is_file_ahead:\n            return\n",
        "",
        IN_POINTS,
    ),
)

START_POINTS = (
    mutant(
        "start-points-are-forgotten-when-one-is-refused",
        "to list them takes a descriptor, and retention asked from a timer: the node stopped",
        STARTS,
        "            self._look_again(offset)\n",
        "            self._known = None\n",
        IN_STARTS,
    ),
    mutant(
        "deletion-that-is-not-durable-is-done",
        "a crash brings a point back that tells of records which are gone",
        STARTS,
        "            # What was not deleted durably counts as there, so that it is deleted again.\n",
        "            self._known = [known for known in self.offsets if known not in offsets]\n",
        IN_STARTS,
    ),
)

REFUSED_OPENINGS = (
    mutant(
        "producers-of-a-refused-opening-stay-counted",
        "each try counted them again, until new producers were refused",
        "raftlake.replica.hosting.hosting",
        "            facts.close()\n            raise\n",
        "            raise\n",
        ("unit/replica/test_replica_hosting_tally.py",),
    ),
)

REVIEW_STORAGE = BOOTS + REFUSED_WRITES + TRIED_AGAIN + START_POINTS + REFUSED_OPENINGS
