"""Bugs for reads of the state of a running query."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

LIVE = ("LiveStateTest",)

LIVE_MUTANTS = (
    JvmMutant(
        "view-keeps-its-first-batch",
        "a view over the state shows for ever what was the newest when it was made",
        "live/LiveTable.java",
        "        this.options = options;",
        "        this.options = Request.of(options).pinned();",
        LIVE,
    ),
    JvmMutant(
        "live-state-is-a-batch-behind",
        "a read right behind a batch misses the batch",
        "live/Request.java",
        "Long.toString(asked.batchId())",
        "Long.toString(Math.max(0, asked.batchId() - 1))",
        LIVE,
    ),
    JvmMutant(
        "removed-batch-is-not-told",
        "a read that lost a race with its query ends with an error about a missing file, and nothing says to read again",
        "live/LiveScan.java",
        "request.location(), request.batch(),",
        "request.location(), Long.MAX_VALUE,",
        LIVE,
    ),
    JvmMutant(
        "damaged-state-is-blamed-on-the-query",
        "state that is lost is told as a batch that the query removed, and users read again for ever",
        "live/LiveReader.java",
        "newest.getAsLong() > batch",
        "newest.getAsLong() >= batch",
        LIVE,
    ),
    JvmMutant(
        "change-feed-becomes-state",
        "an option of Spark's other source is taken, and rows mean something else",
        "live/Request.java",
        "            if (!TAKEN.contains(",
        "            if (name.isEmpty() && !TAKEN.contains(",
        LIVE,
    ),
    JvmMutant(
        "directory-is-taken-for-a-checkpoint",
        "a path inside of a checkpoint is told as a query without state",
        "live/Missing.java",
        'files.exists(new Path(root, "metadata"))',
        "files.exists(root)",
        LIVE,
    ),
    JvmMutant(
        "each-operator-is-missing",
        "an error of Spark is told as a missing operator, or one that is missing as Spark's error",
        "live/Missing.java",
        "if (!operators.contains(",
        "if (operators.contains(",
        LIVE,
    ),
    JvmMutant(
        "sparks-own-errors-are-replaced",
        "a batch that is not there is told as nothing at all",
        "live/Missing.java",
        "if (told.isPresent()) {",
        "if (true) {",
        LIVE,
    ),
)
