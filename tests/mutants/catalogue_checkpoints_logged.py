"""Planted bugs in copies of state whose changes are in topics."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

HOME = "raftlake.checkpoints."
LOGGED = ("unit/checkpoints/test_checkpoints_logged_changelog_topics.py",)
FILES = ("unit/checkpoints/test_checkpoints_changelog_file_lz4_blocks.py",)

LOGGED_STATE = (
    mutant(
        "copy-takes-the-newest-attempt-of-a-version",
        "what a killed task wrote becomes state",
        HOME + "changelog_topics",
        "        return self._trailers.get(name)\n",
        "        return next((found for (number, _), found in self._trailers.items() if number == version), None)\n",
        LOGGED,
    ),
    mutant(
        "copy-has-the-last-piece-of-a-version-alone",
        "keys are missing from the state of a large batch",
        HOME + "changelog_topics",
        "        for first, last in trailer.place:\n",
        "        for first, last in trailer.place[-1:]:\n",
        LOGGED,
    ),
    mutant(
        "changes-that-come-too-late-pass-for-deleted",
        "a copy lacks state, for a node was slow",
        HOME + "changelog_topics",
        "            if refused.code not in GONE:\n                raise\n            # Older",
        "            # Older",
        LOGGED,
    ),
    mutant(
        "copy-has-what-one-read-gives",
        "changes of a large version are left out",
        HOME + "changelog_topics",
        "                yield from records\n                offset += len(records)\n",
        "                yield from records\n                offset = last\n",
        LOGGED,
    ),
    mutant(
        "gap-in-a-changelog-ends-the-search",
        "behind a change of leaders no older version is found",
        HOME + "changelog_topics",
        "                self._looked_to = offset\n                continue\n",
        "                self._looked_to = offset\n                return\n",
        LOGGED,
    ),
    mutant(
        "copy-goes-on-behind-a-snapshot",
        "versions below a snapshot were deleted, and a copy of a long query is refused",
        HOME + "logged",
        "for each in (parent, None)} & self._layout.names:",
        "for each in ()} & self._layout.names:",
        LOGGED,
    ),
    mutant(
        "files-of-an-imported-state-lose-the-newest",
        "a query that was imported and copied lacks one version",
        HOME + "logged",
        "file.version <= self._filed.get(file.store, 0)",
        "file.version < self._filed.get(file.store, 0)",
        LOGGED,
    ),
    mutant(
        "all-files-of-changes-stay",
        "a file that points into a topic stands in the copy beside the changes themselves",
        HOME + "logged",
        "return file is None or file.is_base or file.version <=",
        "return file is None or file.is_base or not name.endswith(_SUM) or file.version <=",
        LOGGED,
    ),
    mutant(
        "copy-in-format-1-begins-with-the-snapshot",
        "the changes of the snapshot's own version are looked for, and were deleted",
        HOME + "logged",
        "range(version, 0 if base is None else base.version, -1)",
        "range(version, 0 if base is None else base.version - 1, -1)",
        LOGGED,
    ),
    mutant(
        "copied-changes-have-no-lineage",
        "Spark finds no snapshot for a version, and the query does not start",
        HOME + "logged",
        "trailer.lineage if trailer.unique_id else None",
        "None",
        LOGGED,
    ),
    mutant(
        "copy-has-another-codec",
        "Spark cannot read the changes of a query with zstd",
        HOME + "changelog_file",
        "    return _CODECS[codec](bytes(out))\n",
        "    return _CODECS[CODEC_DEFAULT](bytes(out))\n",
        FILES,
    ),
    mutant(
        "merge-is-copied-as-a-put",
        "values of a list are lost but for the last one",
        HOME + "changelog_file",
        "    op = dict(change.headers).get(_OP)\n",
        "    op = None\n",
        FILES,
    ),
    mutant(
        "hash-of-a-block-forgets-its-end",
        "Spark refuses a file whose size is no multiple of four",
        HOME + "lz4_blocks",
        "    for byte in rest[4 * words :]:\n",
        "    for byte in rest[len(rest) :]:\n",
        FILES,
    ),
)
