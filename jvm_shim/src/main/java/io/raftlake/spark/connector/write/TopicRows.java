package io.raftlake.spark.connector.write;

import java.util.Arrays;

/**
 * The rows of one task to one topic: which partition each goes to, and what is gathered for each.
 *
 * <p>A row's own partition column decides; else its key, as in Kafka's default partitioner. Rows with neither go to the partitions
 * in turn, in runs: a batch per partition is cheaper than a record per partition.
 */
final class TopicRows {
    /** Rows without key and partition that stay together. */
    static final int RUN_ROWS = 1_000;

    private final String topic;
    private RecordBuffer[] buffers;
    private int turn;
    private int leftOfRun = RUN_ROWS;

    /** {@code turn}: at which partition rows without a key begin. */
    TopicRows(String topic, int partitions, int turn) {
        this.topic = topic;
        this.buffers = new RecordBuffer[partitions];
        this.turn = turn % partitions;
    }

    String topic() {
        return topic;
    }

    int partitions() {
        return buffers.length;
    }

    /** Whether the topic had this partition when somebody looked last. */
    boolean knows(int partition) {
        return partition >= 0 && partition < buffers.length;
    }

    /** The topic has so many partitions now. A smaller number is of a node that lags behind. */
    void grow(int partitions) {
        buffers = Arrays.copyOf(buffers, Math.max(partitions, buffers.length));
    }

    /** {@link InvalidRowException} for a partition that does not exist. */
    int given(int partition) {
        if (!knows(partition)) {
            throw new InvalidRowException("column partition: partition " + partition + " does not exist: the topic has "
                    + buffers.length + " partitions");
        }
        return partition;
    }

    int next() {
        if (leftOfRun == 0) {
            leftOfRun = RUN_ROWS;
            turn = (turn + 1) % buffers.length;
        }
        leftOfRun--;
        return turn;
    }

    /** Whether something waits to be sent there. */
    boolean has(int partition) {
        return buffers[partition] != null && buffers[partition].count() > 0;
    }

    RecordBuffer buffer(int partition) {
        RecordBuffer buffer = buffers[partition];
        if (buffer == null) {
            buffer = new RecordBuffer();
            buffers[partition] = buffer;
        }
        return buffer;
    }
}
