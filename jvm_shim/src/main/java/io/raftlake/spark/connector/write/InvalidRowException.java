package io.raftlake.spark.connector.write;

/** A row that the sink was given cannot become a record. */
public final class InvalidRowException extends RuntimeException {
    private static final long serialVersionUID = 1;

    InvalidRowException(String told) {
        super(told);
    }
}
