"""Bugs for the source of the connector in Java."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

DECODER = ("connector.read.RecordDecoderTest",)
PLANNER = ("connector.read.StreamPlannerTest",)
TABLE = ("connector.table.TopicTableTest",)

SOURCE_MUTANTS = (
    JvmMutant(
        "range-loses-its-first-record",
        "the first row of a task that begins within a record batch is missing",
        "connector/read/RecordDecoder.java",
        "if (offset < start || offset >= end) {",
        "if (offset <= start || offset >= end) {",
        DECODER,
    ),
    JvmMutant(
        "counted-batch-passes-its-range",
        "count() counts records of the next task",
        "connector/read/RecordDecoder.java",
        "long until = Math.min(end, batches.lastOffset() + 1);",
        "long until = batches.lastOffset() + 1;",
        DECODER,
    ),
    JvmMutant(
        "compacted-batch-is-counted-as-dense",
        "count() counts records that compaction removed",
        "connector/read/RecordDecoder.java",
        "|| !isDense;",
        ";",
        DECODER,
    ),
    JvmMutant(
        "rows-of-two-arrays-share-a-block",
        "values are bytes of other records, where a topic has batches with and without compression",
        "connector/read/RecordBlock.java",
        "return rows == 0 || bytes == array && timestampType == typeOfTime;",
        "return rows == 0 || timestampType == typeOfTime;",
        DECODER,
    ),
    JvmMutant(
        "first-batch-from-latest-has-rows",
        "a first batch that Spark replays has other rows than before",
        "connector/read/StreamPlanner.java",
        "ends.put(partition, start.get(partition));",
        "ends.put(partition, ends.get(partition));",
        PLANNER,
    ),
    JvmMutant(
        "new-topic-is-read-from-the-old-offset",
        "the first records of a topic that was created again are skipped silently",
        "connector/read/StreamPlanner.java",
        "if (again.contains(partition.topic())) {",
        "if (again.contains(partition.toString())) {",
        PLANNER,
    ),
    JvmMutant(
        "lagging-replica-is-lost-data",
        "a query fails since the replica that it asked was behind",
        "connector/read/StreamPlanner.java",
        "SortedMap<TopicPartition, Long> proven = view.provenLatest(behind);",
        "SortedMap<TopicPartition, Long> proven = view.latest(behind);",
        PLANNER,
    ),
    JvmMutant(
        "ends-of-some-partitions-for-those-of-all",
        "a partition that is new waits until the query was idle",
        "connector/read/StreamPlanner.java",
        "now != null && now.keySet().equals(assigned) && again.isEmpty();",
        "now != null && again.isEmpty();",
        PLANNER,
    ),
    JvmMutant(
        "ends-of-the-topic-before",
        "a topic that was created again is read up to where the old one ended",
        "connector/read/StreamPlanner.java",
        "now != null && now.keySet().equals(assigned) && again.isEmpty();",
        "now != null && now.keySet().equals(assigned);",
        PLANNER,
    ),
    JvmMutant(
        "ends-are-asked-for-twice",
        "each batch pays for a question that was answered",
        "connector/read/StreamPlanner.java",
        "ends = areAllKnown ? now : view.latest(assigned);",
        "ends = view.latest(assigned);",
        PLANNER,
    ),
    JvmMutant(
        "replayed-batch-needs-no-look",
        "the tasks of a batch of the checkpoint know no topic",
        "connector/read/StreamPlanner.java",
        "start.equals(plannedStart) && end.equals(plannedEnd) && lookedLately();",
        "start.equals(plannedStart) && lookedLately();",
        PLANNER,
    ),
    JvmMutant(
        "batch-of-another-start-needs-no-look",
        "the tasks of a batch know the topics of another time",
        "connector/read/StreamPlanner.java",
        "start.equals(plannedStart) && end.equals(plannedEnd) && lookedLately();",
        "end.equals(plannedEnd) && lookedLately();",
        PLANNER,
    ),
    JvmMutant(
        "old-look-serves-the-tasks",
        "tasks read from nodes that held the partitions long ago",
        "connector/read/StreamPlanner.java",
        "start.equals(plannedStart) && end.equals(plannedEnd) && lookedLately();",
        "start.equals(plannedStart) && end.equals(plannedEnd);",
        PLANNER,
    ),
    JvmMutant(
        "recreated-topic-is-not-noticed-over-a-restart",
        "a query goes on with the offsets of a topic that was deleted",
        "connector/read/TopicNotes.java",
        "if (known != null && noted.get(topic) == null && !wasRecreated) {",
        "if (known != null && noted.get(topic) != null && !wasRecreated) {",
        ("connector.read.TopicNotesTest",),
    ),
    JvmMutant(
        "filter-leaves-out-its-bound",
        "rows that meet a filter are missing",
        "connector/read/Wanted.java",
        'case "<=" -> within(column, null, value);',
        'case "<=" -> within(column, null, value - 1);',
        ("connector.read.WantedTest",),
    ),
    JvmMutant(
        "removed-file-is-still-read",
        "rows are there twice after another program has rewritten files",
        "connector/table/DeltaLog.java",
        "actions.forEach(action -> added.remove(",
        "actions.forEach(action -> added.containsKey(",
        TABLE,
    ),
    JvmMutant(
        "hole-of-a-table-is-passed-over",
        "rows that somebody removed from a table are missing, and nothing says so",
        "connector/table/TopicTable.java",
        "if (its.get(index).offsetMin() != expected) {",
        "if (its.get(index).offsetMin() < expected) {",
        TABLE,
    ),
)
