package io.raftlake.spark.connector.write;

import java.util.Map;
import java.util.TreeMap;

/** What the last batch of a streaming query took, for {@code StreamingQueryProgress.sink.metrics}. */
final class SinkProgress {
    private final Map<String, String> told = new TreeMap<>();

    synchronized void committed(long batch, long rows, int tasks, long commitNs, long settleNs) {
        told.put("batch", Long.toString(batch));
        told.put("rows", Long.toString(rows));
        told.put("tasks", Integer.toString(tasks));
        told.put("commitMs", Long.toString(commitNs / 1_000_000));
        told.put("settleMs", Long.toString(settleNs / 1_000_000));
    }

    /** Empty before the first batch. Times are in ms: of the command that commits, and of the wait for partitions behind it. */
    synchronized Map<String, String> metrics() {
        return new TreeMap<>(told);
    }
}
