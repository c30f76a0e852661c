package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import java.io.Serializable;

/** Offsets [start, end) of one partition. */
record OffsetRange(TopicPartition at, long start, long end) implements Serializable {
    /** The end of a range that has none: it is read for as long as Spark asks. */
    static final long OPEN = Long.MAX_VALUE;

    boolean isOpen() {
        return end == OPEN;
    }

    long size() {
        return end - start;
    }

    /** Other offsets of the same partition. */
    OffsetRange within(long otherStart, long otherEnd) {
        return new OffsetRange(at, otherStart, otherEnd);
    }

    @Override
    public String toString() {
        return isOpen() ? at + " from offset " + start + " on" : "[" + start + ", " + end + ") of " + at;
    }
}
