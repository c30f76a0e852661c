package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.TopicPartition;
import java.util.Collections;
import java.util.SortedMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** The next offset to read of each partition. */
final class RaftlakeOffset extends Offset {
    private final SortedMap<TopicPartition, Long> offsets;
    private final String json;

    RaftlakeOffset(SortedMap<TopicPartition, Long> offsets) {
        this(offsets, OffsetJson.of(offsets));
    }

    private RaftlakeOffset(SortedMap<TopicPartition, Long> offsets, String json) {
        this.offsets = Collections.unmodifiableSortedMap(offsets);
        this.json = json;
    }

    /** Keeps the text as a checkpoint has it: Spark compares texts, and the connector in Python writes blanks into them. */
    static RaftlakeOffset parse(String json) {
        return new RaftlakeOffset(OffsetJson.parse(json), json);
    }

    /** Of this class, or as Spark has it from a checkpoint. */
    static RaftlakeOffset of(Offset offset) {
        return offset instanceof RaftlakeOffset own ? own : parse(offset.json());
    }

    SortedMap<TopicPartition, Long> offsets() {
        return offsets;
    }

    @Override
    public String json() {
        return json;
    }
}
