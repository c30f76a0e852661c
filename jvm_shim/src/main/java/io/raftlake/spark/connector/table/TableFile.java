package io.raftlake.spark.connector.table;

import java.io.Serializable;

/**
 * A file of a table, with the offsets and times that its commit tells.
 *
 * @param path where it is, as Hadoop names it
 * @param offsetMax inclusive
 * @param usMin in microseconds since 1970; null: not told
 * @param usMax inclusive; null: not told
 */
public record TableFile(String path, long size, int partition, long offsetMin, long offsetMax, Long usMin, Long usMax)
        implements Serializable {
    /** Exclusive. */
    public long end() {
        return offsetMax + 1;
    }

    /** Whether rows between these times, both inclusive, may be in it. Null is without a limit. */
    public boolean mayHold(Long from, Long to) {
        boolean isBefore = from != null && usMax != null && usMax < from;
        boolean isBehind = to != null && usMin != null && usMin > to;
        return !isBefore && !isBehind;
    }
}
