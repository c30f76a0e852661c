"""Planted bugs in what reads the tables of the remote tier: the order of rows, and each rule of `raftlake tier verify`."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

ORDERED = "raftlake.tier.ordered_rows"
READER = "raftlake.tier.reader"
ROWS = "raftlake.tier.row_checks"
FILES = "raftlake.tier.file_checks"
KEYS = "raftlake.tier.key_checks"
VERIFY = "raftlake.tier.verify"
FACTS = "raftlake.cli.tier_facts"

READING = ("unit/tier/test_tier_ordered_rows.py", "unit/tier/test_tier_reader.py")
VERIFYING = ("property/test_tier_row_checks.py", "unit/tier/test_tier_verify.py", "unit/tier/test_tier_key_checks.py")
QUICKSTART = ("unit/quickstart/test_quickstart_history.py",)

TIER_HISTORY: tuple[Mutant, ...] = (
    Mutant(
        name="tier-row-groups-in-disorder-streamed",
        source="OPTIMIZE of Spark packs files by size: runs of offsets in any order in one row group",
        by_tests=True,
        places=READING,
        edits=(Edit(ORDERED, "if len(together) == 1 and together[0].is_ordered:", "if len(together) == 1:"),),
    ),
    Mutant(
        name="tier-order-of-rows-looked-at-within-pieces-only",
        source="the first row of a piece may lie before the last one of the piece before",
        by_tests=True,
        places=READING,
        edits=(Edit(ORDERED, "            before = int(offsets[-1])\n", ""),),
    ),
    Mutant(
        name="tier-window-loses-its-last-offset",
        source="the boundary of two windows",
        by_tests=True,
        places=READING,
        edits=(
            Edit(
                ORDERED,
                "            start = end if found[0] is not None",
                "            start = end + 1 if found[0] is not None",
            ),
        ),
    ),
    Mutant(
        name="tier-missing-rows-at-the-end-of-a-range-left-out",
        source="a reader that asks for an offset which the table has lost goes on without a word",
        by_tests=True,
        places=READING,
        edits=(Edit(READER, "    if following < end:\n", "    if following < end and following == start:\n"),),
    ),
    Mutant(
        name="tier-gap-between-two-pieces-overlooked",
        source="Tableflow, Redpanda: gaps at the seam of two files",
        by_tests=True,
        places=VERIFYING,
        edits=(
            Edit(ROWS, "for row in np.flatnonzero(steps > 1).tolist():", "for row in np.flatnonzero(steps[1:] > 1).tolist():"),
        ),
    ),
    Mutant(
        name="tier-doubles-overlooked",
        source="a copy that was shown twice",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(ROWS, "_runs(np.flatnonzero(steps <= 0), offsets)", "_runs(np.flatnonzero(steps < 0), offsets)"),),
    ),
    Mutant(
        name="tier-crc-of-a-batch-in-two-pieces-not-made",
        source="the batch that goes on in the next piece",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(ROWS, "is_whole = np.concatenate([[self._open_is_whole],", "is_whole = np.concatenate([[False],"),),
    ),
    Mutant(
        name="tier-crc-of-the-last-batch-not-made",
        source="nothing comes behind the last batch",
        by_tests=True,
        places=VERIFYING,
        edits=(
            Edit(
                ROWS,
                "        if self._open:\n            self._check_crcs(self._open,",
                "        if not self._open:\n            self._check_crcs(self._open,",
            ),
        ),
    ),
    Mutant(
        name="tier-one-bad-batch-hides-those-beside-it",
        source="rows that are no batch make the encoder raise, and the others were in the same piece",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(ROWS, "rows.slice(start, count), self._loader", "rows.slice(start), self._loader"),),
    ),
    Mutant(
        name="tier-bytes-of-a-file-not-compared",
        source="flipped bytes in a compressed batch, whose CRC no rows can give",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(FILES, "if (segment.size, segment.crc) != (file.size, crc):", "if segment.size != file.size:"),),
    ),
    Mutant(
        name="tier-doubtful-file-opened-at-once",
        source="pyarrow ends its process at some damaged footers",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(FILES, "if not self._probe.survives(file.path):", "if self._probe.survives(file.path) and False:"),),
    ),
    Mutant(
        name="tier-probe-that-ended-not-started-again",
        source="the second doubtful file",
        by_tests=True,
        places=("unit/tier/test_tier_probe.py",),
        edits=(Edit("raftlake.tier.probe", "        self._socket = self._process = None\n", ""),),
    ),
    Mutant(
        name="tier-lost-file-told-as-gap-too",
        source="one fault, one finding",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(VERIFY, "        self._excuse(self._files.bad)\n", ""),),
    ),
    Mutant(
        name="tier-rewritten-file-taken-for-lost",
        source="OPTIMIZE and VACUUM while a table is read",
        by_tests=True,
        places=VERIFYING,
        edits=(
            Edit(
                FILES,
                "        if self._history.is_still_shown(file):\n            what = problem",
                "        if file.rows:\n            what = problem",
            ),
        ),
    ),
    Mutant(
        name="tier-rows-behind-the-last-commit-overlooked",
        source="rows that another program appends have the offsets that the tier will use",
        by_tests=True,
        places=VERIFYING,
        edits=(
            Edit(VERIFY, "(last > said or (incarnation == newest and last < said))", "incarnation == newest and last < said"),
        ),
    ),
    Mutant(
        name="tier-copy-under-way-taken-for-a-fault",
        source="a table is ahead of its keys between a copy and its COPY_FINISHED",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(KEYS, "    return end in ends or low < end < last.end_offset", "    return low < end < last.end_offset"),),
    ),
    Mutant(
        name="tier-keys-behind-the-table-overlooked",
        source="a table that shows more than any copy of the quorum",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(KEYS, "    return end in ends or low < end < last.end_offset", "    return end in ends or low < end"),),
    ),
    Mutant(
        name="tier-old-leader-believed",
        source="a leader that was replaced shows a high watermark of the past, and no lag",
        by_tests=True,
        places=("unit/cli/test_cli_tier.py",),
        edits=(Edit(FACTS, 'each.get("highWatermark", -1) > told[place]', 'each.get("highWatermark", -1) < told[place]'),),
    ),
    Mutant(
        name="tier-changed-compressed-rows-are-well",
        source="an UPDATE of the value of a compressed batch: verify said that all is well",
        by_tests=True,
        places=VERIFYING,
        edits=(Edit(VERIFY, "        if not unmade or any(", "        if True or any("),),
    ),
    Mutant(
        name="tier-optimize-taken-for-a-change-of-compressed-rows",
        source="who rewrites files and changes no data is told to undo it",
        by_tests=True,
        places=VERIFYING,
        edits=(
            Edit(
                VERIFY,
                '        if change is not None:\n            what = f"the values',
                '        if change is not None or self._files.is_rewritten:\n            what = f"the values',
            ),
        ),
    ),
    Mutant(
        name="quickstart-history-behind-the-log",
        source="the tour shows a table whose last copy is missing",
        by_tests=True,
        places=QUICKSTART,
        edits=(Edit("raftlake.quickstart.history", "                if shown == ends:", "                if shown:"),),
    ),
    Mutant(
        name="quickstart-history-not-verified",
        source="a tour that cannot fail",
        by_tests=True,
        places=QUICKSTART,
        edits=(Edit("raftlake.quickstart.history", "    if report.findings:", "    if False:"),),
    ),
    Mutant(
        name="quickstart-counts-control-records",
        source="`kind`: elections are rows too",
        by_tests=True,
        places=QUICKSTART,
        edits=(Edit("raftlake.quickstart.history", "FROM history WHERE kind = 0 GROUP", "FROM history GROUP"),),
    ),
    Mutant(
        name="quickstart-sql-not-compared",
        source="a tour that cannot fail",
        by_tests=True,
        places=QUICKSTART,
        edits=(Edit("raftlake.quickstart.tour", " or facts.carriers != data.flights_by_carrier(flights):", ":"),),
    ),
)
