package io.raftlake.spark.log;

import java.io.IOException;

/** The leader does not hold an offset: retention removed it, or it is not written yet. */
public final class OffsetRangeException extends IOException {
    private static final long serialVersionUID = 1;

    private final long logStart;

    /** {@code end} is exclusive. */
    public OffsetRangeException(Logs.Partition at, long offset, long logStart, long end) {
        super("OFFSET_OUT_OF_RANGE: " + at + " has no offset " + offset + ", it holds " + logStart + " up to " + end
                + " (exclusive)");
        this.logStart = logStart;
    }

    /** The first offset that the leader holds. */
    public long logStart() {
        return logStart;
    }
}
