package io.raftlake.spark.quorum;

import java.io.IOException;

/** Nothing was changed, or read: no node took the request in time. The text names each node and its last answer. */
public final class QuorumUnavailableException extends IOException {
    private static final long serialVersionUID = 1;

    public QuorumUnavailableException(String message) {
        super(message);
    }

    public QuorumUnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
