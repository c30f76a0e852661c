package io.raftlake.spark.connector.write;

import java.io.Serializable;

/**
 * What a run found when it began a batch. Versions are 0 where the key is not there; the last batch is -1 where there is none.
 *
 * @param isReplanned the last batch was planned anew, with other rows, since it became visible
 */
record Standing(
        String app, String run, long generation, long ownerVersion, long lastBatch, long batchVersion, boolean isReplanned)
        implements Serializable {
    /** After its next batch, which was committed at {@code version}. */
    Standing behind(long batch, long version) {
        return new Standing(app, run, generation, ownerVersion, batch, version, false);
    }
}
