package io.raftlake.spark.connector.read;

import io.raftlake.spark.log.RangeFetches;
import io.raftlake.spark.log.RangeFetches.Got;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Fetches of one range, one of them ahead. For one thread; fetches run in threads of the process. */
final class Prefetch implements AutoCloseable {
    private static final int BYTES_MAX = 8 << 20;
    private static final int BYTES_MIN = 64 << 10;

    /** Of a record, for the first fetch; later ones know better. */
    private static final double BYTES_GUESS = 1_024;

    /** Batches are larger or smaller than those before. */
    private static final double MARGIN = 1.1;

    /** How long a node may hold a fetch that it has nothing for. */
    private static final int WAIT_MS = 500;

    private static final ExecutorService THREADS = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "raftlake-fetch");
        thread.setDaemon(true);
        return thread;
    });

    private final RangeFetches fetches;
    private final long end;
    private final long rowsMax;
    private int nodeId;
    private double bytesPerOffset = BYTES_GUESS;
    private Future<Got> asked;
    private long askedAt = -1;

    /** Of offsets below {@code end}, first at this node. */
    Prefetch(RangeFetches fetches, long end, long rowsMax, int nodeId) {
        this.fetches = fetches;
        this.end = end;
        this.rowsMax = rowsMax;
        this.nodeId = nodeId;
    }

    /** Other nodes are asked from now on; what was asked for is not used. */
    void use(int node) {
        nodeId = node;
        close();
    }

    /** Where the next fetch is asked for. */
    int node() {
        return nodeId;
    }

    /** So many bytes held so many offsets. */
    void learn(long bytes, long offsets) {
        bytesPerOffset = Math.max(1, (double) bytes / offsets);
    }

    /** Begins a fetch that {@link #take} will ask for. */
    void ask(long position) {
        long rows = Math.min(end - position, rowsMax);
        int bytes = (int) Math.min(BYTES_MAX, Math.max(BYTES_MIN, rows * bytesPerOffset * MARGIN));
        int node = nodeId;
        askedAt = position;
        asked = THREADS.submit(() -> fetches.fetch(position, bytes, WAIT_MS, node));
    }

    /** What was fetched from this offset on; null where it is not there in time. The fetch goes on then. */
    Got take(long position, long timeoutNs) throws IOException {
        if (asked == null || askedAt != position) {
            close();
            ask(position);
        }
        Future<Got> taken = asked;
        asked = null;
        try {
            Got got = taken.get(timeoutNs, TimeUnit.NANOSECONDS);
            if (got.nodeId() != nodeId) {
                // The chosen node is down or behind: stay with the leader.
                nodeId = got.nodeId();
            }
            return got;
        } catch (TimeoutException late) {
            asked = taken;
            return null;
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof IOException refused) {
                throw refused;
            }
            throw new IOException(failed.getCause().getMessage(), failed.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            taken.cancel(true);
            throw new InterruptedIOException("interrupted while it waited for a fetch");
        }
    }

    /** Ends what is asked for. */
    @Override
    public void close() {
        if (asked != null) {
            asked.cancel(true);
            asked = null;
        }
    }
}
