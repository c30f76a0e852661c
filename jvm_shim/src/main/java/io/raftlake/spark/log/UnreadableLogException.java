package io.raftlake.spark.log;

import java.io.IOException;

/** The nodes have an offset, on a disk or in a table that they cannot read. */
public final class UnreadableLogException extends IOException {
    private static final long serialVersionUID = 1;

    public UnreadableLogException(String told) {
        super(told);
    }
}
