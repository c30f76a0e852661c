package io.raftlake.spark.connector.write;

/** A batch could not become visible, and did not. */
public final class SinkFailedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    SinkFailedException(String told) {
        super(told);
    }
}
