package io.raftlake.spark.connector.write;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongSupplier;

/**
 * Looks for transactions that no task needs, behind the batches of a query, once the query is idle for a moment. Amid a batch a look
 * would take the transactions of its tasks for left ones, and it would keep nodes and processors from them. A query that is never
 * idle looks between two batches now and then.
 */
final class LaterSweep {
    /** Starts a command on a thread of its own, after so many ms. */
    @FunctionalInterface
    interface Later {
        void start(Runnable command, long afterMs);
    }

    static final long IDLE_MS = 50;
    static final long AGE_MS_MAX = 1_000;

    private final Runnable sweep;
    private final Later later;
    private final LongSupplier nowMs;
    private Due due;
    private volatile long sweptAtMs;

    /** {@code sweep} tells nobody of errors. {@code nowMs}: of a clock that only goes forward. */
    LaterSweep(Runnable sweep, Later later, LongSupplier nowMs) {
        this.sweep = sweep;
        this.later = later;
        this.nowMs = nowMs;
        this.sweptAtMs = nowMs.getAsLong();
    }

    /** Behind one batch: whoever takes it sweeps, or does without. */
    private final class Due implements Runnable {
        private final AtomicBoolean isTaken = new AtomicBoolean();
        private final CountDownLatch done = new CountDownLatch(1);

        boolean take() {
            return isTaken.compareAndSet(false, true);
        }

        @Override
        public void run() {
            if (take()) {
                try {
                    now();
                } finally {
                    done.countDown();
                }
            }
        }
    }

    private void now() {
        sweep.run();
        sweptAtMs = nowMs.getAsLong();
    }

    /** A batch is over. */
    void behindBatch() {
        due = new Due();
        later.start(due, IDLE_MS);
    }

    /** Before the tasks of a batch: no sweep is under way when this returns, and none begins before {@link #behindBatch}. */
    void beforeBatch() throws InterruptedException {
        Due last = due;
        due = null;
        if (last == null) {
            return;
        }
        if (!last.take()) {
            last.done.await();
        } else if (nowMs.getAsLong() - sweptAtMs >= AGE_MS_MAX) {
            now();
        }
    }
}
