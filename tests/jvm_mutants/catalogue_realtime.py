"""Bugs for real-time mode of the connector in Java."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

READER = ("connector.read.RealTimeReaderTest",)
PLANNER = ("connector.read.StreamPlannerTest",)
WRITER = ("connector.write.RealTimeWriterTest",)

REAL_TIME_MUTANTS = (
    # --- the source ---
    JvmMutant(
        "offset-is-the-last-row",
        "each batch reads the last row of the one before again",
        "connector/read/RealTimeReader.java",
        "log.offset(0) : log.offset(row) + 1)",
        "log.offset(0) : log.offset(row))",
        READER,
    ),
    JvmMutant(
        "rows-that-nobody-asked-for-count-as-read",
        "the rest of a fetch is lost where a batch ends amid it",
        "connector/read/RealTimeReader.java",
        "        if (row + 1 < count) {",
        "        if (row + 1 > count) {",
        READER,
    ),
    JvmMutant(
        "last-row-of-a-fetch-is-left-out",
        "the last row of each fetch is missing",
        "connector/read/RealTimeReader.java",
        "if (row + 1 >= count && ",
        "if (row + 2 >= count && ",
        READER,
    ),
    JvmMutant(
        "empty-fetch-is-an-outage",
        "a query whose topic is quiet for minutes fails",
        "connector/read/LogRangeReader.java",
        "                    progressedAtNs = System.nanoTime();\n                } else {",
        "                    throw new IOException();\n                } else {",
        READER,
    ),
    JvmMutant(
        "end-of-the-log-is-lost-data",
        "a moved leader ends a query that had read everything",
        "connector/read/LogRangeReader.java",
        "proven > position || range.isOpen() && proven == position",
        "proven > position",
        READER,
    ),
    JvmMutant(
        "topic-that-is-gone-is-read-to-its-end",
        "offsets that no log has go into the checkpoint",
        "connector/read/LogRangeReader.java",
        "            isOver = true;\n",
        "            position = resume;\n",
        READER,
    ),
    JvmMutant(
        "wait-forgets-its-time",
        "a quiet partition keeps its batch open for ever",
        "connector/read/LogRangeReader.java",
        "isOver || position >= range.end() || leftNs <= 0",
        "isOver || position >= range.end()",
        READER,
    ),
    JvmMutant(
        "silent-task-is-merged-away",
        "a partition whose task told nothing is read from its beginning by the next batch",
        "connector/read/RaftlakeStream.java",
        "        if (!silent.isEmpty()) {",
        "        if (silent.size() > 1) {",
        READER,
    ),
    JvmMutant(
        "first-open-batch-from-latest-has-rows",
        "rows that come between a crash in the first batch and the restart are skipped",
        "connector/read/StreamPlanner.java",
        "marksThePlace ? begin : OffsetRange.OPEN",
        "OffsetRange.OPEN",
        PLANNER,
    ),
    JvmMutant(
        "every-batch-marks-the-place",
        "a query from latest reads nothing",
        "connector/read/StreamPlanner.java",
        "        marksThePlace = false;\n",
        "",
        PLANNER,
    ),
    JvmMutant(
        "second-batch-of-a-second-is-idle",
        "new partitions are found a batch late",
        "connector/read/StreamPlanner.java",
        "target == null && !isRealTime && options",
        "target == null && options",
        PLANNER,
    ),
    JvmMutant(
        "new-topic-is-read-on-from-the-old-offset",
        "the first records of a topic that was created again are skipped silently in real-time mode",
        "connector/read/StreamPlanner.java",
        "Long begin = restarts.getOrDefault(partition, start.getOrDefault(partition, added.get(partition)));",
        "Long begin = start.getOrDefault(partition, added.get(partition));",
        PLANNER,
    ),
    JvmMutant(
        "slots-of-other-queries-are-free",
        "the second query of an application is told the wrong number of slots",
        "connector/read/RealTimeSlots.java",
        'Start Spark with " + (others + needed)',
        'Start Spark with " + needed',
        READER,
    ),
    # --- the sink ---
    JvmMutant(
        "rows-wait-for-the-next-one",
        "the last row stays in the task until its batch is over",
        "connector/write/LiveSends.java",
        "            gathered.put(at, buffer);\n            notifyAll();\n",
        "            gathered.put(at, buffer);\n",
        WRITER,
    ),
    JvmMutant(
        "batch-ends-before-its-acknowledgements",
        "offsets are committed of rows that a dying node takes with it",
        "connector/write/LiveSends.java",
        "while (!gathered.isEmpty() || isSending) {",
        "while (!gathered.isEmpty()) {",
        WRITER,
    ),
    JvmMutant(
        "refused-row-is-forgotten",
        "a batch goes on without a row that a node refused, and waits for ever or ends without an error",
        "connector/write/LiveSends.java",
        "                failure = error;\n",
        "",
        WRITER,
    ),
    JvmMutant(
        "batches-grow-without-bound",
        "a slow quorum fills the memory of executors, and takes no batch of that size",
        "connector/write/LiveSends.java",
        "while (buffer != null && buffer.size() + row.bytes() > BATCH_BYTES_MAX) {",
        "while (buffer != null && row.bytes() > BATCH_BYTES_MAX) {",
        WRITER,
    ),
    JvmMutant(
        "row-larger-than-a-batch-waits-for-ever",
        "a row of 1 MB never goes out",
        "connector/write/LiveSends.java",
        "while (buffer != null && buffer.size()",
        "while (row.bytes() > BATCH_BYTES_MAX || buffer != null && buffer.size()",
        WRITER,
    ),
    JvmMutant(
        "rows-belong-to-a-transaction-of-nobody",
        "readers of what is committed never see rows of real-time mode",
        "log/TransactionalProducer.java",
        "            BatchWriter.stamp(batch, producer, sends.take(records));",
        "            BatchWriter.stampTransactional(batch, producer, sends.take(records));",
        WRITER,
    ),
)
