package io.raftlake.spark.log;

import java.io.IOException;

/** A connection could not be opened, or ended before the answer came. */
final class Lost extends IOException {
    private static final long serialVersionUID = 1;

    private final boolean wasSent;

    Lost(String told, boolean wasSent, Throwable cause) {
        super(told, cause);
        this.wasSent = wasSent;
    }

    /** Whether the node may have got the request. */
    boolean wasSent() {
        return wasSent;
    }
}
