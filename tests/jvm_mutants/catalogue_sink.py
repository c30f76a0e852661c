"""Bugs for the sink of the connector in Java, and for its producers of transactions."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

LEDGER = ("connector.write.LedgerTest",)
JOBS = ("connector.write.JobLedgerTest",)
PARTS = ("connector.write.SinkPartsTest",)
PRODUCER = ("log.TransactionalProducerTest",)
SWEEPS = ("connector.write.LaterSweepTest",)

SINK_MUTANTS = (
    JvmMutant(
        "replaced-run-takes-the-sink-back",
        "two drivers of one query replace each other batch by batch",
        "connector/write/Ledger.java",
        "found.owner().before().contains(run)) {",
        "found.owner().before().contains(app)) {",
        LEDGER,
    ),
    JvmMutant(
        "each-batch-has-a-write-of-its-own",
        "no batch waits for the sweep behind the one before, which takes its open transactions for left ones",
        "connector/write/QuerySink.java",
        "if (!run.equals(this.run)) {",
        "if (!run.isEmpty()) {",
        PARTS,
    ),
    JvmMutant(
        "run-has-the-write-of-the-one-before",
        "a run that begins anew writes as the older one, and is fenced by itself",
        "connector/write/QuerySink.java",
        "if (!run.equals(this.run)) {",
        "if (app == null) {",
        PARTS,
    ),
    JvmMutant(
        "commit-compares-no-batch",
        "a command that comes once more commits its batch again",
        "connector/write/Ledger.java",
        ".compare(key, standing.batchVersion());",
        ";",
        LEDGER,
    ),
    JvmMutant(
        "transactions-are-aborted-by-their-commit",
        "the rows of a batch that is noted down are never visible",
        "connector/write/Ledger.java",
        "txn.endTxn(ending.producerId(), ending.epoch(), true));",
        "txn.endTxn(ending.producerId(), ending.epoch(), false));",
        LEDGER,
    ),
    JvmMutant(
        "late-task-of-a-job-writes",
        "rows of a write that has ended hold readers of what is committed",
        "connector/write/JobLedger.java",
        "if (found.isEmpty() || found.get().version() != job.version()) {",
        "if (found.isEmpty()) {",
        JOBS,
    ),
    JvmMutant(
        "job-keeps-other-attempts-open",
        "readers of what is committed wait for the time limit of an attempt that failed",
        "connector/write/Leftovers.java",
        "if (!needed.contains(open.producerId())) {",
        "if (needed.contains(open.producerId())) {",
        JOBS,
    ),
    JvmMutant(
        "odd-bytes-of-keys-are-one-byte",
        "keys go to other partitions than those of other producers of Kafka",
        "connector/write/Murmur2.java",
        "(Platform.getByte(base, offset + at) & 0xFF)",
        "(Platform.getByte(base, offset + whole) & 0xFF)",
        PARTS,
    ),
    JvmMutant(
        "varint-loses-a-byte",
        "records of a large batch cannot be read",
        "connector/write/RecordBuffer.java",
        "(38 - Integer.numberOfLeadingZeros(left)) / 7",
        "(37 - Integer.numberOfLeadingZeros(left)) / 7",
        PARTS,
    ),
    JvmMutant(
        "batches-are-outside-of-their-transaction",
        "rows are visible before their batch is committed",
        "log/BatchWriter.java",
        "batch[Batches.ATTRIBUTES_AT + 1] |= Batches.TRANSACTIONAL;",
        "",
        PRODUCER,
    ),
    JvmMutant(
        "resent-batches-change-their-order",
        "a node refuses what is sent again after a lost connection",
        "log/PartitionSends.java",
        "waiting.addFirst(inFlight.removeLast());",
        "waiting.addFirst(inFlight.removeFirst());",
        PRODUCER,
    ),
    JvmMutant(
        "decided-transaction-counts-as-settled",
        "who reads behind a write is not shown its rows",
        "log/Transactions.java",
        "return left.isEmpty();",
        "return true;",
        PRODUCER,
    ),
    JvmMutant(
        "unanswered-question-is-no-settling",
        "a node that goes while partitions are waited for is told as an outage of the quorum",
        "log/Transactions.java",
        "                return false;\n",
        "                throw over;\n",
        PRODUCER,
    ),
    JvmMutant(
        "coordinator-that-is-not-found",
        "a quorum that elects is told as a defect of the client",
        "log/Coordinator.java",
        "if (node == null) {\n            tries",
        "if (node != null) {\n            tries",
        PRODUCER,
    ),
    JvmMutant(
        "busy-query-never-sweeps",
        "what a lost executor has begun holds readers off while batches follow each other",
        "connector/write/LaterSweep.java",
        "nowMs.getAsLong() - sweptAtMs >= AGE_MS_MAX",
        "false",
        SWEEPS,
    ),
    JvmMutant(
        "each-batch-waits-for-a-sweep",
        "a small batch takes milliseconds more, for nothing",
        "connector/write/LaterSweep.java",
        "nowMs.getAsLong() - sweptAtMs >= AGE_MS_MAX",
        "true",
        SWEEPS,
    ),
    JvmMutant(
        "sweep-forgets-when-it-was",
        "a query that is a second old sweeps before each batch",
        "connector/write/LaterSweep.java",
        "        sweptAtMs = nowMs.getAsLong();\n    }\n\n    /** A batch is over",
        "    }\n\n    /** A batch is over",
        SWEEPS,
    ),
    JvmMutant(
        "sweep-amid-a-batch",
        "the transactions of its tasks are taken for left ones, and aborted",
        "connector/write/LaterSweep.java",
        "            if (take()) {",
        "            if (take() || done.getCount() > 0) {",
        SWEEPS,
    ),
    JvmMutant(
        "batch-begins-beside-a-sweep",
        "the transactions of its tasks are taken for left ones, and aborted",
        "connector/write/LaterSweep.java",
        "            last.done.await();\n",
        "",
        SWEEPS,
    ),
    JvmMutant(
        "failed-sweep-keeps-the-query",
        "the next batch never begins",
        "connector/write/LaterSweep.java",
        "                } finally {\n                    done.countDown();",
        "                    done.countDown();\n                } finally {\n                    sweptAtMs = 0;",
        SWEEPS,
    ),
    JvmMutant(
        "replaced-run-notes-that-a-batch-was-planned-anew",
        "the batch of the newer run cannot be ended",
        "connector/write/Ledger.java",
        """        Txn txn = new Txn().compare(SinkKeys.ownerKey(standing.app()), standing.ownerVersion())
                .compare(key, standing.batchVersion())
                .put(key, value);""",
        """        Txn txn = new Txn().compare(key, found.batchVersion())
                .put(key, value);""",
        LEDGER,
    ),
    JvmMutant(
        "later-runs-do-not-know-of-a-batch-that-was-planned-anew",
        "micro-batches leave its new rows out",
        "connector/write/Ledger.java",
        "found.batchVersion(), found.last().isReplanned());",
        "found.batchVersion(), false);",
        LEDGER,
    ),
    JvmMutant(
        "all-batches-behind-one-that-was-planned-anew-are-refused",
        "a query goes on for one batch",
        "connector/write/Standing.java",
        "generation, ownerVersion, batch, version, false);",
        "generation, ownerVersion, batch, version, isReplanned);",
        LEDGER,
    ),
)
