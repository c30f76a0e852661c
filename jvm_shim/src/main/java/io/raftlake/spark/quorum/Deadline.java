package io.raftlake.spark.quorum;

import java.io.InterruptedIOException;
import java.util.concurrent.ThreadLocalRandom;

/** How long an operation may still try, and the pauses between its tries. In milliseconds of a clock that only goes forward. */
public final class Deadline {
    private static final long PAUSE_MS_FIRST = 20;
    private static final long PAUSE_MS_MAX = 1000;

    private final long endNs;
    private final long timeoutMs;
    private long pauseMs = PAUSE_MS_FIRST;

    public Deadline(long timeoutMs) {
        this.timeoutMs = timeoutMs;
        this.endNs = System.nanoTime() + timeoutMs * 1_000_000;
    }

    public long timeoutMs() {
        return timeoutMs;
    }

    public long remainingMs() {
        return Math.max(0, (endNs - System.nanoTime()) / 1_000_000);
    }

    public boolean isOver() {
        return remainingMs() == 0;
    }

    /** A pause that doubles from call to call, cut by half of itself at random, and by the deadline. */
    public void pause() throws InterruptedIOException {
        pause(pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs / 2 + 1));
        pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX);
    }

    /** A pause of so many milliseconds, cut by the deadline. */
    public void pause(long ms) throws InterruptedIOException {
        try {
            Thread.sleep(Math.min(ms, remainingMs()));
        } catch (InterruptedException interrupted) {
            throw Http.interrupted("while it waited to try again");
        }
    }
}
