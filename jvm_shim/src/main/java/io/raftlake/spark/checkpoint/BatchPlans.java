package io.raftlake.spark.checkpoint;

import io.raftlake.spark.log.Ahead;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The plans of the batches of one run: {@code offsets/N} says which rows batch N has. Spark writes it, and then has its own work
 * until the first task of the batch. Where a sink of the same process waits in front of its tasks, the quorum commits the file
 * beside that work.
 *
 * <p>Invariants: no task of batch N begins before {@code offsets/N} is committed. A run has one plan under way, and every other
 * call of the run for its checkpoint comes behind it. After a plan that failed each of them fails.
 */
public final class BatchPlans {
    private final AtomicReference<Ahead<Void>> underWay = new AtomicReference<>();
    private volatile boolean areAwaited;

    /** From a sink, in front of the tasks of each batch: waits for the plan of the batch. An IOException says why there is none. */
    public void awaitInFrontOfTasks() throws IOException {
        await();
        areAwaited = true;
    }

    /** Whether a sink waits in front of the tasks of each batch. */
    boolean areAwaited() {
        return areAwaited;
    }

    /** Begins to commit a plan. The one before is awaited already. */
    void begin(String what, Ahead.Bringing<Void> commit) {
        underWay.set(Ahead.of(what, commit));
    }

    /** Waits for the plan that is under way. */
    void await() throws IOException {
        Ahead<Void> plan = underWay.get();
        if (plan != null) {
            plan.get();
            underWay.compareAndSet(plan, null);
        }
    }
}
