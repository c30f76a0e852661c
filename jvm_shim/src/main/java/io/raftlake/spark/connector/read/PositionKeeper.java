package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import java.io.IOException;
import java.util.SortedMap;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes how far a query is into the quorum, seldom, by a thread of its own, and never in the way of a batch. A position that
 * changed is written once in an interval at most, one that is the same once a minute, as long as Spark asks. What cannot be
 * written is a warning, once, and is tried again.
 */
final class PositionKeeper {
    /** What has not changed is written again so seldom: it says that Spark still asks. */
    static final long REFRESH_MS = 60_000;

    /** How long the end of a query waits for its last position. */
    static final long LAST_MS_MAX = 1_000;

    /** A larger position is written less often: about so many bytes in an interval. */
    private static final int INTERVAL_BYTES = 16 << 10;

    /** Bytes of a partition in a position, about. */
    private static final int PARTITION_BYTES = 16;

    private static final long NS_PER_MS = 1_000_000;
    private static final Logger LOG = LoggerFactory.getLogger(PositionKeeper.class);

    /** Writes a position; false where another run owns the key. */
    @FunctionalInterface
    interface Writer {
        boolean write(SortedMap<TopicPartition, Long> offsets, long batchMs, long seenMs) throws IOException;
    }

    /** Makes the writer, which may have to ask the quorum. */
    @FunctionalInterface
    interface Opening {
        Writer open() throws IOException;
    }

    private record Seen(SortedMap<TopicPartition, Long> offsets, long batchMs, long seenMs) {}

    private final Opening opening;
    private final long intervalMs;
    private final LongSupplier nowMs;
    private final LongSupplier wallMs;
    private Writer writer;
    private Seen seen;
    private Seen written;
    private Long triedAtMs;
    private boolean isHurried;
    private boolean isClosed;
    private boolean hasWarned;
    private Thread thread;

    PositionKeeper(Opening opening, long intervalMs) {
        this(opening, intervalMs, () -> System.nanoTime() / NS_PER_MS, System::currentTimeMillis);
    }

    /** {@code nowMs}: of a clock that only goes forward; {@code wallMs}: since 1970. */
    PositionKeeper(Opening opening, long intervalMs, LongSupplier nowMs, LongSupplier wallMs) {
        this.opening = opening;
        this.intervalMs = intervalMs;
        this.nowMs = nowMs;
        this.wallMs = wallMs;
    }

    /** The query will read nothing below these any more. */
    synchronized void finished(SortedMap<TopicPartition, Long> offsets) {
        long wall = wallMs.getAsLong();
        if (seen == null) {
            // Of a run that goes on, an earlier one knows when that batch was.
            seen = new Seen(offsets, 0, wall);
        } else {
            seen = new Seen(offsets, seen.offsets().equals(offsets) ? seen.batchMs() : wall, wall);
        }
        notifyAll();
    }

    /** Writes from now on, in a thread. */
    synchronized void start() {
        if (thread == null) {
            thread = new Thread(this::run, "raftlake-position");
            thread.setDaemon(true);
            thread.start();
        }
    }

    /** Writes what is not written, and waits for it, but not long. Then nothing is written any more. */
    synchronized void close() {
        isHurried = thread != null;
        notifyAll();
        long untilMs = nowMs.getAsLong() + LAST_MS_MAX;
        boolean isInterrupted = false;
        while (isHurried && nowMs.getAsLong() < untilMs) {
            try {
                wait(Math.max(1, untilMs - nowMs.getAsLong()));
            } catch (InterruptedException interrupted) {
                // Spark interrupts the thread of a query that it stops: the wait is short anyway.
                isInterrupted = true;
            }
        }
        isClosed = true;
        notifyAll();
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        while (awaitDue()) {
            write();
        }
    }

    private synchronized boolean awaitDue() {
        while (!isClosed) {
            Long dueMs = dueMs();
            if (dueMs != null && dueMs <= 0) {
                return true;
            }
            try {
                if (dueMs == null) {
                    wait();
                } else {
                    wait(dueMs);
                }
            } catch (InterruptedException nobodyDoes) {
                return false;
            }
        }
        return false;
    }

    /** How long it is until something is to be written, in ms; null while there is nothing. */
    synchronized Long dueMs() {
        boolean hasChanged = seen != null && (written == null || !written.offsets().equals(seen.offsets()));
        if (isHurried) {
            if (hasChanged) {
                return 0L;
            }
            isHurried = false;
            notifyAll();
        }
        if (seen == null || seen.equals(written)) {
            return null;
        }
        if (triedAtMs == null) {
            return 0L;
        }
        long pauseMs = Math.max(intervalMs, intervalMs * seen.offsets().size() * PARTITION_BYTES / INTERVAL_BYTES);
        return Math.max(0, triedAtMs + (hasChanged ? pauseMs : Math.max(pauseMs, REFRESH_MS)) - nowMs.getAsLong());
    }

    /** Writes what is seen last. */
    void write() {
        Seen now;
        synchronized (this) {
            now = seen;
        }
        boolean isWritten = false;
        try {
            if (writer == null) {
                writer = opening.open();
            }
            writer.write(now.offsets(), now.batchMs(), now.seenMs());
            isWritten = true;
        } catch (IOException | RuntimeException failure) {
            if (!hasWarned) {
                hasWarned = true;
                LOG.warn("how far the query is cannot be written down for `raftlake lag`, and is tried again: {}",
                        failure.getMessage());
            }
        }
        synchronized (this) {
            if (isWritten) {
                written = now;
            }
            triedAtMs = nowMs.getAsLong();
            if (seen == now) {
                // Else a newer one has come meanwhile, and whoever waits, waits for that.
                isHurried = false;
                notifyAll();
            }
        }
    }
}
