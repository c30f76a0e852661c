"""Planted bugs in the commands that show, copy, rewind, move and delete checkpoints."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

HOME = "raftlake.checkpoints."
COPIES = ("unit/checkpoints/test_checkpoints_copies.py",)
CHANGES = ("unit/checkpoints/test_checkpoints_changes.py",)
GOLDEN = ("unit/checkpoints/test_checkpoints_golden.py",)
LAYOUT = ("unit/checkpoints/test_checkpoints_layout_facts.py",)
LOGS = ("unit/checkpoints/test_checkpoints_log_blobs.py",)
BLOBS = ("unit/checkpoints/test_checkpoints_blobs_space.py",)

CHECKPOINTS = (
    mutant(
        "a-rewind-leaves-the-state-of-the-batch-behind",
        "version N + 2 stays, and a later run reads a snapshot of another history",
        HOME + "layout",
        '        return int(state["version"]) > batch + 1\n',
        '        return int(state["version"]) > batch + 2\n',
        LAYOUT,
    ),
    mutant(
        "a-rewind-takes-the-state-of-its-own-batch",
        "a version is taken for the number of its batch",
        HOME + "layout",
        '        return int(state["version"]) > batch + 1\n',
        '        return int(state["version"]) > batch\n',
        LAYOUT,
    ),
    mutant(
        "a-gap-between-the-changes-is-not-seen",
        "only the last change behind a snapshot is looked for",
        HOME + "layout",
        "        gone = [number for number in range(begin + 1, version + 1) if number not in changes]\n",
        "        gone = [number for number in (version,) if version > begin and number not in changes]\n",
        LAYOUT,
    ),
    mutant(
        "a-snapshot-above-the-version-is-its-base",
        "the newest whole state is taken, whatever version is asked for",
        HOME + "layout",
        "if file.is_base and file.version <= version]",
        "if file.is_base]",
        LAYOUT,
    ),
    mutant(
        "the-second-store-of-a-join-is-not-looked-for",
        "the ids of a commit are checked for the first store of each partition",
        HOME + "layout",
        "                    ids.update(zip(partition, its_ids, strict=True))\n",
        "                    ids[partition[0]] = its_ids[0]\n",
        LAYOUT,
    ),
    mutant(
        "a-query-that-starts-needs-the-offsets-of-one-batch",
        "Spark reads those of the batch before as well, and does not start",
        HOME + "layout",
        "        for number in (batch - 1, batch)\n",
        "        for number in (batch,)\n",
        COPIES,
    ),
    mutant(
        "a-partition-without-files-is-not-missed",
        "the stores that must be there are those that are",
        HOME + "layout",
        "        stores |= {store for partition in named for store in partition}\n",
        "",
        COPIES,
    ),
    mutant(
        "a-fork-has-the-id-of-its-source",
        "sinks that remember batches leave out what the fork writes",
        HOME + "copies",
        '    metadata = json.dumps({"id": query}, separators=(",", ":")).encode()\n',
        "    metadata = tree.content(METADATA)\n",
        COPIES,
    ),
    mutant(
        "a-batch-that-was-begun-stays-behind-when-a-query-moves",
        "it is planned anew, and an exactly-once sink has half of it already",
        HOME + "sources",
        "    if is_move:\n        kept +=",
        "    if False:\n        kept +=",
        COPIES,
    ),
    mutant(
        "a-copy-is-begun-over-what-a-broken-one-left",
        "the repeated command finds files where it puts some",
        HOME + "copies",
        "    clear(writer, before, tools.progress)\n",
        "",
        COPIES,
    ),
    mutant(
        "a-copy-into-a-directory-of-a-running-query-is-taken",
        "nobody looks again whether the files are those that were read",
        HOME + "copies",
        "        directory.require_unchanged()\n",
        "        pass\n",
        COPIES,
    ),
    mutant(
        "the-older-run-is-fenced-by-the-first-transaction-alone",
        "the version of the owner key is compared as the checkpoint is taken, and never again",
        HOME + "owner",
        "    change.compare.update(ownership.compare for ownership in owners)\n",
        "",
        CHANGES,
    ),
    mutant(
        "a-rewind-trusts-what-it-saw-before-it-fenced-the-query",
        "the query cleans up the batch between the look and the owner key",
        HOME + "changes",
        "    tree.require_checkpoint(told)\n    _require_rewindable(tools, tree, query, batch)\n    found = ",
        "    tree.require_checkpoint(told)\n    found = ",
        CHANGES,
    ),
    mutant(
        "a-repeated-rewind-puts-the-mark-for-metadata",
        "what `metadata` was is read where the mark stands",
        HOME + "changes",
        "    return tree.content(METADATA) if mark is None else mark.before.encode()\n",
        "    return tree.content(METADATA)\n",
        CHANGES,
    ),
    mutant(
        "half-of-a-renamed-checkpoint-may-be-deleted",
        "a broken-off rename is taken for a broken-off copy",
        HOME + "mark",
        "        return self.doing == RENAME\n",
        "        return False\n",
        CHANGES,
    ),
    mutant(
        "a-file-that-came-late-is-lost-with-its-directory",
        "the last transaction of a rename looks at its own keys alone",
        HOME + "changes",
        "    change = Change(newest={source.prefix: source_at})\n",
        "    change = Change()\n",
        CHANGES,
    ),
    mutant(
        "a-lost-answer-is-taken-for-a-refusal",
        "the change is sent again, and its own effect is a conflict",
        HOME + "space",
        "                if not is_open or (version := self._version_of(change)) is None:\n",
        "                if True:\n",
        BLOBS,
    ),
    mutant(
        "a-blob-has-no-intent",
        "a command that dies leaves a file that nobody finds",
        HOME + "blobs",
        "        version = self._space.commit(announced) or self._version(key)\n",
        "        version = self._version(key)\n",
        BLOBS,
    ),
    mutant(
        "chunks-of-a-blob-are-taken-to-stand-together",
        "another file was written meanwhile, and its chunks are read",
        HOME + "log_blobs",
        "        return self.last - self.first + 1 == self.chunks\n",
        "        return True\n",
        LOGS,
    ),
    mutant(
        "a-blob-leaves-its-index-when-it-goes",
        "the record with the offsets stays in the topic for ever",
        HOME + "log_blobs",
        "        if name.first < 0 or not name.is_contiguous:\n            keys",
        "        if name.first < 0:\n            keys",
        LOGS,
    ),
    mutant(
        "percent-signs-are-kept-as-they-are",
        "the Java file system looks for another key",
        HOME + "location",
        'if c == "%" or c < " "',
        'if c < " "',
        GOLDEN,
    ),
    mutant(
        "a-checksum-is-not-compared",
        "a copy of damaged content gets a checksum that fits",
        HOME + "node",
        '    if crc32c(content) != facts["crc32c"]:\n',
        "    if False:\n",
        GOLDEN,
    ),
)
