package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.quorum.Deadline;
import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The end of a write that failed. Spark calls abort while it still ends the other tasks of the write: what they have opened
 * meanwhile is looked for a little later.
 *
 * <p>All of it runs in a thread of its own. A query that is stopped interrupts the caller, and what is left would hold readers
 * off until its time limit.
 */
final class AbortedWrite {
    static final long STRAGGLERS_MS = 500;

    private static final Logger LOG = LoggerFactory.getLogger(AbortedWrite.class);

    private AbortedWrite() {}

    /** Aborts what is known, and gives what looks again. */
    @FunctionalInterface
    interface Aborting {
        Runnable abort() throws IOException;
    }

    /** Waits until it is over. An interrupt ends the wait alone, and the caller stays interrupted. */
    static void end(String what, Aborting aborting) {
        Ahead.of("the abort of " + what, () -> {
            try {
                Runnable lookAgain = aborting.abort();
                new Deadline(STRAGGLERS_MS).pause(STRAGGLERS_MS);
                lookAgain.run();
            } catch (IOException | RuntimeException error) {
                LOG.warn("open transactions of {} are left to their time limit: {}", what, error.getMessage());
            }
            return null;
        }).awaitEnd();
    }
}
