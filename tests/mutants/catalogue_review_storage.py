"""Bugs planted where a review found some: starts after a power loss, and writes that a disk or the system has refused."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

LOCK = "raftlake.storage.lock"
DIRECTORY = "raftlake.storage.directory"
RECOVERY = "raftlake.storage.recovery"
RESERVE = "raftlake.storage.reserve"
ABORTED = "raftlake.storage.aborted_index"
FILES = "raftlake.storage.files"
IN_BOOTS = ("unit/storage/test_storage_recovery_boots.py",)
IN_RECOVERY = ("unit/storage/test_storage_recovery.py",)
IN_RESERVES = ("unit/storage/test_storage_reserve.py",)
IN_INDEX = ("unit/storage/test_storage_aborted_index.py",)
IN_FILES = ("unit/storage/test_storage_files.py",)

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

REVIEW_STORAGE = BOOTS + REFUSED_WRITES
