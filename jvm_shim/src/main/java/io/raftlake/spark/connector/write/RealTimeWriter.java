package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.TransactionalProducer;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * One attempt of a task of real-time mode: each row is sent at once.
 *
 * <p>With a transactional id the rows are those of a transaction, whose commit is the driver's matter. Without one they are visible
 * as soon as a majority has them, and what an attempt has sent stays when it fails.
 */
final class RealTimeWriter implements DataWriter<InternalRow> {
    private static final long END_MS_MAX = 5_000;

    private final SinkOptions options;
    private final SinkClient client;
    private final SinkTask task;
    private final RoutedRow routed;
    private final WriteMetrics metrics = new WriteMetrics();
    private final Map<String, Long> rows = new TreeMap<>();
    private TransactionalProducer producer;
    private LiveSends sends;

    RealTimeWriter(SinkOptions options, SinkColumns columns, SinkClient client, SinkTask task) {
        this.options = options;
        this.client = client;
        this.task = task;
        this.routed = new RoutedRow(options, columns, client, task.partition());
    }

    @Override
    public void write(InternalRow row) throws IOException {
        try {
            routed.read(row);
            if (sends == null) {
                producer = begin();
                sends = new LiveSends(producer);
            }
            sends.add(routed);
        } catch (InvalidRowException wrong) {
            throw new InvalidRowException(task.where() + wrong.getMessage());
        } catch (RefusedException refused) {
            throw located(refused);
        }
        metrics.row();
        rows.merge(routed.rows().topic(), 1L, Long::sum);
    }

    private TransactionalProducer begin() throws IOException {
        return isTransactional()
                ? client.transactions().producer(task.transactionalId(), options.codec(), options.patience())
                : client.transactions().producer(options.codec(), options.patience());
    }

    private boolean isTransactional() {
        return !task.transactionalId().isEmpty();
    }

    private RefusedException located(RefusedException refused) {
        return new RefusedException(task.where() + refused.getMessage() + "; " + routed.largest());
    }

    /** All rows are acknowledged then. */
    @Override
    public WriterCommitMessage commit() throws IOException {
        if (sends != null) {
            long begunAtNs = System.nanoTime();
            try {
                sends.flush();
            } catch (RefusedException refused) {
                throw located(refused);
            }
            metrics.waited(System.nanoTime() - begunAtNs);
        }
        return report().message();
    }

    private TaskReport report() {
        return producer == null || !isTransactional()
                ? new TaskReport(null, "", rows)
                : new TaskReport(new Ending(producer.producerId(), producer.epoch()), task.transactionalId(), rows);
    }

    /** A row that is sent behind the end of its transaction would begin another one. */
    @Override
    public void abort() {
        if (sends != null && sends.closeAndAwait(END_MS_MAX) && isTransactional()) {
            client.abort(producer, task.transactionalId());
        }
    }

    @Override
    public void close() {
        if (sends != null) {
            sends.close();
        }
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return metrics.values(sends == null ? 0 : sends.sentBytes(), sends == null ? 0 : sends.retries());
    }
}
