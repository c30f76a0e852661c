package io.raftlake.spark.state;

/** Spark's methods name no checked exception, and its callers expect IOExceptions as they are. */
final class Unchecked {
    private Unchecked() {}

    @SuppressWarnings("unchecked")
    static <E extends Throwable> RuntimeException as(Throwable error) throws E {
        throw (E) error;
    }
}
