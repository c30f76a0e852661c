"""Bugs for the jar's log client, and for large files whose content is in the quorum."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

CLIENT = ("log.KafkaLogsTest",)
BATCHES = ("log.BatchesTest",)
BLOBS = ("fs.LogBlobTest", "fs.LogBlobRoomTest")
INPUTS = ("fs.LogBlobInputTest",)

LOG_MUTANTS = (
    # --- appends ---
    JvmMutant(
        "lost-answer-leaves-no-doubt",
        "an append that happened is told as refused, and its caller makes it twice",
        "log/Appender.java",
        "                    mayStand |= lost.wasSent();\n",
        "",
        CLIENT,
    ),
    JvmMutant(
        "new-lane-in-doubt",
        "a batch that may stand in the log goes there again under another producer id",
        "log/Appender.java",
        "        if (mayStand) {\n            throw unknown(at, refusal.getMessage());\n        }\n        return null;",
        "        return null;",
        CLIENT,
    ),
    JvmMutant(
        "sequence-counts-batches",
        "the batch behind one of two records is out of order",
        "log/Lanes.java",
        "lane.sequence + records & SEQUENCE_MASK",
        "lane.sequence + 1 & SEQUENCE_MASK",
        CLIENT,
    ),
    JvmMutant(
        "refused-batch-takes-a-sequence",
        "each append behind a refused one needs another producer id",
        "log/Appender.java",
        "        lanes.give(lane, 0);\n        return new RefusedException",
        "        lanes.give(lane, 1);\n        return new RefusedException",
        CLIENT,
    ),
    JvmMutant(
        "replaced-leader-leaves-no-doubt",
        "what a leader appended before it was replaced is appended twice",
        "log/Code.java",
        "EnumSet.of(\n            UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,",
        "EnumSet.of(\n            NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,",
        CLIENT,
    ),
    JvmMutant(
        "deleted-topics-lanes-are-used-again",
        "a late batch for a deleted topic passes for the first one of the topic that has its name now",
        "log/Lanes.java",
        "Math.max(firstNumber, partitions.remove(at).made)",
        "0 * partitions.remove(at).made",
        CLIENT,
    ),
    # --- connections ---
    JvmMutant(
        "answer-of-another-request",
        "a late answer is taken for that of the next request",
        "log/Connection.java",
        "if (answered != correlation) {",
        "if (answered > correlation) {",
        CLIENT,
    ),
    JvmMutant(
        "connection-that-the-node-closed",
        "after a restart of a node the first append to it ends as unknown",
        "log/Connections.java",
        " && connection.isQuiet()",
        "",
        CLIENT,
    ),
    JvmMutant(
        "node-without-a-leader-is-believed",
        "a node that is cut off says that a topic does not exist",
        "log/Messages.java",
        "if (controller < 0 || isUnsettled) {",
        "if (isUnsettled) {",
        CLIENT,
    ),
    # --- reads ---
    JvmMutant(
        "read-goes-on-at-the-last-record",
        "a reader gets the last record again, for ever",
        "log/Batches.java",
        "nextOffset = lastOffset() + 1;",
        "nextOffset = lastOffset();",
        (*BATCHES, *CLIENT),
    ),
    JvmMutant(
        "first-record-of-a-read-is-skipped",
        "a read from the middle of a batch loses a record",
        "log/KafkaLogs.java",
        "if (record.offset() >= offset) {",
        "if (record.offset() > offset) {",
        CLIENT,
    ),
    JvmMutant(
        "aborted-from-the-second-batch-on",
        "the first batch of an aborted transaction is read",
        "log/Batches.java",
        "waiting.get(0).firstOffset() <= lastOffset()",
        "waiting.get(0).firstOffset() < lastOffset()",
        BATCHES,
    ),
    JvmMutant(
        "aborted-for-ever",
        "the transaction behind an aborted one of the same producer is not read",
        "log/Batches.java",
        "            aborted.remove(producer);\n",
        "",
        BATCHES,
    ),
    # --- large files ---
    JvmMutant(
        "announcement-is-renewed-too-late",
        "the last chunk of a crashed writer stays for ever",
        "fs/LogBlobOutput.java",
        "if (chunks == uri.chunks()) {",
        "if (chunks > uri.chunks()) {",
        BLOBS,
    ),
    JvmMutant(
        "index-outlives-its-blob",
        "each deleted file that shared its partition leaves a record",
        "fs/LogBlobStore.java",
        "if (!blob.isWritten() || !blob.isContiguous()) {",
        "if (!blob.isWritten()) {",
        BLOBS,
    ),
    JvmMutant(
        "chunks-of-others-are-not-expected",
        "a file cannot be read whose partition had another writer meanwhile",
        "fs/LogBlobInput.java",
        "return index == null ? blob.first() + number : index[number];",
        "return blob.first() + number;",
        BLOBS,
    ),
    JvmMutant(
        "part-ahead-is-taken-for-another-one",
        "who turns back is told that a chunk is not there",
        "fs/LogBlobInput.java",
        "isInOrder && ahead != null ? fetchedAhead()",
        "ahead != null ? fetchedAhead()",
        INPUTS,
    ),
    JvmMutant(
        "whoever-reads-is-fetched-for-ahead",
        "each look at a place of a file costs two fetches",
        "fs/LogBlobInput.java",
        "if (isInOrder && number < blob.chunks()) {",
        "if (number < blob.chunks()) {",
        INPUTS,
    ),
    JvmMutant(
        "fetch-ahead-behind-the-end",
        "the records of another blob are fetched at the end of each",
        "fs/LogBlobInput.java",
        "if (isInOrder && number < blob.chunks()) {",
        "if (isInOrder) {",
        INPUTS,
    ),
    JvmMutant(
        "fetch-ahead-outlives-its-reader",
        "a task that is over holds a thread and a connection",
        "fs/LogBlobInput.java",
        "            ahead.cancel(true);\n",
        "",
        INPUTS,
    ),
    JvmMutant(
        "error-of-a-fetch-ahead-is-kept",
        "a reader that tries again hears of an error that has passed",
        "fs/LogBlobInput.java",
        "        Future<Fetched> asked = ahead;\n        ahead = null;\n",
        "        Future<Fetched> asked = ahead;\n",
        INPUTS,
    ),
    JvmMutant(
        "doubtful-chunk-is-removed-at-once",
        "a chunk that arrives behind its tombstone stays for ever",
        "fs/LogBlobOutput.java",
        "return !isUnsure;",
        "return true;",
        BLOBS,
    ),
    JvmMutant(
        "collected-writer-announces-itself-again",
        "a writer whose blob was taken for an orphan goes on, and leaves chunks that nobody removes",
        "fs/Blobs.java",
        "new Txn().compare(before.key(), before.version()).put(before.key(), value)",
        "new Txn().put(before.key(), value)",
        BLOBS,
    ),
    JvmMutant(
        "quorum-before-the-base",
        "large files go to the quorum although a directory is set for them",
        "fs/BlobPlaces.java",
        "return files == null ? quorum : files;",
        "return quorum == null ? files : quorum;",
        BLOBS,
    ),
)
