package io.raftlake.spark.connector.read;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Executor: one partition in one batch of real-time mode, for as long as Spark asks. The leader holds a fetch until it has a record,
 * and rows are handed on as they come. Rows of the last fetch that nobody asked for are the next batch's.
 */
final class RealTimeReader implements SupportsRealTimeRead<InternalRow> {
    private final PlannedRange task;
    private final LogRangeReader log;
    private final ReadMetrics metrics = new ReadMetrics();
    private ColumnarBatch rows;
    private int count;

    /** The row that was handed on last; -1: none of these. */
    private int row = -1;

    RealTimeReader(PlannedRange task, StructType columns) {
        this.task = task;
        this.log = new LogRangeReader(task, task.range().start(), columns, Long.MAX_VALUE, metrics);
    }

    @Override
    public boolean next() {
        throw new UnsupportedOperationException("a reader of real-time mode is asked with a time-out");
    }

    /** {@code startMs}: when {@code timeoutMs} began, which is now but for the call. */
    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
        if (row + 1 >= count && !nextRows(timeoutMs)) {
            return RecordStatus.newStatusWithoutArrivalTime(false);
        }
        row++;
        metrics.rows(1);
        return RecordStatus.newStatusWithArrivalTimeMs(log.timeMs(row));
    }

    private boolean nextRows(long timeoutMs) throws IOException {
        row = -1;
        count = 0;
        if (!log.next(TimeUnit.MILLISECONDS.toNanos(timeoutMs))) {
            return false;
        }
        rows = log.batch();
        count = rows.numRows();
        return true;
    }

    @Override
    public InternalRow get() {
        return rows.getRow(row);
    }

    /** The offset behind the last row that was handed on, and behind what holds no rows where it was the last one. */
    @Override
    public PartitionOffset getOffset() {
        if (row + 1 < count) {
            return new RealTimeOffset(task.range().at(), row < 0 ? log.offset(0) : log.offset(row) + 1);
        }
        return new RealTimeOffset(task.range().at(), log.position());
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return metrics.values();
    }

    @Override
    public void close() {
        log.close();
    }
}
