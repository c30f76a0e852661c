package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionalProducer;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.Txn;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One attempt of a task: its rows under a transaction of its own, which begins with the first row that is sent.
 *
 * <p>Memory is bounded by the bytes that are gathered and those on their way. The rows of a task keep their order within a
 * partition. Whether the transaction is committed is the driver's matter.
 */
final class SinkWriter implements DataWriter<InternalRow> {
    private static final Logger LOG = LoggerFactory.getLogger(SinkWriter.class);

    /** Of encoded records before they are compressed. */
    private static final int BATCH_BYTES_MAX = 512 << 10;

    private static final long GATHERED_BYTES_MAX = 16 << 20;

    /** Nodes take no larger request. */
    private static final long RECORD_BYTES_MAX = 100 << 20;

    private final SinkOptions options;
    private final SinkClient client;
    private final SinkTask task;
    private final SinkColumns columns;
    private final Field key;
    private final Field value;
    private final Field topic;
    private final Headers headers;
    private final WriteMetrics metrics = new WriteMetrics();
    private final Map<UTF8String, TopicRows> topics = new HashMap<>();
    private TopicRows only;
    private TransactionalProducer producer;
    private long gatheredBytes;
    private long largestBytes;

    SinkWriter(SinkOptions options, SinkColumns columns, SinkClient client, SinkTask task) {
        this.options = options;
        this.columns = columns;
        this.client = client;
        this.task = task;
        this.key = new Field(columns.key(), columns.isKeyBinary());
        this.value = new Field(columns.value(), columns.isValueBinary());
        this.topic = new Field(columns.topic(), false);
        this.headers = new Headers(columns.headers());
    }

    @Override
    public void write(InternalRow row) throws IOException {
        try {
            key.read(row);
            value.read(row);
            headers.read(row);
            TopicRows rows = rowsOf(row);
            add(rows, partition(row, rows));
        } catch (InvalidRowException wrong) {
            throw new InvalidRowException(task.where() + wrong.getMessage());
        }
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
            return new TopicRows(name, client.partitions(name), task.partition());
        } catch (IllegalArgumentException missing) {
            throw new InvalidRowException("column topic: " + missing.getMessage());
        }
    }

    private int partition(InternalRow row, TopicRows rows) {
        if (columns.partition() >= 0 && !row.isNullAt(columns.partition())) {
            return rows.given(row.getInt(columns.partition()));
        }
        return key.isNull() ? rows.next() : key.partition(rows.partitions());
    }

    private void add(TopicRows rows, int partition) throws IOException {
        long bytes = RecordBuffer.bytesMax(key, value, headers);
        if (bytes > RECORD_BYTES_MAX) {
            throw new InvalidRowException("column value: the record has " + bytes + " bytes, and " + RECORD_BYTES_MAX
                    + " are the most that a request takes");
        }
        largestBytes = Math.max(largestBytes, bytes);
        RecordBuffer buffer = rows.buffer(partition);
        if (buffer.count() > 0 && buffer.size() + bytes > BATCH_BYTES_MAX) {
            send(rows, partition);
        }
        gatheredBytes -= buffer.size();
        buffer.add(key, value, headers);
        gatheredBytes += buffer.size();
        metrics.row();
        if (gatheredBytes > GATHERED_BYTES_MAX) {
            sendAll();
        }
    }

    private void sendAll() throws IOException {
        if (only != null) {
            sendAll(only);
        }
        for (TopicRows rows : topics.values()) {
            sendAll(rows);
        }
    }

    private void sendAll(TopicRows rows) throws IOException {
        for (int partition = 0; partition < rows.partitions(); partition++) {
            if (rows.has(partition)) {
                send(rows, partition);
            }
        }
    }

    private void send(TopicRows rows, int partition) throws IOException {
        long begunAtNs = System.nanoTime();
        try {
            if (producer == null) {
                producer = client.transactions().producer(task.transactionalId(), options.codec(), options.patience());
            }
            RecordBuffer buffer = rows.buffer(partition);
            gatheredBytes -= buffer.size();
            producer.append(new Partition(rows.topic(), partition), buffer.array(), buffer.size(), buffer.count());
            buffer.clear();
        } catch (RefusedException refused) {
            throw located(refused);
        } finally {
            metrics.waited(System.nanoTime() - begunAtNs);
        }
    }

    private RefusedException located(RefusedException refused) {
        return new RefusedException(task.where() + refused.getMessage() + "; the largest row of this task has " + largestBytes
                + " bytes in the columns key, value and headers");
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
        sendAll();
        if (producer == null) {
            return new TaskReport(null, "", Map.of()).message();
        }
        long begunAtNs = System.nanoTime();
        try {
            producer.flush();
        } catch (RefusedException refused) {
            throw located(refused);
        }
        metrics.waited(System.nanoTime() - begunAtNs);
        Map<String, Long> rows = new TreeMap<>();
        producer.appended().forEach(each -> rows.merge(each.at().topic(), each.records(), Long::sum));
        Ending ending = new Ending(producer.producerId(), producer.epoch());
        return new TaskReport(ending, task.transactionalId(), rows).message();
    }

    /** The error that made the task fail is told; what is left open the driver ends. */
    @Override
    public void abort() {
        if (producer == null) {
            return;
        }
        try {
            producer.close();
            Txn end = new Txn().endTxn(producer.producerId(), producer.epoch(), false);
            client.keysForEnds().commit(end, space -> false);
        } catch (IOException error) {
            LOG.warn("the transaction {} is left to the driver: {}", task.transactionalId(), error.getMessage());
        }
    }

    @Override
    public void close() throws IOException {
        if (producer != null) {
            producer.close();
        }
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return metrics.values(producer);
    }
}
