package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionalProducer;
import io.raftlake.spark.log.Transactions;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * One attempt of a task: its rows under a transaction of its own, which begins with the first row that is sent,
 * or with the batch ({@link LikelyPartitions}).
 *
 * <p>Memory is bounded by the bytes that are gathered and those on their way. The rows of a task keep their order within a
 * partition. Whether the transaction is committed is the driver's matter.
 */
final class SinkWriter implements DataWriter<InternalRow> {
    /** Of encoded records before they are compressed. */
    private static final int BATCH_BYTES_MAX = 512 << 10;

    private static final long GATHERED_BYTES_MAX = 16 << 20;

    private final SinkOptions options;
    private final SinkClient client;
    private final SinkTask task;
    private final RoutedRow routed;
    private final WriteMetrics metrics = new WriteMetrics();
    private TransactionalProducer producer;
    private long gatheredBytes;

    SinkWriter(SinkOptions options, SinkColumns columns, SinkClient client, SinkTask task) {
        this.options = options;
        this.client = client;
        this.task = task;
        this.routed = new RoutedRow(options, columns, client, task.partition());
    }

    @Override
    public void write(InternalRow row) throws IOException {
        try {
            routed.read(row);
        } catch (InvalidRowException wrong) {
            throw new InvalidRowException(task.where() + wrong.getMessage());
        }
        RecordBuffer buffer = routed.rows().buffer(routed.partition());
        if (buffer.count() > 0 && buffer.size() + routed.bytes() > BATCH_BYTES_MAX) {
            send(routed.rows(), routed.partition());
        }
        gatheredBytes -= buffer.size();
        routed.addTo(buffer);
        gatheredBytes += buffer.size();
        metrics.row();
        if (gatheredBytes > GATHERED_BYTES_MAX) {
            sendAll();
        }
    }

    private void sendAll() throws IOException {
        for (TopicRows rows : routed.topics()) {
            for (int partition = 0; partition < rows.partitions(); partition++) {
                if (rows.has(partition)) {
                    send(rows, partition);
                }
            }
        }
    }

    private void send(TopicRows rows, int partition) throws IOException {
        long begunAtNs = System.nanoTime();
        try {
            if (producer == null) {
                producer = producer();
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

    private TransactionalProducer producer() throws IOException {
        Transactions transactions = client.transactions();
        return task.producer() == null
                ? transactions.producer(task.transactionalId(), options.codec(), options.patience())
                : transactions.producer(task.transactionalId(), task.producer(), options.codec(), options.patience());
    }

    private RefusedException located(RefusedException refused) {
        return new RefusedException(task.where() + refused.getMessage() + "; " + routed.largest());
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
        List<Partition> partitions = producer.appended().stream().map(TransactionalProducer.Appended::at).toList();
        return new TaskReport(ending, task.transactionalId(), rows, partitions).message();
    }

    @Override
    public void abort() {
        if (producer != null) {
            client.abort(producer, task.transactionalId());
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
        return metrics.values(producer == null ? 0 : producer.sentBytes(), producer == null ? 0 : producer.retries());
    }
}
