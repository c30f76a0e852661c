package io.raftlake.spark.quorum;

import java.io.IOException;

/** A node refused the request for good: trying again does not help. The text is the node's. */
public class RefusedException extends IOException {
    private static final long serialVersionUID = 1;

    public RefusedException(String message) {
        super(message);
    }

    public RefusedException(String message, Throwable cause) {
        super(message, cause);
    }
}
