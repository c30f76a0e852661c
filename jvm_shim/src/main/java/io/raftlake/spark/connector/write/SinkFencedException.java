package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.write.SinkKeys.Owner;

/** A newer run of the query owns the sink, so nothing became visible. */
public final class SinkFencedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private SinkFencedException(String app, String run, String owner, String what) {
        super("run " + run + " no longer owns the sink of " + app + ", and " + what + " became visible. The owner is " + owner
                + ". The run that wrote last goes on; to go on here instead, start the query here again");
    }

    /** Before a batch. */
    static SinkFencedException before(String app, String run, Owner owner) {
        return new SinkFencedException(app, run, owner.describe(), "nothing");
    }

    /** At the commit of a batch. {@code owner}: who owns the sink, in words. */
    static SinkFencedException at(long batch, String app, String run, String owner) {
        return new SinkFencedException(app, run, owner, "nothing of batch " + batch);
    }
}
