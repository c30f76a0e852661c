"""Bugs for the plans of batches, which the quorum commits beside Spark's own work."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

PLANS = ("checkpoint.BatchPlansTest",)

PLANS_MUTANTS = (
    JvmMutant(
        "plan-is-under-way-where-no-sink-waits-for-it",
        "tasks of another sink begin before the batch is planned for good",
        "checkpoint/CheckpointFiles.java",
        "ends.get().plans().areAwaited() && ends.get().isPlan(file)",
        "ends.get().isPlan(file)",
        PLANS,
    ),
    JvmMutant(
        "sink-does-not-wait-for-the-plan",
        "the rows of a batch that is planned anew are visible, and other ones are skipped",
        "checkpoint/BatchPlans.java",
        "        await();\n        areAwaited = true;",
        "        areAwaited = true;",
        PLANS,
    ),
    JvmMutant(
        "run-goes-on-beside-its-plan",
        "a batch ends that was never planned",
        "checkpoint/CheckpointFiles.java",
        "            ends.get().plans().await();\n",
        "",
        PLANS,
    ),
    JvmMutant(
        "failed-plan-is-told-once",
        "the second call of the run takes it for committed",
        "checkpoint/BatchPlans.java",
        "            plan.get();\n            underWay.compareAndSet(plan, null);",
        "            underWay.compareAndSet(plan, null);\n            plan.get();",
        PLANS,
    ),
    JvmMutant(
        "end-of-a-batch-passes-for-its-plan",
        "the query goes on before the batch is over for good",
        "checkpoint/EpochEnds.java",
        "owner.isIn(OFFSETS, file) &&",
        "(owner.isIn(OFFSETS, file) || owner.isIn(COMMITS, file)) &&",
        PLANS,
    ),
    JvmMutant(
        "every-file-beside-the-plans-passes-for-one",
        "whoever reads the file next finds nothing",
        "checkpoint/EpochEnds.java",
        "owner.isIn(OFFSETS, file) && NewestBatch.isBatch(file.getName())",
        "owner.isIn(OFFSETS, file)",
        PLANS,
    ),
    JvmMutant(
        "plan-is-committed-at-each-close",
        "Spark closes twice, and the second commit runs into the first",
        "checkpoint/CheckpointFiles.java",
        "            isOver = true;\n            plans.begin(",
        "            plans.begin(",
        PLANS,
    ),
    JvmMutant(
        "plan-that-was-given-up-is-committed",
        "a batch is repeated that was never begun",
        "checkpoint/CheckpointFiles.java",
        "                isOver = true;\n                super.cancel();",
        "",
        PLANS,
    ),
    JvmMutant(
        "plan-under-way-is-given-up",
        "the run goes on without the plan that it was told of",
        "checkpoint/CheckpointFiles.java",
        "            if (!isOver) {\n                isOver = true;\n                super.cancel();\n            }",
        "            isOver = true;\n            super.cancel();",
        PLANS,
    ),
    JvmMutant(
        "interrupted-plan-throws-what-nobody-expects",
        "a query that is stopped fails",
        "log/Ahead.java",
        'throw new InterruptedIOException("another thread',
        'throw new IllegalStateException("another thread',
        PLANS,
    ),
)
