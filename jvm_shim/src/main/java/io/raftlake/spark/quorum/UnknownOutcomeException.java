package io.raftlake.spark.quorum;

import java.io.IOException;

/** A write was sent, and no answer and no look at its keys tells whether it happened. It may still happen. */
public final class UnknownOutcomeException extends IOException {
    private static final long serialVersionUID = 1;

    public UnknownOutcomeException(String message) {
        super(message);
    }

    public UnknownOutcomeException(String message, Throwable cause) {
        super(message, cause);
    }
}
