"""Planted bugs in the Spark source between Delta table and log: the seam, the plan, filters, what stands in for what."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

SEAM = "pyspark_raftlake.seam"
TABLES = "pyspark_raftlake.tables"
PLANNING = "pyspark_raftlake.planning"
PUSHDOWN = "pyspark_raftlake.pushdown"
ROWS = "pyspark_raftlake.table_reader"
READER = "pyspark_raftlake.reader"


def planted(name: str, source: str, module: str, before: str, after: str, *tests: str) -> Mutant:
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=tests)


SEAMS = ("connector/test_connector_seam.py", "connector/test_connector_tables.py")
PLANS = ("connector/test_connector_tables.py",)
READS = ("connector/test_connector_table_reader.py",)
FILTERS = ("connector/test_connector_pushdown.py", "connector/test_connector_tables.py")

TIER_CONNECTOR: tuple[Mutant, ...] = (
    planted(
        "seam-offset-in-both-sources",
        "Tableflow, Redpanda: a double at the seam of table and log",
        SEAM,
        "        return self.start <= offset < self.end",
        "        return self.start <= offset <= self.end",
        *SEAMS,
    ),
    planted(
        "seam-beyond-the-planned-end",
        "a table ahead of the end that a lagging replica named",
        SEAM,
        "min(range_.end, shown.end), range_.end]",
        "shown.end, range_.end]",
        *SEAMS,
    ),
    planted(
        "seam-before-the-start-of-the-table-left-out",
        "retention moves the start of the table up between two looks",
        SEAM,
        "cuts = [range_.start, max(range_.start, shown.start),",
        "cuts = [max(range_.start, shown.start), max(range_.start, shown.start),",
        *SEAMS,
    ),
    planted(
        "last-file-of-a-task-left-out",
        "a task that begins with the last offset of a file",
        SEAM,
        "bisect_left(self._reach, range_.start)",
        "bisect_left(self._reach, range_.start + 1)",
        *SEAMS,
    ),
    planted(
        "files-that-share-offsets-skipped-by-time",
        "OPTIMIZE: rows of one range of offsets in several files",
        SEAM,
        "            if start >= end or not is_alone or span",
        "            if start >= end or span",
        *SEAMS,
    ),
    planted(
        "inclusive-end-of-copies-taken-for-the-end",
        "LATEST_TIERED is the last offset itself",
        TABLES,
        "found.get(number, -1) + 1 for",
        "max(0, found.get(number, -1)) for",
        *PLANS,
    ),
    planted(
        "table-of-a-stream-never-looked-at-again",
        "the seam moves while a stream catches up",
        TABLES,
        "if topic.history is None or any(self._end_of(topic, number) < end for number, end in ends.items()):",
        "if topic.history is None:",
        *PLANS,
    ),
    planted(
        "what-was-shown-remembered-over-a-refresh",
        "the seam moves while a stream catches up",
        TABLES,
        "            topic.history.refresh()\n        topic.shown.clear()\n",
        "            topic.history.refresh()\n",
        *PLANS,
    ),
    planted(
        "foreign-table-read",
        "Fluss#3483: a table is known by the id of its topic",
        TABLES,
        "            if history.topic_id != topic.topic_id:\n",
        "            if history.topic_id == b'':\n",
        *PLANS,
    ),
    planted(
        "wrong-place-of-the-table-only-a-warning",
        "a user who names the table must hear that it is not there",
        TABLES,
        "        if self._options.is_strict:\n",
        "        if self._options.mode is Tier.REMOTE:\n",
        *PLANS,
    ),
    planted(
        "search-by-time-moves-the-log-backwards",
        "the search by time finds records of the table, which other tasks read",
        PLANNING,
        "start = piece.end if found < 0 else max(piece.start, found)",
        "start = piece.end if found < 0 else found",
        *PLANS,
    ),
    planted(
        "filter-offset-above-takes-the-bound-away",
        "strict and inclusive comparisons",
        PUSHDOWN,
        'case "GreaterThanOrEqual":\n                return self._within(column, value, None)',
        'case "GreaterThanOrEqual":\n                return self._within(column, value + 1, None)',
        *FILTERS,
    ),
    planted(
        "control-records-become-rows",
        "offsets of leaders' control records are gaps for a reader",
        ROWS,
        "        if not pc.all(is_record).as_py():\n",
        "        if not pc.any(is_record).as_py():\n",
        *READS,
    ),
    planted(
        "vacuumed-file-fails-the-task",
        "OPTIMIZE and VACUUM between plan and reading",
        ROWS,
        "                if self._is_shown_still(problem):\n",
        "                if problem.path:\n",
        *READS,
    ),
    planted(
        "file-that-is-gone-looked-for-in-an-old-version",
        "VACUUM twice while one task reads",
        ROWS,
        "            self._history.refresh()\n",
        "            self._history.files(self._partition.partition)\n",
        *READS,
    ),
    planted(
        "trimmed-log-taken-for-lost-data",
        "local retention between plan and reading: the table has it",
        READER,
        "            others = [other for other in self._sources if other not in refusals]\n",
        "            others = [other for other in self._sources[1:] if other is source]\n",
        *READS,
    ),
    planted(
        "unreadable-table-taken-for-lost-data",
        "with failOnDataLoss=false records that are in the table were skipped",
        READER,
        "            if not refusal.is_lost:\n",
        "            if not refusal.is_lost and not refusals:\n",
        *READS,
    ),
    planted(
        "rows-twice-behind-a-failure-amid-a-piece",
        "the other source begins where the piece began",
        READER,
        "                if is_amid:\n                    raise\n",
        "                if is_amid and not self._sources:\n                    raise\n",
        *READS,
    ),
    planted(
        "node-that-cannot-read-fails-the-task",
        "the nodes' store is out of reach, and the executor's is not",
        READER,
        "                if error.code in UNREADABLE:\n",
        "                if error.code in ():\n",
        *READS,
    ),
    planted(
        "goes-on-behind-what-one-source-still-has",
        "two sources that both begin later: the earlier one counts",
        READER,
        "        resume, source = min(begins,",
        "        resume, source = max(begins,",
        *READS,
    ),
    planted(
        "part-of-the-table-read-twice-after-a-failure",
        "the log goes on where the table ended, and not where the task began",
        READER,
        "                    position, is_amid = behind, False\n",
        "                    position, is_amid = behind if source is _Source.LOG else position, False\n",
        *READS,
    ),
)
