package io.raftlake.spark.connector.write;

import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * One attempt of a task of real-time mode: each row is sent at once, without a transaction, and visible as soon as a majority has
 * it. What an attempt has sent stays when it fails.
 */
final class RealTimeWriter implements DataWriter<InternalRow> {
    private final SinkOptions options;
    private final SinkClient client;
    private final SinkTask task;
    private final RoutedRow routed;
    private final WriteMetrics metrics = new WriteMetrics();
    private final Map<String, Long> rows = new TreeMap<>();
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
                sends = new LiveSends(client.transactions().producer(options.codec(), options.patience()));
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
        return new TaskReport(null, "", rows).message();
    }

    @Override
    public void abort() {
        close();
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
