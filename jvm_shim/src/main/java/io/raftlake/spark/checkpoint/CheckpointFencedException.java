package io.raftlake.spark.checkpoint;

import org.apache.hadoop.fs.PathIOException;

/** A newer run of the query owns the checkpoint, so nothing was written. The text names the newer run. */
public class CheckpointFencedException extends PathIOException {
    private static final long serialVersionUID = 1L;

    CheckpointFencedException(String checkpoint, String told) {
        super(checkpoint, told);
    }
}
