package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import java.io.Serializable;

/** Offsets [start, end) of one partition. */
record OffsetRange(TopicPartition at, long start, long end) implements Serializable {
    long size() {
        return end - start;
    }

    /** Other offsets of the same partition. */
    OffsetRange within(long otherStart, long otherEnd) {
        return new OffsetRange(at, otherStart, otherEnd);
    }

    @Override
    public String toString() {
        return "[" + start + ", " + end + ") of " + at;
    }
}
