package io.raftlake.spark.log;

import java.io.IOException;

/** A read below the log start: the records that were asked for are deleted. */
public final class LogStartException extends IOException {
    private static final long serialVersionUID = 1;

    private final long logStart;

    public LogStartException(Logs.Partition at, long offset, long logStart) {
        super(at + ": offset " + offset + " lies below the log start, which is " + logStart + ": these records were deleted");
        this.logStart = logStart;
    }

    /** The first offset that can be read. */
    public long logStart() {
        return logStart;
    }
}
