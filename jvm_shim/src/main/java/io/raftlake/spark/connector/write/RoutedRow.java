package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** The fields of the row that a task writes, and the partition that it goes to. Used again for each row of the task. */
final class RoutedRow {
    /** Nodes take no larger request. */
    private static final long RECORD_BYTES_MAX = 100 << 20;

    private final SinkOptions options;
    private final SinkColumns columns;
    private final SinkClient client;
    private final int task;
    private final Field key;
    private final Field value;
    private final Field topic;
    private final Headers headers;
    private final Map<UTF8String, TopicRows> topics = new HashMap<>();
    private TopicRows only;
    private TopicRows rows;
    private int partition;
    private long bytes;
    private long largestBytes;

    /** {@code task}: the number of its partition. */
    RoutedRow(SinkOptions options, SinkColumns columns, SinkClient client, int task) {
        this.options = options;
        this.columns = columns;
        this.client = client;
        this.task = task;
        this.key = new Field(columns.key(), columns.isKeyBinary());
        this.value = new Field(columns.value(), columns.isValueBinary());
        this.topic = new Field(columns.topic(), false);
        this.headers = new Headers(columns.headers());
    }

    /** {@link InvalidRowException}, naming the column, for a row that is no record of a topic. */
    void read(InternalRow row) throws IOException {
        key.read(row);
        value.read(row);
        headers.read(row);
        rows = rowsOf(row);
        partition = partition(row);
        bytes = RecordBuffer.bytesMax(key, value, headers);
        if (bytes > RECORD_BYTES_MAX) {
            throw new InvalidRowException("column value: the record has " + bytes + " bytes, and " + RECORD_BYTES_MAX
                    + " are the most that a request takes");
        }
        largestBytes = Math.max(largestBytes, bytes);
    }

    private TopicRows rowsOf(InternalRow row) throws IOException {
        if (options.topic() != null) {
            if (only == null) {
                only = rowsOf(options.topic());
            }
            return only;
        }
        topic.read(row);
        if (topic.isNull()) {
            throw new InvalidRowException(
                    "column topic: null topic present in the data. Use the topic option for setting a topic.");
        }
        UTF8String name = topic.text();
        TopicRows found = topics.get(name);
        if (found == null) {
            found = rowsOf(name.toString());
            topics.put(name.clone(), found);
        }
        return found;
    }

    private TopicRows rowsOf(String name) throws IOException {
        try {
            return new TopicRows(name, client.partitions(name), task);
        } catch (IllegalArgumentException missing) {
            throw new InvalidRowException("column topic: " + missing.getMessage());
        }
    }

    private void lookFor(int added) throws IOException {
        try {
            rows.grow(client.partitionsWith(new Partition(rows.topic(), added)));
        } catch (IllegalArgumentException missing) {
            throw new InvalidRowException("column topic: " + missing.getMessage());
        }
    }

    private int partition(InternalRow row) throws IOException {
        if (columns.partition() >= 0 && !row.isNullAt(columns.partition())) {
            int given = row.getInt(columns.partition());
            if (given >= 0 && !rows.knows(given)) {
                lookFor(given);
            }
            return rows.given(given);
        }
        return key.isNull() ? rows.next() : key.partition(rows.partitions());
    }

    /** The topic that the row goes to. */
    TopicRows rows() {
        return rows;
    }

    int partition() {
        return partition;
    }

    /** How many the row takes at most, encoded. */
    long bytes() {
        return bytes;
    }

    void addTo(RecordBuffer buffer) {
        buffer.add(key, value, headers);
    }

    /** All that rows went to so far. */
    Collection<TopicRows> topics() {
        Collection<TopicRows> all = new ArrayList<>(topics.values());
        if (only != null) {
            all.add(only);
        }
        return all;
    }

    /** What an error that a node tells of some row has to say about the rows. */
    String largest() {
        return "the largest row of this task has " + largestBytes + " bytes in the columns key, value and headers";
    }
}
