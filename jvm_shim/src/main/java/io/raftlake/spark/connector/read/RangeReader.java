package io.raftlake.spark.connector.read;

import java.io.IOException;
import org.apache.spark.TaskKilledException;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor: one task, from the topic's table or from the log. What this machine cannot read of a table the nodes serve, from
 * the offset on that was not handed out yet.
 */
final class RangeReader implements PartitionReader<ColumnarBatch> {
    private static final Logger LOG = LoggerFactory.getLogger(RangeReader.class);

    private final PlannedRange task;
    private final StructType columns;
    private final ReadMetrics metrics = new ReadMetrics();
    private long rowsLeft;
    private TableReader table;
    private LogRangeReader log;

    /** It stops after {@code rowsMax} rows or some more. */
    RangeReader(PlannedRange task, StructType columns, long rowsMax) {
        this.task = task;
        this.columns = columns;
        this.rowsLeft = rowsMax;
        if (task.table() == null) {
            readLog(task.range().start());
        } else {
            table = new TableReader(task.table(), task.range(), columns, task.readsCommitted());
        }
    }

    private void readLog(long start) {
        log = new LogRangeReader(task, start, columns, rowsLeft, metrics);
    }

    @Override
    public boolean next() throws IOException {
        if (rowsLeft <= 0 || !hasMore()) {
            return false;
        }
        int rows = get().numRows();
        rowsLeft -= rows;
        metrics.rows(rows);
        return true;
    }

    private boolean hasMore() throws IOException {
        if (log == null) {
            try {
                return table.next();
            } catch (IOException | RuntimeException problem) {
                leaveTable(problem);
            }
        }
        return log.next();
    }

    private void leaveTable(Exception problem) throws IOException {
        if (problem instanceof TaskKilledException || Thread.currentThread().isInterrupted() || !task.table().readsLog()) {
            if (problem instanceof RuntimeException unchecked) {
                throw unchecked;
            }
            throw (IOException) problem;
        }
        LOG.warn("{}: {}; reading from the log", task.range(), problem.getMessage());
        table.close();
        readLog(table.position());
    }

    @Override
    public ColumnarBatch get() {
        return log == null ? table.batch() : log.batch();
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return metrics.values();
    }

    @Override
    public void close() throws IOException {
        if (table != null) {
            table.close();
        }
        if (log != null) {
            log.close();
        }
    }
}
